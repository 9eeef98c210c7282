"""Background ingests: the row decides who works on what; everything else only hints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from access.durations import WAITS, observe
from access.errors import (
    Internal,
    NotAuthenticated,
    NotFound,
    Unavailable,
    VerbatimError,
    kind_and_place,
)
from access.models import ApiKey
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from knowledge.adapters.database import now
from knowledge.adapters.leases import kept_alive
from knowledge.core.errors import IngestBusy, IngestIncomplete, IngestInterrupted
from knowledge.core.types import (
    Authority,
    ConnectorIdentity,
    IngestProgress,
    IngestRequest,
    IngestResult,
    JobState,
    Visibility,
)
from knowledge.ingest.attempt import Attempt
from knowledge.ingest.pipeline import Ingestor
from knowledge.models import IngestJob, KnowledgeEvent
from knowledge.models.job import MOST_ATTEMPTS

logger = logging.getLogger(__name__)

LEASE: Final = timedelta(seconds=20)
"""Kept alive by whoever works on the job; found run out, its worker is gone."""
HINT_AGAIN: Final = timedelta(seconds=20)
KEPT: Final = timedelta(days=30)
_FIRST_PAUSE: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(minutes=2)
_HINTS_AT_ONCE: Final = 200
_SERVER_ERRORS: Final = 500


class AttemptsExhausted(VerbatimError):
    """Every attempt ended without a word, as when the worker is killed; an operator may retry it."""

    code = "attempts_exhausted"
    status = 500


# --- asking ----------------------------------------------------------------------------------


def enqueue(
    ingestor: Ingestor,
    request: IngestRequest,
    principal: Principal,
    *,
    attempts: int = MOST_ATTEMPTS,
    discards_upload: bool = False,
) -> IngestJob:
    """A job for later, unless it is clear already that the document will be refused.

    Nothing is written into the row that holds a secret: title, names and identity are scanned now.
    """
    document_id = ingestor.accept(request, principal)
    with tenant_session(principal.tenant_id):
        at = now()
        return IngestJob.objects.create(
            tenant_id=principal.tenant_id,
            principal_id=principal.principal_id,
            principal=_principal_as_json(principal),
            request=asdict(request),
            document_id=document_id,
            attempts_left=attempts,
            discards_upload=discards_upload,
            next_attempt_at=at,
            hinted_at=at,
            created_at=at,
        )


def job_of(job_id: UUID, principal: Principal) -> IngestJob:
    """The principal's own job; `NotFound` for anybody else's."""
    with tenant_session(principal.tenant_id):
        job = IngestJob.objects.filter(job_id=job_id, principal_id=principal.principal_id).first()
    if job is None:
        raise NotFound
    return job


def retry(jobs: QuerySet[IngestJob], *, asked_by: str) -> list[UUID]:
    """Gives failed jobs of a queryset all their attempts again. Returns those that were."""
    failed = list(jobs.filter(state=JobState.FAILED).order_by("number"))
    IngestJob.objects.filter(
        job_id__in=[job.job_id for job in failed], state=JobState.FAILED
    ).update(
        state=JobState.QUEUED,
        attempts_left=MOST_ATTEMPTS,
        next_attempt_at=Now(),
        hinted_at=Now(),
        finished_at=None,
    )
    KnowledgeEvent.objects.bulk_create(
        KnowledgeEvent(
            tenant_id=job.tenant_id,
            name=KnowledgeEvent.JOB_RETRIED,
            document_id=job.document_id,
            actor=asked_by,
            surface="admin",
            data={"job_id": str(job.job_id)},
        )
        for job in failed
    )
    return [job.job_id for job in failed]


# --- working ---------------------------------------------------------------------------------


def run(ingestor: Ingestor, job_id: UUID) -> list[UUID]:
    """One attempt at a job that is due, by one worker however many were told of it.

    Returns the jobs that could not begin before this one had ended.
    """
    with operations_session():
        job = IngestJob.objects.claim(job_id, LEASE)
    if job is None:
        return []
    _count_wait(job)
    try:
        principal = _principal_of(job)
        with kept_alive(_renewal(job)):
            result = ingestor.ingest(_request_of(job), principal, _attempt_of(job))
    except VerbatimError as error:
        _record_error(job, error)
    except (DatabaseError, InterfaceError, OSError) as error:
        logger.warning("ingest_job_cut_off", extra={**kind_and_place(error), **_named(job)})
        # The connection that the row is written through may be the one that broke.
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        _record_error(job, Unavailable())
    except Exception as error:  # noqa: BLE001 - a bug of ours must not leave a job that runs for ever
        told = {**kind_and_place(error), **_named(job)}
        logger.error("ingest_job_crashed", extra=told)  # noqa: TRY400 - messages quote data
        _record_error(job, Internal())
    else:
        _record_result(job, result)
    with operations_session():
        later = IngestJob.objects.due().filter(document_id=job.document_id, number__gt=job.number)
        return list(later.order_by("number").values_list("job_id", flat=True)[:1])


def _count_wait(job: IngestJob) -> None:
    """Those of an attempt after a worker died hold what that worker did with the job as well."""
    if job.started_at is not None:
        waited = (job.started_at - job.next_attempt_at).total_seconds()
        observe(WAITS, "first" if job.attempts == 1 else "again", seconds=waited)


def reconcile() -> list[UUID]:
    """Picks up what nobody works on: lost hints, dead workers, pauses that have passed.

    Returns the jobs to hint at, in the order in which they came.
    """
    with operations_session():
        IngestJob.objects.filter(
            state=JobState.RUNNING, lease_until__lte=Now(), attempts_left=0
        ).update(
            state=JobState.FAILED,
            problem=AttemptsExhausted().problem(),
            lease_until=None,
            finished_at=Now(),
        )
        # What became of an attachment or a proposal is known for as long as there is one.
        IngestJob.objects.filter(
            finished_at__lt=Now() - KEPT, attachment__isnull=True, proposal__isnull=True
        ).delete()
        unhinted = Q(hinted_at__isnull=True) | Q(hinted_at__lte=Now() - HINT_AGAIN)
        due = list(
            IngestJob.objects.due()
            .filter(unhinted)
            .order_by("number")
            .values_list("job_id", flat=True)[:_HINTS_AT_ONCE]
        )
        IngestJob.objects.filter(job_id__in=due).update(hinted_at=Now())
    return due


def oldest_waiting_seconds() -> float | None:
    """The age of the oldest job that no worker has taken although it is due."""
    with operations_session():
        oldest = (
            IngestJob.objects.due().order_by("number").values_list("created_at", flat=True).first()
        )
        return None if oldest is None else max((now() - oldest).total_seconds(), 0.0)


def _attempt_of(job: IngestJob) -> Attempt:
    token = _token(job)

    def on_progress(progress: IngestProgress) -> None:
        told = asdict(progress)
        if progress.batch:
            # It gets on: what counts are attempts in a row that do not.
            told["attempts_left"] = MOST_ATTEMPTS
        with tenant_session(job.tenant_id):
            IngestJob.objects.held(job.job_id, token).update(**told)

    def guard() -> None:
        if not IngestJob.objects.held(job.job_id, token).exists():
            raise IngestInterrupted("The job was cancelled, or another worker has taken it over.")

    return Attempt(holder=f"job:{job.job_id}", on_progress=on_progress, guard=guard)


def _renewal(job: IngestJob) -> Callable[[], None]:
    def renew() -> None:
        with tenant_session(job.tenant_id):
            IngestJob.objects.held(job.job_id, _token(job)).update(lease_until=Now() + LEASE)

    return renew


# --- recording -------------------------------------------------------------------------------


def _record_result(job: IngestJob, result: IngestResult) -> None:
    report = result.report
    shown = {
        "document_id": str(result.document_id),
        "version": result.version,
        "state": str(result.state),
        "chunk_set_id": str(result.chunk_set_id),
        "already_ingested": result.already_ingested,
        "title": result.title,
        "report": {**asdict(report), "complete": report.complete},
    }
    if not report.complete:
        _record_error(job, IngestIncomplete(_why(result)), result=shown)
        return
    there = report.embedded + report.skipped
    _finish(job, JobState.DONE, result=shown, problem=None, request={}, embedded=there, total=there)


def _why(result: IngestResult) -> str:
    pending = f"{result.report.pending} chunks are still to be embedded."
    return " ".join((pending, *result.report.warnings[-1:]))


def _record_error(
    job: IngestJob, error: VerbatimError, *, result: dict[str, Any] | None = None
) -> None:
    transient = error.status >= _SERVER_ERRORS or isinstance(error, IngestBusy | IngestIncomplete)
    logger.info(
        "ingest_job_attempt_failed",
        extra={"code": error.code, "attempt": job.attempts, **_named(job)},
    )
    if not transient:
        _finish(job, JobState.REFUSED, problem=error.problem(), request={})
        return
    with tenant_session(job.tenant_id):
        held = IngestJob.objects.held(job.job_id, _token(job))
        left = held.values_list("attempts_left", flat=True).first()
        if left is None:
            return
        told = {"problem": error.problem(), "lease_until": None, "lease_token": None}
        if result is not None:
            told["result"] = result
        if left:
            pause = min(_FIRST_PAUSE * 2 ** (MOST_ATTEMPTS - left - 1), _LONGEST_PAUSE)
            held.update(state=JobState.QUEUED, next_attempt_at=Now() + pause, **told)
        else:
            held.update(state=JobState.FAILED, finished_at=Now(), **told)


def _finish(job: IngestJob, state: JobState, **told: Any) -> None:
    with tenant_session(job.tenant_id):
        ended = IngestJob.objects.held(job.job_id, _token(job)).update(
            state=state, lease_until=None, lease_token=None, finished_at=Now(), **told
        )
        if ended and job.discards_upload:
            artifacts.expire([UUID(job.request["artifact_id"])])


def _named(job: IngestJob) -> dict[str, str]:
    return {"job_id": str(job.job_id)}


def _token(job: IngestJob) -> UUID:
    if job.lease_token is None:
        raise LookupError("the job has not been claimed")
    return job.lease_token


# --- values as JSON and back -----------------------------------------------------------------


def _principal_as_json(principal: Principal) -> dict[str, Any]:
    return {
        **asdict(principal),
        "scopes": sorted(principal.scopes),
        "permissions": sorted(principal.permissions),
        "projects": None if principal.projects is None else sorted(principal.projects),
    }


def _principal_of(job: IngestJob) -> Principal:
    """Who asked, as they were then; raises `NotAuthenticated` when their key is good no more."""
    kept = job.principal
    if kept["key_prefix"] and ApiKey.principal_of(kept["key_prefix"]) is None:
        raise NotAuthenticated("The API key that asked for this has been revoked or has expired.")
    return Principal(
        **{
            **kept,
            "scopes": frozenset(Scope(scope) for scope in kept["scopes"]),
            "permissions": frozenset(map(OperatorPermission, kept["permissions"])),
            "projects": None if kept["projects"] is None else frozenset(kept["projects"]),
            "max_origin_trust": OriginTrust(kept["max_origin_trust"]),
            "sensitivity_ceiling": Sensitivity(kept["sensitivity_ceiling"]),
        }
    )


def _request_of(job: IngestJob) -> IngestRequest:
    """What was asked. A further attempt goes on with what an earlier one began."""
    kept = job.request
    return IngestRequest(
        **{
            **kept,
            "artifact_id": UUID(kept["artifact_id"]),
            "visibility": Visibility(kept["visibility"]),
            "sensitivity": Sensitivity(kept["sensitivity"]),
            "authority": Authority(kept["authority"]),
            "doc_date": date.fromisoformat(kept["doc_date"]) if kept["doc_date"] else None,
            "document_id": UUID(kept["document_id"]) if kept["document_id"] else None,
            "derived_id": UUID(kept["derived_id"]) if kept["derived_id"] else None,
            "source": ConnectorIdentity(**kept["source"]) if kept["source"] else None,
            "origin_trust": OriginTrust(kept["origin_trust"]) if kept["origin_trust"] else None,
            "resume": kept["resume"] or job.attempts > 1,
        }
    )
