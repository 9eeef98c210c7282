"""Records: what they say, every revision, and the lines of the sources that they cite.

What a record says is never changed here; an operator may hold one or delete it.
"""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from access.admin_base import ReadOnlyPage, as_uuid, searched_words
from access.admin_filters import ChoiceFilter, TenantFilter, WordFilter
from access.errors import VerbatimError
from access.operator_session import is_superuser, may, operator_principal
from access.trust import OperatorPermission
from artifacts.models import Artifact
from knowledge.admin.change_forms import Doing, ReasonForm
from knowledge.admin.cited_lines import LARGEST_SHOWN, SourceTexts, cited_lines
from knowledge.admin.comparing import side_html
from knowledge.admin.document_page import page_asked, positive_number
from knowledge.admin.space_columns import HELD, SpaceColumns
from knowledge.admin.visits import note_visit
from knowledge.core.comparison import Kind, word_differences
from knowledge.core.records import EvidenceState, RecordKind, Revision
from knowledge.core.types import DocumentChange
from knowledge.evidence.reading import ResolvedEvidence
from knowledge.models import Record, RecordRevision
from knowledge.passage_html import visible_html
from knowledge.wiring import store

EVIDENCE_ON_PAGE: Final = 20
REVISIONS_ON_PAGE: Final = 50
_SECONDS: Final = 2.0
_DESCRIPTOR_ID: Final = re.compile(r"[0-9a-f]{64}")
_STATES: Final = {
    EvidenceState.AVAILABLE: "",
    EvidenceState.SOURCE_DELETED: "its source was deleted with its document",
    EvidenceState.SOURCE_NOT_VISIBLE: "its source is not visible",
}
_DELETE: Final = Doing(
    title="Delete this record",
    button="Delete",
    form=ReasonForm,
    effects=(
        "All its revisions go, for good.",
        "The originals that it cites stay, and so do their descriptors.",
        "The event log keeps who deleted it, when and why.",
    ),
)
_HOLD: Final = Doing(
    title="Put this record under legal hold",
    button="Hold",
    form=ReasonForm,
    effects=("Nobody can delete it until the hold is lifted. Its next revisions can be written.",),
)
_LIFT: Final = Doing(
    title="Lift the legal hold of this record",
    button="Lift the hold",
    form=ReasonForm,
    effects=("From then on it can be deleted again; nothing is deleted by this.",),
)


class KindFilter(ChoiceFilter):
    title = "kind"
    names = ("kind",)
    conditions: ClassVar = {str(kind): (str(kind), Q(kind=kind)) for kind in RecordKind}


class MakerFilter(WordFilter):
    title = "made by"
    names = ("by",)
    field = "principal_id"


@admin.register(Record)
class RecordAdmin(SpaceColumns, ReadOnlyPage):
    list_display = ("told", "visibility", "sensitivity", "revision", "maker", "changed_at")
    list_display_links = ("told",)
    list_filter = (KindFilter, MakerFilter)
    list_select_related = ("space",)
    search_fields = ("label",)
    search_help_text = "Words of its first line, a record's id, or the id of a source it cites."
    ordering = ("-created_at", "record_id")
    change_list_template = "admin/filters/change_list.html"
    page = "admin/knowledge/record/page.html"

    # --- the list

    def get_actions(self, request: HttpRequest) -> Any:
        return {}

    def get_list_filter(self, request: HttpRequest) -> Any:
        own = (KindFilter, MakerFilter)
        return (TenantFilter, *own) if is_superuser(request) else own

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if (record := as_uuid(term)) is not None:
            return queryset.filter(pk=record), False
        if _DESCRIPTOR_ID.fullmatch(term):
            return queryset.filter(pk__in=Record.objects.citing(term).values("pk")), False
        for word in searched_words(term):
            queryset = queryset.filter(label__icontains=word)
        return queryset, False

    @admin.display(description="record", ordering="label")
    def told(self, record: Record) -> SafeString:
        held = HELD if record.legal_hold else ""
        return format_html(
            '<bdi>{}</bdi>{}<span class="quiet about-it">{}</span>', record.label, held, record.kind
        )

    @admin.display(description="made by", ordering="principal_id")
    def maker(self, record: Record) -> SafeString:
        return format_html("<bdi>{}</bdi>", record.principal_id)

    # --- one record

    def get_urls(self) -> list[URLPattern]:
        guarded, name = self.admin_site.admin_view, "knowledge_record"
        return [
            path(
                "<path:object_id>/compare/",
                guarded(require_safe(self.compare_view)),
                name=f"{name}_compare",
            ),
            path("<path:object_id>/hold/", guarded(self.hold_view), name=f"{name}_hold"),
            *super().get_urls(),
        ]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Record | None:
        pk = as_uuid(object_id)
        return Record.objects.select_related("space").filter(pk=pk).first() if pk else None

    def visited(self, request: HttpRequest, row: Record) -> None:
        note_visit(request, row.tenant_id, None, record_id=str(row.pk))

    def context(self, request: HttpRequest, row: Record) -> dict[str, Any]:
        operator = operator_principal(request, row.tenant_id)
        shown = _revision(row, request.GET.get("revision", str(row.revision)))
        _, resolved = store().resolve_evidence(row.pk, operator, revision=shown.revision)
        pages = max(1, math.ceil(len(resolved) / EVIDENCE_ON_PAGE))
        page = page_asked(request, pages)
        first = (page - 1) * EVIDENCE_ON_PAGE
        value = shown.value()
        revisions = list(
            row.revisions.defer("canonical").order_by("-revision")[: REVISIONS_ON_PAGE + 1]
        )
        return {
            "title": row.label,
            "record": row,
            "shown": shown,
            "value": value,
            "parts": _parts(value),
            "notes": [
                {"note": note, "at": datetime.fromisoformat(note.at)} for note in value.annotations
            ],
            "evidence": _shown(resolved[first : first + EVIDENCE_ON_PAGE]),
            "citations": len(resolved),
            "revisions": revisions[:REVISIONS_ON_PAGE],
            "more_revisions": len(revisions) > REVISIONS_ON_PAGE,
            "query": f"revision={shown.revision}",
            "page": page,
            "pages": pages,
        }

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = self.found(request, object_id)
        self.visited(request, record)
        old, new = (_revision(record, request.GET.get(name, "")) for name in ("from", "to"))
        context = {
            "title": f"Revisions {old.revision} and {new.revision} of {record.label}",
            "record": record,
            "old": old,
            "new": new,
            "compared": (old, new),
            "changes": _changes(old.value(), new.value()),
        }
        return self.rendered(request, "admin/knowledge/record/compare.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(_address(self.found(request, object_id)))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, OperatorPermission.DELETE)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        record = self.found(request, object_id)
        if not self.has_delete_permission(request, record):
            raise PermissionDenied

        def delete(reason: str) -> str:
            operator = operator_principal(request, record.tenant_id)
            gone = store().remove_record(record.pk, operator, reason=reason)
            return f"Deleted {gone.kind} {gone.record_id} with its revisions: {gone.revisions:,}."

        return self._ask(
            request, record, _DELETE, delete, reverse("admin:knowledge_record_changelist")
        )

    def hold_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = self.found(request, object_id)
        if not may(request, OperatorPermission.MANAGE):
            raise PermissionDenied
        held = record.legal_hold

        def hold(reason: str) -> str:
            change = DocumentChange(legal_hold=not held, reason=reason)
            store().change_record(record.pk, operator_principal(request, record.tenant_id), change)
            return "The legal hold is lifted." if held else "It is under a legal hold now."

        return self._ask(request, record, _LIFT if held else _HOLD, hold, _address(record))

    def _ask(
        self,
        request: HttpRequest,
        record: Record,
        doing: Doing,
        act: Callable[[str], str],
        then: str,
    ) -> HttpResponse:
        form = doing.form(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                done = act(form.cleaned_data["reason"])
            except VerbatimError as refused:
                form.add_error(None, refused.detail)
            else:
                self.message_user(request, done, messages.SUCCESS)
                return HttpResponseRedirect(then)
        context = {
            "title": doing.title,
            "doing": doing,
            "record": record,
            "form": form,
            "deleting": doing is _DELETE,
        }
        return self.rendered(request, "admin/knowledge/record/ask.html", context)


def _address(record: Record) -> str:
    return reverse("admin:knowledge_record_change", args=[record.pk])


def _revision(record: Record, number: str) -> RecordRevision:
    named = positive_number(number)
    row = record.revisions.filter(revision=named).first() if named else None
    if row is None:
        raise Http404
    return row


def _parts(value: Revision) -> list[tuple[str, SafeString]]:
    """What a revision says, part by part, in the order of its kind."""
    return [(name, visible_html(text)) for name, text in _texts(value).items() if text]


def _texts(value: Revision) -> dict[str, str]:
    said = value.content
    names = {
        RecordKind.PAGE: ("title", "body"),
        RecordKind.CLAIM: ("statement",),
        RecordKind.RELATIONSHIP: ("subject", "predicate", "object"),
    }[value.kind]
    texts = {name: str(said[name]) for name in names}
    if said.get("metadata"):
        texts["metadata"] = json.dumps(said["metadata"], ensure_ascii=False, indent=2)
    return texts


def _changes(old: Revision, new: Revision) -> list[dict[str, Any]]:
    """The parts that differ, with their words on either side; evidence and notes line by line."""
    sides = [
        {
            **_texts(value),
            "evidence": "\n".join(_line(each) for each in value.written(value.evidence)),
            "notes": "\n\n".join(
                "\n".join([note.note, *map(_line, value.written(note.evidence))])
                for note in value.annotations
            ),
        }
        for value in (old, new)
    ]
    changes = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        before, after = sides[0].get(name, ""), sides[1].get(name, "")
        if before != after:
            differences = word_differences(before, after, seconds=_SECONDS)
            changes.append(
                {
                    "name": name,
                    "old": side_html(differences, Kind.REMOVED),
                    "new": side_html(differences, Kind.ADDED),
                }
            )
    return changes


def _line(written: dict[str, Any]) -> str:
    return json.dumps(written, ensure_ascii=False, sort_keys=True)


def _shown(resolved: Sequence[ResolvedEvidence]) -> list[dict[str, Any]]:
    """Citations with the lines that they speak of."""
    artifacts = Artifact.objects.in_bulk([one.artifact_id for one in resolved if one.artifact_id])
    texts = SourceTexts()
    shown = []
    for one in resolved:
        artifact = artifacts.get(one.artifact_id) if one.artifact_id else None
        text = texts.of(artifact) if artifact and one.cited.speaks_of_text else None
        shown.append(
            {
                "one": one,
                "cited": one.cited,
                "artifact": artifact,
                "told": _STATES[one.state],
                "quote": visible_html(one.cited.quote or ""),
                "lines": cited_lines(one.cited, text) if text is not None else [],
                "too_large": artifact is not None and artifact.byte_size > LARGEST_SHOWN,
            }
        )
    return shown
