"""manage.py delete_document: removes a document for real, and prints the receipt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand, add_caller_arguments, caller
from access.trust import Scope
from knowledge.api.serializers import DeletionReceiptSerializer
from knowledge.models import Deletion
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Deletes a document that the principal may see: every version, index row, vector and"
        " statistic of it, and what traces say of it, in one transaction. The sweeper removes the"
        " bytes. A legal hold refuses, and the refusal is recorded."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("document_id", type=UUID)
        add_caller_arguments(parser)
        parser.add_argument(
            "--reason", required=True, help="why; kept for good, so do not quote the document"
        )

    def run(self, options: dict[str, Any]) -> None:
        by = caller(options)
        # Whoever has the machine may delete what the principal can see, whoever admitted it.
        receipt = store().delete(
            options["document_id"],
            replace(by, scopes=by.scopes | {Scope.DELETE}),
            current_scope=options["project"],
            reason=options["reason"],
        )
        self.emit(dict(DeletionReceiptSerializer(receipt).data), receipt_lines(receipt))


def receipt_lines(receipt: Deletion) -> str:
    """A receipt for people, store by store."""
    counted = {
        "versions": receipt.versions,
        "chunk sets": receipt.chunk_sets,
        "chunks": receipt.chunks,
        "index rows": receipt.index_rows,
        "embeddings": receipt.embeddings,
        "traced passages scrubbed": receipt.traced_passages,
        "proposals scrubbed": receipt.proposals,
        "jobs": receipt.jobs,
        "source descriptors": receipt.descriptors,
        "source files": len(receipt.sources),
    }
    return "\n".join(
        (
            f"Deleted {receipt.document_id}; receipt {receipt.deletion_id}.",
            *(f"  {count:>8,} {store}" for store, count in counted.items()),
            f"  bytes: {receipt.bytes_state}",
        )
    )
