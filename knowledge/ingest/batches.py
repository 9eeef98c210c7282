"""A version that is committed batch by batch, out of every reader's sight until it is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import DatabaseError, InterfaceError
from django.db.models.functions import Now

from access.tenancy import tenant_session
from knowledge.adapters.database import lock_document
from knowledge.core.errors import IngestInterrupted
from knowledge.core.types import (
    ChunkSetState,
    ConnectorIdentity,
    IngestProgress,
    IngestReport,
    IngestResult,
    Verdict,
)
from knowledge.ingest.admission import Admitted
from knowledge.ingest.attempt import Attempt
from knowledge.ingest.embedding import EmbedderFailed, Embedding, embed
from knowledge.ingest.plan import IngestPlan, PlannedChunk
from knowledge.ingest.publishing import current_version, live_result, publish
from knowledge.ingest.rows import write_chunks
from knowledge.models import ChunkSet, UnfinishedVersion

LEASE: Final = timedelta(seconds=45)
"""Renewed with every batch. Whoever finds it run out may go on with the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An unfinished version that this call holds the lease of.

    `present` are the ordinals that earlier calls committed, `deleted` the chunks of another
    unfinished version that it took the place of.
    """

    unfinished: UnfinishedVersion
    present: frozenset[int]
    deleted: int


class _LeaseLost(Exception):  # never leaves this module
    """Another call took the version over, or it is no more."""


def carry_out(
    claim: Claim,
    admitted: Admitted,
    plan: IngestPlan,
    attempt: Attempt,
    embedding: Embedding | None,
) -> IngestResult:
    """Commits what is missing and finalizes; a partial outcome when the embedder fails.

    No transaction is open while the embedder works. The last batch is committed with the
    finalizing, so that nothing is pending exactly when the version is live; it holds an admitted
    chunk, for the quarantined ones go first.
    """
    left = sorted(
        (chunk for chunk in plan.chunks if chunk.draft.ordinal not in claim.present),
        key=lambda chunk: chunk.verdict is Verdict.ADMIT,
    )
    batches = list(_batches(left, admitted.request.batch_size))
    there = plan.admitted - _admitted(left)
    embedded = 0

    def tell(batch: int) -> None:
        attempt.on_progress(
            IngestProgress(
                embedded=there + embedded, total=plan.admitted, batch=batch, batches=len(batches)
            )
        )

    with _releasing(claim, admitted):
        try:
            tell(0)
            for number, batch in enumerate(batches, start=1):
                vectors = _vectors(batch, embedding)
                with tenant_session(admitted.principal.tenant_id):
                    _hold(claim.unfinished, attempt)
                    _write(batch, vectors, claim.unfinished, embedding)
                    if number == len(batches):
                        _finalize(claim.unfinished, admitted, plan, embedding)
                embedded += _admitted(batch)
                tell(number)
        except EmbedderFailed as failed:
            problem = f"The embedder failed ({failed.reason}); send this again with `resume`."
            return outcome(claim, admitted, plan, embedded=embedded, warnings=(problem,))
        except _LeaseLost:
            pass
        return outcome(claim, admitted, plan, embedded=embedded)


def outcome(
    claim: Claim,
    admitted: Admitted,
    plan: IngestPlan,
    *,
    embedded: int,
    warnings: tuple[str, ...] = (),
) -> IngestResult:
    """How the version stands now, of which this call committed `embedded` chunks.

    Raises `IngestInterrupted` when it is no more.
    """
    unfinished = claim.unfinished
    with tenant_session(admitted.principal.tenant_id):
        chunk_set = ChunkSet.objects.filter(pk=unfinished.chunk_set_id).first()
        if chunk_set is None:
            raise IngestInterrupted
        if chunk_set.version is not None:
            return live_result(
                chunk_set.version,
                chunk_set,
                already_ingested=embedded == 0,
                embedded=embedded,
                deleted=claim.deleted,
            )
        stored = chunk_set.chunks.filter(verdict=Verdict.ADMIT).count()
    return IngestResult(
        document_id=unfinished.document_id,
        version=unfinished.version,
        state=ChunkSetState.INGESTING,
        chunk_set_id=chunk_set.pk,
        already_ingested=False,
        title=unfinished.title,
        chunk_ids=(),
        report=IngestReport(
            chunks=plan.total,
            embedded=embedded,
            skipped=stored - embedded,
            quarantined=plan.quarantined,
            rejected=plan.rejected,
            pending=plan.admitted - stored,
            truncated=plan.truncated,
            warnings=(*plan.warnings, *warnings),
            deleted=claim.deleted,
        ),
    )


def _vectors(
    batch: Sequence[PlannedChunk], embedding: Embedding | None
) -> dict[int, Sequence[float]]:
    """The vectors of a batch's admitted chunks, by ordinal."""
    if embedding is None:
        return {}
    wanted = [chunk.draft for chunk in batch if chunk.verdict is Verdict.ADMIT]
    vectors = embed(embedding.embedder, wanted)
    return {draft.ordinal: vector for draft, vector in zip(wanted, vectors, strict=True)}


def _write(
    batch: Sequence[PlannedChunk],
    vectors: Mapping[int, Sequence[float]],
    unfinished: UnfinishedVersion,
    embedding: Embedding | None,
) -> None:
    numbers = write_chunks(
        unfinished.chunk_set, batch, document_id=unfinished.document_id, version=unfinished.version
    )
    if embedding is not None and vectors:
        embedding.vectors.write(
            {numbers[ordinal]: vector for ordinal, vector in vectors.items()},
            model=embedding.embedder.model,
        )


def _finalize(
    unfinished: UnfinishedVersion, admitted: Admitted, plan: IngestPlan, embedding: Embedding | None
) -> None:
    """Publishes what is now whole, in the transaction of its last batch."""
    identity = ConnectorIdentity(
        type=unfinished.source_type, id=unfinished.source_id, version=unfinished.source_version
    )
    publish(
        admitted,
        plan,
        previous=current_version(unfinished.document_id),
        space=unfinished.space,
        source=unfinished.original,
        identity=identity,
        chunk_set=unfinished.chunk_set,
        numbers=dict(unfinished.chunk_set.chunks.values_list("ordinal", "pk")),
        embedding=embedding,
    )
    UnfinishedVersion.objects.filter(pk=unfinished.pk).delete()


def _hold(unfinished: UnfinishedVersion, attempt: Attempt) -> None:
    """Makes sure, under the document's lock, that the version is still this call's to write."""
    lock_document(unfinished.document_id)
    attempt.guard()
    if not UnfinishedVersion.objects.renew(unfinished.document_id, unfinished.lease_token, LEASE):
        raise _LeaseLost


@contextlib.contextmanager
def _releasing(claim: Claim, admitted: Admitted) -> Iterator[None]:
    """Whoever stops half-way, for whatever reason it can still act on, lets others go on at once."""
    try:
        yield
    finally:
        with contextlib.suppress(DatabaseError, InterfaceError):
            _release(claim.unfinished, admitted.principal.tenant_id)


def _release(unfinished: UnfinishedVersion, tenant_id: str) -> None:
    with tenant_session(tenant_id):
        UnfinishedVersion.objects.filter(
            pk=unfinished.pk, lease_token=unfinished.lease_token
        ).update(lease_until=Now())


def _batches(chunks: Sequence[PlannedChunk], size: int) -> Iterator[Sequence[PlannedChunk]]:
    for start in range(0, len(chunks), size):
        yield chunks[start : start + size]


def _admitted(chunks: Sequence[PlannedChunk]) -> int:
    return sum(chunk.verdict is Verdict.ADMIT for chunk in chunks)
