"""The scores of several arms made into one `match` a passage, 0..1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

LEXICAL: Final = "lexical"
SEMANTIC: Final = "semantic"

# A chunk's number in the index, or its id.
Chunk = TypeVar("Chunk", int, str)
# Arm name -> chunk -> the arm's own score, 0..1. An arm that ran and found nothing is present
# and empty; an arm that is switched off is absent.
ArmScores = Mapping[str, Mapping[Chunk, float]]


class Fusion(Protocol):
    """One strategy of fusing. `version` goes into the trace."""

    @property
    def version(self) -> str: ...

    def fuse(self, arms: ArmScores[Chunk]) -> dict[Chunk, float]:
        """`match`, 0..1, of every chunk that any arm found."""
        ...


def _frozen(weights: Mapping[str, float]) -> Mapping[str, float]:
    return MappingProxyType(dict(weights))


def _clipped(score: float) -> float:
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedFusion:
    """The weighted mean of the arms' scores over the arms that ran.

    It keeps what the scores say: a passage that answers nothing scores low in every arm, so that
    a floor has a meaning. With the lexical arm alone `match` is its calibrated score. Every arm
    should score every member of the union; a score that is missing counts as 0, and so does a
    negative one.
    """

    weights: Mapping[str, float] = field(
        default_factory=lambda: _frozen({LEXICAL: 0.6, SEMANTIC: 0.4})
    )
    version: str = "calibrated-1"

    def fuse(self, arms: ArmScores[Chunk]) -> dict[Chunk, float]:
        present = {name: self.weights.get(name, 0.0) for name in sorted(arms)}
        total = math.fsum(present.values())
        found = sorted({chunk_id for scores in arms.values() for chunk_id in scores})
        if total <= 0:
            return dict.fromkeys(found, 0.0)
        return {
            chunk_id: _clipped(
                math.fsum(
                    weight * _clipped(arms[name].get(chunk_id, 0.0))
                    for name, weight in present.items()
                )
                / total
            )
            for chunk_id in found
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReciprocalRankFusion:
    """Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009), scaled to 0..1.

    A rank says nothing about how good a passage is, so a floor on this `match` means less. The
    paper's k = 60 lets a weak arm drown a strong one; a small k and twice the weight for words
    nearly undoes that.
    """

    k: float = 5.0
    weights: Mapping[str, float] = field(
        default_factory=lambda: _frozen({LEXICAL: 2.0, SEMANTIC: 1.0})
    )
    version: str = "rrf-1"

    def fuse(self, arms: ArmScores[Chunk]) -> dict[Chunk, float]:
        best = math.fsum(self.weights.get(name, 0.0) for name in sorted(arms)) / (self.k + 1)
        found = sorted({chunk_id for scores in arms.values() for chunk_id in scores})
        fused = dict.fromkeys(found, 0.0)
        if best <= 0:
            return fused
        for name in sorted(arms):
            scores = arms[name]
            weight = self.weights.get(name, 0.0)
            order = sorted(scores, key=lambda chunk_id: (-scores[chunk_id], chunk_id))
            for rank, chunk_id in enumerate(order, start=1):
                fused[chunk_id] += weight / (self.k + rank) / best
        return {chunk_id: _clipped(score) for chunk_id, score in fused.items()}


def calibrated_cosine(cosine: float, floor: float) -> float:
    """How much nearer two texts are than texts about different things: 0 at the floor, 1 at 1.

    Models differ in what they call near, and a floor of its own makes their scores comparable.
    """
    return _clipped((cosine - floor) / (1.0 - floor))
