"""manage.py ingest: admits files and folders, each file whole or not at all."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand, add_caller_arguments, caller
from access.errors import VerbatimError
from access.principal import Principal
from access.trust import OriginTrust, Sensitivity
from artifacts import store as artifacts
from artifacts.files import files_below, open_regular
from knowledge.api.serializers import IngestReportSerializer
from knowledge.core.profiles import PROFILES
from knowledge.core.types import (
    DEFAULT_BATCH_SIZE,
    ConnectorIdentity,
    IngestRequest,
    IngestResult,
    Visibility,
)
from knowledge.ingest.attempt import Attempt
from knowledge.management.progress import DocumentsProgress
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = "Admits files, and all files in folders, into a tenant's corpus."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths",
            nargs="+",
            type=Path,
            metavar="PATH",
            help="a file, or a folder with all below it",
        )
        add_caller_arguments(parser)
        parser.add_argument(
            "--visibility",
            required=True,
            choices=[word.value for word in Visibility],
            help="who may find them; with 'project', --project says which",
        )
        parser.add_argument("--title", help="for a single file; else the file's name")
        parser.add_argument(
            "--media-type", default="", help="what the files are; else their names and bytes say it"
        )
        parser.add_argument(
            "--sensitivity",
            default=Sensitivity.INTERNAL.value,
            choices=[level.value for level in Sensitivity],
            help="how sensitive they are: a key finds what is not above its ceiling",
        )
        parser.add_argument(
            "--resume", action="store_true", help="go on with what an earlier run left unfinished"
        )
        parser.add_argument(
            "--batch-size",
            type=int,
            default=DEFAULT_BATCH_SIZE,
            metavar="CHUNKS",
            help="committed at a time",
        )
        parser.add_argument("--doc-date", type=date.fromisoformat, help="YYYY-MM-DD")
        parser.add_argument(
            "--profile",
            default="default",
            choices=list(PROFILES),
            help="how the text is cut into chunks",
        )

    def run(self, options: dict[str, Any]) -> None:
        missing = [path for path in options["paths"] if not path.is_symlink() and not path.exists()]
        if missing:
            raise CommandError(f"There is no file or folder {missing[0]}.", returncode=1)
        files = [file for path in options["paths"] for file in files_below(path)]
        if options["title"] and len(files) != 1:
            raise CommandError("--title names one document, so give one file.", returncode=1)
        principal = caller(options)
        outcomes = Counter(dict.fromkeys(("ingested", "unchanged", "refused"), 0))
        progress = DocumentsProgress(quiet=self.as_json)
        attempt = Attempt(on_progress=progress.on_chunks)
        for file in progress.track(files, "Files"):
            told = self._admit(file, principal, options, attempt)
            outcomes[told["outcome"]] += 1
            self.emit(told, _line(told))
        if not self.as_json:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            self.stdout.write(f"{len(files)} files: {counts}.")
        if outcomes["refused"] or outcomes["unfinished"]:
            raise SystemExit(1)

    def _admit(
        self, file: Path, principal: Principal, options: dict[str, Any], attempt: Attempt
    ) -> dict[str, Any]:
        try:
            with open_regular(file) as content:
                artifact = artifacts.put(
                    principal, content, filename=file.name, media_type=options["media_type"]
                )
            try:
                result = store().ingest(
                    IngestRequest(
                        artifact_id=artifact.pk,
                        title=options["title"] or _title(file),
                        visibility=Visibility(options["visibility"]),
                        project_scope=options["project"],
                        sensitivity=Sensitivity(options["sensitivity"]),
                        doc_date=options["doc_date"],
                        # The path is the document's identity: an edited file is a new version.
                        source=ConnectorIdentity(type="file", id=str(file.resolve())),
                        origin_trust=OriginTrust.USER,
                        profile=options["profile"],
                        resume=options["resume"],
                        batch_size=options["batch_size"],
                    ),
                    principal,
                    attempt,
                )
            finally:
                # The upload was only the way in; the document keeps a source of its own.
                artifacts.expire_now(artifact)
        except VerbatimError as refused:
            return {
                "path": str(file),
                "outcome": "refused",
                "code": refused.code,
                "detail": refused.detail,
                **({"findings": found} if (found := refused.members.get("findings")) else {}),
            }
        return {
            "path": str(file),
            "outcome": _outcome(result),
            "document_id": str(result.document_id),
            "version": result.version,
            "report": IngestReportSerializer(result.report).data,
        }


def _outcome(result: IngestResult) -> str:
    if not result.report.complete:
        return "unfinished"
    return "unchanged" if result.already_ingested else "ingested"


def _title(file: Path) -> str:
    words = file.stem.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:] if words else file.name


def _line(told: dict[str, Any]) -> str:
    if told["outcome"] == "refused":
        return f"refused    {told['path']}: {told['code']}: {told['detail']}"
    chunks = told["report"]["chunks"]
    if told["outcome"] == "unfinished":
        pending = told["report"]["pending"]
        return f"unfinished {told['path']}: {pending} of {chunks} chunks to go; use --resume"
    held = "".join(
        f", {count} {verdict}"
        for verdict in ("quarantined", "rejected")
        if (count := told["report"][verdict])
    )
    return f"{told['outcome']:10} {told['path']}: version {told['version']}, {chunks} chunks{held}"
