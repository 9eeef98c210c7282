"""The figures of many days as charts: each a table first, which a script draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final

from knowledge.lifecycle.figures import Figures

Number = float | int | None
_CAUSES: Final = 5


class Unit(StrEnum):
    """What the numbers of a chart are; `charts.js` writes them accordingly."""

    COUNT = "count"
    SHARE = "share"
    MILLISECONDS = "ms"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series by day. `stacked` ones are parts of a whole."""

    title: str
    about: str
    none: str
    unit: Unit
    columns: Sequence[str]
    rows: Sequence[tuple[date, Sequence[Number]]]
    stacked: bool = False

    @property
    def empty(self) -> bool:
        return not any(number for _, numbers in self.rows for number in numbers)


def charts(by_day: Mapping[date, Figures]) -> list[Chart]:
    """What the overview draws, one chart after another."""
    days = list(by_day.values())

    def rows(*series: Sequence[Number]) -> list[tuple[date, Sequence[Number]]]:
        return list(zip(by_day, zip(*series, strict=True), strict=True))

    causes = _causes(days)
    refused = [[day.refused.get(cause, 0) for day in days] for cause in causes]
    others = [sum(n for cause, n in day.refused.items() if cause not in causes) for day in days]
    return [
        Chart(
            title="Ingestion",
            about="Versions that were ingested, and what was refused, by cause.",
            none="Nothing was ingested or refused in this time.",
            unit=Unit.COUNT,
            stacked=True,
            columns=["ingested", *causes, "other refusals"],
            rows=rows([day.ingested for day in days], *refused, others),
        ),
        Chart(
            title="Searches",
            about="Searches, assembled contexts and automatic recalls; how many found nothing.",
            none="Nobody searched in this time.",
            unit=Unit.COUNT,
            columns=["all", "without a passage"],
            rows=rows([day.recalls for day in days], [day.empty for day in days]),
        ),
        Chart(
            title="Search latency",
            about="The time that half of the searches, and 95 of 100, did not exceed.",
            none="Nobody searched in this time.",
            unit=Unit.MILLISECONDS,
            columns=["median", "95 of 100"],
            rows=rows(
                [day.latency_ms(0.5) for day in days], [day.latency_ms(0.95) for day in days]
            ),
        ),
        Chart(
            title="Budget pressure",
            about="The share of searches that left a passage out for want of room.",
            none="No search left anything out for want of room.",
            unit=Unit.SHARE,
            columns=["under pressure"],
            rows=rows([day.budget_pressure for day in days]),
        ),
        Chart(
            title="Citations",
            about="Accuracy: quoted passages that say it. Rate: answers from passages that cite one.",
            none="No host has reported what its answers cite (POST /v1/citations).",
            unit=Unit.SHARE,
            columns=["accuracy", "rate"],
            rows=rows([day.citation_accuracy for day in days], [day.citation_rate for day in days]),
        ),
        Chart(
            title="Instruction-like text",
            about="The share of live chunks that read like instructions to a model.",
            none="No live chunk reads like an instruction.",
            unit=Unit.SHARE,
            columns=["flagged"],
            rows=rows([day.instruction_like_rate for day in days]),
        ),
        Chart(
            title="Storage",
            about="Bytes of the originals, all versions.",
            none="No original is stored.",
            unit=Unit.BYTES,
            columns=["originals"],
            rows=rows([day.source_bytes or None for day in days]),
        ),
    ]


def _causes(days: Sequence[Figures]) -> list[str]:
    """The most frequent reasons of refusals in this time, in the order of the alphabet."""
    counted: Counter[str] = Counter()
    for day in days:
        counted.update(day.refused)
    return sorted(cause for cause, _ in counted.most_common(_CAUSES))
