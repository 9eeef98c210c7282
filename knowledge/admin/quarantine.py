"""The quarantine desk: what admission set aside, why, and what becomes of it."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from access.admin_base import ReadOnlyPage, SearchedByKey
from access.operator_session import may
from access.principal import Principal
from access.trust import OperatorPermission
from knowledge.admin.visits import note_visit
from knowledge.core.types import ChunkSetState
from knowledge.core.wording import REASON_LIMIT
from knowledge.models import QuarantinedChunk
from knowledge.passage_html import passage_html
from knowledge.wiring import store

_LIST = "admin:knowledge_quarantinedchunk_changelist"


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=REASON_LIMIT,
        widget=forms.TextInput(attrs={"size": 60, "autocomplete": "off"}),
        help_text="Kept in the event log for good, so do not quote the passage.",
    )


class PurgeForm(ReasonForm):
    sure = forms.BooleanField(label="Remove the text for good; this cannot be undone")


@admin.register(QuarantinedChunk)
class QuarantinedChunkAdmin(SearchedByKey, ReadOnlyPage):
    list_display = ("chunk_id", "document", "headings", "detectors", "tokens", "state")
    list_display_links = ("chunk_id",)
    searched_ids = ("chunk_set__version__document",)
    searched_names = ("chunk_id",)
    search_help_text = "A document's id, or a passage's (kc_…)."
    search_fields = ("chunk_id",)
    list_select_related = ("chunk_set__version__document",)
    ordering = ("-id",)
    page = "admin/knowledge/quarantinedchunk/page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # What is still being ingested is nobody's to decide yet.
        return super().get_queryset(request).exclude(chunk_set__state=ChunkSetState.INGESTING)

    @admin.display(description="document")
    def document(self, chunk: QuarantinedChunk) -> SafeString:
        version = chunk.chunk_set.finalized_version
        return format_html("<bdi>{}</bdi> v{}", version.document.title, version.version)

    @admin.display(description="under")
    def headings(self, chunk: QuarantinedChunk) -> str:
        # A heading may be what was found, so its words are on the passage's own page alone.
        depth = len(chunk.heading_path)
        return f"{depth} headings" if depth > 1 else "a heading" if depth else "–"

    @admin.display(description="found")
    def detectors(self, chunk: QuarantinedChunk) -> str:
        return ", ".join(f"{count} × {name}" for name, count in _counted(chunk)) or "–"

    @admin.display(description="version is")
    def state(self, chunk: QuarantinedChunk) -> str:
        superseded = chunk.chunk_set.finalized_version.superseded_at is not None
        return "superseded" if superseded else str(chunk.chunk_set.state)

    # --- one passage

    def visited(self, request: HttpRequest, row: QuarantinedChunk) -> None:
        note_visit(request, row.tenant_id, row.chunk_set.finalized_version.document_id)

    def get_urls(self) -> list[URLPattern]:
        def view(of: Callable[..., HttpResponse]) -> Any:
            return self.admin_site.admin_view(require_POST(of))

        name = "knowledge_quarantinedchunk"
        return [
            path("<path:object_id>/release/", view(self.release_view), name=f"{name}_release"),
            path("<path:object_id>/purge/", view(self.purge_view), name=f"{name}_purge"),
            *super().get_urls(),
        ]

    def release_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        chunk = self._decided_on(request, object_id)
        form = ReasonForm(request.POST, prefix="release")

        def release(operator: Principal, reason: str) -> str:
            store().release_chunk(chunk.chunk_id, operator, reason=reason)
            return f"Released {chunk.chunk_id}: searches find it from now on."

        decided = self._decide(request, chunk, form, release)
        return decided or self.shown(request, chunk, release_form=form)

    def purge_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        chunk = self._decided_on(request, object_id)
        form = PurgeForm(request.POST, prefix="purge")

        def purge(operator: Principal, reason: str) -> str:
            store().purge_chunk(chunk.chunk_id, operator, reason=reason)
            return f"Purged {chunk.chunk_id}: its text is gone."

        decided = self._decide(request, chunk, form, purge)
        return decided or self.shown(request, chunk, purge_form=form)

    def _decided_on(self, request: HttpRequest, object_id: str) -> QuarantinedChunk:
        chunk: QuarantinedChunk = self.found(request, object_id)
        if not may(request, OperatorPermission.RELEASE):
            raise PermissionDenied
        return chunk

    def _decide(
        self,
        request: HttpRequest,
        chunk: QuarantinedChunk,
        form: ReasonForm,
        act: Callable[[Principal, str], str],
    ) -> HttpResponse | None:
        """Back to the desk when it was done or refused; `None` when the form wants more."""
        if not form.is_valid():
            return None
        reason = form.cleaned_data["reason"]
        return self.acted(
            request, chunk.tenant_id, lambda operator: act(operator, reason), then=reverse(_LIST)
        )

    def context(self, request: HttpRequest, row: QuarantinedChunk) -> dict[str, Any]:
        marks = [
            {"family": reason["detector"], "start": reason["start"], "end": reason["end"]}
            for reason in row.verdict_reasons
            if reason.get("part") == "text"
        ]
        version = row.chunk_set.finalized_version
        return {
            "title": "Quarantined passage",
            "chunk": row,
            "version": version,
            "document": version.document,
            "admission_version": row.chunk_set.admission_version,
            "found": _counted(row),
            "passage": passage_html(row.text, marks, says="Found"),
            "release_form": ReasonForm(prefix="release"),
            "purge_form": PurgeForm(prefix="purge"),
        }


def _counted(chunk: QuarantinedChunk) -> list[tuple[str, int]]:
    found = Counter(str(reason.get("detector", "")) for reason in chunk.verdict_reasons)
    return sorted(found.items())
