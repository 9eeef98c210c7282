"""manage.py attach_file: keeps a file of the workspace as an artifact."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID, uuid4

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand, add_caller_arguments, caller
from artifacts.workspace import attach_file


class Command(VerbatimCommand):
    help = (
        "Keeps a file below WORKSPACE_ROOT as an artifact: a regular one, by a path without links,"
        " with no second name, that does not change while it is read. The same request id and"
        " arguments again give the same receipt."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file_path", metavar="PATH", help="from the workspace's root on")
        add_caller_arguments(parser)
        parser.add_argument("--sha256", required=True, help="of the file as it was seen")
        parser.add_argument("--request-id", type=UUID, help="to ask again by; a new one otherwise")
        parser.add_argument("--filename", help="else the path's last part")
        parser.add_argument("--attribution", default="")
        parser.add_argument("--media-type", default="")

    def run(self, options: dict[str, Any]) -> None:
        receipt = attach_file(
            caller(options),
            options["request_id"] or uuid4(),
            options["file_path"],
            options["sha256"].lower(),
            filename=options["filename"] or options["file_path"].rpartition("/")[2],
            media_type=options["media_type"],
            attribution=options["attribution"],
        )
        self.emit(
            asdict(receipt),
            f"artifact {receipt.artifact_id}: {receipt.received:,} bytes"
            f" (request {receipt.request_id})",
        )
