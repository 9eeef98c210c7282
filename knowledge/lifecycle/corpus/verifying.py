"""Going through all there is, a batch at a time, and looking twice before something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from django.db import connection
from django.db.models import Exists, F, OuterRef, QuerySet

from access.tenancy import operations_session
from knowledge.adapters.extractors import Extractors
from knowledge.core.ports import VectorSink
from knowledge.lifecycle.corpus import documents, originals, records
from knowledge.lifecycle.corpus.findings import (
    MOST_NAMED,
    Check,
    CorpusReport,
    Finding,
    Problem,
)
from knowledge.models import Chunk, ChunkIndex

_ROWS_AT_ONCE: Final = 200

OnKind = Callable[[str, int, int], None]
"""Told the kind that is looked at, how many have been, and of how many."""


def ignore_kinds(kind: str, done: int, total: int) -> None:
    """For whoever does not care how far it is."""


def verify_corpus(
    extractors: Extractors,
    vectors: VectorSink | None,
    *,
    tenant: str | None = None,
    on_progress: OnKind = ignore_kinds,
) -> CorpusReport:
    """Looks at everything that is stored, of one tenant or of all. Changes nothing.

    What is written or deleted meanwhile is no finding: whatever seems wrong is looked at again,
    and what is gone by then was never wrong. Raises `StorageUnavailable` when the bytes cannot be
    looked at.
    """
    report = CorpusReport()
    for check in (
        *originals.CHECKS,
        *documents.checks(extractors, vectors, report.unchecked),
        *records.CHECKS,
    ):
        _verify(check, tenant, report, on_progress)
    if tenant is None:
        _dangling(report)
    return report


def _verify(check: Check, tenant: str | None, report: CorpusReport, on_progress: OnKind) -> None:
    def rows() -> QuerySet[Any]:
        return check.rows() if tenant is None else check.rows().filter(tenant_id=tenant)

    with operations_session():
        total = rows().count()
    on_progress(check.kind, 0, total)
    for batch in _batches(rows):
        for row in batch:
            problems = _look(check, row)
            if problems:
                problems, row = _again(check, row.pk)  # noqa: PLW2901 - the same row as it is now
            for one in problems:
                report.add(
                    Finding(
                        kind=check.kind,
                        problem=one.problem,
                        tenant_id=row.tenant_id,
                        id=str(row.pk),
                        of=one.of,
                    )
                )
        report.checked[check.kind] += len(batch)
        on_progress(check.kind, report.checked[check.kind], total)


def _batches(rows: Callable[[], QuerySet[Any]]) -> Iterator[list[Any]]:
    last: Any = None
    while True:
        with operations_session():
            following = rows().order_by("pk")
            if last is not None:
                following = following.filter(pk__gt=last)
            batch = list(following[:_ROWS_AT_ONCE])
        if batch:
            yield batch
        if len(batch) < _ROWS_AT_ONCE:
            return
        last = batch[-1].pk


def _look(check: Check, row: Any) -> list[Problem]:
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        return list(check.look(row))


def _again(check: Check, pk: Any) -> tuple[list[Problem], Any]:
    with operations_session():
        row = check.rows().filter(pk=pk).first()
    return ([], None) if row is None else (_look(check, row), row)


def _dangling(report: CorpusReport) -> None:
    """Index rows have no tenant: those of no chunk are found by going through all."""
    chunk = Chunk.objects.filter(admitted_id=OuterRef("pk"))
    with operations_session():
        rows = ChunkIndex.objects.filter(~Exists(chunk)).annotate(number=F("pk"))
        for number in rows.values_list("number", flat=True)[:MOST_NAMED]:
            report.add(
                Finding(kind="index row", problem="of no passage", tenant_id="", id=str(number))
            )
