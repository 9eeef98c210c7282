#!/bin/sh
# A backup of the whole installation as docs/backup.md describes it, into a folder of its own below
# BACKUP_ROOT. Needs PGHOST, PGUSER and PGDATABASE of a role that row-level security hides nothing
# from (with PGPASSFILE), and ARTIFACT_ROOT unless the originals are in a bucket. Folders older than
# BACKUP_DAYS go: what has been deleted lives on in a backup for as long as that.
set -eu

: "${BACKUP_ROOT:=/var/backups/verbatim}"
: "${BACKUP_DAYS:=30}"
umask 077
backup=$BACKUP_ROOT/$(date -u +%Y-%m-%dT%H%M%SZ)

# Copies once before the dump and once after it: the originals of all that the dump names are there.
originals() {
    if [ -n "${ARTIFACT_ROOT:-}" ]; then
        mkdir -p "$backup.part/blobs"
        cp -au "$ARTIFACT_ROOT/." "$backup.part/blobs/"
    fi
}

rm -rf "$BACKUP_ROOT"/*.part
mkdir -p "$backup.part"
originals
pg_dump --format=custom --file="$backup.part/verbatim.dump"
originals
# Under its name it is whole.
mv "$backup.part" "$backup"
find "$BACKUP_ROOT" -mindepth 1 -maxdepth 1 -type d -mtime "+$BACKUP_DAYS" -exec rm -rf {} +
echo "$backup"
