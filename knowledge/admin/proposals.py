"""The proposal desk: what agents ask to keep, and what an operator says to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import F, Func, IntegerField, JSONField, QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.views.decorators.http import require_POST

from access.admin_base import ReadOnlyPage, SearchedByKey
from access.operator_session import may
from access.principal import Principal
from access.trust import OperatorPermission
from knowledge.admin.visits import note_visit
from knowledge.core.wording import REASON_LIMIT
from knowledge.models import KnowledgeEvent, RetentionProposal
from knowledge.passage_html import families, passage_html
from knowledge.tasks import hint
from knowledge.wiring import store

_LIST = "admin:knowledge_retentionproposal_changelist"
_ON_PAGE = 50
_LONGEST_NUMBER = 6


class ApprovalForm(forms.Form):
    sure = forms.BooleanField(label="I have read it, and I answer for its being kept")


class DeclineForm(forms.Form):
    reason = forms.CharField(
        max_length=REASON_LIMIT,
        widget=forms.TextInput(attrs={"size": 60, "autocomplete": "off"}),
        help_text="Told to who proposed it, and kept in the event log for good.",
    )


@admin.register(RetentionProposal)
class RetentionProposalAdmin(SearchedByKey, ReadOnlyPage):
    list_display = ("name", "decision", "flags", "waiting", "visible_to", "principal_id", "outcome")
    list_display_links = ("name",)
    list_filter = ("decision", "sensitivity", "created_at")
    search_fields = ("proposal_id",)
    searched_ids = ("pk", "document_id")
    searched_names = ("principal_id",)
    search_help_text = "A proposal's or a document's id, or a principal."
    ordering = ("-created_at", "proposal_id")
    page = "admin/knowledge/retentionproposal/page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("job").defer("passages")

    @admin.display(description="title", ordering="title")
    def name(self, proposal: RetentionProposal) -> SafeString:
        return format_html("<bdi>{}</bdi>", proposal.title or "(deleted)")

    @admin.display(description="flags")
    def flags(self, proposal: RetentionProposal) -> SafeString | str:
        if not proposal.flagged_count:
            return self.get_empty_value_display()
        return format_html('<span class="badge flag">{}</span>', proposal.flagged_count)

    @admin.display(description="age", ordering="created_at")
    def waiting(self, proposal: RetentionProposal) -> str:
        return timesince(proposal.created_at, proposal.decided_at, depth=1)

    @admin.display(description="for")
    def visible_to(self, proposal: RetentionProposal) -> str:
        of = proposal.project_scope
        return f"{proposal.visibility}: {of}" if of else proposal.visibility

    @admin.display(description="outcome")
    def outcome(self, proposal: RetentionProposal) -> str:
        receipt = proposal.receipt
        if receipt is None:
            return self.get_empty_value_display()
        return "verified" if receipt["verified"] else receipt["code"] or receipt["state"]

    # --- one proposal

    def visited(self, request: HttpRequest, row: RetentionProposal) -> None:
        note_visit(request, row.tenant_id, row.document_id, proposal_id=str(row.pk))

    def get_urls(self) -> list[URLPattern]:
        def view(of: Callable[..., HttpResponse]) -> Any:
            return self.admin_site.admin_view(require_POST(of))

        name = "knowledge_retentionproposal"
        return [
            path("<path:object_id>/approve/", view(self.approve_view), name=f"{name}_approve"),
            path("<path:object_id>/decline/", view(self.decline_view), name=f"{name}_decline"),
            *super().get_urls(),
        ]

    def approve_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        proposal = self._decided_on(request, object_id)
        form = ApprovalForm(request.POST)
        if not form.is_valid():
            return self.shown(request, proposal, approval=form)

        def approve(operator: Principal) -> str:
            approved = store().approve_proposal(proposal.pk, operator)
            if approved.job is not None:
                hint(approved.job.job_id)
            return "Approved. It is being ingested in your name; this page says when it is there."

        return self._decided(request, proposal, approve)

    def decline_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        proposal = self._decided_on(request, object_id)
        form = DeclineForm(request.POST)
        if not form.is_valid():
            return self.shown(request, proposal, decline=form)

        def decline(operator: Principal) -> str:
            store().decline_proposal(proposal.pk, operator, reason=form.cleaned_data["reason"])
            return "Declined. Its bytes go with the sweeper's next pass."

        return self._decided(request, proposal, decline)

    def _decided_on(self, request: HttpRequest, object_id: str) -> RetentionProposal:
        proposal: RetentionProposal = self.found(request, object_id)
        if not may(request, OperatorPermission.APPROVE):
            raise PermissionDenied
        return proposal

    def _decided(
        self, request: HttpRequest, proposal: RetentionProposal, act: Callable[[Principal], str]
    ) -> HttpResponse:
        page = reverse("admin:knowledge_retentionproposal_change", args=[proposal.pk])
        return self.acted(request, proposal.tenant_id, act, then=page)

    def context(self, request: HttpRequest, row: RetentionProposal) -> dict[str, Any]:
        stored = max(1, -(-_stored(row) // _ON_PAGE))
        page = min(max(_number(request.GET.get("page", "")), 1), stored)
        return {
            "title": row.title or "Proposal",
            "proposal": row,
            "receipt": row.receipt,
            "undecided": RetentionProposal.objects.undecided().filter(pk=row.pk).exists(),
            "passages": _passages(row, page),
            "page": page,
            "pages": stored,
            "approval": ApprovalForm(),
            "decline": DeclineForm(),
            "events": KnowledgeEvent.objects.filter(data__proposal_id=str(row.pk)),
        }


def _stored(proposal: RetentionProposal) -> int:
    counted = RetentionProposal.objects.filter(pk=proposal.pk).annotate(
        stored=Func(F("passages"), function="jsonb_array_length", output_field=IntegerField())
    )
    return int(counted.values_list("stored", flat=True).get())


def _passages(proposal: RetentionProposal, page: int) -> list[dict[str, Any]]:
    """One page of what could be quoted; the database cuts it out, however long the whole is."""
    first = (page - 1) * _ON_PAGE
    cut = Func(
        F("passages"),
        Value(f"$[{first} to {first + _ON_PAGE - 1}]"),
        template="jsonb_path_query_array(%(expressions)s::jsonpath)",
        output_field=JSONField(),
    )
    rows = RetentionProposal.objects.filter(pk=proposal.pk).annotate(cut=cut)
    return [
        {
            "heading_path": passage["heading_path"],
            "families": families(passage["matches"]),
            "html": passage_html(
                passage["text"], [match for match in passage["matches"] if match["part"] == "text"]
            ),
        }
        for passage in rows.values_list("cut", flat=True).get()
    ]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else 1
