"""When automatic recall helps: what has an answer must find it, what has none must stay empty.

A turn that asks for nothing pays for every passage that it is given, and most turns ask for
nothing. So the floor is stricter than a search's, and a tenant's switch needs a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

LEAST_QUESTIONS: Final = 20
"""Of fewer questions, and fewer turns without an answer, a share says too little."""
LEAST_RECALL: Final = 0.25
LEAST_PRECISION: Final = 0.5
MOST_NOISE: Final = 0.03


class EmptyReason(StrEnum):
    """Why automatic recall adds nothing to a turn."""

    DISABLED = "disabled"
    BELOW_FLOOR = "below_floor"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What automatic recall did on a labelled collection.

    Of `answerable` questions `recalled` were given passages and `answered` one that answers; of
    `unanswerable` turns `disturbed` were given passages, by where the turns come from. `tokens` is
    what the blocks of the unanswerable cost together.
    """

    collection: str
    floor: float
    policy: str
    answerable: int
    recalled: int
    answered: int
    unanswerable: Mapping[str, int]
    disturbed: Mapping[str, int]
    tokens: int

    @property
    def recall(self) -> float:
        """The gain: without automatic recall no turn is given a passage."""
        return _share(self.answered, self.answerable)

    @property
    def precision(self) -> float:
        return _share(self.answered, self.recalled)

    @property
    def noise(self) -> float:
        return _share(sum(self.disturbed.values()), sum(self.unanswerable.values()))

    def shortfalls(self) -> list[str]:
        """Why it may not be switched on, in sentences; none when it may."""
        found = []
        if self.answerable < LEAST_QUESTIONS or sum(self.unanswerable.values()) < LEAST_QUESTIONS:
            found.append(
                f"{self.answerable} questions with an answer and {sum(self.unanswerable.values())}"
                f" turns without one were tried; {LEAST_QUESTIONS} of each are needed."
            )
        if self.recall < LEAST_RECALL:
            found.append(
                f"{self.recall:.0%} of the questions were given a passage that answers;"
                f" {LEAST_RECALL:.0%} are needed."
            )
        if self.precision < LEAST_PRECISION:
            found.append(
                f"Of the questions that were given passages {self.precision:.0%} were given one"
                f" that answers; {LEAST_PRECISION:.0%} are needed."
            )
        if self.noise > MOST_NOISE:
            found.append(
                f"{self.noise:.1%} of the turns without an answer were given passages; at most"
                f" {MOST_NOISE:.0%} may be."
            )
        return found

    def figures(self) -> dict[str, Any]:
        """What is recorded and printed; no word of a question."""
        return {
            **asdict(self),
            "recall": round(self.recall, 4),
            "precision": round(self.precision, 4),
            "noise": round(self.noise, 4),
            "shortfalls": self.shortfalls(),
        }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
