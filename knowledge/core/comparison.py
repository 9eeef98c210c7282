"""What differs between two texts: which passages, and in those which words.

Both halves take a time that grows with the texts and not with how they differ, or are cut off:
somebody waits for the answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from diff_match_patch import diff_match_patch

_WORD: Final = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
# Characters without a meaning of their own, one for each different word.
_FIRST, _LAST = 0xF0000, 0x10FFFD


class Kind(StrEnum):
    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Run:
    """`old[old_start:old_end]` stands where `new[new_start:new_end]` does; `same` or replaced."""

    same: bool
    old_start: int
    old_end: int
    new_start: int
    new_end: int


def aligned(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Run]:
    """Runs of equal and of replaced items, in order, that cover both sequences.

    Bram Cohen's patience difference: items that occur once in both and in the same order are
    anchors, and equal neighbours join them. O(n log n), whatever the two have in common.
    """
    runs: list[Run] = []
    at_old = at_new = 0
    for anchor_old, anchor_new in (*_anchors(old, new), (len(old), len(new))):
        if anchor_old < at_old or anchor_new < at_new:
            continue  # a neighbour of the anchor before it
        start_old, start_new = anchor_old, anchor_new
        while (
            start_old > at_old and start_new > at_new and old[start_old - 1] == new[start_new - 1]
        ):
            start_old, start_new = start_old - 1, start_new - 1
        end_old, end_new = anchor_old, anchor_new
        while end_old < len(old) and end_new < len(new) and old[end_old] == new[end_new]:
            end_old, end_new = end_old + 1, end_new + 1
        _append(runs, Run(False, at_old, start_old, at_new, start_new))
        _append(runs, Run(True, start_old, end_old, start_new, end_new))
        at_old, at_new = end_old, end_new
    return runs


def word_differences(old: str, new: str, *, seconds: float) -> list[tuple[Kind, str]]:
    """Pieces that, without the added ones, are `old`, and without the removed ones `new`.

    After `seconds` what is not compared yet is one removed and one added piece.
    """
    words: dict[str, str] = {}
    coded = [_coded(text, words) for text in (old, new)]
    if len(words) > _LAST - _FIRST or seconds <= 0:
        whole = [(Kind.REMOVED, old), (Kind.ADDED, new)] if old != new else [(Kind.SAME, old)]
        return [piece for piece in whole if piece[1]]
    differ = diff_match_patch()
    differ.Diff_Timeout = seconds
    pieces = differ.diff_main(coded[0], coded[1], False)
    differ.diff_cleanupSemantic(pieces)
    spelt = {code: word for word, code in words.items()}
    kinds = {-1: Kind.REMOVED, 0: Kind.SAME, 1: Kind.ADDED}
    return [(kinds[sign], "".join(spelt[code] for code in codes)) for sign, codes in pieces]


def _coded(text: str, words: dict[str, str]) -> str:
    codes = []
    for word in _WORD.findall(text):
        if word not in words:
            words[word] = chr(min(_FIRST + len(words), _LAST))
        codes.append(words[word])
    return "".join(codes)


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The longest chain of items that occur once on either side, by increasing position."""
    counts = Counter(old), Counter(new)
    place = {item: index for index, item in enumerate(new) if counts[1][item] == 1}
    pairs = [
        (index, place[item])
        for index, item in enumerate(old)
        if counts[0][item] == 1 and item in place
    ]
    # Patience sorting: `tops[n]` is the smallest end of a chain of n + 1 pairs.
    tops: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, (_, position) in enumerate(pairs):
        length = bisect_left(tops, position)
        before.append(ends[length - 1] if length else None)
        if length == len(tops):
            tops.append(position)
            ends.append(index)
        else:
            tops[length], ends[length] = position, index
    chain: list[tuple[int, int]] = []
    at: int | None = ends[-1] if ends else None
    while at is not None:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _append(runs: list[Run], run: Run) -> None:
    if run.old_start == run.old_end and run.new_start == run.new_end:
        return
    last = runs[-1] if runs else None
    if last is not None and last.same == run.same:
        run = Run(run.same, last.old_start, run.old_end, last.new_start, run.new_end)
        runs.pop()
    runs.append(run)
