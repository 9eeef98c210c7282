"""Deleting documents in the admin: what would go, why, and what went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Sum
from django.urls import reverse

from knowledge.models import ChunkSet, Deletion, DocumentVersion, TracedPassage


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """What goes when these documents go, by store."""

    versions: int
    chunks: int
    index_rows: int
    traced_passages: int
    sources: int
    source_bytes: int

    @classmethod
    def of(cls, documents: Sequence[UUID]) -> Cascade:
        """From the counts that chunk sets carry: thousands of documents have millions of chunks."""
        versions = DocumentVersion.objects.filter(document__in=documents).aggregate(
            all=Count("pk"), bytes=Sum("source__byte_size", default=0)
        )
        sets = ChunkSet.objects.filter(version__document__in=documents).aggregate(
            cut=Sum("chunk_count", default=0),
            rejected=Sum("rejected_count", default=0),
            quarantined=Sum("quarantined_count", default=0),
        )
        chunks = sets["cut"] - sets["rejected"]
        return cls(
            versions=versions["all"],
            chunks=chunks,
            index_rows=chunks - sets["quarantined"],
            traced_passages=TracedPassage.objects.filter(
                document_id__in=documents, deleted_at__isnull=True
            ).count(),
            # Every version has a source of its own.
            sources=versions["all"],
            source_bytes=versions["bytes"],
        )


def receipt_address(receipt: Deletion) -> str:
    """The page of a receipt: where the deletion of one document ends."""
    return reverse("admin:knowledge_deletion_change", args=[receipt.pk])


def receipt_text(receipts: Sequence[Deletion]) -> str:
    """What went, in a sentence without a title: nothing of a deleted document is repeated."""

    def total(count: Any) -> int:
        return sum(count(receipt) for receipt in receipts)

    which = f" {receipts[0].document_id}" if len(receipts) == 1 else ""
    return (
        f"Deleted {_counted(len(receipts), 'document')}{which}:"
        f" {_counted(total(lambda r: r.versions), 'version')},"
        f" {_counted(total(lambda r: r.chunks), 'chunk')},"
        f" {_counted(total(lambda r: r.index_rows), 'index row')};"
        f" {_counted(total(lambda r: r.traced_passages), 'traced passage')} scrubbed;"
        f" {_counted(total(lambda r: len(r.sources)), 'source file')}"
        " handed to the sweeper, whose next pass removes the bytes."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
