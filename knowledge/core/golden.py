"""The figures of a golden set: recall@3, noise@3 and MRR@10 of what was asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from knowledge.core.types import GoldenOutcome

MRR_DEPTH: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One question's outcome: the place of its first right passage among all that was ranked, from
    1, and of the passages that were handed out how many there were and how many answer nothing."""

    outcome: GoldenOutcome
    rank: int | None = None
    returned: int = 0
    noise: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Over the questions that could be answered; `None` when there was none, or nothing came."""

    asked: int
    stale: int
    found: int
    recall: float | None
    noise: float | None
    mrr: float | None


def judge(
    returned: Sequence[tuple[str, UUID]],
    ranked: Sequence[str],
    right: Collection[str],
    documents: Collection[UUID],
) -> Judged:
    """`right` are the chunk ids that answer, and `documents` those that they are in.

    `returned` are the passages that were handed out, each with its document; noise is one whose
    document answers nothing. `ranked` are all, best first.
    """
    rank = next((place for place, one in enumerate(ranked, start=1) if one in right), None)
    return Judged(
        outcome=(
            GoldenOutcome.FOUND
            if any(chunk_id in right for chunk_id, _ in returned)
            else GoldenOutcome.MISSED
        ),
        rank=rank,
        returned=len(returned),
        noise=sum(document not in documents for _, document in returned),
    )


def figures(judged: Sequence[Judged]) -> Figures:
    """The figures of a run; a stale question has its count and weighs on nothing else."""
    askable = [one for one in judged if one.outcome is not GoldenOutcome.STALE]
    returned = sum(one.returned for one in askable)
    found = sum(one.outcome is GoldenOutcome.FOUND for one in askable)
    reciprocal = [
        1.0 / one.rank if one.rank is not None and one.rank <= MRR_DEPTH else 0.0 for one in askable
    ]
    return Figures(
        asked=len(judged),
        stale=len(judged) - len(askable),
        found=found,
        recall=found / len(askable) if askable else None,
        noise=sum(one.noise for one in askable) / returned if returned else None,
        mrr=sum(reciprocal) / len(askable) if askable else None,
    )
