"""How long traces are kept: whole, then as ids, hashes and counts, then not at all.

Each batch is a transaction of its own, so a run that is killed has done what it has done, and the
next one goes on. Rows that somebody else holds are left for the next run: nothing here waits for
a lock, so two runs at once, or a deletion that is scrubbing the same traces, are in nobody's way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Now

from access.tenancy import operations_session
from knowledge.models import RecallTrace, TracedPassage

logger = logging.getLogger(__name__)
_BATCH = 500

# What stays of the passages that were left out is which, and why.
_THIN = """
    UPDATE knowledge_recalltrace
    SET query_text = NULL, beliefs = NULL, notes = NULL, asked = NULL,
        words = NULL, thinned_at = statement_timestamp(),
        omitted = (
            SELECT coalesce(jsonb_agg(one - 'score' - 'terms' ORDER BY place), '[]')
            FROM jsonb_array_elements(omitted) WITH ORDINALITY AS omitted_one (one, place)
        )
    WHERE id = ANY(%s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """How many traces lost their words, and how many went."""

    thinned: int
    dropped: int


def retain_traces(*, full: timedelta, whole: timedelta) -> Retained:
    """Drops the traces older than `whole`, and thins those older than `full`.

    By the database's clock. To be run after `roll_up`, which counts them.
    """
    dropped = _in_batches(RecallTrace.objects.filter(created_at__lt=Now() - whole), _drop)
    old = RecallTrace.objects.filter(created_at__lt=Now() - full, thinned_at__isnull=True)
    retained = Retained(dropped=dropped, thinned=_in_batches(old, _thin))
    logger.info("traces_retained", extra={"thinned": retained.thinned, "dropped": retained.dropped})
    return retained


def _in_batches(due: QuerySet[RecallTrace], act: Callable[[list[UUID]], None]) -> int:
    done, busy = 0, set[UUID]()
    while True:
        with operations_session():
            taken = list(
                due.exclude(pk__in=busy)
                .select_for_update(skip_locked=True)
                .order_by("created_at")
                .values_list("pk", flat=True)[:_BATCH]
            )
            passages = TracedPassage.objects.filter(trace__in=taken)
            free = passages.select_for_update(skip_locked=True).order_by()
            held = passages.exclude(pk__in=list(free.values_list("pk", flat=True)))
            skipped = set(held.values_list("trace_id", flat=True))
            ready = [trace for trace in taken if trace not in skipped]
            act(ready)
        busy |= skipped
        done += len(ready)
        if len(taken) < _BATCH:
            return done


def _thin(traces: list[UUID]) -> None:
    TracedPassage.objects.filter(trace__in=traces).update(
        title=None, heading_path=None, doc_date=None, score=None, terms=None, arms=None
    )
    with connection.cursor() as cursor:
        cursor.execute(_THIN, [traces])


def _drop(traces: list[UUID]) -> None:
    RecallTrace.objects.filter(pk__in=traces).delete()
