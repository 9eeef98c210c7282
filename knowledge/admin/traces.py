"""Traces: what a search was asked and which passages it showed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import truncatechars
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin_base import OperatorAdmin
from access.operator_session import operator_principal
from knowledge.models import RecallTrace
from knowledge.wiring import store

_SHOWN = 80


@admin.register(RecallTrace)
class RecallTraceAdmin(OperatorAdmin):
    list_display = ("created_at", "query", "kind", "principal_id", "surface", "shown", "took")
    list_filter = ("created_at", "kind", "live")
    search_fields = ("principal_id",)
    search_help_text = "A principal."
    ordering = ("-created_at", "id")
    fields = (
        "query_whole",
        "id",
        "tenant_id",
        "principal_id",
        "surface",
        "kind",
        "current_scope",
        "sensitivity_ceiling",
        "as_of",
        "policy",
        "analyzer_version",
        "notes",
        "block_sha256",
        "block_tokens",
        "took",
        "created_at",
        "thinned_at",
    )
    change_form_template = "admin/knowledge/recalltrace/change_form.html"

    @admin.display(description="query")
    def query(self, trace: RecallTrace) -> SafeString:
        if trace.query_text is None:
            return format_html('<span class="quiet">{}</span>', "(forgotten)")
        return format_html("<bdi>{}</bdi>", truncatechars(trace.query_text, _SHOWN) or "(empty)")

    @admin.display(description="query")
    def query_whole(self, trace: RecallTrace) -> SafeString:
        if trace.query_text is None:
            return format_html('<span class="quiet">{}</span>', "(forgotten)")
        return format_html('<pre class="data">{}</pre>', trace.query_text)

    @admin.display(description="took", ordering="duration_ms")
    def took(self, trace: RecallTrace) -> str:
        return f"{trace.duration_ms:,.0f} ms"

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        trace = self.found(request, object_id)
        viewer = operator_principal(request, trace.tenant_id)
        shown = {"view": store().view_trace(trace.pk, viewer)}
        return super().change_view(request, object_id, form_url, shown | (extra_context or {}))
