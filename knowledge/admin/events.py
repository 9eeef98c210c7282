"""The event log: who changed the corpus, how and when."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin_base import SearchedByKey
from knowledge.models import KnowledgeEvent

EVENT_NAMES = sorted(
    value
    for name, value in vars(KnowledgeEvent).items()
    if name.isupper() and isinstance(value, str)
)


class NameFilter(admin.SimpleListFilter):
    """The names that the code knows: asking the table for them would read all of it."""

    title = "event"
    parameter_name = "name"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in EVENT_NAMES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(name=self.value()) if self.value() else queryset


@admin.register(KnowledgeEvent)
class KnowledgeEventAdmin(SearchedByKey):
    list_display = ("at", "name", "document_id", "version", "actor", "surface")
    list_filter = (NameFilter, "at")
    search_fields = ("document_id",)
    searched_ids = ("document_id",)
    searched_names = ("actor",)
    search_help_text = "A document's id, or an actor."
    ordering = ("-at", "-id")
    fields = ("at", "name", "tenant_id", "document_id", "version", "actor", "surface", "details")

    @admin.display(description="data")
    def details(self, event: KnowledgeEvent) -> SafeString:
        return format_html(
            '<pre class="data">{}</pre>', json.dumps(event.data, indent=2, ensure_ascii=False)
        )
