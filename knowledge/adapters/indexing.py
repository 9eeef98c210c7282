"""Passages to index rows, by the same analysis that reads questions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from knowledge.core.bm25 import IndexRow, Lexicon, index_row
from knowledge.core.ports import Stemmer

K = TypeVar("K", bound=Hashable)


def index_rows(
    stemmer: Stemmer,
    title: str,
    passages: Mapping[K, tuple[Sequence[str], str]],
    language: str,
) -> dict[K, IndexRow]:
    """The rows of a document's passages, each given as heading path and text.

    The words of all of them go to the stemmer at once.
    """
    fields = {key: ("\n".join(path), text) for key, (path, text) in passages.items()}
    lexicon = Lexicon(
        [title, *(path for path, _ in fields.values())],
        [text for _, text in fields.values()],
        lambda words: stemmer.lexemes(words, language),
    )
    return {key: index_row(title, path, text, lexicon) for key, (path, text) in fields.items()}
