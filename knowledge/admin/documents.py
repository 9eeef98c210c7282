"""Documents: the list, and the page of one with its passages."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from access.admin_base import ReadOnlyPage, as_uuid, searched_words
from access.admin_filters import TenantFilter
from access.operator_session import is_superuser, may
from access.trust import OperatorPermission
from knowledge.adapters.extractors.media_types import DOCX, HTML, PDF
from knowledge.admin.adding import AddForm, hand_in_all, job_state, not_handed_in
from knowledge.admin.comparing import comparison_context
from knowledge.admin.document_actions import DocumentActions
from knowledge.admin.document_filters import FILTERS
from knowledge.admin.document_page import document_context
from knowledge.admin.passage_search import passage_context
from knowledge.admin.space_columns import HELD, SpaceColumns
from knowledge.admin.visits import note_visit
from knowledge.core.types import ChunkSetState
from knowledge.models import Chunk, ChunkSet, Document, DocumentVersion, UnfinishedVersion

_UNFINISHED_SHOWN = 5
_SHORT_NAMES = {
    "text/markdown": "Markdown",
    "text/plain": "plain text",
    HTML: "HTML",
    PDF: "PDF",
    DOCX: "Word",
}


@admin.register(Document)
class DocumentAdmin(SpaceColumns, DocumentActions, ReadOnlyPage):
    list_display = (
        "name",
        "visibility",
        "sensitivity",
        "chunk_count",
        "flag_count",
        "by",
        "created_at",
    )
    list_display_links = ("name",)
    list_filter = FILTERS
    list_select_related = ("space",)
    search_fields = ("title",)
    search_help_text = (
        "Words of the title, a document's id or a passage's (kc_…); or what passages say."
    )
    ordering = ("-created_at", "document_id")
    page = "admin/knowledge/document/page.html"

    # --- adding

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = AddForm(request)
        added = hand_in_all(request, form) if form.is_valid() else []
        context = {
            "title": "Add documents",
            "form": form,
            "added": added,
            **(extra_context or {}),
        }
        return self.rendered(request, "admin/knowledge/document/add.html", context)

    def add_one_view(self, request: HttpRequest) -> HttpResponse:
        """The same for a page that sends file by file: the line that tells of one."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = AddForm(request)
        added = hand_in_all(request, form) if form.is_valid() else [not_handed_in(form)]
        return TemplateResponse(
            request, "admin/knowledge/document/added_files.html", {"added": added}
        )

    # --- the list

    def get_list_filter(self, request: HttpRequest) -> Any:
        return (TenantFilter, *FILTERS) if is_superuser(request) else FILTERS

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method == "GET":
            if request.GET.get("in") == "passages":
                return self._passages_found(request)
            # A form sends every field of its own; those that say nothing make no address.
            given = [(name, value) for name, many in request.GET.lists() for value in many]
            kept = [(name, value) for name, value in given if value and name != "in"]
            if kept != given:
                return HttpResponseRedirect(f"{request.path}?{urlencode(kept)}".removesuffix("?"))
        unfinished = UnfinishedVersion.objects.exclude(
            Exists(Document.objects.filter(document_id=OuterRef("document_id")))
        )
        begun = {"begun": list(unfinished[:_UNFINISHED_SHOWN])}
        return super().changelist_view(request, {**begun, **(extra_context or {})})

    def _passages_found(self, request: HttpRequest) -> HttpResponse:
        context = {
            **passage_context(request),
            "title": "Documents",
            "search_help_text": self.search_help_text,
        }
        return self.rendered(request, "admin/knowledge/document/passages_found.html", context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Document | None:
        pk = as_uuid(object_id)
        # Without what only the list shows of each.
        return Document.objects.select_related("space").filter(pk=pk).first() if pk else None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live = ChunkSet.objects.filter(state=ChunkSetState.LIVE)
        current = DocumentVersion.objects.filter(superseded_at__isnull=True).prefetch_related(
            Prefetch("chunk_sets", queryset=live, to_attr="live_sets")
        )
        return (
            super()
            .get_queryset(request)
            .prefetch_related(Prefetch("versions", queryset=current, to_attr="current_versions"))
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if (document := as_uuid(term)) is not None:
            return queryset.filter(pk=document), False
        if term.startswith("kc_"):
            of_passage = Chunk.objects.filter(chunk_id=term).values("chunk_set__version__document")
            return queryset.filter(pk__in=of_passage), False
        for word in searched_words(term):
            queryset = queryset.filter(title__icontains=word)
        return queryset, False

    @admin.display(description="title", ordering="title")
    def name(self, document: Document) -> SafeString:
        held = HELD if document.legal_hold else ""
        return format_html(
            '<bdi>{}</bdi>{}<span class="quiet about-it">{}</span>',
            document.title,
            held,
            _kind_and_version(document),
        )

    @admin.display(description="admitted by", ordering="ingested_by_principal_id")
    def by(self, document: Document) -> SafeString:
        return format_html("<bdi>{}</bdi>", document.ingested_by_principal_id)

    @admin.display(description="chunks")
    def chunk_count(self, document: Document) -> str:
        live = _live_set_of(document)
        return f"{live.chunk_count - live.rejected_count:,}" if live else "0"

    @admin.display(description="flags")
    def flag_count(self, document: Document) -> SafeString | str:
        live = _live_set_of(document)
        if live is None or not live.flagged_count:
            return self.get_empty_value_display()
        return format_html('<span class="badge flag">{}</span>', live.flagged_count)

    # --- the page of one document

    def visited(self, request: HttpRequest, row: Document) -> None:
        note_visit(request, row.tenant_id, row.pk)

    def context(self, request: HttpRequest, row: Document) -> dict[str, Any]:
        return document_context(request, row)

    def get_urls(self) -> list[URLPattern]:
        guarded = self.admin_site.admin_view
        compare = guarded(require_safe(self.compare_view))
        name = "knowledge_document"
        return [
            path("add/one/", guarded(require_POST(self.add_one_view)), name=f"{name}_one_add"),
            path("add/<str:job_id>/", guarded(require_safe(job_state)), name=f"{name}_added"),
            path("<path:object_id>/compare/", compare, name=f"{name}_compare"),
            *super().get_urls(),
        ]

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        document = self.found(request, object_id)
        self.visited(request, document)
        context = comparison_context(request, document)
        return self.rendered(request, "admin/knowledge/document/compare.html", context)

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        document = self.found(request, object_id)
        events = reverse("admin:knowledge_knowledgeevent_changelist")
        return HttpResponseRedirect(f"{events}?q={document.pk}")


def _version_of(document: Any) -> DocumentVersion | None:
    return next(iter(document.current_versions), None)


def _kind_and_version(document: Any) -> str:
    version = _version_of(document)
    if version is None:
        return ""
    # The page of the document has the media type in full; a list has little room.
    essence = version.media_type.partition(";")[0]
    kind = _SHORT_NAMES.get(essence, essence)
    return f"{kind}, version {version.version}" if version.version > 1 else kind


def _live_set_of(document: Document) -> ChunkSet | None:
    version: Any = _version_of(document)
    return next(iter(version.live_sets), None) if version else None
