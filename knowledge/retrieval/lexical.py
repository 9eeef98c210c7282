"""The lexical arm: BM25 as one inner product over candidates that hold the rarest words."""

from __future__ import annotations

from django.db import connection

from knowledge.adapters.term_index import document_frequencies
from knowledge.core import bm25
from knowledge.core.fusion import LEXICAL
from knowledge.core.ports import Stemmer
from knowledge.core.query import FormedQuery, WeighedQuery, lexemes_of, weigh
from knowledge.retrieval.arms import Found, SearchView

# A viewer of no more chunks than this has all of them scored.
SMALL_VIEW = 5_000
# How many candidates a larger view scores.
CANDIDATE_BUDGET = 10_000

# The best ones by words alone, of which those with the question's words side by side rank higher.
# The vectors of text are read for these alone: `tsv || ''` reads each once for all its pairs.
_SEARCH = """
    SELECT u.chunk, u.score + {bonus} AS score FROM (
        SELECT t.chunk, t.score, t.tsv || ''::tsvector AS tsv FROM (
            SELECT i.chunk, %(factor)s::float8 * (i.sv <#> %(query)s::sparsevec) AS score, i.tsv
            FROM knowledge_chunk_index i {live}
              AND i.space = ANY (%(spaces)s::int[]) AND i.tsv @@ %(candidates)s::tsquery
            ORDER BY score DESC, i.chunk LIMIT %(limit)s
        ) t OFFSET 0
    ) u ORDER BY score DESC, u.chunk
"""
_NOW = "WHERE i.live"
# As of an earlier instant: per document the version, and of it the chunk set, that was live then.
_AS_OF = """
    JOIN knowledge_chunk c ON c.id = i.chunk
    JOIN knowledge_chunkset s ON s.id = c.chunk_set_id
    JOIN knowledge_documentversion v ON v.id = s.version_id
    WHERE v.ingested_at <= %(as_of)s AND (v.superseded_at IS NULL OR v.superseded_at > %(as_of)s)
      AND s.published_at <= %(as_of)s AND (s.retired_at IS NULL OR s.retired_at > %(as_of)s)
"""


class LexicalArm:
    """Words in, scores out: a score is the share of the best one possible for the query."""

    name = LEXICAL

    def __init__(
        self, stemmer: Stemmer, *, budget: int = CANDIDATE_BUDGET, small_view: int = SMALL_VIEW
    ) -> None:
        self._stemmer = stemmer
        self._budget = budget
        self._small_view = small_view

    def search(self, view: SearchView, query: FormedQuery, limit: int) -> Found:
        lexemes = {
            language: self._stemmer.lexemes(query.stem_words, language)
            for language in view.languages
        }
        forms = {form for word in lexemes_of(query, lexemes).values() for form in word}
        total, frequencies = document_frequencies(view.spaces, sorted(forms))
        weighed = weigh(query, lexemes, frequencies, total)
        # The statistics are of the present: as of an earlier instant a word may occur that now
        # occurs nowhere.
        fewest = 0 if view.as_of is None else 1
        frequencies = {form: max(df, fewest) for form, df in weighed.frequencies.items()}
        budget = sum(frequencies.values()) if total <= self._small_view else self._budget
        candidates = bm25.candidate_lexemes(frequencies, budget)
        if not weighed.vector or not candidates.tsquery:
            return Found(scores={}, notes=weighed.notes)
        scores = _score(view, weighed, candidates.tsquery, limit)
        return Found(
            scores={chunk: bm25.calibrated(score, weighed.maximum) for chunk, score in scores},
            notes=weighed.notes,
        )


def _score(
    view: SearchView, weighed: WeighedQuery, candidates: str, limit: int
) -> list[tuple[int, float]]:
    pairs = {
        f"pair_{number}": bm25.near(pair.first, pair.second)
        for number, pair in enumerate(weighed.pairs)
    }
    bonus = "".join(
        f" + CASE WHEN u.tsv @@ %(pair_{number})s::tsquery THEN {pair.bonus!r}::float8 ELSE 0 END"
        for number, pair in enumerate(weighed.pairs)
    )
    statement = _SEARCH.format(bonus=f"(0::float8{bonus})", live=_AS_OF if view.as_of else _NOW)
    with connection.cursor() as cursor:
        cursor.execute(
            statement,
            {
                "factor": -(bm25.K1 + 1),
                "query": bm25.sparse_literal(weighed.vector),
                "spaces": list(view.spaces),
                "candidates": candidates,
                "as_of": view.as_of,
                "limit": limit,
                **pairs,
            },
        )
        found: list[tuple[int, float]] = cursor.fetchall()
    return found
