"""manage.py import_corpus: takes in what export_corpus wrote, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand
from knowledge.management.progress import StagesProgress
from knowledge.transfer.errors import ImportConflict
from knowledge.transfer.importing import Imported
from knowledge.wiring import store

_SHOWN = 20


class Command(VerbatimCommand):
    help = (
        "Takes in an archive of export_corpus. What is here and the same stays; when anything"
        " conflicts, nothing is changed. Run again after an interruption, it goes on."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", type=Path, metavar="SRC", help="a folder or a tar")
        parser.add_argument("--dry-run", action="store_true", help="look at all of it, write none")

    def run(self, options: dict[str, Any]) -> None:
        try:
            with StagesProgress(quiet=self.as_json) as progress:
                done = store().import_corpus(
                    options["source"],
                    actor="command",
                    dry_run=options["dry_run"],
                    on_progress=progress.on_progress,
                )
        except ImportConflict as conflict:
            if not self.as_json:
                for one in conflict.members["conflicts"][:_SHOWN]:
                    self.stdout.write(f"{one['table']} {one['id']}: {one['why']}")
            raise
        self.emit(
            {
                "tenants": list(done.tenants),
                "outcome": _outcome(done),
                "new": dict(done.new),
                "kept": dict(done.kept),
                "original_bytes": done.original_bytes,
                "without_vector": dict(done.without_vector),
            },
            "\n".join(_told(done)),
        )


def _told(done: Imported) -> Iterator[str]:
    yield (
        f"{_outcome(done)}: {done.new['documents']} documents are new,"
        f" {done.kept['documents']} were here."
    )
    for tenant, missing in done.without_vector.items():
        if missing:
            yield (
                f"{missing:,} passages of {tenant} have no vector yet. The workers make them, or at"
                f" once `manage.py embed --tenant {tenant}`."
            )


def _outcome(done: Imported) -> str:
    if done.dry_run:
        return "checked"
    return "imported" if sum(done.new.values()) else "unchanged"
