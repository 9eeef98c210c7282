"""Deleting a document for real: rows, index, statistics, what traces say of it, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from artifacts import store as artifacts
from knowledge.adapters import term_index
from knowledge.adapters.database import lock_document
from knowledge.core.errors import LegalHold
from knowledge.core.scope import resolve_scope
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    TracedPassage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReceipt:
    """What went, by store. The bytes go with the sweeper's next pass: `pending_sweep`."""

    document_id: UUID
    deleted_at: datetime
    versions: int
    chunk_sets: int
    chunks: int
    index_rows: int
    traced_passages: int
    sources: tuple[UUID, ...]
    bytes_state: str = "pending_sweep"


def delete_document(
    document_id: UUID,
    principal: Principal,
    *,
    current_scope: str | None = None,
    reason: str = "",
) -> DeletionReceipt:
    """One transaction removes all of it; `expires_at = now` hands the bytes to the sweeper.

    Raises `NotFound` when the caller may not see it, `Forbidden` when it is another principal's
    and the key lacks `knowledge.delete`, `LegalHold` when it is held (which is recorded).
    """
    try:
        with tenant_session(principal.tenant_id):
            document = _locked(document_id, principal, current_scope)
            return _delete(document, principal, reason)
    except LegalHold:
        with tenant_session(principal.tenant_id):
            _record(KnowledgeEvent.DELETE_REFUSED, document_id, principal, {"reason": "legal_hold"})
        raise


def _locked(document_id: UUID, principal: Principal, current_scope: str | None) -> Document:
    # The lock of an ingest: a new version and a deletion of one document take turns.
    lock_document(document_id)
    document = (
        Document.objects.readable(resolve_scope(principal, current_scope))
        .filter(document_id=document_id)
        .first()
    )
    if document is None:
        raise NotFound
    own = document.ingested_by_principal_id == principal.principal_id
    if not own and Scope.DELETE not in principal.scopes:
        raise Forbidden("Another principal admitted this document.")
    if document.legal_hold:
        raise LegalHold
    return document


def _delete(document: Document, principal: Principal, reason: str) -> DeletionReceipt:
    now = timezone.now()
    versions = DocumentVersion.objects.filter(document=document)
    sources = tuple(versions.values_list("source_id", flat=True))
    traced = TracedPassage.objects.filter(document_id=document.pk, deleted_at__isnull=True).update(
        deleted_at=now, title="", heading_path=[], doc_date=None
    )
    index_rows = term_index.remove(document)
    chunks, _ = Chunk.objects.filter(chunk_set__version__document=document).delete()
    chunk_sets, _ = ChunkSet.objects.filter(version__document=document).delete()
    version_count, _ = versions.delete()
    artifacts.expire(list(sources), now)
    receipt = DeletionReceipt(
        document_id=document.pk,
        deleted_at=now,
        versions=version_count,
        chunk_sets=chunk_sets,
        chunks=chunks,
        index_rows=index_rows,
        traced_passages=traced,
        sources=sources,
    )
    document.delete()
    _record(
        KnowledgeEvent.DELETED,
        receipt.document_id,
        principal,
        {
            "reason": reason,
            "versions": receipt.versions,
            "chunks": receipt.chunks,
            "index_rows": receipt.index_rows,
            "traced_passages": receipt.traced_passages,
            "source_artifact_ids": [str(source) for source in sources],
        },
    )
    return receipt


def _record(name: str, document_id: UUID, principal: Principal, data: dict[str, object]) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=principal.tenant_id,
        name=name,
        document_id=document_id,
        actor=principal.principal_id,
        surface=principal.surface,
        data=data,
    )
