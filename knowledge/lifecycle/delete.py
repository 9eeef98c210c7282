"""Deleting a document for real: rows, index, statistics, what traces say of it, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from artifacts import store as artifacts
from knowledge.adapters import term_index
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import lock_document, now
from knowledge.core.errors import LegalHold
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    IngestJob,
    KnowledgeEvent,
    RetentionProposal,
    TracedPassage,
    UnfinishedVersion,
    VisibilitySpace,
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

    An unfinished version goes too, and so do the background jobs of the document: what they were
    about to add would come back after it. A document whose first version is unfinished can be
    deleted, which is how to give it up.

    Raises `NotFound` when the caller may not see it, `Forbidden` when it is another principal's
    and the key lacks `knowledge.delete`, `LegalHold` when it is held (which is recorded).
    """
    try:
        with tenant_session(principal.tenant_id):
            # The lock of an ingest: a new version and a deletion of one document take turns.
            lock_document(document_id)
            scope = resolve_scope(principal, current_scope)
            unfinished = UnfinishedVersion.objects.filter(document_id=document_id).first()
            document = _document(document_id, principal, scope, unfinished)
            return _delete(document_id, document, unfinished, principal=principal, reason=reason)
    except LegalHold:
        with tenant_session(principal.tenant_id):
            record_legal_hold(document_id, principal)
        raise


def withdraw_document(
    document_id: UUID, principal: Principal, *, reason: str
) -> DeletionReceipt | None:
    """Deletes a document with what the principal withdraws, wherever it is visible by now.

    Under the document's lock, in the caller's transaction. `None` when there is none of theirs,
    not even an unfinished one; raises `LegalHold`, which the caller records.
    """
    own = {"document_id": document_id, "ingested_by_principal_id": principal.principal_id}
    document = Document.objects.filter(**own).first()
    unfinished = UnfinishedVersion.objects.filter(**own).first()
    if document is None and unfinished is None:
        return None
    if document is not None and document.legal_hold:
        raise LegalHold
    return _delete(document_id, document, unfinished, principal=principal, reason=reason)


def record_legal_hold(document_id: UUID, principal: Principal) -> None:
    """Notes that somebody wanted a document gone and could not have it."""
    _record(KnowledgeEvent.DELETE_REFUSED, document_id, principal, {"reason": "legal_hold"})


def _document(
    document_id: UUID,
    principal: Principal,
    scope: ReadScope,
    unfinished: UnfinishedVersion | None,
) -> Document | None:
    """The document, when the caller may delete it; `None` when it has no finished version."""
    document = Document.objects.readable(scope).filter(document_id=document_id).first()
    if document is None:
        spaces = VisibilitySpace.objects.visible_to(scope)
        if unfinished is None or not spaces.filter(pk=unfinished.space_id).exists():
            raise NotFound
        if Document.objects.filter(document_id=document_id).exists():  # rescoped out of sight
            raise NotFound
    owner = document or unfinished
    own = owner is not None and owner.ingested_by_principal_id == principal.principal_id
    if not own and Scope.DELETE not in principal.scopes:
        raise Forbidden("Another principal admitted this document.")
    if document is not None and document.legal_hold:
        raise LegalHold
    return document


def _delete(
    document_id: UUID,
    document: Document | None,
    unfinished: UnfinishedVersion | None,
    *,
    principal: Principal,
    reason: str,
) -> DeletionReceipt:
    # The sweeper asks the database what is due, so its clock says when.
    at = now()
    IngestJob.objects.filter(document_id=document_id).delete()
    _scrub_proposals(document_id, at)
    chunks = chunk_sets = index_rows = version_count = 0
    sources: tuple[UUID, ...] = ()
    if unfinished is not None:
        sources = (unfinished.original_id,)
        chunks, chunk_sets = leftovers.discard(unfinished, None), 1
    traced = TracedPassage.objects.filter(document_id=document_id, deleted_at__isnull=True).update(
        deleted_at=at, title="", heading_path=[], doc_date=None
    )
    if document is not None:
        versions = DocumentVersion.objects.filter(document=document)
        kept = tuple(versions.values_list("source_id", flat=True))
        index_rows = term_index.remove(document)
        chunks += Chunk.objects.filter(chunk_set__version__document=document).delete()[0]
        chunk_sets += ChunkSet.objects.filter(version__document=document).delete()[0]
        version_count, _ = versions.delete()
        artifacts.expire(list(kept), at)
        sources += kept
        document.delete()
    receipt = DeletionReceipt(
        document_id=document_id,
        deleted_at=at,
        versions=version_count,
        chunk_sets=chunk_sets,
        chunks=chunks,
        index_rows=index_rows,
        traced_passages=traced,
        sources=sources,
    )
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


def _scrub_proposals(document_id: UUID, now: datetime) -> None:
    """A proposal that became the document keeps who decided and when, and none of its words."""
    proposals = RetentionProposal.objects.filter(document_id=document_id)
    snapshots = proposals.filter(snapshot__isnull=False).values_list("snapshot_id", flat=True)
    artifacts.expire([one for one in snapshots if one is not None], now)
    proposals.update(
        snapshot=None, passages=[], title="", filename="", reason="", decision_reason=""
    )


def _record(name: str, document_id: UUID, principal: Principal, data: dict[str, object]) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=principal.tenant_id,
        name=name,
        document_id=document_id,
        actor=principal.principal_id,
        surface=principal.surface,
        data=data,
    )
