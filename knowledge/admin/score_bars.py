"""What a score is made of, as a bar: each term by its weight, and the penalty taken off again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_ADDED: Final = ("match", "authority", "scope", "recency")
_PENALTY: Final = "penalty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of the bar, in hundredths of the whole, as attributes of SVG are written."""

    name: str
    x: str
    width: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBar:
    """`said` is the same in words, for who does not see it."""

    segments: tuple[Segment, ...]
    floor: str | None
    said: str


def score_bar(
    terms: Mapping[str, Any] | None, weights: Mapping[str, float], floor: float | None
) -> ScoreBar | None:
    """`None` when the record does not say what the score is made of."""
    if not terms or not weights:
        return None
    counted = {
        name: weights.get(name, 0.0) * float(terms.get(name) or 0.0) for name in (*_ADDED, _PENALTY)
    }
    segments, at = [], 0.0
    for name in _ADDED:
        segments.append(_segment(name, at, counted[name]))
        at += counted[name]
    if counted[_PENALTY] > 0:
        taken = min(counted[_PENALTY], at)
        segments.append(_segment(_PENALTY, at - taken, taken))
    said = " + ".join(f"{name} {_short(counted[name])}" for name in _ADDED if counted[name])
    if counted[_PENALTY]:
        said += f" − penalty {_short(counted[_PENALTY])}"
    return ScoreBar(
        segments=tuple(segments),
        floor=None if floor is None else _percent(floor),
        said=said or "nothing",
    )


def _segment(name: str, start: float, width: float) -> Segment:
    return Segment(name=name, x=_percent(start), width=_percent(width))


def _percent(share: float) -> str:
    return f"{min(max(share, 0.0), 1.0) * 100:.2f}"


def _short(share: float) -> str:
    return f"{share:.3f}".lstrip("0")
