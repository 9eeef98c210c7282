"""Dividing a document's current version anew: from its stored source, by today's rules.

The new chunk set grows beside the live one, out of every reader's sight, and takes its place in
one transaction. The former set is retired: its passages keep their ids and resolve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission, Sensitivity
from artifacts import store as artifacts
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import lock_document
from knowledge.adapters.embedding import EmbedderFailed, Embedding
from knowledge.core.errors import (
    ChunkSetRetired,
    InvalidBatchSize,
    KnowledgeError,
    NotInstalled,
    PassagesPurged,
    RechunkBusy,
    Refused,
    UnsupportedMediaType,
)
from knowledge.core.profiles import ChunkingProfile, newest_profile, profile_named
from knowledge.core.types import (
    MAX_BATCH_SIZE,
    Authority,
    ChunkSetState,
    ConnectorIdentity,
    IngestProgress,
    IngestReport,
    IngestRequest,
    RechunkOutcome,
    RechunkRequest,
    RechunkResult,
    Visibility,
)
from knowledge.ingest.admission import Admitted
from knowledge.ingest.batches import admitted_of, in_batches
from knowledge.ingest.pipeline import Ingestor
from knowledge.ingest.plan import IngestPlan
from knowledge.ingest.publishing import (
    current_version,
    live_report,
    live_set_of,
    publish_anew,
)
from knowledge.ingest.rows import chunk_set_of, numbers_of
from knowledge.models import ChunkSet, DocumentVersion, KnowledgeEvent

_TRIES = 3
"""How often a document that keeps moving on is looked at again."""


def documents_to_rechunk(
    ingestor: Ingestor,
    operator: Principal,
    *,
    documents: Sequence[UUID] = (),
    extractor_version: str | None = None,
    chunker_version: str | None = None,
) -> list[UUID]:
    """The tenant's documents in a stable order, or those of the ids that are given, known or not.

    Where an extractor is named, without those that another one reads. Raises `NotInstalled` when that is not what would read, or cut, any document today.
    """
    operator.require_permission(OperatorPermission.MANAGE)
    if chunker_version is not None and chunker_version != ingestor.chunker.version:
        raise NotInstalled(f"The chunker of this installation is {ingestor.chunker.version}.")
    known = ingestor.extractors.versions
    if extractor_version is not None and extractor_version not in known:
        raise NotInstalled(f"The extractors of this installation are {', '.join(known)}.")
    with tenant_session(operator.tenant_id):
        current = DocumentVersion.objects.filter(superseded_at__isnull=True)
        others: list[str] = []
        if extractor_version is not None:
            kinds = current.order_by().values_list("media_type", flat=True).distinct()
            others = [kind for kind in kinds if not _read_by(ingestor, kind, extractor_version)]
        if documents:
            left_out = set(
                current.filter(document_id__in=documents, media_type__in=others).values_list(
                    "document_id", flat=True
                )
            )
            return [each for each in dict.fromkeys(documents) if each not in left_out]
        chosen = current.exclude(media_type__in=others).order_by("document_id")
        return list(chosen.values_list("document_id", flat=True))


def rechunk(
    ingestor: Ingestor,
    document_id: UUID,
    operator: Principal,
    asked: RechunkRequest,
    on_progress: Callable[[IngestProgress], None],
) -> RechunkResult:
    """Divides the current version anew, unless its chunk set is of today's versions already.

    Older versions keep theirs. Whatever is refused (a secret that today's rules see, a file that
    today's extractor cannot read) leaves the document as it is, and an event. Called again after
    an interruption it goes on where that stopped.

    Raises `Forbidden` to whoever is no operator, `NotFound`, a `Refused` with its reason,
    `ChunkSetRetired`, `PassagesPurged`, `UnknownProfile`, and `RechunkBusy` when another call is
    at the same document.
    """
    operator.require_permission(OperatorPermission.MANAGE)
    if not 1 <= asked.batch_size <= MAX_BATCH_SIZE:
        raise InvalidBatchSize(f"A batch has 1 to {MAX_BATCH_SIZE} chunks.")
    for _ in range(_TRIES):
        stored = _stored(document_id, operator.tenant_id)
        try:
            return _rechunk(ingestor, stored, operator, asked, on_progress)
        except _MovedOn:
            continue
    raise RechunkBusy


class _MovedOn(Exception):  # never leaves this module
    """The document has another version, another chunk set or another title by now, or is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A document's current version and live chunk set, as they were when they were looked at."""

    version: DocumentVersion
    live: ChunkSet

    @property
    def document_id(self) -> UUID:
        return self.version.document_id

    def unmoved(self) -> DocumentVersion:
        """The version as it is now, under the document's lock; raises `_MovedOn`.

        Space and hold may be others by now; they are none of a chunk set's business.
        """
        lock_document(self.document_id)
        now = current_version(self.document_id)
        if (
            now is None
            or now.pk != self.version.pk
            or now.document.title != self.version.document.title
            or live_set_of(now).pk != self.live.pk
        ):
            raise _MovedOn
        return now


def _stored(document_id: UUID, tenant_id: str) -> _Stored:
    with tenant_session(tenant_id):
        version = current_version(document_id)
        if version is None:
            raise NotFound
        return _Stored(version=version, live=live_set_of(version))


def _rechunk(
    ingestor: Ingestor,
    stored: _Stored,
    operator: Principal,
    asked: RechunkRequest,
    on_progress: Callable[[IngestProgress], None],
) -> RechunkResult:
    version, live = stored.version, stored.live
    try:
        profile = _profile(live, asked.profile)
        wanted = ingestor.chunker_version(version.media_type, profile)
        if wanted == live.chunker_version:
            return _unchanged(stored)
        _require_new(stored, wanted)
        plan = ingestor.plan(_as_admitted(stored, profile))
        if plan.chunker_version == live.chunker_version:
            return _unchanged(stored)
        _require_new(stored, plan.chunker_version)
    except KnowledgeError as refused:
        if isinstance(refused, Refused | ChunkSetRetired | PassagesPurged) and not asked.dry_run:
            _record_refusal(stored, operator, refused.code)
        raise
    if asked.dry_run:
        return _result(stored, plan, RechunkOutcome.PLANNED, plan.report(embedded=0, stored=0))
    return _commit(
        stored, plan, operator, asked, embedding=ingestor.embedding, on_progress=on_progress
    )


# --- what it would be ------------------------------------------------------------------------


def _profile(live: ChunkSet, asked: str | None) -> ChunkingProfile:
    """The profile that was asked for, else the one that the document was ingested with."""
    if asked is not None:
        return profile_named(asked)
    return newest_profile(live.chunker_version.rpartition("/")[2])


def _require_new(stored: _Stored, chunker_version: str) -> None:
    """Chunk ids depend on the chunker version, so a version has one chunk set of each at most."""
    version = stored.version
    with tenant_session(version.tenant_id):
        if version.chunk_sets.filter(
            chunker_version=chunker_version, state=ChunkSetState.RETIRED
        ).exists():
            raise ChunkSetRetired
        if KnowledgeEvent.objects.filter(
            document_id=version.document_id,
            name=KnowledgeEvent.PURGED,
            version=version.version,
        ).exists():
            raise PassagesPurged


def _as_admitted(stored: _Stored, profile: ChunkingProfile) -> Admitted:
    """The stored version as if it were admitted by its ingester today, as what it is known to be."""
    version, document = stored.version, stored.version.document
    space = document.space
    return Admitted(
        request=IngestRequest(
            artifact_id=version.source_id,
            title=document.title,
            visibility=Visibility(space.visibility),
            project_scope=space.project_scope,
            sensitivity=Sensitivity(space.sensitivity),
            authority=Authority(version.authority),
            doc_date=version.doc_date,
            language=version.language,
            document_id=document.pk,
            source=ConnectorIdentity(
                type=document.source_type, id=document.source_id, version=version.source_version
            ),
            profile=profile.label,
        ),
        principal=Principal(
            tenant_id=document.tenant_id,
            principal_id=space.principal_id or document.ingested_by_principal_id,
        ),
        title=document.title,
        artifact=version.source,
        content=artifacts.read_bytes(version.source),
    )


# --- doing it --------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Anew:
    """The next chunk set of a version, which whoever wrote to it last goes on with.

    `written` is how many chunks this call knows of: when there are more, another call has taken
    over.
    """

    stored: _Stored
    plan: IngestPlan
    operator: Principal
    embedding: Embedding | None
    chunk_set: ChunkSet
    written: int
    version: DocumentVersion

    @property
    def document_id(self) -> UUID:
        return self.stored.document_id

    @property
    def number(self) -> int:
        return self.version.version

    @property
    def title(self) -> str:
        return self.version.document.title

    def hold(self) -> None:
        self.version = self.stored.unmoved()
        there = self.chunk_set.chunks.count()
        mine = ChunkSet.objects.filter(pk=self.chunk_set.pk, state=ChunkSetState.INGESTING)
        if there != self.written or not mine.exists():
            raise RechunkBusy

    def finalize(self) -> None:
        publish_anew(
            self.plan,
            self.version,
            self.operator,
            chunk_set=self.chunk_set,
            numbers=numbers_of(self.chunk_set),
            embedding=self.embedding,
        )


def _commit(
    stored: _Stored,
    plan: IngestPlan,
    operator: Principal,
    asked: RechunkRequest,
    *,
    embedding: Embedding | None,
    on_progress: Callable[[IngestProgress], None],
) -> RechunkResult:
    """Publishes the plan, a short one at once, or goes as far as the embedder lets it."""
    with tenant_session(operator.tenant_id):
        version = stored.unmoved()
        chunk_set, present = _begun(version, plan, embedding)
        short = embedding is None and not present and len(plan.chunks) <= asked.batch_size
        if short or not plan.admitted:
            publish_anew(
                plan, version, operator, chunk_set=chunk_set, numbers=None, embedding=embedding
            )
            report = live_report(version, chunk_set, embedded=plan.admitted)
            return _result(stored, plan, RechunkOutcome.RECHUNKED, report)
        chunk_set.save()
    anew = _Anew(
        stored=stored,
        plan=plan,
        operator=operator,
        embedding=embedding,
        chunk_set=chunk_set,
        written=len(present),
        version=version,
    )
    embedded = 0
    try:
        for batch in in_batches(
            anew,
            plan,
            present=present,
            batch_size=asked.batch_size,
            embedding=embedding,
            on_progress=on_progress,
        ):
            anew.written += len(batch)
            embedded += admitted_of(batch)
    except EmbedderFailed as failed:
        problem = f"The embedder failed ({failed.reason}); run this again to go on."
        stored_chunks = embedded + _admitted_among(plan, present)
        report = plan.report(embedded=embedded, stored=stored_chunks, warnings=(problem,))
        return _result(stored, plan, RechunkOutcome.UNFINISHED, report)
    report = live_report(anew.version, chunk_set, embedded=embedded)
    return _result(stored, plan, RechunkOutcome.RECHUNKED, report)


def _begun(
    version: DocumentVersion, plan: IngestPlan, embedding: Embedding | None
) -> tuple[ChunkSet, frozenset[int]]:
    """The chunk set to go on with and the ordinals it has, else a new one in the place of others."""
    begun = version.chunk_sets.filter(
        state=ChunkSetState.INGESTING, plan_fingerprint=plan.fingerprint
    ).first()
    if begun is not None:
        return begun, frozenset(numbers_of(begun))
    leftovers.discard_rechunking(version, embedding.vectors if embedding else None)
    chunk_set = chunk_set_of(plan, tenant_id=version.tenant_id)
    chunk_set.version = version
    return chunk_set, frozenset()


def _admitted_among(plan: IngestPlan, ordinals: frozenset[int]) -> int:
    return admitted_of([chunk for chunk in plan.chunks if chunk.draft.ordinal in ordinals])


# --- what came of it -------------------------------------------------------------------------


def _unchanged(stored: _Stored) -> RechunkResult:
    live = stored.live
    return RechunkResult(
        document_id=stored.document_id,
        version=stored.version.version,
        outcome=RechunkOutcome.UNCHANGED,
        former_chunker_version=live.chunker_version,
        chunker_version=live.chunker_version,
        report=live_report(stored.version, live, embedded=0),
    )


def _result(
    stored: _Stored, plan: IngestPlan, outcome: RechunkOutcome, report: IngestReport
) -> RechunkResult:
    return RechunkResult(
        document_id=stored.document_id,
        version=stored.version.version,
        outcome=outcome,
        former_chunker_version=stored.live.chunker_version,
        chunker_version=plan.chunker_version,
        report=report,
    )


def _record_refusal(stored: _Stored, operator: Principal, reason: str) -> None:
    """In a transaction of its own, when nothing of the document was changed; never a value."""
    with tenant_session(operator.tenant_id):
        KnowledgeEvent.objects.create(
            tenant_id=operator.tenant_id,
            name=KnowledgeEvent.RECHUNK_REFUSED,
            document_id=stored.document_id,
            version=stored.version.version,
            actor=operator.principal_id,
            surface=operator.surface,
            data={"reason": reason, "chunker_version": stored.live.chunker_version},
        )


def _read_by(ingestor: Ingestor, media_type: str, extractor_version: str) -> bool:
    try:
        return ingestor.extractors.for_type(media_type).version == extractor_version
    except UnsupportedMediaType:  # its extractor is not registered any more
        return False
