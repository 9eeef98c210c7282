"""What a search arm is given and gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Protocol

from django.db import DEFAULT_DB_ALIAS

from knowledge.core.scope import ReadScope
from knowledge.core.types import KnowledgeQuery, QueryWord
from knowledge.models import VisibilitySpace
from knowledge.retrieval.prepared import Prepared, shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchView:
    """What a caller may search: the numbers of its spaces, and how they are written and indexed.

    The spaces come from a table under row-level security, so nobody can name a foreign one.
    `using` names the database that it was read from, in whose session it is searched.
    """

    scope: ReadScope
    as_of: datetime | None
    spaces: tuple[int, ...]
    languages: tuple[str, ...]
    analyzers: tuple[str, ...]
    using: str = DEFAULT_DB_ALIAS

    @classmethod
    def of(
        cls, scope: ReadScope, *, as_of: datetime | None = None, using: str = DEFAULT_DB_ALIAS
    ) -> SearchView:
        rows = _spaces(shape_of(scope)).rows(scope, using=using)
        spaces, languages, analyzers = set[int](), set[str](), set[str]()
        for number, written, indexed in rows:
            spaces.add(number)
            languages.update(written)
            analyzers.update(indexed)
        return cls(
            scope=scope,
            as_of=as_of,
            spaces=tuple(sorted(spaces)),
            languages=tuple(sorted(languages)),
            analyzers=tuple(sorted(analyzers)),
            using=using,
        )


@cache
def _spaces(shape: ReadScope) -> Prepared:
    visible = VisibilitySpace.objects.visible_to(shape)
    return Prepared.of(visible.values_list("id", "languages", "analyzers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an arm found: number of a chunk to its score, 0..1, and what a person should know.

    `words` is how many different words of the text it read, stop words aside.
    `taken` are those of the whole question as it took them, when it goes by words.
    `score` says what the arm makes of chunks that another one found in the same view.
    """

    scores: Mapping[int, float]
    notes: tuple[str, ...] = ()
    words: int = 0
    taken: tuple[QueryWord, ...] = ()
    score: Callable[[Sequence[int]], Mapping[int, float]] = lambda numbers: dict.fromkeys(
        numbers, 0.0
    )


class ArmFailed(Exception):  # a search goes on without the arm
    """An arm cannot answer; `reason` names no content."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


# Finds what of a view answers: the best chunks, so many at most.
Asked = Callable[[SearchView, int], Found]


class SearchArm(Protocol):
    """One way of finding chunks."""

    name: str

    def prepare(self, query: KnowledgeQuery) -> Asked:
        """What can be done before a transaction is open; raises `ArmFailed`."""
        ...


class Speller(SearchArm, Protocol):
    """An arm that goes by words, and takes a word that occurs nowhere for one that does."""

    def respelled(self, view: SearchView, query: KnowledgeQuery) -> str:
        """The text as the arm takes it, for those that go by something else; reads the index."""
        ...
