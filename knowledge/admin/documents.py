"""Documents: the list, the page of one with its passages, and deleting."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin_base import OperatorAdmin, as_uuid, searched_words
from access.errors import VerbatimError
from access.operator_session import is_operator, is_superuser, operator_principal
from knowledge.adapters.extractors.media_types import DOCX, HTML, PDF
from knowledge.admin.deletion import Cascade, DeletionForm, receipt_text
from knowledge.core.types import ChunkSetState
from knowledge.lifecycle.delete import DeletionReceipt
from knowledge.models import Chunk, ChunkSet, Document, DocumentVersion, KnowledgeEvent
from knowledge.passage_html import families, passage_html
from knowledge.wiring import store

VIEWED_ACROSS_TENANTS = "knowledge.document.viewed_by_superuser"
_CHUNKS_ON_PAGE = 50
_VERSIONS_ON_PAGE = 50
_EVENTS_ON_PAGE = 20
_DELETED_AT_ONCE = 50
_LONGEST_NUMBER = 9
_HELD = SafeString(' <span class="badge held">held</span>')
_KINDS = {
    "markdown": ("Markdown", Q(media_type__startswith="text/markdown")),
    "plain": ("plain text", Q(media_type__startswith="text/plain")),
    "html": ("HTML", Q(media_type__startswith="text/html")),
    "json": ("JSON", Q(media_type__startswith="application/json")),
    "pdf": ("PDF", Q(media_type__startswith="application/pdf")),
    "word": ("Word", Q(media_type__startswith=DOCX)),
}
_SHORT_NAMES = {
    "text/markdown": "Markdown",
    "text/plain": "plain text",
    HTML: "HTML",
    PDF: "PDF",
    DOCX: "Word",
}

# In the order in which they were live; one that is not finished comes last.
_SETS = Prefetch("chunk_sets", queryset=ChunkSet.objects.order_by("published_at"))


def _current(**conditions: Any) -> QuerySet[DocumentVersion]:
    return DocumentVersion.objects.filter(
        document=OuterRef("pk"), superseded_at__isnull=True, **conditions
    )


class MediaTypeFilter(admin.SimpleListFilter):
    title = "media type"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*((key, label) for key, (label, _) in _KINDS.items()), ("other", "another")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        kind = self.value()
        if kind in _KINDS:
            return queryset.filter(Exists(_current().filter(_KINDS[kind][1])))
        if kind == "other":
            known = Q()
            for _, condition in _KINDS.values():
                known |= condition
            return queryset.filter(Exists(_current().exclude(known)))
        return queryset


class FlagFilter(admin.SimpleListFilter):
    title = "instruction-like text"
    parameter_name = "flagged"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "flagged"), ("no", "none")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        flagged = Exists(
            _current(chunk_sets__state=ChunkSetState.LIVE, chunk_sets__flagged_count__gt=0)
        )
        match self.value():
            case "yes":
                return queryset.filter(flagged)
            case "no":
                return queryset.exclude(flagged)
        return queryset


@admin.register(Document)
class DocumentAdmin(OperatorAdmin):
    """Read and delete. The event log is the record of both, for it keeps no titles."""

    list_display = (
        "name",
        "visibility",
        "sensitivity",
        "current_version",
        "chunk_count",
        "flag_count",
        "media_type",
        "ingested_by_principal_id",
        "created_at",
    )
    list_display_links = ("name",)
    list_filter = (
        "space__visibility",
        "space__sensitivity",
        MediaTypeFilter,
        FlagFilter,
        "legal_hold",
        "created_at",
    )
    list_select_related = ("space",)
    search_fields = ("title",)
    search_help_text = "Words of the title, a document id, or a passage's id (kc_…)."
    ordering = ("-created_at", "document_id")
    actions = ("delete_selected",)

    # --- who may do what

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    # --- the list

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
        held = _HELD if document.legal_hold else ""
        return format_html("<bdi>{}</bdi>{}", document.title, held)

    @admin.display(description="visibility")
    def visibility(self, document: Document) -> str:
        of = document.space.project_scope or document.space.principal_id
        return f"{document.space.visibility}: {of}" if of else document.space.visibility

    @admin.display(description="sensitivity")
    def sensitivity(self, document: Document) -> SafeString:
        return format_html('<span class="badge {0}">{0}</span>', document.space.sensitivity)

    @admin.display(description="version")
    def current_version(self, document: Document) -> str:
        version = _version_of(document)
        return str(version.version) if version else self.get_empty_value_display()

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

    @admin.display(description="media type")
    def media_type(self, document: Document) -> str:
        version = _version_of(document)
        if version is None:
            return self.get_empty_value_display()
        # The page of the document has it in full; a list shows many and has little room.
        essence = version.media_type.partition(";")[0]
        return _SHORT_NAMES.get(essence, essence)

    # --- the page of one document

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        document = self.found(request, object_id)
        if request.method not in {"GET", "HEAD"}:
            raise PermissionDenied
        note_visit(request, document)
        versions = list(
            DocumentVersion.objects.filter(document=document)
            .select_related("source")
            .prefetch_related(_SETS)
            .order_by("-version")[: _VERSIONS_ON_PAGE + 1]
        )
        shown = _asked_version(request, document, versions)
        context = {
            **self.admin_site.each_context(request),
            "title": document.title,
            "opts": self.opts,
            "document": document,
            "versions": versions[:_VERSIONS_ON_PAGE],
            "more_versions": len(versions) > _VERSIONS_ON_PAGE,
            "shown": shown,
            "passages": _passages(request, shown),
            "events": KnowledgeEvent.objects.filter(document_id=document.pk)[:_EVENTS_ON_PAGE],
            "delete_url": reverse("admin:knowledge_document_delete", args=[document.pk]),
            "all_tenants": is_superuser(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/knowledge/document/page.html", context)

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        document = self.found(request, object_id)
        events = reverse("admin:knowledge_knowledgeevent_changelist")
        return HttpResponseRedirect(f"{events}?q={document.pk}")

    # --- deleting

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        document = self.found(request, object_id)
        response = self._deletion(request, [document])
        return response or HttpResponseRedirect(reverse("admin:knowledge_document_changelist"))

    @admin.action(description="Delete selected documents", permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        documents = list(queryset[: _DELETED_AT_ONCE + 1])
        if not documents:
            raise Http404
        if len(documents) > _DELETED_AT_ONCE:
            self.message_user(
                request,
                f"At most {_DELETED_AT_ONCE} documents can be deleted at once;"
                " nothing was deleted.",
                messages.ERROR,
            )
            return None
        return self._deletion(request, documents)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self._delete(request, [obj])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._delete(request, list(queryset))

    def log_deletions(self, request: HttpRequest, queryset: Any) -> list[Any]:
        # Django's log would keep the title of what is gone.
        return []

    def _deletion(self, request: HttpRequest, documents: Sequence[Document]) -> HttpResponse | None:
        """The page that asks, until a reason is given; then deletes and says what went."""
        asked = request.method == "POST" and "confirmed" in request.POST
        form = DeletionForm(request.POST if asked else None)
        if asked and form.is_valid():
            self._delete(request, documents)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": "Delete document" if len(documents) == 1 else "Delete documents",
            "opts": self.opts,
            "documents": documents,
            "deletable": [document for document in documents if not document.legal_hold],
            "cascade": Cascade.of(documents),
            "form": form,
            "bulk": request.POST.get("action") == "delete_selected",
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/knowledge/document/delete.html", context)

    def _delete(self, request: HttpRequest, documents: Sequence[Document]) -> None:
        receipts: list[DeletionReceipt] = []
        form = DeletionForm(request.POST)
        reason = form.cleaned_data["reason"] if form.is_valid() else ""
        # Always in the same order: two operators who delete the same documents take turns.
        for document in sorted(documents, key=lambda document: document.pk):
            try:
                receipts.append(
                    store().delete(
                        document.pk,
                        operator_principal(request, document.tenant_id),
                        reason=reason,
                    )
                )
            except VerbatimError as refused:
                self.message_user(
                    request, f"Not deleted: {document.title}. {refused.detail}", messages.ERROR
                )
        if receipts:
            self.message_user(request, receipt_text(receipts), messages.SUCCESS)


def _version_of(document: Any) -> DocumentVersion | None:
    return next(iter(document.current_versions), None)


def _live_set_of(document: Document) -> ChunkSet | None:
    version: Any = _version_of(document)
    return next(iter(version.live_sets), None) if version else None


def note_visit(request: HttpRequest, document: Document) -> None:
    """A look into a tenant that is not one's own is on the tenant's record."""
    if is_superuser(request):
        principal = operator_principal(request, document.tenant_id)
        KnowledgeEvent.objects.create(
            tenant_id=document.tenant_id,
            name=VIEWED_ACROSS_TENANTS,
            document_id=document.pk,
            actor=principal.principal_id,
            surface=principal.surface,
        )


def _number(text: str) -> int | None:
    """A positive number that the address names, or `None`."""
    if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    return None


def _asked_version(
    request: HttpRequest, document: Document, versions: Sequence[DocumentVersion]
) -> DocumentVersion | None:
    """The version that the address names, else the newest."""
    if "version" not in request.GET:
        return versions[0] if versions else None
    number = _number(request.GET["version"])
    found = next((version for version in versions if version.version == number), None)
    if found is None and number is not None:
        found = (
            DocumentVersion.objects.filter(document=document, version=number)
            .select_related("source")
            .prefetch_related(_SETS)
            .first()
        )
    if found is None:
        raise Http404
    return found


def _passages(request: HttpRequest, version: DocumentVersion | None) -> dict[str, Any]:
    """One page of a version's chunks, found by ordinal so that page 100 costs what page 1 does."""
    chunk_set = _set_to_show(version)
    if chunk_set is None:
        return {"chunks": [], "outline": [], "page": 1, "pages": 1}
    pages = max(1, math.ceil(chunk_set.chunk_count / _CHUNKS_ON_PAGE))
    page = min(max(_number(request.GET.get("page", "")) or 1, 1), pages)
    first = (page - 1) * _CHUNKS_ON_PAGE
    rows = Chunk.objects.filter(
        chunk_set=chunk_set, ordinal__gte=first, ordinal__lt=first + _CHUNKS_ON_PAGE
    ).order_by("ordinal")
    chunks, outline = [], []
    above: list[str] = []
    for chunk in rows:
        headings = _opened(above, chunk)
        above = chunk.heading_path
        outline += headings
        chunks.append(
            {
                "row": chunk,
                "headings": headings,
                "html": passage_html(chunk.text, chunk.instruction_matches),
                "families": families(chunk.instruction_matches),
            }
        )
    return {
        "chunk_set": chunk_set,
        "chunks": chunks,
        "outline": outline,
        "page": page,
        "pages": pages,
    }


def _set_to_show(version: DocumentVersion | None) -> ChunkSet | None:
    sets = list(version.chunk_sets.all()) if version else []
    order = {ChunkSetState.LIVE: 0, ChunkSetState.RETIRED: 1, ChunkSetState.INGESTING: 2}
    return min(sets, key=lambda one: order[ChunkSetState(one.state)], default=None)


def _opened(above: Sequence[str], chunk: Chunk) -> list[dict[str, Any]]:
    """The headings that open at this chunk, each with its depth."""
    same = 0
    for old, new in zip(above, chunk.heading_path, strict=False):
        if old != new:
            break
        same += 1
    return [
        {"title": title, "depth": min(depth, 6), "chunk_id": chunk.chunk_id}
        for depth, title in enumerate(chunk.heading_path[same:], start=same + 1)
    ]
