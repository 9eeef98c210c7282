"""Background work on the corpus: ids in, one call, transient errors retried."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from celery import Task, shared_task
from celery.exceptions import OperationalError as BrokerError
from django.conf import settings
from django.db import OperationalError, transaction
from redis import RedisError

from access.tenancy import operations_session
from knowledge.adapters import term_index
from knowledge.ingest import jobs
from knowledge.lifecycle import bulk
from knowledge.lifecycle.abandoned import discard_abandoned
from knowledge.lifecycle.figures import roll_up
from knowledge.lifecycle.retention import retain_traces
from knowledge.retrieval import golden
from knowledge.wiring import store

logger = logging.getLogger(__name__)


@shared_task(
    name="knowledge.merge_term_statistics", autoretry_for=(OperationalError,), max_retries=3
)
def merge_term_statistics() -> int:
    with operations_session():
        return term_index.merge_statistics()


@shared_task(
    name="knowledge.discard_abandoned_versions", autoretry_for=(OperationalError,), max_retries=3
)
def discard_abandoned_versions() -> int:
    return discard_abandoned(timedelta(days=settings.ABANDONED_INGEST_DAYS), store().vectors)


@shared_task(name="knowledge.roll_up_figures", autoretry_for=(OperationalError,), max_retries=3)
def roll_up_figures() -> int:
    return roll_up()


@shared_task(name="knowledge.retain_traces", autoretry_for=(OperationalError,), max_retries=3)
def retain() -> None:
    """Counts them first: what is dropped is in the figures."""
    roll_up()
    retain_traces(
        full=timedelta(days=settings.TRACE_FULL_DAYS), whole=timedelta(days=settings.TRACE_DAYS)
    )


@shared_task(name="knowledge.embed_missing", autoretry_for=(OperationalError,), max_retries=3)
def embed_missing() -> None:
    """Passages that were retitled, or admitted while there was no embedder, or by another model."""
    # Less than until beat asks again, so that two workers do not do the same.
    store().embed_all(seconds=240)


@shared_task(name="knowledge.run_ingest_job")
def run_ingest_job(job_id: str) -> None:
    """Not retried by the broker: the row says when it is tried again."""
    for next_id in store().run_job(UUID(job_id)):
        hint(next_id)


@shared_task(name="knowledge.reconcile_ingest_jobs")
def reconcile_ingest_jobs() -> int:
    due = jobs.reconcile()
    for job_id in due:
        hint(job_id)
    return len(due)


@shared_task(name="knowledge.run_golden_set", autoretry_for=(OperationalError,), max_retries=3)
def run_golden_set(run_id: int) -> None:
    store().run_golden_set(int(run_id))


@shared_task(name="knowledge.reconcile_golden_runs")
def reconcile_golden_runs() -> int:
    forsaken = golden.forsaken_runs()
    for run_id in forsaken:
        hint_at_golden_run(run_id)
    return len(forsaken)


@shared_task(name="knowledge.run_bulk_task")
def run_bulk_task(task_id: str) -> None:
    """One turn, so that a long task leaves the worker to others in between."""
    if store().run_bulk(UUID(task_id)):
        hint_bulk(UUID(task_id))


@shared_task(name="knowledge.reconcile_bulk_tasks")
def reconcile_bulk_tasks() -> int:
    due = bulk.reconcile()
    for task_id in due:
        hint_bulk(task_id)
    return len(due)


def hint(job_id: UUID) -> None:
    """Tells a worker of a job as soon as its row is committed.

    A hint that cannot be sent is no loss: `reconcile_ingest_jobs` finds the row.
    """
    transaction.on_commit(partial(_send, run_ingest_job, job_id))


def hint_bulk(task_id: UUID) -> None:
    """The same for a bulk action."""
    transaction.on_commit(partial(_send, run_bulk_task, task_id))


def hint_at_golden_run(run_id: int) -> None:
    """The same for the asking of a golden set."""
    transaction.on_commit(partial(_send, run_golden_set, run_id))


def _send(task: Task[[Any], None], row_id: UUID | int) -> None:
    try:
        task.apply_async((str(row_id),), retry=False)
    except (BrokerError, RedisError, OSError) as error:
        logger.warning("hint_lost", extra={"row_id": str(row_id), "error": type(error).__name__})
