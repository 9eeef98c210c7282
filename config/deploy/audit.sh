#!/bin/sh
# Asks the public database of vulnerabilities (OSV) about every distribution that a lock pins. Exits
# with 1 when one has a known hole. `--list` prints what would be asked about, and asks nobody.
#
#   config/deploy/audit.sh LOCK [OPTION of `uv audit`]...
set -eu

lock=$1
shift
asked=$(mktemp -d)
trap 'rm -rf "$asked"' EXIT

# The pins alone, as a script of which uv knows what it needs.
{
    echo '# /// script'
    echo '# requires-python = ">=3.11"'
    echo '# dependencies = ['
    sed -nE 's/^([A-Za-z0-9._-]+==[^ ;]+)( ; ([^\\]*[^\\ ]))? \\$/#   "\1 ; \3",/p' "$lock" |
        sed 's/ ; ",$/",/'
    echo '# ]'
    echo '# ///'
} >"$asked/pins.py"

if [ "${1:-}" = --list ]; then
    sed -nE 's/^#   "([^ "]+).*/\1/p' "$asked/pins.py"
    exit
fi
${UV:-uv} audit --preview-features audit-command --script "$asked/pins.py" "$@"
