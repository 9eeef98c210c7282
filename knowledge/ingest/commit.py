"""Step 7, commit: a short document in one transaction, a long one batch by batch and finalized.

Whatever happens in between, readers see all of the former version or all of the new one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from django.db import InterfaceError, OperationalError, connection

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from artifacts import store as artifacts
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import lock_document, now
from knowledge.adapters.embedding import Embedding
from knowledge.adapters.titles import Titles
from knowledge.core import fingerprint
from knowledge.core.errors import (
    IngestBusy,
    IngestIncomplete,
    IngestPlanMismatch,
    IngestScopeMismatch,
)
from knowledge.core.scope import resolve_scope
from knowledge.core.types import IngestResult, Verdict, Visibility
from knowledge.ingest.admission import Admitted
from knowledge.ingest.attempt import Attempt
from knowledge.ingest.batches import LEASE, Claim, carry_out, outcome
from knowledge.ingest.plan import IngestPlan
from knowledge.ingest.publishing import (
    current_version,
    live_result,
    live_set_of,
    publish,
    source_of,
)
from knowledge.ingest.rows import chunk_set_of
from knowledge.models import ChunkSet, DocumentVersion, UnfinishedVersion, VisibilitySpace

# How long a call waits for another that is ingesting the same document.
WAIT_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fresh:
    """Nothing to go on with: a new version, in the place of an unfinished one if there is one."""

    previous: DocumentVersion | None
    replaced: UnfinishedVersion | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resumed:
    """The unfinished version is this very one, and nobody is at it."""

    unfinished: UnfinishedVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Somebody is at the document at this moment, with this very version or another."""

    unfinished: UnfinishedVersion
    same: bool


_Step = IngestResult | _Fresh | _Resumed | _Waiting


def commit(
    admitted: Admitted,
    plan: IngestPlan,
    *,
    titles: Titles,
    attempt: Attempt | None = None,
    embedding: Embedding | None = None,
) -> IngestResult:
    """Publishes the plan as the document's newest version, or goes as far as it can.

    The source's bytes are written before the transaction that names them and taken back when it
    failed for certain. A crash between the two, or a connection lost in the commit, leaves at most
    a blob without a row, which the sweeper removes.
    """
    attempt = attempt or Attempt()
    begun = _begin(admitted, plan, titles, attempt, embedding)
    if isinstance(begun, IngestResult):
        return begun
    return carry_out(begun, admitted, plan, titles=titles, attempt=attempt, embedding=embedding)


def _begin(
    admitted: Admitted,
    plan: IngestPlan,
    titles: Titles,
    attempt: Attempt,
    embedding: Embedding | None,
) -> IngestResult | Claim:
    tenant_id = admitted.principal.tenant_id
    patience = time.monotonic() + WAIT_SECONDS
    key, kept = "", False
    try:
        while True:
            with tenant_session(tenant_id):
                step = _next_step(admitted, plan, attempt)
            if isinstance(step, IngestResult):
                return step
            if isinstance(step, _Waiting):
                if time.monotonic() >= patience:
                    return _instead_of_waiting(step, admitted, plan)
                time.sleep(_LOOK_SECONDS)
                continue
            if isinstance(step, _Fresh) and not key:
                key = artifacts.store_blob(admitted.content)
            with tenant_session(tenant_id):
                # Ingests of one document take turns, and each sees what the one before it made.
                lock_document(plan.document_id)
                attempt.guard()
                step = _next_step(admitted, plan, attempt)
                begun: IngestResult | Claim | None = None
                if isinstance(step, _Fresh) and key:
                    begun = _start(
                        step,
                        key,
                        admitted,
                        plan,
                        titles=titles,
                        attempt=attempt,
                        embedding=embedding,
                    )
                elif isinstance(step, _Resumed):
                    begun = _take_over(step.unfinished, attempt)
                elif isinstance(step, IngestResult):
                    begun = step
            if begun is not None:
                kept = isinstance(step, _Fresh)
                return begun
    except (OperationalError, InterfaceError):
        # The connection may have died after the commit: then a row names these bytes. If none
        # does, the sweeper removes them, and nothing that was admitted is ever lost.
        kept = True
        raise
    finally:
        if key and not kept:
            artifacts.discard_blob(key)


# --- what there is to do ---------------------------------------------------------------------


def _next_step(admitted: Admitted, plan: IngestPlan, attempt: Attempt) -> _Step:
    """Raises what keeps this text from becoming the document's newest version."""
    known, begun = _what_there_is(plan.document_id)
    current = current_version(plan.document_id) if known else None
    unfinished = (
        UnfinishedVersion.objects.select_related("space", "chunk_set")
        .filter(pk=plan.document_id)
        .first()
        if begun
        else None
    )
    if current is not None:
        _require_same_space(current.document.space, admitted)
        _require_writer(current.document.ingested_by_principal_id, admitted.principal)
        if _is_current(current, admitted, plan):
            chunk_set = live_set_of(current)
            _require_same_profile(chunk_set, admitted)
            return live_result(current, chunk_set, already_ingested=True, embedded=0)
        _require_new_source_version(current, admitted)
    if unfinished is not None:
        return _beside(unfinished, current, admitted, plan, attempt)
    if current is None and admitted.request.document_id is not None:
        raise NotFound
    return _Fresh(previous=current, replaced=None)


def _what_there_is(document_id: UUID) -> tuple[bool, bool]:
    """Whether the document has a version, and an unfinished one: most have neither yet."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM knowledge_documentversion WHERE document_id = %(id)s),"
            " EXISTS (SELECT FROM knowledge_unfinishedversion WHERE document_id = %(id)s)",
            {"id": document_id},
        )
        known, begun = cursor.fetchone()
    return known, begun


def _beside(
    unfinished: UnfinishedVersion,
    current: DocumentVersion | None,
    admitted: Admitted,
    plan: IngestPlan,
    attempt: Attempt,
) -> _Step:
    """What an unfinished version of the document means for this one."""
    if current is None:
        _require_same_space(unfinished.space, admitted)
        _require_writer(unfinished.ingested_by_principal_id, admitted.principal)
    asked = _source_version(admitted)
    same_version = asked == unfinished.source_version
    same = same_version and unfinished.chunk_set.plan_fingerprint == plan.fingerprint
    own = bool(attempt.holder) and attempt.holder == unfinished.lease_holder
    if not own and unfinished.lease_until > now():
        return _Waiting(unfinished=unfinished, same=same)
    if current is not None and unfinished.space_id != current.document.space_id:
        # Planned for a scope that the document has no more, so nobody can go on with it.
        return _Fresh(previous=current, replaced=unfinished)
    if same and (own or admitted.request.resume):
        return _Resumed(unfinished=unfinished)
    if same:
        raise IngestIncomplete
    if same_version and asked:
        raise IngestPlanMismatch(
            f"An unfinished ingest of source version {asked!r} has another text or plan. Give the"
            " new content a new source version, or delete the document to give the other up."
        )
    if same_version and admitted.request.resume:
        raise IngestPlanMismatch(
            "What was begun has another text or plan, so it cannot be resumed. Send this without"
            " `resume` to start over."
        )
    return _Fresh(previous=current, replaced=unfinished)


def _is_current(current: DocumentVersion, admitted: Admitted, plan: IngestPlan) -> bool:
    """The current text, under no other name for the version, is nothing new."""
    asked = _source_version(admitted)
    content = (admitted.artifact.sha256, plan.media_type)
    return (current.source.sha256, current.media_type) == content and (
        not asked or asked == current.source_version
    )


def _require_new_source_version(current: DocumentVersion, admitted: Admitted) -> None:
    """A connector's name for a version stands for one content."""
    asked = _source_version(admitted)
    if not asked:
        return
    others = DocumentVersion.objects.filter(
        document_id=current.document_id, source_version=asked
    ).exclude(source__sha256=admitted.artifact.sha256)
    if others.exists():
        raise IngestPlanMismatch(
            f"Source version {asked!r} was ingested with another text. Give the new content a new"
            " source version."
        )


def _require_same_profile(chunk_set: ChunkSet, admitted: Admitted) -> None:
    """A newer version of the profile that it was cut by is no other one; another name is."""
    label = chunk_set.chunker_version.rsplit("/", 1)[-1]
    asked = admitted.request.profile
    if label != asked and not label.startswith(f"{asked}-"):
        raise IngestPlanMismatch(
            f"The current text is there already, cut by the profile {label!r}. To cut it anew,"
            " give it a new source version, or delete it and admit it again."
        )


def _source_version(admitted: Admitted) -> str:
    source = admitted.request.source
    return source.version if source else ""


def _space_of(admitted: Admitted) -> dict[str, Any]:
    request, principal = admitted.request, admitted.principal
    return {
        "tenant_id": principal.tenant_id,
        "visibility": request.visibility,
        "project_scope": request.project_scope,
        "principal_id": (
            principal.principal_id if request.visibility is Visibility.PRINCIPAL else None
        ),
        "sensitivity": request.sensitivity,
    }


def _require_same_space(space: VisibilitySpace, admitted: Admitted) -> None:
    """What the caller may not see does not exist; what it sees keeps its visibility."""
    scope = resolve_scope(admitted.principal, admitted.request.project_scope)
    if not VisibilitySpace.objects.visible_to(scope).filter(pk=space.pk).exists():
        raise NotFound
    asked = _space_of(admitted)
    if any(getattr(space, field) != value for field, value in asked.items()):
        raise IngestScopeMismatch(
            f"This document is visible as '{space}'. Rescope it to change that."
        )


def _require_writer(ingested_by: str, principal: Principal) -> None:
    """A new text may come from the ingesting principal or whoever could delete the document."""
    if ingested_by != principal.principal_id and Scope.DELETE not in principal.scopes:
        raise Forbidden("Another principal admitted this document.")


# --- doing it --------------------------------------------------------------------------------


def _start(
    step: _Fresh,
    storage_key: str,
    admitted: Admitted,
    plan: IngestPlan,
    *,
    titles: Titles,
    attempt: Attempt,
    embedding: Embedding | None,
) -> IngestResult | Claim:
    """Publishes a short document at once; of a longer one, writes what its batches hang on."""
    deleted = 0
    if step.replaced is not None:
        deleted = leftovers.discard(step.replaced, embedding.vectors if embedding else None)
    space = (
        step.previous.document.space
        if step.previous
        else VisibilitySpace.objects.get_or_create(**_space_of(admitted))[0]
    )
    source = source_of(admitted, plan, storage_key)
    chunk_set = chunk_set_of(plan, tenant_id=admitted.principal.tenant_id)
    short = embedding is None and len(plan.chunks) <= admitted.request.batch_size
    if short or not plan.admitted:
        version = publish(
            admitted,
            plan,
            previous=step.previous,
            space=space,
            source=source,
            identity=admitted.request.source,
            chunk_set=chunk_set,
            numbers=None,
            titles=titles,
            embedding=embedding,
        )
        return live_result(
            version,
            chunk_set,
            already_ingested=False,
            embedded=plan.admitted,
            deleted=deleted,
            chunk_ids=tuple(
                fingerprint.chunk_id(version.document_id, version.version, chunk.key)
                for chunk in plan.chunks
                if chunk.verdict is Verdict.ADMIT
            ),
        )
    chunk_set.save()
    identity = admitted.request.source
    started = now()
    unfinished = UnfinishedVersion.objects.create(
        document_id=plan.document_id,
        tenant_id=admitted.principal.tenant_id,
        version=step.previous.version + 1 if step.previous else 1,
        chunk_set=chunk_set,
        original=source,
        space=space,
        ingested_by_principal_id=admitted.principal.principal_id,
        title=admitted.title,
        source_type=identity.type if identity else "",
        source_id=identity.id if identity else "",
        source_version=identity.version if identity else "",
        lease_holder=attempt.holder,
        lease_token=uuid4(),
        lease_until=started + LEASE,
        started_at=started,
    )
    return Claim(unfinished=unfinished, present=frozenset(), deleted=deleted)


def _take_over(unfinished: UnfinishedVersion, attempt: Attempt) -> Claim:
    unfinished.lease_holder = attempt.holder
    unfinished.lease_token = uuid4()
    unfinished.lease_until = now() + LEASE
    unfinished.save(update_fields=["lease_holder", "lease_token", "lease_until"])
    present = unfinished.chunk_set.chunks.values_list("ordinal", flat=True)
    return Claim(unfinished=unfinished, present=frozenset(present), deleted=0)


def _instead_of_waiting(step: _Waiting, admitted: Admitted, plan: IngestPlan) -> IngestResult:
    """What the other has done so far, when it is the same; `IngestBusy` otherwise."""
    if not step.same:
        raise IngestBusy
    claim = Claim(unfinished=step.unfinished, present=frozenset(), deleted=0)
    return outcome(claim, admitted, plan, embedded=0)
