"""Receipts of deletions: what went with a document, and whether anything of it is left."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from access.admin_base import ReadOnlyPage, SearchedByKey
from access.operator_session import operator_principal
from knowledge.models import Deletion, Record
from knowledge.wiring import store

_RECORDS_SHOWN: Final = 50


@admin.register(Deletion)
class DeletionAdmin(SearchedByKey, ReadOnlyPage):
    """Read only: a receipt is written by the deletion and never changed."""

    list_display = (
        *("deleted_at", "document_id", "by", "reason"),
        *("versions", "chunks", "bytes_state"),
    )
    list_display_links = ("deleted_at", "document_id")
    list_filter = ("deleted_at", "surface")
    search_fields = ("document_id",)
    searched_ids = ("document_id", "deletion_id")
    searched_names = ("actor",)
    search_help_text = "A document's or a receipt's id, or who deleted it."
    ordering = ("-deleted_at", "deletion_id")
    page = "admin/knowledge/deletion/page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return Deletion.objects.with_bytes().select_related("space")

    @admin.display(description="deleted by", ordering="actor")
    def by(self, deletion: Deletion) -> SafeString:
        return format_html(
            '<bdi>{}</bdi><span class="quiet about-it">{}</span>', deletion.actor, deletion.surface
        )

    @admin.display(description="bytes")
    def bytes_state(self, deletion: Deletion) -> SafeString:
        return format_html('<span class="badge">{}</span>', deletion.bytes_state.replace("_", " "))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_POST(self.verify_view))
        return [
            path("<path:object_id>/verify/", view, name="knowledge_deletion_verify"),
            *super().get_urls(),
        ]

    def verify_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Searches every table and the blob store, now, and shows what was found."""
        deletion = self.found(request, object_id)
        operator = operator_principal(request, deletion.tenant_id)
        found = store().verify_deletion(deletion.document_id, operator)
        return self.shown(request, deletion, verification=found)

    def context(self, request: HttpRequest, row: Deletion) -> dict[str, Any]:
        return {
            "title": "Receipt of a deletion",
            "deletion": row,
            "stores": _stores(row),
            "records": list(
                Record.objects.filter(sources__deletion=row)
                .order_by("-changed_at", "pk")
                .distinct()[: _RECORDS_SHOWN + 1]
            ),
            "records_shown": _RECORDS_SHOWN,
            "verification": None,
            "verify_url": reverse("admin:knowledge_deletion_verify", args=[row.pk]),
            "events_url": reverse("admin:knowledge_knowledgeevent_changelist"),
        }


def _stores(deletion: Deletion) -> list[tuple[str, int, int | None]]:
    """Each store with what went, and what a query found there afterwards."""
    left = deletion.left
    return [
        ("Versions", deletion.versions, left.get("versions")),
        ("Chunk sets", deletion.chunk_sets, left.get("chunk_sets")),
        ("Chunks", deletion.chunks, left.get("chunks")),
        ("Index rows", deletion.index_rows, left.get("index_rows")),
        ("Embeddings", deletion.embeddings, left.get("embeddings")),
        ("Traced passages, scrubbed", deletion.traced_passages, left.get("traced_passages")),
        ("Proposals, scrubbed", deletion.proposals, left.get("proposals")),
        ("Background jobs", deletion.jobs, left.get("jobs")),
        ("Source descriptors", deletion.descriptors, left.get("descriptors")),
        ("Source files, handed to the sweeper", len(deletion.sources), left.get("sources")),
    ]
