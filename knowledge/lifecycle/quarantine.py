"""Passages that admission set aside: an operator lets them in, with a reason, or removes them."""

from __future__ import annotations

from collections import Counter

from django.db.models import F

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission
from knowledge.adapters import term_index
from knowledge.adapters.database import lock_document
from knowledge.adapters.embedding import Embedded, EmbedderFailed, Embedding, embed_passages
from knowledge.adapters.indexing import index_rows
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.errors import (
    EmbedderUnavailable,
    KnowledgeReleaseNotFinalized,
    NotQuarantined,
)
from knowledge.core.ports import Stemmer
from knowledge.core.types import ChunkSetState, Verdict
from knowledge.core.wording import checked_reason
from knowledge.models import Chunk, ChunkSet, KnowledgeEvent, VisibilitySpace


def release_chunk(
    chunk_id: str,
    operator: Principal,
    stemmer: Stemmer,
    embedding: Embedding | None,
    *,
    reason: str,
) -> Chunk:
    """Admits a quarantined passage: verdict, index row, statistics and event in one transaction.

    Its vector, when there is an embedder, is made now and not before, while no transaction is
    open. Raises `Forbidden` to whoever is no operator, `NotFound`, `NotQuarantined`,
    `ReasonMissing`, `EmbedderUnavailable`, and `KnowledgeReleaseNotFinalized` while its version is
    still being ingested.
    """
    told = checked_reason(reason)
    embedded = _embedded(chunk_id, operator, embedding)
    with tenant_session(operator.tenant_id):
        chunk = _set_aside(chunk_id, operator)
        version = chunk.chunk_set.finalized_version
        document = version.document
        # Of an older version or a retired chunk set it is found as of an earlier instant only.
        live = chunk.chunk_set.state == ChunkSetState.LIVE and version.superseded_at is None
        _count(chunk, admitted=True)
        chunk.verdict = Verdict.ADMIT
        chunk.save(update_fields=["verdict"])
        VisibilitySpace.objects.note(
            document.space_id, language=version.language, analyzer=ANALYZER_VERSION
        )
        rows = index_rows(
            stemmer,
            document.title,
            {chunk.pk: (chunk.heading_path, chunk.text)},
            version.language,
        )
        term_index.add(
            chunk.pk,
            rows[chunk.pk],
            space=document.space_id,
            live=live,
        )
        if embedding is not None and embedded is not None:
            embedding.vectors.write(
                {chunk.pk: embedded.vectors[0]},
                model=embedded.model,
                space=document.space_id,
                live=live,
            )
        _record(KnowledgeEvent.RELEASED, chunk, operator, told)
    return chunk


def _embedded(chunk_id: str, operator: Principal, embedding: Embedding | None) -> Embedded | None:
    if embedding is None:
        return None
    with tenant_session(operator.tenant_id):
        chunk = _set_aside(chunk_id, operator)
        title = chunk.chunk_set.finalized_version.document.title
    try:
        return embed_passages(embedding, operator.tenant_id, title, [chunk])
    except EmbedderFailed as failed:
        raise EmbedderUnavailable from failed


def purge_chunk(chunk_id: str, operator: Principal, *, reason: str) -> None:
    """Removes a quarantined passage for good; from then on it counts as rejected.

    Raises as `release_chunk` does. The original that it came from goes with its document.
    """
    told = checked_reason(reason)
    with tenant_session(operator.tenant_id):
        chunk = _set_aside(chunk_id, operator)
        _count(chunk, admitted=False)
        _record(KnowledgeEvent.PURGED, chunk, operator, told)
        chunk.delete()


def _set_aside(chunk_id: str, operator: Principal) -> Chunk:
    """The chunk under the lock of its document: two operators and an ingest take turns."""
    operator.require_permission(OperatorPermission.RELEASE)
    chunk = _found(chunk_id)
    if chunk.chunk_set.state == ChunkSetState.INGESTING:
        raise KnowledgeReleaseNotFinalized
    lock_document(chunk.chunk_set.finalized_version.document_id)
    chunk = _found(chunk_id)
    if chunk.verdict != Verdict.QUARANTINE:
        raise NotQuarantined
    return chunk


def _found(chunk_id: str) -> Chunk:
    chunk = (
        Chunk.objects.select_related("chunk_set__version__document")
        .filter(chunk_id=chunk_id)
        .first()
    )
    if chunk is None:
        raise NotFound
    return chunk


def _count(chunk: Chunk, *, admitted: bool) -> None:
    """The counts of the report still partition: a purged chunk is one that is not kept."""
    ChunkSet.objects.filter(pk=chunk.chunk_set_id).update(
        quarantined_count=F("quarantined_count") - 1,
        rejected_count=F("rejected_count") + (0 if admitted else 1),
    )


def _record(name: str, chunk: Chunk, operator: Principal, reason: str) -> None:
    version = chunk.chunk_set.finalized_version
    found = Counter(str(each.get("detector", "")) for each in chunk.verdict_reasons)
    KnowledgeEvent.objects.create(
        tenant_id=operator.tenant_id,
        name=name,
        document_id=version.document_id,
        version=version.version,
        actor=operator.principal_id,
        surface=operator.surface,
        data={
            "chunk_id": chunk.chunk_id,
            "chunk_set_id": str(chunk.chunk_set_id),
            "reason": reason,
            "detectors": dict(found),
        },
    )
