"""manage.py sweep: one pass of the sweeper, now."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand
from artifacts.sweeper import sweep


class Command(VerbatimCommand):
    help = "Removes the bytes of expired artifacts, and blobs that no artifact names."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count, and remove nothing")

    def run(self, options: dict[str, Any]) -> None:
        dry_run = options["dry_run"]
        report = sweep(dry_run=dry_run, by="command")
        verb, failed = ("would be", "could not go last time") if dry_run else ("were", "failed")
        self.emit(
            asdict(report),
            f"{report.swept} artifacts and {report.orphans} orphan blobs {verb} removed;"
            f" {report.failed} {failed}.",
        )
        if report.failed and not dry_run:
            raise SystemExit(1)
