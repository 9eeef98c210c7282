"""Whether writers of one tenant wait for each other: ingests at once, and locks looked at meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Final

from django.db import connection

from access.principal import Principal
from access.tenancy import operations_session
from knowledge.adapters import term_index
from knowledge.evaluation.generate import paragraphs_of
from knowledge.evaluation.processes import pool
from knowledge.evaluation.throwaway import member, throw_away_tenant, uploaded
from knowledge.models import TermDelta, TermStatistic, VisibilitySpace
from knowledge.wiring import store

_PARAGRAPHS: Final = 12
_LOOK_SECONDS: Final = 0.005
# What this database's other sessions wait for, ours left out.
_WAITING: Final = """
    SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'),
           coalesce(max(extract(epoch FROM clock_timestamp() - query_start))
                    FILTER (WHERE wait_event_type = 'Lock'), 0)
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


def bench_writers(
    paths: Sequence[Path], *, writers: Sequence[int], documents: int
) -> dict[str, Any]:
    """For each number of writers: documents a second, and how often one waits for a lock.

    All write into one visibility space of one throw-away tenant, so all share every word's
    statistic. `merged` says what the deltas of the run became.
    """
    paragraphs = paragraphs_of(paths)
    return {
        "documents_a_writer": documents,
        "writers": {number: _run(paragraphs, number, documents) for number in writers},
    }


def _run(paragraphs: list[str], writers: int, documents: int) -> dict[str, Any]:
    database = connection.settings_dict["NAME"]
    with throw_away_tenant("bench") as tenant_id, pool(writers, database=database) as workers:
        principal = member(tenant_id)
        # Every process has its rules compiled and its words stemmed before the clock starts.
        _finish([workers.submit(_write, principal, paragraphs, -1 - n, 2) for n in range(writers)])
        started = time.perf_counter()
        tasks = [
            workers.submit(_write, principal, paragraphs, n, documents) for n in range(writers)
        ]
        looks, waiting, longest = _look(tasks)
        seconds = time.perf_counter() - started
        return {
            "documents_a_second": round(writers * documents / seconds, 1),
            "looks": looks,
            "looks_with_a_writer_waiting": waiting,
            "longest_wait_seen_ms": round(longest * 1_000, 1),
            "merged": _merge(tenant_id),
        }


def _write(principal: Principal, paragraphs: list[str], writer: int, documents: int) -> None:
    rng = random.Random(writer)  # noqa: S311 - documents, not secrets
    for number in range(documents):
        title = f"Document {number} of writer {writer}"
        text = "\n\n".join([f"# {title}", *rng.choices(paragraphs, k=_PARAGRAPHS)])
        with uploaded(
            principal, text.encode(), filename="note.md", media_type="text/markdown", title=title
        ) as request:
            store().ingest(request, principal)


def _look(tasks: Sequence[Future[None]]) -> tuple[int, int, float]:
    """How often we looked, how often a session waited for a lock, and the longest wait seen."""
    looks = waiting = 0
    longest = 0.0
    while not all(task.done() for task in tasks):
        with connection.cursor() as cursor:
            cursor.execute(_WAITING)
            sessions, seconds = cursor.fetchone()
        looks += 1
        waiting += sessions > 0
        longest = max(longest, float(seconds))
        time.sleep(_LOOK_SECONDS)
    _finish(tasks)
    return looks, waiting, longest


def _finish(tasks: Sequence[Future[None]]) -> None:
    wait(tasks)
    for task in tasks:
        task.result()


def _merge(tenant_id: str) -> dict[str, Any]:
    with operations_session():
        spaces = list(
            VisibilitySpace.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)
        )
        deltas = TermDelta.objects.filter(space__in=spaces).count()
    started = time.perf_counter()
    with operations_session():
        term_index.merge_statistics()
    return {
        "deltas": deltas,
        "statistics": TermStatistic.objects.filter(space__in=spaces).count(),
        "seconds": round(time.perf_counter() - started, 2),
    }
