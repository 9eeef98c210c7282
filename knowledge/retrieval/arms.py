"""What a search arm is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from knowledge.core.query import FormedQuery
from knowledge.core.scope import ReadScope
from knowledge.models import VisibilitySpace


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchView:
    """What a caller may search: the numbers of its spaces, and the languages written in them.

    The spaces come from a table under row-level security, so nobody can name a foreign one.
    """

    scope: ReadScope
    as_of: datetime | None
    spaces: tuple[int, ...]
    languages: tuple[str, ...]

    @classmethod
    def of(cls, scope: ReadScope, *, as_of: datetime | None = None) -> SearchView:
        rows = VisibilitySpace.objects.visible_to(scope).values_list("id", "languages")
        spaces, languages = set[int](), set[str]()
        for number, written in rows:
            spaces.add(number)
            languages.update(written)
        return cls(
            scope=scope,
            as_of=as_of,
            spaces=tuple(sorted(spaces)),
            languages=tuple(sorted(languages)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an arm found: number of a chunk to its score, 0..1, and what a person should know."""

    scores: Mapping[int, float]
    notes: tuple[str, ...] = ()


class SearchArm(Protocol):
    """One way of finding chunks, best ones first, `limit` at most."""

    name: str

    def search(self, view: SearchView, query: FormedQuery, limit: int) -> Found: ...
