"""The semantic arm: passages whose vectors lie near the question's."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.db import connections

from knowledge.adapters.embedding import EmbedderFailed, embed_question
from knowledge.adapters.term_index import document_frequencies
from knowledge.core.fusion import SEMANTIC, calibrated_cosine
from knowledge.core.types import KnowledgeQuery
from knowledge.retrieval.arms import ArmFailed, Asked, Found, SearchView
from knowledge.semantic import spaces
from knowledge.semantic.embedders import Embedders
from knowledge.semantic.spaces import Space
from knowledge.semantic.vectors import literal

# A viewer of no more passages than this has all of them compared.
SMALL_VIEW: Final = 10_000
# What the graph keeps in view while it is walked. A walk that filters goes on until it has enough.
EF_SEARCH: Final = 200
MOST_VISITED: Final = 60_000
# An embedder that failed is left alone for so many seconds, in which no search waits for it.
LEFT_ALONE: Final = 10.0

_DISTANCE = "(v.vector::halfvec({dimensions}) <=> %(asked)s::halfvec({dimensions}))"
# The model's number and length are written out: the index is of these, and of no parameter.
_LIVE = "v.embedding = {number} AND v.live AND v.space = ANY (%(spaces)s::int[])"
_NEAREST = f"""
    SELECT v.chunk, 1 - {_DISTANCE} FROM semantic_chunk_vector v
    WHERE {_LIVE} ORDER BY {_DISTANCE} LIMIT %(limit)s
"""  # noqa: S608 - constants of ours
# An expression that no index has: every visible vector is compared.
_EXACT = f"""
    SELECT v.chunk, 1 - {_DISTANCE} FROM semantic_chunk_vector v
    WHERE {_LIVE} ORDER BY {_DISTANCE} + 0, v.chunk LIMIT %(limit)s
"""  # noqa: S608 - constants of ours
_OF_THESE = f"""
    SELECT v.chunk, 1 - {_DISTANCE} FROM semantic_chunk_vector v
    WHERE v.chunk = ANY (%(numbers)s::bigint[]) AND v.embedding = {{number}}
"""  # noqa: S608 - constants of ours
# As of an earlier instant: per document the version, and of it the chunk set, that was live then.
_AS_OF = f"""
    SELECT v.chunk, 1 - {_DISTANCE} FROM semantic_chunk_vector v
    JOIN knowledge_chunk k ON k.id = v.chunk
    JOIN knowledge_chunkset s ON s.id = k.chunk_set_id
    JOIN knowledge_documentversion e ON e.id = s.version_id
    WHERE v.embedding = {{number}} AND v.space = ANY (%(spaces)s::int[])
      AND e.ingested_at <= %(as_of)s AND (e.superseded_at IS NULL OR e.superseded_at > %(as_of)s)
      AND s.published_at <= %(as_of)s AND (s.retired_at IS NULL OR s.retired_at > %(as_of)s)
    ORDER BY {_DISTANCE} + 0, v.chunk LIMIT %(limit)s
"""  # noqa: S608 - constants of ours
# Relaxed: a walk may come back to something nearer, and what it found is sorted here anyway. A
# sort would mean reading every vector first, which is what the graph is there to spare.
_WALK = """
    SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
        set_config('hnsw.ef_search', %s, true), set_config('hnsw.max_scan_tuples', %s, true),
        set_config('enable_sort', 'off', true)
"""
_WALKED = "SELECT set_config('enable_sort', 'on', true)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A question's vector in the space that it is asked of, and the cosine that says nothing."""

    space: Space
    vector: str
    floor: float

    def scored(self, rows: Sequence[tuple[int, float]]) -> dict[int, float]:
        return {chunk: calibrated_cosine(cosine, self.floor) for chunk, cosine in rows}


class SemanticArm:
    """Meanings in, scores out: a score is the cosine above that of texts about other things."""

    name = SEMANTIC

    def __init__(
        self,
        embedders: Embedders,
        *,
        small_view: int = SMALL_VIEW,
        ef_search: int = EF_SEARCH,
        most_visited: int = MOST_VISITED,
        left_alone: float = LEFT_ALONE,
    ) -> None:
        self._embedders = embedders
        self._small_view = small_view
        self._ef_search = ef_search
        self._most_visited = most_visited
        self._left_alone = left_alone
        self._away_until = -math.inf

    def prepare(self, query: KnowledgeQuery) -> Asked:
        """Embeds the question; raises `ArmFailed` when it cannot be."""
        space = spaces.live()
        if space is None:
            raise ArmFailed("nothing is embedded yet")
        embedder = self._embedders.of(space.model)
        if embedder is None:
            raise ArmFailed(f"no embedder is set up for {space.model}")
        if time.monotonic() < self._away_until:
            raise ArmFailed("the embedder failed a moment ago")
        try:
            vector = embed_question(embedder, query.text)
        except EmbedderFailed as failed:
            self._away_until = time.monotonic() + self._left_alone
            raise ArmFailed(failed.reason) from failed
        question = _Question(
            space=space, vector=literal(vector), floor=self._embedders.floor(space.model)
        )
        return partial(self._search, question)

    def _search(self, question: _Question, view: SearchView, limit: int) -> Found:
        """The nearest passages above the floor."""
        rows = self._rows(question, view, limit)
        found = {chunk: score for chunk, score in question.scored(rows).items() if score > 0}
        return Found(scores=found, score=partial(self._score, question, view))

    def _rows(self, question: _Question, view: SearchView, limit: int) -> list[tuple[int, float]]:
        values = {"spaces": list(view.spaces), "limit": limit, "as_of": view.as_of}
        if view.as_of is not None:
            return _run(_AS_OF, question, view, values)
        visible, _ = document_frequencies(view.spaces, (), using=view.using)
        if visible <= self._small_view:
            return _run(_EXACT, question, view, values)
        with connections[view.using].cursor() as cursor:
            cursor.execute(_WALK, [str(self._ef_search), str(self._most_visited)])
            rows = _run(_NEAREST, question, view, values)
            cursor.execute(_WALKED)
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def _score(
        self, question: _Question, view: SearchView, numbers: Sequence[int]
    ) -> Mapping[int, float]:
        """Chunks that another arm found, all of which the view holds."""
        return question.scored(_run(_OF_THESE, question, view, {"numbers": list(numbers)}))


def _run(
    statement: str, question: _Question, view: SearchView, values: dict[str, Any]
) -> list[tuple[int, float]]:
    space = question.space
    with connections[view.using].cursor() as cursor:
        cursor.execute(
            statement.format(number=space.number, dimensions=space.dimensions),
            {"asked": question.vector, **values},
        )
        found: list[tuple[int, float]] = cursor.fetchall()
    return found
