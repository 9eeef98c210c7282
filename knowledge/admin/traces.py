"""Traces: what a search was asked, how it was taken, what was ranked, and what the model saw."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import truncatechars
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from access.admin_base import ReadOnlyPage, as_uuid
from access.admin_filters import ChoiceFilter, DayFilter, SurfaceFilter, TenantFilter, WordFilter
from access.errors import VerbatimError
from access.operator_session import is_superuser, may, operator_principal
from access.principal import Principal
from access.trust import OperatorPermission, Sensitivity
from knowledge.admin.playground import playground_view
from knowledge.admin.trace_page import trace_context
from knowledge.admin.visits import note_visit
from knowledge.core.types import RecallKind
from knowledge.models import RecallTrace
from knowledge.models.golden import NAME_LIMIT
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.golden import MOST_ANSWERS, GoldenAsked
from knowledge.wiring import store

_SHOWN = 80
_WORDS_LIMIT = 20_000


class PrincipalFilter(WordFilter):
    title = "principal"
    names = ("principal",)
    field = "principal_id"


class AskedFilter(DayFilter):
    title = "asked"
    names = ("since", "until")
    field = "created_at"


class KindFilter(ChoiceFilter):
    title = "kind"
    names = ("kind",)
    conditions: ClassVar = {kind.value: (kind.value, Q(kind=kind)) for kind in RecallKind}


class TimeFilter(ChoiceFilter):
    title = "asked about"
    names = ("time",)
    conditions: ClassVar = {
        "now": ("the present", Q(live=True)),
        "then": ("an earlier instant", Q(live=False)),
    }


class KeepForm(forms.Form):
    """A question to keep: in which set, and which passages are right."""

    golden_set = forms.UUIDField(required=False)
    new_set = forms.CharField(max_length=NAME_LIMIT, required=False)
    more = forms.CharField(max_length=1_000, required=False)
    quote = forms.CharField(max_length=_WORDS_LIMIT, required=False, strip=False)


@admin.register(RecallTrace)
class RecallTraceAdmin(ReadOnlyPage):
    list_display = ("created_at", "query", "principal", "surface", "shown", "took")
    list_display_links = ("created_at", "query")
    list_filter = (PrincipalFilter, SurfaceFilter, KindFilter, TimeFilter, AskedFilter)
    search_fields = ("id",)
    search_help_text = "A trace's id."
    ordering = ("-created_at", "id")
    change_list_template = "admin/knowledge/recalltrace/change_list.html"
    page = "admin/knowledge/recalltrace/page.html"

    # --- the list

    def get_list_filter(self, request: HttpRequest) -> Any:
        return [*([TenantFilter] if is_superuser(request) else []), *self.list_filter]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # What a list does not show is long.
        return super().get_queryset(request).defer("omitted", "beliefs", "words", "asked", "notes")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        known = as_uuid(term)
        return (queryset.none() if known is None else queryset.filter(pk=known)), False

    @admin.display(description="query")
    def query(self, trace: RecallTrace) -> SafeString:
        if trace.query_text is None:
            return format_html('<span class="quiet">{}</span>', "(forgotten)")
        return format_html("<bdi>{}</bdi>", truncatechars(trace.query_text, _SHOWN) or "(empty)")

    @admin.display(description="principal", ordering="principal_id")
    def principal(self, trace: RecallTrace) -> SafeString:
        if not trace.acting_operator:
            return format_html("<bdi>{}</bdi>", trace.principal_id)
        return format_html(
            '<bdi>{}</bdi> <span class="quiet">by <bdi>{}</bdi></span>',
            trace.principal_id,
            trace.acting_operator,
        )

    @admin.display(description="took", ordering="duration_ms")
    def took(self, trace: RecallTrace) -> str:
        return f"{trace.duration_ms:,.0f} ms"

    # --- one trace

    def get_urls(self) -> list[URLPattern]:
        def view(of: Any) -> Any:
            return self.admin_site.admin_view(of)

        name = "knowledge_recalltrace"
        return [
            path("playground/", view(self.playground_view), name=f"{name}_playground"),
            path(
                "<path:object_id>/block/", view(require_safe(self.block_view)), name=f"{name}_block"
            ),
            path("<path:object_id>/keep/", view(require_POST(self.keep_view)), name=f"{name}_keep"),
            *super().get_urls(),
        ]

    def visited(self, request: HttpRequest, row: RecallTrace) -> None:
        note_visit(request, row.tenant_id, None, trace_id=str(row.pk))

    def context(self, request: HttpRequest, row: RecallTrace) -> dict[str, Any]:
        viewer = operator_principal(request, row.tenant_id)
        return {
            "title": "A search and what it showed",
            "one": trace_context(store().view_trace(row.pk, viewer), viewer),
        }

    def block_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The block to the byte, which a page cannot show: it makes invisible characters seen."""
        trace = self.found(request, object_id)
        viewer = operator_principal(request, trace.tenant_id)
        block = store().view_trace(trace.pk, viewer).block
        if block is None:
            raise Http404
        response = HttpResponse(block.encode(), content_type="text/plain; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="block-{trace.pk}.txt"'
        response["X-Content-Type-Options"] = "nosniff"
        response["Content-Security-Policy"] = "default-src 'none'; sandbox"
        response["Cache-Control"] = "private, no-store"
        return response

    def playground_view(self, request: HttpRequest) -> HttpResponse:
        return playground_view(self, request)

    # --- keeping its question

    def keep_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Keeps the question of a trace, with the passages that an operator says are right."""
        trace = self.found(request, object_id)
        if not may(request, OperatorPermission.MANAGE):
            raise PermissionDenied
        operator = operator_principal(request, trace.tenant_id)
        try:
            # A set that was made for a question that is refused goes again.
            with transaction.atomic():
                set_id = _kept(request, trace, operator)
        except VerbatimError as refused:
            self.message_user(request, f"Not kept. {refused.detail}", messages.ERROR)
            back = reverse("admin:knowledge_recalltrace_change", args=[trace.pk])
            return HttpResponseRedirect(f"{back}#keep")
        self.message_user(request, "Kept. The next run asks it.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:knowledge_goldenset_change", args=[set_id]))


def _kept(request: HttpRequest, trace: RecallTrace, operator: Principal) -> UUID:
    form = KeepForm(request.POST)
    if not form.is_valid():
        raise _Unclear("The form says something that cannot be: a set's id, a name or words.")
    if trace.query_text is None or trace.asked is None:
        raise _Unclear("The question of this trace is forgotten.")
    chosen = dict.fromkeys([*request.POST.getlist("answers"), *form.cleaned_data["more"].split()])
    if not chosen:
        raise _Unclear("Choose at least one passage that answers the question.")
    if len(chosen) > MOST_ANSWERS:
        raise _Unclear(f"At most {MOST_ANSWERS} passages answer a question.")
    quote = form.cleaned_data["quote"].strip()
    if quote and len(chosen) > 1:
        raise _Unclear("Words that answer go with one passage; choose it alone.")
    set_id: UUID | None = form.cleaned_data["golden_set"]
    if form.cleaned_data["new_set"].strip():
        viewpoint = Viewpoint(
            principal_id=trace.principal_id,
            current_scope=trace.current_scope,
            sensitivity_ceiling=Sensitivity(trace.sensitivity_ceiling),
        )
        set_id = store().create_golden_set(form.cleaned_data["new_set"], viewpoint, operator).pk
    if set_id is None:
        raise _Unclear("Choose a golden set, or name a new one.")
    asked = GoldenAsked(
        text=trace.query_text,
        answers=dict.fromkeys(chosen, quote),
        objective=trace.asked.get("objective"),
        entities=tuple(trace.asked.get("entities") or ()),
        aliases={name: tuple(words) for name, words in (trace.asked.get("aliases") or {}).items()},
    )
    store().keep_golden_question(set_id, asked, operator)
    return set_id


class _Unclear(VerbatimError):  # never leaves this module
    """The question was not kept."""
