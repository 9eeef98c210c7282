"""Chunk sets that are committed batch by batch, out of every reader's sight until they are whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol
from uuid import UUID

from django.db import DatabaseError, InterfaceError
from django.db.models.functions import Now

from access.tenancy import tenant_session
from knowledge.adapters.database import lock_document
from knowledge.adapters.embedding import Embedded, EmbedderFailed, Embedding, embed_passages
from knowledge.adapters.titles import Titles
from knowledge.core.errors import IngestInterrupted
from knowledge.core.types import (
    ChunkSetState,
    ConnectorIdentity,
    IngestProgress,
    IngestResult,
    Verdict,
)
from knowledge.ingest.admission import Admitted
from knowledge.ingest.attempt import Attempt
from knowledge.ingest.plan import IngestPlan, PlannedChunk
from knowledge.ingest.publishing import current_version, live_result, publish
from knowledge.ingest.rows import numbers_of, write_chunks
from knowledge.models import ChunkSet, UnfinishedVersion

LEASE: Final = timedelta(seconds=45)
"""Renewed with every batch. Whoever finds it run out may go on with the version."""


class Unpublished(Protocol):
    """A chunk set whose chunks are being committed, as `in_batches` knows it.

    `number` is that of the version that it is of, or will be of.
    """

    @property
    def chunk_set(self) -> ChunkSet: ...

    @property
    def document_id(self) -> UUID: ...

    @property
    def number(self) -> int: ...

    @property
    def title(self) -> str: ...

    def hold(self) -> None:
        """Takes the document's lock and raises when this call has lost the chunk set."""
        ...

    def finalize(self) -> None:
        """Publishes what is now whole, in the transaction of its last batch."""
        ...


def in_batches(
    unpublished: Unpublished,
    plan: IngestPlan,
    *,
    present: frozenset[int],
    batch_size: int,
    embedding: Embedding | None,
    on_progress: Callable[[IngestProgress], None],
) -> Iterator[Sequence[PlannedChunk]]:
    """Commits the chunks whose ordinals are not `present` and finalizes.

    Yields each batch when it is committed; raises `EmbedderFailed` and whatever `hold` does. No transaction is open while the embedder works. The last batch is
    committed with the finalizing, so that nothing is pending exactly when the chunk set is live;
    it holds an admitted chunk, for the quarantined ones go first.
    """
    left = sorted(
        (chunk for chunk in plan.chunks if chunk.draft.ordinal not in present),
        key=lambda chunk: chunk.verdict is Verdict.ADMIT,
    )
    batches = list(_batches(left, batch_size))
    embedded = plan.admitted - admitted_of(left)

    def tell(batch: int) -> None:
        on_progress(
            IngestProgress(
                embedded=embedded, total=plan.admitted, batch=batch, batches=len(batches)
            )
        )

    tell(0)
    for number, batch in enumerate(batches, start=1):
        embedded_now = _embedded(batch, unpublished, embedding)
        with tenant_session(unpublished.chunk_set.tenant_id):
            unpublished.hold()
            _write(batch, embedded_now, unpublished, embedding)
            if number == len(batches):
                unpublished.finalize()
        embedded += admitted_of(batch)
        tell(number)
        yield batch


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
    *,
    titles: Titles,
    attempt: Attempt,
    embedding: Embedding | None,
) -> IngestResult:
    """Commits what is missing and finalizes; a partial outcome when the embedder fails."""
    embedded = 0
    with _releasing(claim, admitted):
        try:
            for batch in in_batches(
                _NewVersion(claim.unfinished, admitted, plan, titles, attempt, embedding),
                plan,
                present=claim.present,
                batch_size=admitted.request.batch_size,
                embedding=embedding,
                on_progress=attempt.on_progress,
            ):
                embedded += admitted_of(batch)
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
        report=plan.report(
            embedded=embedded, stored=stored, deleted=claim.deleted, warnings=warnings
        ),
    )


def _embedded(
    batch: Sequence[PlannedChunk], unpublished: Unpublished, embedding: Embedding | None
) -> Embedded | None:
    """The vectors of a batch's admitted chunks, in their order."""
    if embedding is None:
        return None
    tenant_id = unpublished.chunk_set.tenant_id
    drafts = [chunk.draft for chunk in _admitted(batch)]
    return embed_passages(embedding, tenant_id, unpublished.title, drafts)


def _write(
    batch: Sequence[PlannedChunk],
    embedded: Embedded | None,
    unpublished: Unpublished,
    embedding: Embedding | None,
) -> None:
    numbers = write_chunks(
        unpublished.chunk_set,
        batch,
        document_id=unpublished.document_id,
        version=unpublished.number,
    )
    if embedding is not None and embedded is not None and embedded.vectors:
        admitted = [numbers[chunk.draft.ordinal] for chunk in _admitted(batch)]
        embedding.vectors.write(
            dict(zip(admitted, embedded.vectors, strict=True)), model=embedded.model
        )


@dataclass(frozen=True, slots=True)
class _NewVersion:
    """The unfinished version of a claim, as long as the lease lasts."""

    unfinished: UnfinishedVersion
    admitted: Admitted
    plan: IngestPlan
    titles: Titles
    attempt: Attempt
    embedding: Embedding | None

    @property
    def chunk_set(self) -> ChunkSet:
        return self.unfinished.chunk_set

    @property
    def document_id(self) -> UUID:
        return self.unfinished.document_id

    @property
    def number(self) -> int:
        return self.unfinished.version

    @property
    def title(self) -> str:
        return self.admitted.title

    def hold(self) -> None:
        lock_document(self.document_id)
        self.attempt.guard()
        if not UnfinishedVersion.objects.renew(
            self.document_id, self.unfinished.lease_token, LEASE
        ):
            raise _LeaseLost

    def finalize(self) -> None:
        unfinished = self.unfinished
        if unfinished.title != self.admitted.title:
            # An earlier call wrote passages under another title; its index rows are made now.
            self.titles.flag(self.chunk_set, self.admitted.title)
            if self.embedding is not None:
                self.embedding.vectors.outdate([self.chunk_set.pk])
        publish(
            self.admitted,
            self.plan,
            previous=current_version(self.document_id),
            space=unfinished.space,
            source=unfinished.original,
            identity=ConnectorIdentity(
                type=unfinished.source_type,
                id=unfinished.source_id,
                version=unfinished.source_version,
            ),
            chunk_set=self.chunk_set,
            numbers=numbers_of(self.chunk_set),
            titles=self.titles,
            embedding=self.embedding,
        )
        UnfinishedVersion.objects.filter(pk=unfinished.pk).delete()


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


def admitted_of(chunks: Sequence[PlannedChunk]) -> int:
    """How many of the chunks are admitted."""
    return len(_admitted(chunks))


def _admitted(chunks: Sequence[PlannedChunk]) -> list[PlannedChunk]:
    return [chunk for chunk in chunks if chunk.verdict is Verdict.ADMIT]
