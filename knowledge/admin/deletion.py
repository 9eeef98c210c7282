"""Deleting documents in the admin: what would go, why, and what went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Count, Q, Sum

from knowledge.models import Chunk, ChunkIndex, Deletion, Document, DocumentVersion, TracedPassage

REASON_LIMIT = 500


class DeletionForm(forms.Form):
    reason = forms.CharField(
        max_length=REASON_LIMIT,
        widget=forms.TextInput(attrs={"size": 60, "autofocus": True, "autocomplete": "off"}),
        help_text="Kept in the event log for good, so do not quote the document.",
    )


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
    def of(cls, documents: Sequence[Document]) -> Cascade:
        ids: list[UUID] = [document.pk for document in documents]
        of_chunk = Q(chunk_set__version__document__in=ids)
        versions = DocumentVersion.objects.filter(document__in=ids).aggregate(
            all=Count("pk"), bytes=Sum("source__byte_size", default=0)
        )
        return cls(
            versions=versions["all"],
            chunks=Chunk.objects.filter(of_chunk).count(),
            index_rows=ChunkIndex.objects.filter(
                chunk__chunk_set__version__document__in=ids
            ).count(),
            traced_passages=TracedPassage.objects.filter(
                document_id__in=ids, deleted_at__isnull=True
            ).count(),
            # Every version has a source of its own.
            sources=versions["all"],
            source_bytes=versions["bytes"],
        )


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
