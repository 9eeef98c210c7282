"""Making a version the document's newest: its rows, the index, the statistics and the event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from artifacts.models import Artifact, ArtifactOrigin
from knowledge.adapters import term_index
from knowledge.adapters.database import now
from knowledge.core.types import (
    ChunkSetState,
    ConnectorIdentity,
    IngestReport,
    IngestResult,
    Verdict,
)
from knowledge.ingest.admission import Admitted
from knowledge.ingest.embedding import Embedding
from knowledge.ingest.plan import IngestPlan
from knowledge.ingest.rows import write_chunks
from knowledge.models import (
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    VisibilitySpace,
)


def source_of(admitted: Admitted, plan: IngestPlan, storage_key: str) -> Artifact:
    """The artifact that keeps the version's original bytes for as long as the document."""
    return Artifact.objects.create(
        tenant_id=admitted.principal.tenant_id,
        principal_id=admitted.principal.principal_id,
        origin=ArtifactOrigin.KNOWLEDGE_SOURCE,
        media_type=plan.media_type,
        filename=admitted.artifact.filename,
        attribution=admitted.artifact.attribution,
        sha256=admitted.artifact.sha256,
        byte_size=admitted.artifact.byte_size,
        storage_key=storage_key,
        expires_at=None,
    )


def publish(
    admitted: Admitted,
    plan: IngestPlan,
    *,
    previous: DocumentVersion | None,
    space: VisibilitySpace,
    source: Artifact,
    identity: ConnectorIdentity | None,
    chunk_set: ChunkSet,
    numbers: Mapping[int, int] | None,
    embedding: Embedding | None,
) -> DocumentVersion:
    """Publishes the plan as the version after `previous`, under the document's lock.

    `numbers` are the chunks' by ordinal when they are stored already; else they are stored now.
    `space` and `identity` count for the first version; later ones follow the document.
    """
    document = _document(admitted, plan, previous, space, identity)
    instant = _instant(previous)
    if previous is not None:
        term_index.retire(previous)
        if embedding is not None:
            embedding.vectors.retire(previous.pk)
        previous.superseded_at = instant
        previous.save(update_fields=["superseded_at"])
    known = document.space
    if plan.language not in known.languages or plan.analyzer_version not in known.analyzers:
        VisibilitySpace.objects.note(
            document.space_id, language=plan.language, analyzer=plan.analyzer_version
        )
    version = DocumentVersion.objects.create(
        document=document,
        version=previous.version + 1 if previous else 1,
        tenant_id=document.tenant_id,
        source=source,
        source_version=identity.version if identity else "",
        media_type=plan.media_type,
        language=plan.language,
        doc_date=plan.doc_date,
        authority=admitted.request.authority,
        page_count=plan.page_count,
        truncated=plan.truncated,
        warnings=list(plan.warnings),
        ingested_at=instant,
    )
    chunk_set.version = version
    chunk_set.state = ChunkSetState.LIVE
    chunk_set.published_at = instant
    chunk_set.analyzer_version = plan.analyzer_version
    chunk_set.save()
    if numbers is None:
        numbers = write_chunks(
            chunk_set, plan.chunks, document_id=document.pk, version=version.version
        )
    term_index.publish(
        [
            (numbers[chunk.draft.ordinal], chunk.row)
            for chunk in plan.chunks
            if chunk.row is not None
        ],
        space=document.space_id,
    )
    if embedding is not None:
        embedding.vectors.publish(chunk_set.pk, space=document.space_id)
    _record(admitted, plan, version, chunk_set)
    return version


def live_result(
    version: DocumentVersion,
    chunk_set: ChunkSet,
    *,
    already_ingested: bool,
    embedded: int,
    deleted: int = 0,
    chunk_ids: tuple[str, ...] | None = None,
) -> IngestResult:
    """The result of an ingest whose version is live; `embedded` is what this call committed.

    The chunk ids are looked up unless the caller has them.
    """
    return IngestResult(
        document_id=version.document_id,
        version=version.version,
        state=ChunkSetState.LIVE,
        chunk_set_id=chunk_set.pk,
        already_ingested=already_ingested,
        title=version.document.title,
        chunk_ids=_chunk_ids(chunk_set) if chunk_ids is None else chunk_ids,
        report=IngestReport(
            chunks=chunk_set.chunk_count,
            embedded=embedded,
            skipped=chunk_set.admitted_count() - embedded,
            quarantined=chunk_set.quarantined_count,
            rejected=chunk_set.rejected_count,
            pending=0,
            truncated=version.truncated,
            warnings=tuple(version.warnings),
            deleted=deleted,
        ),
    )


def _chunk_ids(chunk_set: ChunkSet) -> tuple[str, ...]:
    admitted = chunk_set.chunks.filter(verdict=Verdict.ADMIT).order_by("ordinal")
    return tuple(admitted.values_list("chunk_id", flat=True))


def current_version(document_id: UUID) -> DocumentVersion | None:
    return (
        DocumentVersion.objects.filter(document_id=document_id, superseded_at__isnull=True)
        .select_related("document__space", "source")
        .first()
    )


def _document(
    admitted: Admitted,
    plan: IngestPlan,
    previous: DocumentVersion | None,
    space: VisibilitySpace,
    identity: ConnectorIdentity | None,
) -> Document:
    """The document that the text is a version of, with its title; a new one when it is the first."""
    if previous is not None:
        document = previous.document
        if document.title != admitted.title:
            document.title = admitted.title
            document.save(update_fields=["title"])
        return document
    return Document.objects.create(
        document_id=plan.document_id,
        tenant_id=admitted.principal.tenant_id,
        ingested_by_principal_id=admitted.principal.principal_id,
        title=admitted.title,
        space=space,
        source_type=identity.type if identity else "",
        source_id=identity.id if identity else "",
    )


def _record(
    admitted: Admitted, plan: IngestPlan, version: DocumentVersion, chunk_set: ChunkSet
) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=version.tenant_id,
        name=KnowledgeEvent.INGESTED,
        document_id=version.document_id,
        version=version.version,
        actor=admitted.principal.principal_id,
        surface=admitted.principal.surface,
        at=version.ingested_at,
        data={
            "chunk_set_id": str(chunk_set.pk),
            "chunks": plan.total,
            "quarantined": plan.quarantined,
            "rejected": plan.rejected,
            "flagged": chunk_set.flagged_count,
            "source_artifact_id": str(version.source_id),
        },
    )


def _instant(previous: DocumentVersion | None) -> datetime:
    """The database's clock under the document's lock; it never runs backwards in a document."""
    if previous is None:
        return now()
    return max(now(), previous.ingested_at + timedelta(microseconds=1))
