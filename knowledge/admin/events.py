"""The event log: who changed the corpus, how and when."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import json
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from access.admin_base import SearchedByKey, as_uuid
from access.admin_filters import ChoiceFilter, DayFilter, SurfaceFilter, TenantFilter, WordFilter
from access.audit import ACCESS_EVENTS
from access.operator_session import is_superuser, session_maker
from access.streaming import streamed
from knowledge.admin.event_export import as_csv, as_jsonl
from knowledge.models import KnowledgeEvent

EVENT_NAMES = sorted(
    {
        *ACCESS_EVENTS,
        *(
            value
            for name, value in vars(KnowledgeEvent).items()
            if name.isupper() and isinstance(value, str)
        ),
    }
)
_LIST = "admin:knowledge_knowledgeevent_changelist"


class NameFilter(ChoiceFilter):
    """The names that the code knows: asking the table for them would read all of it."""

    title = "event"
    names = ("name",)
    conditions: ClassVar = {name: (name, Q(name=name)) for name in EVENT_NAMES}


class ActorFilter(WordFilter):
    title = "actor"
    names = ("actor",)
    field = "actor"


class DocumentFilter(WordFilter):
    title = "document's id"
    names = ("document",)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value:
            return queryset
        known = as_uuid(self.value)
        return queryset.none() if known is None else queryset.filter(document_id=known)


class DayOfEventFilter(DayFilter):
    title = "day"
    names = ("since", "until")
    field = "at"


@admin.register(KnowledgeEvent)
class KnowledgeEventAdmin(SearchedByKey):
    list_display = ("at", "name", "document_id", "version", "actor", "surface")
    list_filter = (NameFilter, ActorFilter, SurfaceFilter, DocumentFilter, DayOfEventFilter)
    change_list_template = "admin/knowledge/knowledgeevent/change_list.html"
    search_fields = ("document_id",)
    searched_ids = ("document_id",)
    searched_names = ("actor",)
    search_help_text = "A document's id, or an actor."
    ordering = ("-at", "-id")
    fields = ("at", "name", "tenant_id", "document_id", "version", "actor", "surface", "details")

    def get_list_filter(self, request: HttpRequest) -> Any:
        return [*([TenantFilter] if is_superuser(request) else []), *self.list_filter]

    @admin.display(description="data")
    def details(self, event: KnowledgeEvent) -> SafeString:
        return format_html(
            '<pre class="data">{}</pre>', json.dumps(event.data, indent=2, ensure_ascii=False)
        )

    # --- the log as a file

    def get_urls(self) -> list[URLPattern]:
        name = "knowledge_knowledgeevent_export"
        return [
            path(f"export.{kind}", self._safely(view), name=f"{name}_{kind}")
            for kind, view in (("csv", self.csv_view), ("jsonl", self.jsonl_view))
        ] + super().get_urls()

    def _safely(self, view: Any) -> Any:
        return self.admin_site.admin_view(require_safe(view))

    def csv_view(self, request: HttpRequest) -> HttpResponseBase:
        """All that the list's filters let through, page or no page."""
        return self._export(request, as_csv, "csv", "text/csv; charset=utf-8")

    def jsonl_view(self, request: HttpRequest) -> HttpResponseBase:
        return self._export(request, as_jsonl, "jsonl", "application/jsonl; charset=utf-8")

    def _export(
        self, request: HttpRequest, written: Any, suffix: str, content_type: str
    ) -> HttpResponseBase:
        try:
            chosen = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            # The list says what is wrong with the filters.
            return HttpResponseRedirect(f"{reverse(_LIST)}?{request.GET.urlencode()}")
        return streamed(
            request,
            written(chosen, session_maker(request)),
            filename=f"events.{suffix}",
            content_type=content_type,
        )
