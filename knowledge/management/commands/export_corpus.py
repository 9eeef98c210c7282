"""manage.py export_corpus: a corpus as files, to keep or to take along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand
from knowledge.management.progress import StagesProgress
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Writes the corpus of a tenant, or of all, to a folder or a tar: originals, documents with"
        " all versions and passages, what was deleted, events. Run again after an interruption, it"
        " goes on."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=Path, metavar="DEST")
        parser.add_argument("--tenant", help="this tenant alone; all of them when not given")
        parser.add_argument(
            "--traces", action="store_true", help="searches and the answers they led to as well"
        )
        parser.add_argument("--tar", action="store_true", help="DEST is to be one tar")

    def run(self, options: dict[str, Any]) -> None:
        with StagesProgress(quiet=self.as_json) as progress:
            done = store().export_corpus(
                options["destination"],
                actor="command",
                tenant_id=options["tenant"],
                traces=options["traces"],
                tar=options["tar"],
                on_progress=progress.on_progress,
            )
        self.emit(
            {
                "path": str(options["destination"]),
                "tenants": list(done.tenants),
                "snapshot_at": done.snapshot_at,
                "rows": dict(done.rows),
                "originals": done.originals,
                "originals_kept": done.kept,
                "original_bytes": done.original_bytes,
            },
            f"{done.rows['documents']} documents of {len(done.tenants)} tenants and"
            f" {done.originals} originals ({done.original_bytes:,} bytes) are in"
            f" {options['destination']}, as of {done.snapshot_at}.",
        )
