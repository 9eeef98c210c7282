"""The figures of a golden set."""

from __future__ import annotations

from uuid import uuid4

import pytest

from knowledge.core.golden import Judged, figures, judge
from knowledge.core.types import GoldenOutcome

RIGHT, OTHER = uuid4(), uuid4()


def test_a_right_passage_that_was_handed_out_is_found() -> None:
    judged = judge([("b", OTHER), ("a", RIGHT)], ["b", "a", "c"], {"a"}, {RIGHT})
    assert judged == Judged(outcome=GoldenOutcome.FOUND, rank=2, returned=2, noise=1)


def test_a_right_passage_that_was_left_out_is_missed_and_has_its_rank() -> None:
    judged = judge([("b", RIGHT)], ["b", "c", "a"], {"a"}, {RIGHT})
    assert judged == Judged(outcome=GoldenOutcome.MISSED, rank=3, returned=1, noise=0)
    nothing = judge([], [], {"a"}, {RIGHT})
    assert nothing == Judged(outcome=GoldenOutcome.MISSED)


def test_a_stale_question_counts_and_weighs_nothing() -> None:
    told = figures(
        [
            Judged(outcome=GoldenOutcome.FOUND, rank=1, returned=3, noise=2),
            Judged(outcome=GoldenOutcome.MISSED, rank=11, returned=1, noise=1),
            Judged(outcome=GoldenOutcome.STALE),
        ]
    )
    assert (told.asked, told.stale, told.found) == (3, 1, 1)
    assert told.recall == pytest.approx(1 / 2)
    assert told.noise == pytest.approx(3 / 4)
    assert told.mrr == pytest.approx(1 / 2), "the eleventh place is too far down"


def test_nothing_asked_has_no_figures() -> None:
    for judged in ([], [Judged(outcome=GoldenOutcome.STALE)]):
        told = figures(judged)
        assert (told.recall, told.noise, told.mrr) == (None, None, None)
