"""What differs between two texts: whole, in order, and in bounded time."""

from __future__ import annotations

import random
import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.comparison import Kind, Run, aligned, word_differences

ITEMS = st.lists(st.sampled_from("abcdefgh"), max_size=20)
TEXTS = st.text(alphabet="ab c.\n\u202e\u00e9", max_size=60)


@given(ITEMS, ITEMS)
def test_runs_cover_both_sides_in_order(old: list[str], new: list[str]) -> None:
    at_old = at_new = 0
    runs = aligned(old, new)
    for run in runs:
        assert (run.old_start, run.new_start) == (at_old, at_new)
        at_old, at_new = run.old_end, run.new_end
        same = old[run.old_start : run.old_end] == new[run.new_start : run.new_end]
        assert same or not run.same
    assert (at_old, at_new) == (len(old), len(new))
    assert all(one.same != other.same for one, other in pairwise(runs))
    assert not old or old != new or runs == [Run(True, 0, len(old), 0, len(new))]


def test_what_stands_between_what_stayed_is_replaced() -> None:
    assert aligned("abXcd", "abYZcd") == [
        Run(True, 0, 2, 0, 2),
        Run(False, 2, 3, 2, 4),
        Run(True, 3, 5, 4, 6),
    ]


@given(TEXTS, TEXTS)
def test_pieces_make_both_texts(old: str, new: str) -> None:
    pieces = word_differences(old, new, seconds=1)
    assert "".join(text for kind, text in pieces if kind is not Kind.ADDED) == old
    assert "".join(text for kind, text in pieces if kind is not Kind.REMOVED) == new


def test_a_changed_word_is_a_changed_word() -> None:
    assert word_differences("Drain the node first.", "Drain the pod first.", seconds=1) == [
        (Kind.SAME, "Drain the "),
        (Kind.REMOVED, "node "),
        (Kind.ADDED, "pod "),
        (Kind.SAME, "first."),
    ]


def test_neither_half_takes_long_on_texts_made_to_be_slow() -> None:
    chance = random.Random(7)
    began = time.perf_counter()
    old, new = ([chance.choice("ab") for _ in range(5_000)] for _ in range(2))
    assert aligned(old, new)
    numbers = [str(number) for number in range(5_000)]
    assert len(aligned(numbers, numbers[::2] + numbers[1::2])) > 1
    words = (" ".join(chance.choice("abcd") for _ in range(20_000)) for _ in range(2))
    assert word_differences(*words, seconds=0.5)
    assert time.perf_counter() - began < 10
    assert word_differences("a b", "a c", seconds=0) == [(Kind.REMOVED, "a b"), (Kind.ADDED, "a c")]
