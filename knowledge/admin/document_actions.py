"""Changing documents in the admin: one by its page, many from the list.

What is done to one is done at once, but for dividing it anew, which takes its time; what is done
to many is a bulk action. Each asks for a reason and says before what it does.
"""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from access.admin_base import OperatorAdmin
from access.errors import VerbatimError
from access.operator_session import may, operator_principal
from access.trust import OperatorPermission
from knowledge.admin.bulk import task_address
from knowledge.admin.change_forms import DOINGS, RETITLE, Doing, ReasonForm, consequences
from knowledge.admin.deletion import Cascade, receipt_address, receipt_text
from knowledge.admin.exporting import exported
from knowledge.admin.visits import note_visit
from knowledge.core.types import BulkAction, DocumentChange, Visibility
from knowledge.lifecycle.bulk import MOST_DOCUMENTS
from knowledge.models import Deletion, Document, VisibilitySpace
from knowledge.tasks import hint_bulk
from knowledge.wiring import store

_TITLES_SHOWN: Final = 10
_SPACES_SHOWN: Final = 10
_LIST = "admin:knowledge_document_changelist"


class DocumentActions(OperatorAdmin):
    actions = (
        "delete_selected",
        "rescope_selected",
        "hold_selected",
        "lift_hold_selected",
        "rechunk_selected",
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, OperatorPermission.DELETE)

    def has_act_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    # --- many

    @admin.action(description="Delete…", permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return self._many(request, queryset, BulkAction.DELETE)

    @admin.action(description="Change who may find them…", permissions=["act"])
    def rescope_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return self._many(request, queryset, BulkAction.RESCOPE)

    @admin.action(description="Put under legal hold…", permissions=["act"])
    def hold_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return self._many(request, queryset, BulkAction.HOLD)

    @admin.action(description="Lift the legal hold…", permissions=["act"])
    def lift_hold_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return self._many(request, queryset, BulkAction.LIFT_HOLD)

    @admin.action(description="Divide anew…", permissions=["act"])
    def rechunk_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return self._many(request, queryset, BulkAction.RECHUNK)

    def _many(
        self, request: HttpRequest, queryset: QuerySet[Any], action: BulkAction
    ) -> HttpResponse | None:
        chosen = list(
            queryset.order_by("document_id").values_list("pk", "tenant_id")[: MOST_DOCUMENTS + 1]
        )
        if not chosen:
            raise Http404
        documents = [document for document, _ in chosen]
        tenants = {tenant for _, tenant in chosen}
        if wrong := _wrong_choice(documents, tenants):
            self.message_user(request, f"{wrong} Nothing was done.", messages.ERROR)
            return None
        doing = DOINGS[action]
        form = doing.form(request.POST if "asked" in request.POST else None)
        if form.is_valid() and _is_last_step(request, form):
            task = store().begin_bulk(
                action,
                documents,
                operator_principal(request, tenants.pop()),
                reason=form.cleaned_data["reason"],
                change=_change(form),
            )
            hint_bulk(task.task_id)
            return HttpResponseRedirect(task_address(task))
        hidden = [
            ("action", request.POST["action"]),
            ("select_across", request.POST.get("select_across", "0")),
            *((ACTION_CHECKBOX_NAME, one) for one in request.POST.getlist(ACTION_CHECKBOX_NAME)),
        ]
        return self._ask(
            request,
            doing,
            form,
            documents=documents,
            hidden=hidden,
            cascade=Cascade.of(documents) if action is BulkAction.DELETE else None,
        )

    # --- one

    def get_urls(self) -> list[URLPattern]:
        name = "knowledge_document"
        urls = []
        for action, view in (
            ("retitle", self.retitle_view),
            ("rescope", self.rescope_view),
            ("hold", self.hold_view),
            ("rechunk", self.rechunk_view),
            ("export", require_POST(self.export_view)),
        ):
            guarded = self.admin_site.admin_view(view)
            urls.append(path(f"<path:object_id>/{action}/", guarded, name=f"{name}_{action}"))
        return [*urls, *super().get_urls()]

    def _changeable(self, request: HttpRequest, object_id: str) -> Document:
        document: Document = self.found(request, object_id)
        if not self.has_act_permission(request):
            raise PermissionDenied
        return document

    def retitle_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        document = self._changeable(request, object_id)

        def retitle(form: ReasonForm) -> str:
            given = form.cleaned_data
            change = DocumentChange(title=given["title"], reason=given["reason"])
            store().update(document.pk, operator_principal(request, document.tenant_id), change)
            return "It has its new title: searches find it by that from now on."

        return self._one(request, document, RETITLE, retitle, {"title": document.title})

    def rescope_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        document = self._changeable(request, object_id)

        def rescope(form: ReasonForm) -> str:
            change = DocumentChange.of_scope(_change(form), reason=form.cleaned_data["reason"])
            store().update(document.pk, operator_principal(request, document.tenant_id), change)
            return "Changed: the next search obeys."

        return self._one(request, document, DOINGS[BulkAction.RESCOPE], rescope)

    def hold_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        document = self._changeable(request, object_id)
        held = document.legal_hold

        def hold(form: ReasonForm) -> str:
            change = DocumentChange(legal_hold=not held, reason=form.cleaned_data["reason"])
            store().update(document.pk, operator_principal(request, document.tenant_id), change)
            return "The legal hold is lifted." if held else "It is under a legal hold now."

        action = BulkAction.LIFT_HOLD if held else BulkAction.HOLD
        return self._one(request, document, DOINGS[action], hold)

    def rechunk_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        document = self._changeable(request, object_id)
        doing = DOINGS[BulkAction.RECHUNK]
        form = doing.form(request.POST if request.method == "POST" else None)
        if form.is_valid():
            task = store().begin_bulk(
                BulkAction.RECHUNK,
                [document.pk],
                operator_principal(request, document.tenant_id),
                reason=form.cleaned_data["reason"],
            )
            hint_bulk(task.task_id)
            return HttpResponseRedirect(task_address(task))
        return self._ask(request, doing, form, documents=[document.pk])

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        document = self.found(request, object_id)
        if not self.has_delete_permission(request, document):
            raise PermissionDenied
        doing = DOINGS[BulkAction.DELETE]
        form = doing.form(request.POST if request.method == "POST" else None)
        if form.is_valid():
            receipt = self._delete(request, document, form.cleaned_data["reason"])
            return HttpResponseRedirect(receipt_address(receipt) if receipt else _address(document))
        cascade = Cascade.of([document.pk])
        return self._ask(request, doing, form, documents=[document.pk], cascade=cascade)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self._delete(request, obj, "")

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        # Always in the same order: two operators who delete the same documents take turns.
        for document in queryset.order_by("pk"):
            self._delete(request, document, "")

    def log_deletions(self, request: HttpRequest, queryset: Any) -> list[Any]:
        # Django's log would keep the title of what is gone.
        return []

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        document = self.found(request, object_id)
        note_visit(request, document.tenant_id, document.pk)
        return exported(request, document, operator_principal(request, document.tenant_id))

    def _delete(self, request: HttpRequest, document: Document, reason: str) -> Deletion | None:
        operator = operator_principal(request, document.tenant_id)
        try:
            receipt = store().delete(document.pk, operator, reason=reason)
        except VerbatimError as refused:
            self.message_user(
                request, f"Not deleted: {document.title}. {refused.detail}", messages.ERROR
            )
            return None
        self.message_user(request, receipt_text([receipt]), messages.SUCCESS)
        return receipt

    def _one(
        self,
        request: HttpRequest,
        document: Document,
        doing: Doing,
        act: Callable[[ReasonForm], str],
        initial: dict[str, Any] | None = None,
    ) -> HttpResponse:
        form = doing.form(request.POST if request.method == "POST" else None, initial=initial)
        if form.is_valid() and _is_last_step(request, form):
            try:
                done = act(form)
            except VerbatimError as refused:
                form.add_error(None, refused.detail)
            else:
                self.message_user(request, done, messages.SUCCESS)
                return HttpResponseRedirect(_address(document))
        return self._ask(request, doing, form, documents=[document.pk])

    # --- the page that asks

    def _ask(
        self,
        request: HttpRequest,
        doing: Doing,
        form: ReasonForm,
        *,
        documents: Sequence[UUID],
        hidden: Sequence[tuple[str, str]] = (),
        cascade: Cascade | None = None,
    ) -> HttpResponse:
        if request.method not in {"GET", "HEAD", "POST"}:
            raise PermissionDenied
        previewed = form.is_valid() and bool(_change(form)) and not form.errors
        count = len(documents)
        those = "this document" if count == 1 else f"{count:,} documents"
        shown = replace(doing, button="Change it") if previewed else doing
        context = {
            "title": doing.title.format(those),
            "doing": shown,
            "count": count,
            "documents": Document.objects.filter(pk__in=documents[:_TITLES_SHOWN]),
            "more": max(0, count - _TITLES_SHOWN),
            "held": Document.objects.filter(pk__in=documents, legal_hold=True).count(),
            "cascade": cascade,
            "form": form,
            "previewed": previewed,
            "changes": _changes(documents, _change(form)) if previewed else [],
            "hidden": hidden,
            "back": _address(documents[0]) if count == 1 else reverse(_LIST),
        }
        return self.rendered(request, "admin/knowledge/document/ask.html", context)


def _wrong_choice(documents: Sequence[UUID], tenants: set[str]) -> str:
    if len(documents) > MOST_DOCUMENTS:
        return f"At most {MOST_DOCUMENTS:,} documents are taken at once: narrow the list."
    if len(tenants) > 1:
        return "These are documents of several tenants: choose those of one."
    return ""


def _is_last_step(request: HttpRequest, form: ReasonForm) -> bool:
    """What somebody may lose sight of is shown once more before it is done."""
    return not _change(form) or "confirmed" in request.POST


def _change(form: ReasonForm) -> dict[str, str]:
    change = getattr(form, "change", None)
    return change() if change is not None else {}


def _changes(documents: Sequence[UUID], change: dict[str, str]) -> list[dict[str, Any]]:
    """Scope by scope, how many of the documents are there and what that means for whom."""
    spaces: QuerySet[Any] = (
        VisibilitySpace.objects.filter(documents__in=documents)
        .annotate(count=Count("documents"))
        .order_by("-count", "pk")[:_SPACES_SHOWN]
    )
    ingesters = list(
        Document.objects.filter(pk__in=documents)
        .order_by()
        .values_list("ingested_by_principal_id", flat=True)
        .distinct()[:2]
    )
    ingester = ingesters[0] if len(ingesters) == 1 else "whoever admitted it"
    return [
        {
            "space": space,
            "count": space.count,
            "told": consequences(
                {
                    "visibility": space.visibility,
                    "project_scope": space.project_scope,
                    "sensitivity": space.sensitivity,
                },
                change,
                ingester=space.principal_id or ingester
                if space.visibility == Visibility.PRINCIPAL
                else ingester,
            ),
        }
        for space in spaces
    ]


def _address(document: Document | UUID) -> str:
    pk = document.pk if isinstance(document, Document) else document
    return reverse("admin:knowledge_document_change", args=[pk])
