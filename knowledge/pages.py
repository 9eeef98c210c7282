"""The citation page: a passage for people, where it stands in its document."""

from __future__ import annotations

import re
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from access.errors import VerbatimError
from access.operator_session import is_operator, is_superuser, operated_tenant, operator_principal
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from knowledge.core.errors import Deleted
from knowledge.core.scope import resolve_scope
from knowledge.links import open_link
from knowledge.models import Chunk, DeletedChunk, DocumentVersion
from knowledge.passage_html import passage_html
from knowledge.wiring import store

_CHUNK_ID = re.compile(r"kc_[0-9a-z]{1,37}")


@require_safe
@never_cache
def citation(request: HttpRequest, chunk_id: str) -> HttpResponse:
    """An operator of the tenant sees the passage in its document; a link's bearer, it alone.

    Of a deleted one they are told that it was, and when. For everybody else there is no such page,
    whether the passage exists or not.
    """
    if not _CHUNK_ID.fullmatch(chunk_id):
        raise Http404
    try:
        context = _for_operator(request, chunk_id) or _for_bearer(request, chunk_id)
    except Deleted as gone:
        context = {
            "chunk_id": chunk_id,
            "deleted_at": gone.deleted_at,
            "receipt_url": reverse("admin:knowledge_deletion_change", args=[gone.deletion_id])
            if is_operator(request)
            else "",
        }
        response = render(request, "citation_deleted.html", context, status=gone.status)
    else:
        if context is None:
            raise Http404
        response = render(request, "citation.html", context)
    response["X-Robots-Tag"] = "noindex, noarchive"
    return response


def _for_operator(request: HttpRequest, chunk_id: str) -> dict[str, Any] | None:
    principal = _operator(request, chunk_id)
    chunk = _resolved(chunk_id, principal, None) if principal else None
    if principal is None or chunk is None:
        return None
    with tenant_session(principal.tenant_id):
        beside = {
            neighbour.ordinal - chunk.ordinal: neighbour
            for neighbour in Chunk.objects.readable(resolve_scope(principal, None)).filter(
                chunk_set=chunk.chunk_set, ordinal__in=[chunk.ordinal - 1, chunk.ordinal + 1]
            )
        }
    version = chunk.chunk_set.finalized_version
    document_url = reverse("admin:knowledge_document_change", args=[version.document_id])
    return {
        **_shown(chunk, principal),
        "before": _beside(chunk, beside.get(-1)),
        "after": _beside(chunk, beside.get(1)),
        "newest_url": document_url,
        "document_url": f"{document_url}?version={version.version}",
        "download_url": reverse("admin:artifacts_artifact_download", args=[version.source_id]),
    }


def _beside(chunk: Chunk, neighbour: Chunk | None) -> dict[str, Any] | None:
    """A neighbour's words, under its headings when it stands under others."""
    if neighbour is None:
        return None
    same = neighbour.heading_path == chunk.heading_path
    return {"text": passage_html(neighbour.text), "path": [] if same else neighbour.heading_path}


def _for_bearer(request: HttpRequest, chunk_id: str) -> dict[str, Any] | None:
    opened = open_link(chunk_id, request.GET.get("s", ""))
    if opened is None:
        return None
    principal, current_scope = opened
    chunk = _resolved(chunk_id, principal, current_scope)
    return None if chunk is None else _shown(chunk, principal)


def _operator(request: HttpRequest, chunk_id: str) -> Principal | None:
    if not is_superuser(request):
        return operator_principal(request) if operated_tenant(request) else None
    with operations_session():
        chunks = (model.objects.filter(chunk_id=chunk_id) for model in (Chunk, DeletedChunk))
        found = (rows.values_list("tenant_id", flat=True).first() for rows in chunks)
        tenant = next((tenant for tenant in found if tenant), None)
    return operator_principal(request, tenant) if tenant else None


def _resolved(chunk_id: str, principal: Principal, current_scope: str | None) -> Chunk | None:
    """Raises `Deleted`; whatever else is in the way, there is no such page."""
    try:
        return store().get_chunk(chunk_id, principal, current_scope=current_scope)
    except Deleted:
        raise
    except VerbatimError:
        return None


def _shown(chunk: Chunk, principal: Principal) -> dict[str, Any]:
    version = chunk.chunk_set.finalized_version
    newest = None
    if version.superseded_at is not None:
        with tenant_session(principal.tenant_id):
            newest = (
                DocumentVersion.objects.filter(
                    document=version.document_id, superseded_at__isnull=True
                )
                .values_list("version", flat=True)
                .first()
            )
    return {
        "chunk": chunk,
        "passage": passage_html(chunk.text, chunk.instruction_matches),
        "version": version,
        "document": version.document,
        "source": version.source,
        "newest": newest,
    }
