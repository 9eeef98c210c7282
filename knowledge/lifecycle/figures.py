"""The tracked metrics: counted out of what is recorded anyway, a row for each tenant and day.

No search, ingest or answer writes a counter that others would wait for. `roll_up` counts the days
that are not final yet, whole, and puts what it finds in the place of what it found before: so it
can run twice, late, or while things happen, and today's figures are as old as its last run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import Subquery, Sum

from access.tenancy import operations_session
from knowledge.adapters import database
from knowledge.core.types import NOT_USE, CitationVerdict
from knowledge.models import DailyFigures, RefusalCount
from knowledge.models.figures import LATENCY_MS

logger = logging.getLogger(__name__)

_LOCK: Final = "verbatim.figures"
# Up to so many documents are counted in a few milliseconds.
_COUNTED_ANEW: Final = 5_000
# What began on a day may be committed a little after it has ended.
_FINAL: Final = "rolled_at >= ((day + 1)::timestamp AT TIME ZONE 'UTC') + interval '1 hour'"
_FIRST: Final = f"""
    SELECT least(%(today)s, coalesce(
        (SELECT max(day) + 1 FROM knowledge_dailyfigures WHERE {_FINAL}),
        (SELECT least(
            (SELECT min(created_at) FROM knowledge_recalltrace),
            (SELECT min(at) FROM knowledge_knowledgeevent WHERE name = 'knowledge.document.ingested'),
            (SELECT min(recorded_at) FROM knowledge_citedanswer)
        ) AT TIME ZONE 'UTC')::date,
        %(today)s
    ))
"""  # noqa: S608 - constants
_DAY: Final = "({} AT TIME ZONE 'UTC')::date"
_SINCE: Final = "{} >= (%(first)s::timestamp AT TIME ZONE 'UTC')"
_LATENCY: Final = ", ".join(
    [*(f"count(*) FILTER (WHERE duration_ms <= {bound})" for bound in LATENCY_MS), "count(*)"]
)
_COUNTS: Final = (
    *("ingested", "searches", "assembles", "preturns", "empty", "pressed", "passages"),
    *("without_arm", "on_replica", "fell_back"),
    *("block_tokens", "duration_ms", "answers", "drawn", "citing"),
)
_CORPUS: Final = (
    *("documents", "versions", "chunks", "flagged", "quarantined", "held", "source_bytes"),
)
# Chunk sets carry the counts of their chunks: the chunks themselves are never counted.
_SHARES: Final = """
    SELECT d.tenant_id, p.visibility, p.sensitivity, split_part(v.media_type, ';', 1) AS media_type,
        count(*)::bigint AS documents,
        sum(o.versions)::bigint AS versions,
        coalesce(sum(s.chunk_count - s.rejected_count), 0)::bigint AS chunks,
        coalesce(sum(s.flagged_count), 0)::bigint AS flagged,
        coalesce(sum(s.quarantined_count), 0)::bigint AS quarantined,
        (count(*) FILTER (WHERE d.legal_hold))::bigint AS held,
        sum(o.bytes)::bigint AS source_bytes
    FROM knowledge_document d
    JOIN knowledge_visibilityspace p ON p.id = d.space_id
    JOIN knowledge_documentversion v
        ON v.document_id = d.document_id AND v.superseded_at IS NULL
    JOIN (
        SELECT of.document_id, count(*) AS versions, sum(a.byte_size) AS bytes
        FROM knowledge_documentversion of JOIN artifacts_artifact a ON a.id = of.source_id
        GROUP BY 1
    ) AS o ON o.document_id = d.document_id
    LEFT JOIN knowledge_chunkset s ON s.version_id = v.id AND s.state = 'live'
    GROUP BY 1, 2, 3, 4
"""
_ROLL_UP: Final = f"""
    WITH asked AS (
        SELECT tenant_id, {_DAY.format("created_at")} AS day,
            count(*) FILTER (WHERE kind = 'search') AS searches,
            count(*) FILTER (WHERE kind = 'assemble') AS assembles,
            count(*) FILTER (WHERE kind = 'preturn') AS preturns,
            count(*) FILTER (WHERE shown = 0) AS empty,
            count(*) FILTER (WHERE pressed) AS pressed,
            count(*) FILTER (WHERE asked -> 'arms_away' <> '[]') AS without_arm,
            count(*) FILTER (WHERE asked ->> 'replica' = 'replica') AS on_replica,
            count(*) FILTER (WHERE asked ->> 'replica' <> 'replica') AS fell_back,
            sum(shown) AS passages,
            sum(block_tokens) FILTER (WHERE shown > 0) AS block_tokens,
            sum(duration_ms) AS duration_ms,
            ARRAY[{_LATENCY}] AS latency
        FROM knowledge_recalltrace
        WHERE {_SINCE.format("created_at")} AND surface <> ALL(%(not_use)s) GROUP BY 1, 2
    ), admitted AS (
        SELECT tenant_id, {_DAY.format("at")} AS day, count(*) AS ingested
        FROM knowledge_knowledgeevent
        WHERE name = 'knowledge.document.ingested' AND {_SINCE.format("at")} GROUP BY 1, 2
    ), answered AS (
        SELECT a.tenant_id, {_DAY.format("a.recorded_at")} AS day,
            count(*) AS answers,
            count(*) FILTER (WHERE a.answered AND t.shown > 0) AS drawn,
            count(*) FILTER (WHERE a.answered AND t.shown > 0 AND a.cited > 0) AS citing
        FROM knowledge_citedanswer a JOIN knowledge_recalltrace t ON t.id = a.trace_id
        WHERE {_SINCE.format("a.recorded_at")} AND t.surface <> ALL(%(not_use)s) GROUP BY 1, 2
    ), verdicts AS (
        SELECT tenant_id, day, jsonb_object_agg(verdict, times) AS citations
        FROM (
            SELECT a.tenant_id, {_DAY.format("a.recorded_at")} AS day, c.verdict, count(*) AS times
            FROM knowledge_citedanswer a JOIN knowledge_citation c ON c.answer_id = a.id
            WHERE {_SINCE.format("a.recorded_at")} GROUP BY 1, 2, 3
        ) AS by_verdict GROUP BY 1, 2
    ), tenants AS (
        SELECT DISTINCT tenant_id, %(today)s::date AS day FROM knowledge_visibilityspace
    ), shares AS ({_SHARES}), corpus AS (
        SELECT tenant_id, t.day, {", ".join(f"coalesce(sum(s.{name}), 0) AS {name}" for name in _CORPUS)},
            coalesce(jsonb_agg(to_jsonb(s) - 'tenant_id') FILTER (WHERE s.documents > 0), '[]')
                AS shares
        FROM tenants t LEFT JOIN shares s USING (tenant_id) GROUP BY 1, 2
    )
    INSERT INTO knowledge_dailyfigures AS kept (
        tenant_id, day, rolled_at, latency, citations, shares, {", ".join(_COUNTS + _CORPUS)}
    )
    SELECT tenant_id, day, clock_timestamp(),
        coalesce(latency, array_fill(0::bigint, ARRAY[{len(LATENCY_MS) + 1}])),
        coalesce(citations, '{{}}'), shares, {", ".join(f"coalesce({name}, 0)" for name in _COUNTS)},
        {", ".join(_CORPUS)}
    FROM (
        SELECT tenant_id, day FROM asked UNION SELECT tenant_id, day FROM admitted
        UNION SELECT tenant_id, day FROM answered UNION SELECT tenant_id, day FROM tenants
    ) AS days
    LEFT JOIN asked USING (tenant_id, day) LEFT JOIN admitted USING (tenant_id, day)
    LEFT JOIN answered USING (tenant_id, day) LEFT JOIN verdicts USING (tenant_id, day)
    LEFT JOIN corpus USING (tenant_id, day)
    ON CONFLICT (tenant_id, day) DO UPDATE SET
        rolled_at = excluded.rolled_at, latency = excluded.latency, citations = excluded.citations,
        shares = coalesce(excluded.shares, kept.shares),
        {", ".join(f"{name} = excluded.{name}" for name in _COUNTS)},
        {", ".join(f"{name} = coalesce(excluded.{name}, kept.{name})" for name in _CORPUS)}
"""  # noqa: S608 - constants


# The corpus is that of the last day on which it was looked at.
_TOTALS: Final = f"""
    SELECT tenant_id, {", ".join(f"sum({name}) AS {name}" for name in _COUNTS)},
        ARRAY[{
    ", ".join(f"sum(latency[{place}])::bigint" for place in range(1, len(LATENCY_MS) + 2))
}]
            AS latency,
        {
    ", ".join(
        f"coalesce((array_agg({name} ORDER BY day DESC) FILTER (WHERE {name} IS NOT NULL))[1], 0)"
        f" AS {name}"
        for name in _CORPUS
    )
}
    FROM knowledge_dailyfigures GROUP BY 1
"""  # noqa: S608 - constants
_CITATIONS: Final = """
    SELECT tenant_id, key, sum(value::bigint)
    FROM knowledge_dailyfigures, jsonb_each_text(citations) GROUP BY 1, 2 ORDER BY 2
"""
_REFUSALS: Final = """
    SELECT tenant_id, reason, sum(count) FROM knowledge_refusalcount GROUP BY 1, 2 ORDER BY 2
"""
_WAITING: Final = """
    SELECT CASE WHEN a.number IS NULL THEN 'ingest' ELSE 'attachment' END, j.state, count(*)
    FROM knowledge_ingestjob j LEFT JOIN knowledge_attachment a ON a.job_id = j.number
    WHERE j.state IN ('queued', 'running', 'failed') GROUP BY 1, 2 ORDER BY 1, 2
"""
# The last pass of the sweeper that came to its end.
_SWEPT: Final = """
    SELECT extract(epoch FROM clock_timestamp() - finished_at), swept, failed, orphans
    FROM artifacts_sweeprun WHERE finished_at IS NOT NULL ORDER BY started_at DESC LIMIT 1
"""
# The last run of each golden set that came to figures.
_GOLDEN: Final = """
    SELECT tenant_id, min(recall_at_3), max(noise_at_3) FROM (
        SELECT DISTINCT ON (golden_set_id) tenant_id, recall_at_3, noise_at_3
        FROM knowledge_goldenrun
        WHERE recall_at_3 IS NOT NULL AND noise_at_3 IS NOT NULL
        ORDER BY golden_set_id, id DESC
    ) AS last GROUP BY 1 ORDER BY 1
"""
_NOW: Final = """
    SELECT (SELECT count(*) FROM knowledge_recalltrace WHERE thinned_at IS NULL),
        (SELECT count(*) FROM knowledge_recalltrace WHERE thinned_at IS NOT NULL),
        (SELECT coalesce(extract(epoch FROM clock_timestamp() - max(rolled_at)), 'infinity')
            FROM knowledge_dailyfigures WHERE day = (SELECT max(day) FROM knowledge_dailyfigures)),
        (SELECT coalesce(extract(epoch FROM greatest(clock_timestamp() - min(created_at),
            interval '0')), 0)
            FROM knowledge_ingestjob WHERE state = 'queued' AND next_attempt_at <= clock_timestamp())
"""


def roll_up() -> int:
    """Counts every day that is not final, today included. Returns the number of rows written.

    0 when another run is at it.
    """
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        today = database.now().date()
        cursor.execute(_FIRST, {"today": today})
        (first,) = cursor.fetchone()
        cursor.execute(_ROLL_UP, {"first": first, "today": today, "not_use": sorted(NOT_USE)})
        written: int = cursor.rowcount
    logger.info("figures_rolled_up", extra={"rows": written})
    return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What happened on one day, or on several together; the corpus is that of the last of them.

    `drawn` counts the answers that were drawn from passages, `citing` those of them that cite one.
    `pressed` counts the searches that left something out for want of room, `without_arm` those that
    did without an arm that could not answer, `on_replica` those that a replica answered and
    `fell_back` those that it could not, or not yet.
    """

    ingested: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    searches: int = 0
    assembles: int = 0
    preturns: int = 0
    empty: int = 0
    pressed: int = 0
    without_arm: int = 0
    on_replica: int = 0
    fell_back: int = 0
    passages: int = 0
    block_tokens: int = 0
    duration_ms: float = 0.0
    latency: Sequence[int] = (0,) * (len(LATENCY_MS) + 1)
    answers: int = 0
    drawn: int = 0
    citing: int = 0
    citations: Mapping[str, int] = field(default_factory=dict)
    documents: int = 0
    versions: int = 0
    chunks: int = 0
    flagged: int = 0
    quarantined: int = 0
    held: int = 0
    source_bytes: int = 0

    @property
    def recalls(self) -> int:
        """Searches of every kind."""
        return self.searches + self.assembles + self.preturns

    @property
    def budget_pressure(self) -> float | None:
        """The share of searches that left something out for want of room."""
        return _share(self.pressed, self.recalls)

    @property
    def instruction_like_rate(self) -> float | None:
        """The share of the corpus's passages that read like instructions."""
        return _share(self.flagged, self.chunks)

    @property
    def citation_rate(self) -> float | None:
        """How often an answer that was drawn from passages cites one."""
        return _share(self.citing, self.drawn)

    @property
    def citation_accuracy(self) -> float | None:
        """How often a cited passage of the block holds what is quoted from it."""
        right = self._of(CitationVerdict.EXACT, CitationVerdict.NORMALISED)
        wrong = self._of(CitationVerdict.MISATTRIBUTED, CitationVerdict.NOT_FOUND)
        return _share(right, right + wrong)

    def latency_ms(self, share: float) -> float | None:
        """The time that so many of the searches did not exceed, between two bounds of the counts.

        `None` without searches; the highest bound when it lies beyond.
        """
        wanted, below, counted = share * self.latency[-1], 0.0, 0
        if not self.latency[-1]:
            return None
        for bound, count in zip(LATENCY_MS, self.latency, strict=False):
            if count >= wanted and count > counted:
                return below + (bound - below) * (wanted - counted) / (count - counted)
            below, counted = bound, count
        return below

    def _of(self, *verdicts: CitationVerdict) -> int:
        return sum(self.citations.get(str(verdict), 0) for verdict in verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What is in the corpus, by what it is visible to, how sensitive it is and what it was read from.

    Each share is `{tenant_id, visibility, sensitivity, media_type}` with the counts of `Figures`.
    `counted_at` is `None` when that is now.
    """

    shares: Sequence[Mapping[str, Any]]
    counted_at: datetime | None

    def total(self, name: str) -> int:
        return sum(share[name] for share in self.shares)

    def by(self, name: str) -> list[dict[str, Any]]:
        """The counts by the value of one of the four, the most documents first."""
        added: dict[str, dict[str, Any]] = {}
        for share in self.shares:
            row = added.setdefault(share[name], {"value": share[name], **dict.fromkeys(_CORPUS, 0)})
            for count in _CORPUS:
                row[count] += share[count]
        return sorted(added.values(), key=lambda row: (-row["documents"], row["value"]))


def corpus() -> Corpus:
    """In the caller's session: of one tenant, or of all of them for whoever sees all.

    A small corpus is counted now; a large one was by the last roll-up, a minute ago.
    """
    last = DailyFigures.objects.order_by("-day").values("day")[:1]
    rows = list(
        DailyFigures.objects.filter(day=Subquery(last)).values(
            "tenant_id", "shares", "documents", "rolled_at"
        )
    )
    if sum(row["documents"] or 0 for row in rows) > _COUNTED_ANEW:
        return Corpus(
            shares=[
                {"tenant_id": row["tenant_id"], **share}
                for row in rows
                for share in row["shares"] or ()
            ],
            counted_at=min(row["rolled_at"] for row in rows),
        )
    with connection.cursor() as cursor:
        cursor.execute(_SHARES)
        columns = [column.name for column in cursor.description or ()]
        shares = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    return Corpus(shares=shares, counted_at=None)


def figures_by_day(days: int) -> dict[date, Figures]:
    """The last so many days, today last, each with its figures even when nothing happened.

    In the caller's session: of one tenant, or of all of them together for whoever sees all.
    """
    today = database.now().date()
    wanted = [today - timedelta(days=ago) for ago in reversed(range(days))]
    rows: dict[date, list[DailyFigures]] = {day: [] for day in wanted}
    for row in DailyFigures.objects.filter(day__gte=wanted[0], day__lte=today):
        rows[row.day].append(row)
    refused: dict[date, dict[str, int]] = {}
    counted = RefusalCount.objects.filter(day__gte=wanted[0]).values("day", "reason")
    for one in counted.annotate(times=Sum("count")).order_by("-times", "reason"):
        refused.setdefault(one["day"], {})[one["reason"]] = one["times"]
    return {day: _of_tenants(of_day, refused.get(day, {})) for day, of_day in sorted(rows.items())}


@dataclass(frozen=True, slots=True)
class Sweep:
    """The last pass of the sweeper that came to its end: how long ago, and what it did."""

    age_seconds: float
    swept: int
    failed: int
    orphans: int


@dataclass(frozen=True, slots=True)
class GoldenFigures:
    """The lowest passage recall and the highest noise at 3 of a tenant's golden sets."""

    recall: float
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All that was ever counted, by tenant, and what waits and is kept at this moment.

    `jobs` counts by kind (`ingest`, `attachment`) and state, the finished ones left out unless
    they failed. `age_seconds` is how old the counts by tenant are; infinite before the first.
    """

    tenants: Mapping[str, Figures]
    jobs: Mapping[tuple[str, str], int]
    oldest_waiting_seconds: float
    traces: Mapping[str, int]
    age_seconds: float
    sweep: Sweep | None
    golden: Mapping[str, GoldenFigures]


def totals() -> Totals:
    """For whoever watches the installation: every tenant, in a handful of statements."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(_TOTALS)
        columns = [column.name for column in cursor.description or ()]
        rows = {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in cursor.fetchall()}
        cursor.execute(_CITATIONS)
        citations = _by_tenant(cursor.fetchall())
        cursor.execute(_REFUSALS)
        refused = _by_tenant(cursor.fetchall())
        cursor.execute(_WAITING)
        jobs = {(kind, state): count for kind, state, count in cursor.fetchall()}
        cursor.execute(_NOW)
        whole, thinned, age, oldest = cursor.fetchone()
        cursor.execute(_SWEPT)
        last = cursor.fetchone()
        cursor.execute(_GOLDEN)
        golden = {tenant: GoldenFigures(*worst) for tenant, *worst in cursor.fetchall()}
    return Totals(
        tenants={
            tenant: Figures(
                **rows.get(tenant, {}),
                citations=citations.get(tenant, {}),
                refused=refused.get(tenant, {}),
            )
            for tenant in sorted({*rows, *refused})
        },
        jobs=jobs,
        oldest_waiting_seconds=float(oldest),
        traces={"whole": whole, "thinned": thinned},
        age_seconds=float(age),
        sweep=Sweep(float(last[0]), *last[1:]) if last else None,
        golden=golden,
    )


def _by_tenant(rows: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for tenant, word, times in rows:
        found.setdefault(tenant, {})[word] = int(times)
    return found


def together(days: Iterable[Figures]) -> Figures:
    """Several days, in their order, as one."""
    of_days = list(days)
    added: dict[str, Any] = {name: sum(getattr(one, name) for one in of_days) for name in _COUNTS}
    last = {name: getattr(of_days[-1], name) for name in _CORPUS} if of_days else {}
    return Figures(
        **added,
        **last,
        refused=_added([one.refused for one in of_days]),
        citations=_added([one.citations for one in of_days]),
        latency=_summed([one.latency for one in of_days]),
    )


def _of_tenants(rows: Sequence[DailyFigures], refused: Mapping[str, int]) -> Figures:
    added: dict[str, Any] = {
        name: sum(getattr(row, name) or 0 for row in rows) for name in _COUNTS + _CORPUS
    }
    return Figures(
        **added,
        refused=refused,
        citations=_added([row.citations for row in rows]),
        latency=_summed([row.latency for row in rows]),
    )


def _added(counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    added: dict[str, int] = {}
    for one in counted:
        for name, times in one.items():
            added[name] = added.get(name, 0) + times
    return added


def _summed(latencies: Sequence[Sequence[int]]) -> tuple[int, ...]:
    summed = [0] * (len(LATENCY_MS) + 1)
    for latency in latencies:
        summed = [total + count for total, count in zip(summed, latency, strict=True)]
    return tuple(summed)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
