"""manage.py verify_deletion: searches every table and the blob store for a deleted document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand
from access.principal import Principal
from artifacts.files import open_regular
from knowledge.lifecycle.verify_deletion import Place, Verification
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Searches every table of the database and the blob store for what a deleted document"
        " owned: its id, its chunks' ids, its sources and their bytes, and with --text its words."
        " Reads only. Exit status 1 unless nothing is left but what stays by design."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("document_id", type=UUID)
        parser.add_argument("--tenant", required=True, help="the tenant that deleted it")
        parser.add_argument(
            "--text",
            type=Path,
            metavar="FILE",
            help="its original, in UTF-8: every distinctive line of it is looked for too",
        )

    def run(self, options: dict[str, Any]) -> None:
        operator = Principal.for_operator(options["tenant"], "command")
        found = store().verify_deletion(
            options["document_id"],
            operator,
            _lines(options["text"]) if options["text"] else None,
        )
        self.emit({**asdict(found), "clean": found.clean}, told(found))
        if not found.clean:
            raise SystemExit(1)


def told(found: Verification) -> str:
    """A verification for people: what is left first."""
    groups = (
        ("Left, and must not be", found.left),
        ("Goes by itself, soon", found.waiting),
        ("Stays by design", found.kept),
    )
    verdict = "Nothing is left of it" if found.clean else "Something is left of it"
    again = " It has been admitted again since." if found.admitted_again else ""
    lines = [f"{verdict}: {found.tables} tables and the blob store were searched.{again}"]
    for heading, places in groups:
        if places:
            lines += [f"{heading}:", *(f"  {_told(place)}" for place in places)]
    return "\n".join(lines)


def _told(place: Place) -> str:
    where = f"{place.place}.{place.column}" if place.column else place.place
    return f"{where}: {place.what} in {place.rows:,}{f' ({place.why})' if place.why else ''}"


def _lines(path: Path) -> Iterator[str]:
    with open_regular(path) as stream:
        for line in stream:
            yield line.decode("utf-8", "replace")
