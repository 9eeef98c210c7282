"""When an arm of the search earns its place: what has an answer must be answered better, and what
has none no worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

LEAST_QUESTIONS: Final = 20
"""Of fewer questions a mean says too little."""
LEAST_LIFT: Final = 0.01
MOST_LOSS: Final = 0.01
MOST_NOISE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTrial:
    """What the search did on a labelled collection without an arm and with it.

    `without` and `with_arm` have `ndcg_at_10` and `hit_at_3`, on `questions`. Of `unanswerable`
    turns so many were shown passages, without the arm and with it.
    """

    arm: str
    model: str
    collection: str
    policy: str
    fusion: str
    questions: int
    without: Mapping[str, float]
    with_arm: Mapping[str, float]
    unanswerable: int
    disturbed_without: int
    disturbed_with: int

    @property
    def lift(self) -> float:
        return self.with_arm["ndcg_at_10"] - self.without["ndcg_at_10"]

    def shortfalls(self) -> list[str]:
        """Why it may not be switched on, in sentences; none when it may."""
        found = []
        if self.questions < LEAST_QUESTIONS:
            found.append(
                f"{self.questions} questions with an answer were tried; {LEAST_QUESTIONS} are"
                " needed."
            )
        if self.lift < LEAST_LIFT:
            found.append(
                f"nDCG@10 is {self.without['ndcg_at_10']:.3f} without it and"
                f" {self.with_arm['ndcg_at_10']:.3f} with it; a lift of {LEAST_LIFT} is needed."
            )
        loss = self.without["hit_at_3"] - self.with_arm["hit_at_3"]
        if loss > MOST_LOSS:
            found.append(
                f"The share of questions with an answer among the first three falls by {loss:.1%};"
                f" at most {MOST_LOSS:.0%} may be lost."
            )
        noise = (self.disturbed_with - self.disturbed_without) / max(self.unanswerable, 1)
        if noise > MOST_NOISE:
            found.append(
                f"Of turns without an answer {noise:.1%} more were shown passages; at most"
                f" {MOST_NOISE:.0%} may be."
            )
        return found

    def figures(self) -> dict[str, Any]:
        """What is recorded and printed; no word of a question."""
        return {**asdict(self), "lift": round(self.lift, 4), "shortfalls": self.shortfalls()}
