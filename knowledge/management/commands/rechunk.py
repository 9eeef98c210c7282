"""manage.py rechunk: divides documents anew from their stored sources, while searches go on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from access.errors import NotFound, VerbatimError
from access.principal import Principal
from knowledge.api.serializers import IngestReportSerializer
from knowledge.core.profiles import PROFILES
from knowledge.core.types import (
    DEFAULT_BATCH_SIZE,
    RechunkOutcome,
    RechunkRequest,
    RechunkResult,
)
from knowledge.management.progress import DocumentsProgress
from knowledge.wiring import store

_REFUSED = "refused"
_GONE = "gone"


class Command(VerbatimCommand):
    help = (
        "Divides documents anew from their stored sources by today's extractors, rules and chunker."
        " Old citations still resolve. Safe to stop and repeat: what is up to date is left alone."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose corpus this is")
        parser.add_argument(
            "--document",
            action="append",
            type=UUID,
            default=[],
            metavar="ID",
            help="this document alone; repeat it for more",
        )
        parser.add_argument(
            "--extractor-version",
            metavar="VERSION",
            help="only what this extractor reads today, such as pdf-1",
        )
        parser.add_argument(
            "--chunker-version",
            metavar="VERSION",
            help="only when this is the chunker of this installation, such as structure-1",
        )
        parser.add_argument(
            "--profile",
            choices=list(PROFILES),
            help="cut by another profile than the one it was ingested with",
        )
        parser.add_argument("--batch-size", type=int, default=DEFAULT_BATCH_SIZE, metavar="CHUNKS")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")

    def run(self, options: dict[str, Any]) -> None:
        if options["profile"] and not options["document"]:
            raise CommandError("--profile needs --document.", returncode=1)
        operator = replace(Principal.for_operator(options["tenant"], "command"), surface="command")
        asked = RechunkRequest(
            profile=options["profile"],
            dry_run=options["dry_run"],
            batch_size=options["batch_size"],
        )
        named = options["document"]
        todo = store().documents_to_rechunk(
            operator,
            documents=named,
            extractor_version=options["extractor_version"],
            chunker_version=options["chunker_version"],
        )
        outcomes = Counter(dict.fromkeys((RechunkOutcome.UNCHANGED.value, _REFUSED), 0))
        progress = DocumentsProgress(quiet=self.as_json)
        for document_id in progress.track(todo, "Documents"):
            try:
                told = _told(store().rechunk(document_id, operator, asked, progress.on_chunks))
            except VerbatimError as error:
                # Deleted between the list and now, unless somebody wanted this very one.
                gone = isinstance(error, NotFound) and not named
                told = _refused(document_id, error, outcome=_GONE if gone else _REFUSED)
            outcomes[told["outcome"]] += 1
            if self.as_json or named or told["outcome"] != RechunkOutcome.UNCHANGED:
                self.emit(told, _line(told))
        if not self.as_json:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            self.stdout.write(f"{len(todo)} documents: {counts}.")
        if outcomes[_REFUSED] or outcomes[RechunkOutcome.UNFINISHED]:
            raise SystemExit(1)


def _told(result: RechunkResult) -> dict[str, Any]:
    return {
        "document_id": str(result.document_id),
        "version": result.version,
        "outcome": str(result.outcome),
        "former_chunker_version": result.former_chunker_version,
        "chunker_version": result.chunker_version,
        "report": IngestReportSerializer(result.report).data,
    }


def _refused(document_id: UUID, error: VerbatimError, *, outcome: str) -> dict[str, Any]:
    return {
        "document_id": str(document_id),
        "outcome": outcome,
        "code": error.code,
        "detail": error.detail,
        **({"findings": found} if (found := error.members.get("findings")) else {}),
    }


def _line(told: dict[str, Any]) -> str:
    start = f"{told['outcome']:10} {told['document_id']}"
    if "code" in told:
        return f"{start}: {told['code']}: {told['detail']}"
    report = told["report"]
    if told["outcome"] == RechunkOutcome.UNFINISHED:
        left = f"{report['pending']} of {report['chunks']} chunks to go; run this again"
        return f"{start}: {left}"
    return f"{start}: {told['chunker_version']}, {report['chunks']} chunks"
