"""Making a version the document's newest, or another chunk set the one of its version.

Rows, index, statistics, vectors and the event change in the caller's transaction, under the
document's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from access.principal import Principal
from artifacts import descriptors
from artifacts.models import Artifact, ArtifactOrigin
from knowledge.adapters import term_index
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import now
from knowledge.adapters.embedding import Embedding
from knowledge.adapters.titles import Titles
from knowledge.core.types import (
    ChunkSetState,
    ConnectorIdentity,
    IngestReport,
    IngestResult,
    Verdict,
)
from knowledge.ingest.admission import Admitted
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
    """The artifact that keeps the version's original bytes for as long as the document.

    With its descriptor: this is the one place where a source becomes one.
    """
    source = Artifact.objects.create(
        tenant_id=admitted.principal.tenant_id,
        principal_id=admitted.principal.principal_id,
        origin=ArtifactOrigin.KNOWLEDGE_SOURCE,
        media_type=plan.source_type,
        filename=admitted.artifact.filename,
        attribution=admitted.artifact.attribution,
        sha256=admitted.artifact.sha256,
        byte_size=admitted.artifact.byte_size,
        storage_key=storage_key,
        expires_at=None,
    )
    descriptors.describe(source)
    return source


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
    titles: Titles,
    embedding: Embedding | None,
) -> DocumentVersion:
    """Publishes the plan as the version after `previous`, under the document's lock.

    `numbers` are the chunks' by ordinal when they are stored already; else they are stored now.
    `space` and `identity` count for the first version; later ones follow the document.
    """
    document = _document(admitted, plan, previous, space, identity)
    former = live_set_of(previous) if previous is not None else None
    instant = _instant(previous, former)
    if previous is not None and former is not None:
        # One that was being divided anew is not worth it any more.
        leftovers.discard_rechunking(previous, embedding.vectors if embedding else None)
        _take_out(former, embedding)
        previous.superseded_at = instant
        previous.save(update_fields=["superseded_at"])
        if document.title != admitted.title:
            # After the former passages left the present, whose words are counted.
            titles.change(document, admitted.title, admitted.principal)
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
    _go_live(chunk_set, plan, version, at=instant, numbers=numbers, embedding=embedding)
    _record(
        KnowledgeEvent.INGESTED,
        admitted.principal,
        version,
        chunk_set,
        at=instant,
        source_artifact_id=str(version.source_id),
    )
    return version


def publish_anew(
    plan: IngestPlan,
    version: DocumentVersion,
    operator: Principal,
    *,
    chunk_set: ChunkSet,
    numbers: Mapping[int, int] | None,
    embedding: Embedding | None,
) -> None:
    """Publishes the plan as the current version's chunk set, in the place of the live one.

    The former set is retired at the very instant at which the new one is published, so that as of
    any instant exactly one of them is found. The version now says what this extraction met.
    """
    former = live_set_of(version)
    instant = _instant(version, former)
    _take_out(former, embedding)
    former.state = ChunkSetState.RETIRED
    former.retired_at = instant
    former.save(update_fields=["state", "retired_at"])
    version.doc_date = plan.doc_date
    version.page_count = plan.page_count
    version.truncated = plan.truncated
    version.warnings = list(plan.warnings)
    version.save(update_fields=["doc_date", "page_count", "truncated", "warnings"])
    _go_live(chunk_set, plan, version, at=instant, numbers=numbers, embedding=embedding)
    _record(
        KnowledgeEvent.RECHUNKED,
        operator,
        version,
        chunk_set,
        at=instant,
        chunker_version=chunk_set.chunker_version,
        former_chunk_set_id=str(former.pk),
        former_chunker_version=former.chunker_version,
    )


def _take_out(chunk_set: ChunkSet, embedding: Embedding | None) -> None:
    """Takes a chunk set out of the present; as of an earlier instant it is still found."""
    term_index.retire(chunk_set)
    if embedding is not None:
        embedding.vectors.retire(chunk_set.pk)


def _go_live(
    chunk_set: ChunkSet,
    plan: IngestPlan,
    version: DocumentVersion,
    *,
    at: datetime,
    numbers: Mapping[int, int] | None,
    embedding: Embedding | None,
) -> None:
    space = version.document.space
    if plan.language not in space.languages or plan.analyzer_version not in space.analyzers:
        VisibilitySpace.objects.note(
            space.pk, language=plan.language, analyzer=plan.analyzer_version
        )
    chunk_set.version = version
    chunk_set.state = ChunkSetState.LIVE
    chunk_set.published_at = at
    chunk_set.analyzer_version = plan.analyzer_version
    chunk_set.save()
    if numbers is None:
        numbers = write_chunks(
            chunk_set, plan.chunks, document_id=version.document_id, version=version.version
        )
    term_index.publish(
        [
            (numbers[chunk.draft.ordinal], chunk.row)
            for chunk in plan.chunks
            if chunk.row is not None
        ],
        space=space.pk,
    )
    if embedding is not None:
        embedding.vectors.publish(chunk_set.pk, space=space.pk)


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
        report=live_report(version, chunk_set, embedded=embedded, deleted=deleted),
    )


def live_report(
    version: DocumentVersion, chunk_set: ChunkSet, *, embedded: int, deleted: int = 0
) -> IngestReport:
    """The numbers of a chunk set that is live, of which this call committed `embedded`."""
    return IngestReport(
        chunks=chunk_set.chunk_count,
        embedded=embedded,
        skipped=chunk_set.admitted_count() - embedded,
        quarantined=chunk_set.quarantined_count,
        rejected=chunk_set.rejected_count,
        pending=0,
        truncated=version.truncated,
        warnings=tuple(version.warnings),
        deleted=deleted,
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


def live_set_of(version: DocumentVersion) -> ChunkSet:
    return version.chunk_sets.get(state=ChunkSetState.LIVE)


def _document(
    admitted: Admitted,
    plan: IngestPlan,
    previous: DocumentVersion | None,
    space: VisibilitySpace,
    identity: ConnectorIdentity | None,
) -> Document:
    """The document that the text is a version of; a new one when it is the first."""
    if previous is not None:
        return previous.document
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
    name: str,
    actor: Principal,
    version: DocumentVersion,
    chunk_set: ChunkSet,
    *,
    at: datetime,
    **further: str,
) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=version.tenant_id,
        name=name,
        document_id=version.document_id,
        version=version.version,
        actor=actor.principal_id,
        surface=actor.surface,
        at=at,
        data={
            "chunk_set_id": str(chunk_set.pk),
            "chunks": chunk_set.chunk_count,
            "quarantined": chunk_set.quarantined_count,
            "rejected": chunk_set.rejected_count,
            "flagged": chunk_set.flagged_count,
            **further,
        },
    )


def _instant(previous: DocumentVersion | None, former: ChunkSet | None) -> datetime:
    """The database's clock under the document's lock; it never runs backwards in a document."""
    before = (previous and previous.ingested_at, former and former.published_at)
    return max((now(), *(one + timedelta(microseconds=1) for one in before if one)))
