"""The lexical arm: BM25 as one inner product over candidates that hold the rarest words."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection

from knowledge.adapters.term_index import document_frequencies
from knowledge.core import bm25
from knowledge.core.fusion import LEXICAL
from knowledge.core.ports import Stemmer
from knowledge.core.query import FormedQuery
from knowledge.retrieval.arms import SearchView

# A viewer of no more chunks than this has all of them scored.
SMALL_VIEW = 5_000
# How many candidates a larger view scores.
CANDIDATE_BUDGET = 10_000

_LIVE = """
    SELECT i.chunk, %(factor)s::float8 * (i.sv <#> %(query)s::sparsevec) AS score
    FROM knowledge_chunk_index i
    WHERE i.space = ANY (%(spaces)s::int[]) AND i.live AND i.tsv @@ %(candidates)s::tsquery
    ORDER BY score DESC, i.chunk LIMIT %(limit)s
"""
# As of an earlier instant: per document the version, and of it the chunk set, that was live then.
_AS_OF = """
    SELECT i.chunk, %(factor)s::float8 * (i.sv <#> %(query)s::sparsevec) AS score
    FROM knowledge_chunk_index i
    JOIN knowledge_chunk c ON c.id = i.chunk
    JOIN knowledge_chunkset s ON s.id = c.chunk_set_id
    JOIN knowledge_documentversion v ON v.id = s.version_id
    WHERE i.space = ANY (%(spaces)s::int[]) AND i.tsv @@ %(candidates)s::tsquery
      AND v.ingested_at <= %(as_of)s AND (v.superseded_at IS NULL OR v.superseded_at > %(as_of)s)
      AND s.published_at <= %(as_of)s AND (s.retired_at IS NULL OR s.retired_at > %(as_of)s)
    ORDER BY score DESC, i.chunk LIMIT %(limit)s
"""


class LexicalArm:
    """Words in, scores out: a score is the share of the best one possible for the query."""

    name = LEXICAL

    def __init__(self, stemmer: Stemmer) -> None:
        self._stemmer = stemmer

    def search(self, view: SearchView, query: FormedQuery, limit: int) -> Mapping[int, float]:
        if not view.spaces:
            return {}
        alternatives = self._lexemes(view, query)
        lexemes = sorted({lexeme for words in alternatives.values() for lexeme in words})
        total, frequencies = document_frequencies(view.spaces, lexemes)
        idfs = {lexeme: bm25.idf(df, total) for lexeme, df in frequencies.items() if df}
        weights = _weights(query, alternatives)
        vector = bm25.query_vector(idfs, weights)
        budget = total if total <= SMALL_VIEW else CANDIDATE_BUDGET
        candidates = bm25.candidate_lexemes(frequencies, budget)
        if not vector or not candidates.tsquery:
            return {}
        best = _best_score(query, alternatives, idfs, total)
        with connection.cursor() as cursor:
            cursor.execute(
                _LIVE if view.as_of is None else _AS_OF,
                {
                    "factor": -(bm25.K1 + 1),
                    "query": bm25.sparse_literal(vector),
                    "spaces": list(view.spaces),
                    "candidates": candidates.tsquery,
                    "as_of": view.as_of,
                    "limit": limit,
                },
            )
            return {chunk: bm25.calibrated(score, best) for chunk, score in cursor.fetchall()}
