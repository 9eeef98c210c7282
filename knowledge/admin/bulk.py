"""Bulk actions: what operators do to many documents, how far it is, and stopping it."""

from __future__ import annotations

import math
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from access.admin_base import ReadOnlyPage, SearchedByKey
from access.operator_session import may, operator_principal
from knowledge.admin.change_forms import DOINGS
from knowledge.admin.document_page import page_asked
from knowledge.core.types import BulkAction, BulkOutcome
from knowledge.lifecycle.bulk import needed_for
from knowledge.models import BulkItem, BulkTask, Document
from knowledge.wiring import store

_ITEMS_ON_PAGE: Final = 100
_LABELS: Final = {
    "reason": "Reason",
    "visibility": "Visible to",
    "project_scope": "Project",
    "sensitivity": "Sensitivity",
}
_WENT_WRONG: Final = (BulkOutcome.REFUSED, BulkOutcome.FAILED)


def task_address(task: BulkTask) -> str:
    return reverse("admin:knowledge_bulktask_change", args=[task.pk])


@admin.register(BulkTask)
class BulkTaskAdmin(SearchedByKey, ReadOnlyPage):
    list_display = ("what", "state", "progress", "went_wrong", "username", "created_at")
    list_display_links = ("what",)
    list_filter = ("state", "action")
    search_fields = ("task_id",)
    searched_ids = ("task_id",)
    searched_names = ("username",)
    search_help_text = "A task's id, or an operator's name."
    ordering = ("-number",)
    page = "admin/knowledge/bulktask/page.html"

    @admin.display(description="action", ordering="action")
    def what(self, task: BulkTask) -> str:
        return DOINGS[BulkAction(task.action)].title.format(_count(task.total))

    @admin.display(description="documents")
    def progress(self, task: BulkTask) -> str:
        return f"{task.settled:,} of {task.total:,}"

    @admin.display(description="refused, failed")
    def went_wrong(self, task: BulkTask) -> SafeString | str:
        wrong = task.refused + task.failed
        return format_html('<span class="badge flag">{}</span>', wrong) if wrong else "–"

    def get_urls(self) -> list[URLPattern]:
        def view(of: Any) -> Any:
            return self.admin_site.admin_view(of)

        name = "knowledge_bulktask"
        progress = view(require_safe(self.progress_view))
        cancel = view(require_POST(self.cancel_view))
        return [
            path("<path:object_id>/progress/", progress, name=f"{name}_progress"),
            path("<path:object_id>/cancel/", cancel, name=f"{name}_cancel"),
            *super().get_urls(),
        ]

    def progress_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of the page that moves, for the page to fetch anew."""
        task = self.found(request, object_id)
        context = self.context(request, task)
        return TemplateResponse(request, "admin/knowledge/bulktask/progress.html", context)

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        task = self.found(request, object_id)
        if not may(request, needed_for(BulkAction(task.action))):
            raise PermissionDenied
        store().cancel_bulk(task.task_id, operator_principal(request, task.tenant_id))
        self.message_user(request, "Nothing more of it is begun.", messages.SUCCESS)
        return HttpResponseRedirect(task_address(task))

    def context(self, request: HttpRequest, row: BulkTask) -> dict[str, Any]:
        wrong = request.GET.get("show") != "all"
        items = BulkItem.objects.filter(task=row)
        count = row.refused + row.failed if wrong else row.total
        if wrong:
            items = items.filter(outcome__in=_WENT_WRONG)
        pages = max(1, math.ceil(count / _ITEMS_ON_PAGE))
        page = page_asked(request, pages)
        shown = list(
            items.order_by("position")[(page - 1) * _ITEMS_ON_PAGE : page * _ITEMS_ON_PAGE]
        )
        titles = dict(
            Document.objects.filter(pk__in=[item.document_id for item in shown]).values_list(
                "pk", "title"
            )
        )
        return {
            "title": self.what(row),
            "task": row,
            "items": [(item, titles.get(item.document_id)) for item in shown],
            "only_wrong": wrong,
            "change": [(_LABELS.get(name, name), said) for name, said in row.change.items()],
            "query": "" if wrong else "show=all",
            "page": page,
            "pages": pages,
        }


def _count(documents: int) -> str:
    return "1 document" if documents == 1 else f"{documents:,} documents"
