"""Who gives way when a turn has too few tokens left: knowledge first, then in-turn recall.

A turn that has lost its user model is more damaged than one that has lost a quotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallItem:
    """A belief that the host wants in the turn: its id, opaque to us, and what it costs."""

    id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """What each class may have. `knowledge` is what the whole block may cost, in tokens."""

    knowledge: int
    kept: tuple[RecallItem, ...]
    yielded: tuple[RecallItem, ...]

    @property
    def recall_tokens(self) -> int:
        return sum(item.tokens for item in self.kept)


def allot(*, tokens_left: int, recall: Sequence[RecallItem]) -> Allotment:
    """Divides what a turn has left; `recall` stands in order of importance.

    Knowledge gets what in-turn recall leaves, whatever its own budget is. Only when that is
    nothing do items of recall give way, whole and the least important first.
    """
    kept: list[RecallItem] = []
    room = max(tokens_left, 0)
    for item in recall:
        if item.tokens > room:
            break
        kept.append(item)
        room -= item.tokens
    yielded = tuple(recall[len(kept) :])
    return Allotment(
        knowledge=0 if yielded else room,
        kept=tuple(kept),
        yielded=yielded,
    )
