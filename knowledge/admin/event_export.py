"""The event log as a file: read and written a batch at a time, however long it is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from django.db.models import Q, QuerySet

from knowledge.models import KnowledgeEvent

BATCH = 1_000
_COLUMNS = ("at", "name", "tenant_id", "document_id", "version", "actor", "surface", "data")
# What a spreadsheet would take for a formula, as OWASP lists it ("CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

Session = Callable[[], AbstractContextManager[None]]


def as_csv(events: QuerySet[KnowledgeEvent], session: Session) -> Iterator[bytes]:
    """A line an event; no cell of it begins a formula."""
    yield _lines([_COLUMNS])
    for batch in _batches(events, session):
        yield _lines([[_cell(value) for value in _values(event)] for event in batch])


def as_jsonl(events: QuerySet[KnowledgeEvent], session: Session) -> Iterator[bytes]:
    """A JSON object an event, a line each."""
    for batch in _batches(events, session):
        yield "".join(
            json.dumps(
                dict(zip(_COLUMNS, _values(event), strict=True)), ensure_ascii=False, default=str
            )
            + "\n"
            for event in batch
        ).encode()


def _batches(
    events: QuerySet[KnowledgeEvent], session: Session
) -> Iterator[Sequence[KnowledgeEvent]]:
    """Newest first, each batch after the last event of the one before, in a session of its own."""
    events = events.order_by("-at", "-id")
    after = Q()
    while True:
        with session():
            batch = list(events.filter(after)[:BATCH])
        if not batch:
            return
        yield batch
        last = batch[-1]
        after = Q(at__lt=last.at) | Q(at=last.at, id__lt=last.pk)


def _values(event: KnowledgeEvent) -> list[Any]:
    return [
        event.at.isoformat(),
        event.name,
        event.tenant_id,
        event.document_id and str(event.document_id),
        event.version,
        event.actor,
        event.surface,
        event.data,
    ]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _lines(rows: Sequence[Sequence[Any]]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue().encode()
