"""Passages to index rows, by the same analysis that reads questions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from knowledge.core.analysis import analyse
from knowledge.core.bm25 import IndexRow, index_row
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
    title_terms = analyse(title)
    analysed = {
        key: (analyse("\n".join(path)), analyse(text)) for key, (path, text) in passages.items()
    }
    words = {term.spelling for term in title_terms if term.stem}
    for fields in analysed.values():
        words.update(term.spelling for terms in fields for term in terms if term.stem)
    lexeme_of = stemmer.lexemes(sorted(words), language)
    return {
        key: index_row(title_terms, path, body, lexeme_of) for key, (path, body) in analysed.items()
    }
