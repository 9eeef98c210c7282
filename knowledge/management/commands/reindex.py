"""manage.py reindex: indexes anew what an older analyser indexed, while searches go on."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from rich.progress import track

from access.commands import VerbatimCommand
from knowledge.adapters.stemmer import PostgresStemmer
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.lifecycle.reindex import outdated, reindex


class Command(VerbatimCommand):
    help = "Indexes anew what another version of the analyser indexed. Safe to stop and repeat."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--all", action="store_true", help="what is up to date as well")

    def run(self, options: dict[str, Any]) -> None:
        todo = outdated(everything=options["all"])
        steps = reindex(todo, PostgresStemmer())
        done = sum(
            1
            for _ in track(
                steps, total=len(todo), description="Indexing", disable=self.as_json, transient=True
            )
        )
        self.emit(
            {"analyzer_version": ANALYZER_VERSION, "chunk_sets": done},
            f"{done} chunk sets are indexed by {ANALYZER_VERSION}.",
        )
