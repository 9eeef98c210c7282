"""Deleting a document for real: rows, index, statistics, what traces say of it, and its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from django.db.models import Q
from django.db.models.functions import Now

from access.errors import Forbidden
from access.idempotency import forget
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from artifacts import store as artifacts
from artifacts.models import Artifact, SourceDescriptor
from knowledge.adapters import term_index, tombstones
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import lock_document, lock_for_deletion, now
from knowledge.core.errors import DeletionIncomplete, LegalHold
from knowledge.core.ports import VectorSink
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.core.types import AnswerState
from knowledge.lifecycle.tombstones import missing_document
from knowledge.models import (
    Chunk,
    ChunkSet,
    DeletedChunk,
    Deletion,
    Document,
    DocumentVersion,
    GoldenAnswer,
    IngestJob,
    KnowledgeEvent,
    RecordSource,
    RetentionProposal,
    TracedPassage,
    UnfinishedVersion,
    VisibilitySpace,
)


def delete_document(
    document_id: UUID,
    principal: Principal,
    vectors: VectorSink | None = None,
    *,
    current_scope: str | None = None,
    reason: str = "",
) -> Deletion:
    """One transaction removes all of it; `expires_at = now` hands the bytes to the sweeper.

    What is left is a row without content: the tombstone, and the receipt that this returns.

    An unfinished version goes too, and so do the background jobs of the document: what they were
    about to add would come back after it. A document whose first version is unfinished can be
    deleted, which is how to give it up.

    Raises `NotFound` when the caller may not see it, `Deleted` when it is gone already, `Forbidden`
    when it is another principal's
    and the key lacks `knowledge.delete`, `LegalHold` when it is held (which is recorded).
    """
    try:
        with tenant_session(principal.tenant_id):
            # The lock of an ingest: a new version and a deletion of one document take turns.
            lock_document(document_id)
            scope = resolve_scope(principal, current_scope)
            unfinished = UnfinishedVersion.objects.filter(document_id=document_id).first()
            document = _document(document_id, principal, scope, unfinished)
            doomed = _Doomed(document_id, document, unfinished)
            return _delete(doomed, principal, vectors, scope=scope, reason=reason)
    except LegalHold:
        with tenant_session(principal.tenant_id):
            record_legal_hold(document_id, principal)
        raise


def withdraw_document(
    document_id: UUID, owner: str, principal: Principal, vectors: VectorSink | None, *, reason: str
) -> Deletion | None:
    """Deletes a document with what its owner sent, wherever it is visible by now.

    Under the document's lock, in the caller's transaction. `None` when there is none of theirs,
    not even an unfinished one; raises `LegalHold`, which the caller records.
    """
    own = {"document_id": document_id, "ingested_by_principal_id": owner}
    document = Document.objects.filter(**own).first()
    unfinished = UnfinishedVersion.objects.filter(**own).first()
    if document is None and unfinished is None:
        return None
    if document is not None and document.legal_hold:
        raise LegalHold
    doomed = _Doomed(document_id, document, unfinished)
    scope = resolve_scope(principal, None)
    return _delete(doomed, principal, vectors, scope=scope, reason=reason)


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
            raise missing_document(document_id, scope)
        if Document.objects.filter(document_id=document_id).exists():  # rescoped out of sight
            raise missing_document(document_id, scope)
    owner = document or unfinished
    own = owner is not None and owner.ingested_by_principal_id == principal.principal_id
    if not own and Scope.DELETE not in principal.scopes:
        raise Forbidden("Another principal admitted this document.")
    if document is not None and document.legal_hold:
        raise LegalHold
    return document


@dataclass(frozen=True, slots=True)
class _Doomed:
    """A document, its unfinished version, or both: there is one of them at least."""

    document_id: UUID
    document: Document | None
    unfinished: UnfinishedVersion | None

    @property
    def owner(self) -> Document | UnfinishedVersion:
        found = self.document or self.unfinished
        if found is None:
            raise LookupError("there is nothing to delete")
        return found

    def chunk_sets(self) -> list[UUID]:
        """Live, retired, and those whose chunks are still being committed."""
        of_document = Q(version__document_id=self.document_id)
        if self.unfinished is not None:
            of_document |= Q(pk=self.unfinished.chunk_set_id)
        return list(ChunkSet.objects.filter(of_document).values_list("pk", flat=True))

    def sources(self) -> dict[UUID, str]:
        """The artifacts that are the document's own, by id: their storage keys."""
        versions = DocumentVersion.objects.filter(document_id=self.document_id)
        snapshots = RetentionProposal.objects.filter(
            document_id=self.document_id, snapshot__isnull=False
        )
        owned = Q(pk__in=versions.values("source")) | Q(pk__in=snapshots.values("snapshot"))
        if self.unfinished is not None:
            owned |= Q(pk=self.unfinished.original_id)
        return dict(Artifact.objects.filter(owned).values_list("pk", "storage_key"))


def _delete(
    doomed: _Doomed,
    principal: Principal,
    vectors: VectorSink | None,
    *,
    scope: ReadScope,
    reason: str,
) -> Deletion:
    document_id, document = doomed.document_id, doomed.document
    # Searches that are about to show it record that first; what they record is scrubbed below.
    lock_for_deletion(document_id)
    at = now()
    deletion_id = uuid4()
    chunk_sets, sources = doomed.chunk_sets(), doomed.sources()
    tombstones.keep_ids(deletion_id, chunk_sets)
    gone = {
        "jobs": IngestJob.objects.filter(document_id=document_id).delete()[0],
        "proposals": _scrub_proposals(document_id),
        "embeddings": sum(vectors.discard(one) for one in chunk_sets) if vectors else 0,
        "traced_passages": TracedPassage.objects.filter(
            document_id=document_id, deleted_at__isnull=True
        ).update(deleted_at=at, title="", heading_path=[], doc_date=None),
        "descriptors": SourceDescriptor.objects.filter(artifact__in=list(sources)).count(),
        "chunk_sets": len(chunk_sets),
        "index_rows": term_index.remove(document) if document else 0,
        "chunks": 0,
        "versions": 0,
    }
    forget([document_id])
    # Ids and hashes stay, so that a golden set shows what it has lost.
    GoldenAnswer.objects.filter(document_id=document_id, deleted_at__isnull=True).update(
        deleted_at=at, quote="", state=AnswerState.DELETED, found_in=[]
    )
    owner = doomed.owner
    deletion = Deletion(
        deletion_id=deletion_id,
        tenant_id=principal.tenant_id,
        document_id=document_id,
        space_id=owner.space_id,
        ingested_by_principal_id=owner.ingested_by_principal_id,
        readable=document is not None,
        actor=principal.principal_id,
        surface=principal.surface,
        reason=reason,
        deleted_at=at,
        sources=list(sources),
        storage_keys=list(sources.values()),
    )
    if doomed.unfinished is not None:
        gone["chunks"] += leftovers.discard(doomed.unfinished, None)
    if document is not None:
        gone["chunks"] += Chunk.objects.filter(chunk_set__version__document=document).delete()[0]
        ChunkSet.objects.filter(version__document=document).delete()
        gone["versions"] = DocumentVersion.objects.filter(document=document).delete()[0]
        document.delete()
    artifacts.expire(list(sources))
    for store, count in gone.items():
        setattr(deletion, store, count)
    deletion.left = _left(deletion, vectors)
    if any(deletion.left.values()):
        raise DeletionIncomplete(left=deletion.left)
    deletion.save(force_insert=True)
    # After the descriptors, which whoever is writing a record holds first. Records were never the
    # document's: they stay, and know now what became of their source.
    records = RecordSource.objects.filter(artifact_id__in=list(sources)).update(deletion=deletion)
    _record(
        KnowledgeEvent.DELETED,
        document_id,
        principal,
        {
            "deletion_id": str(deletion_id),
            "reason": reason,
            **gone,
            "records": records,
            "source_artifact_ids": [str(source) for source in sources],
        },
    )
    return Deletion.objects.with_bytes().with_records(scope).get(pk=deletion_id)


def _left(deletion: Deletion, vectors: VectorSink | None) -> Mapping[str, int]:
    """Asks every store again, in the transaction of the deletion: all counts must be zero."""
    of_document = {"document_id": deletion.document_id}
    chunks, index_rows = tombstones.chunks_and_index_rows_left(deletion.pk)
    numbers = DeletedChunk.objects.filter(deletion_id=deletion.pk).values_list("number", flat=True)
    sources = Artifact.objects.filter(pk__in=deletion.sources)
    return {
        "documents": Document.objects.filter(**of_document).count(),
        "versions": DocumentVersion.objects.filter(**of_document).count()
        + UnfinishedVersion.objects.filter(**of_document).count(),
        "chunk_sets": ChunkSet.objects.filter(version__document_id=deletion.document_id).count(),
        "chunks": chunks,
        "index_rows": index_rows,
        "embeddings": vectors.held(list(numbers)) if vectors else 0,
        # Of a thinned trace the title is NULL, which says nothing either.
        "traced_passages": TracedPassage.objects.filter(
            Q(title__gt="") | Q(deleted_at__isnull=True), **of_document
        ).count(),
        "proposals": RetentionProposal.objects.filter(
            ~Q(title="") | Q(snapshot__isnull=False), **of_document
        ).count(),
        "golden_answers": GoldenAnswer.objects.filter(
            ~Q(quote="") | Q(deleted_at__isnull=True), **of_document
        ).count(),
        "jobs": IngestJob.objects.filter(**of_document).count(),
        "descriptors": SourceDescriptor.objects.filter(artifact__in=deletion.sources).count(),
        "sources": sources.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now())).count(),
    }


def _scrub_proposals(document_id: UUID) -> int:
    """A proposal that became the document keeps who decided and when, and none of its words."""
    forget(
        RetentionProposal.objects.filter(document_id=document_id).values_list(
            "proposal_id", flat=True
        )
    )
    return RetentionProposal.objects.filter(document_id=document_id).update(
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
