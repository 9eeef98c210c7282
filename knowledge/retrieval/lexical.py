"""The lexical arm: BM25 as one inner product over candidates that hold the rarest words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from django.db import connections

from knowledge.adapters.term_index import document_frequencies
from knowledge.core import bm25
from knowledge.core.analysis import ANALYZER_VERSION, ANALYZERS, Term
from knowledge.core.fusion import LEXICAL
from knowledge.core.ports import Stemmer
from knowledge.core.query import (
    FormedQuery,
    Lexemes,
    WeighedQuery,
    form_query,
    heading_words,
    lexemes_of,
    stop_words_spoken,
    weigh,
    words_searched,
)
from knowledge.core.spelling import LONG, one_edit_away, respelled
from knowledge.core.types import KnowledgeQuery
from knowledge.retrieval.arms import Asked, Found, SearchView

# A viewer of no more chunks than this has all of them scored.
SMALL_VIEW = 5_000
# In how many chunks the words may stand, added up, that select what a larger view has scored.
CANDIDATE_BUDGET = 12_000
# One part in so many of it is for words that select a chunk by themselves.
_ALONE = 10
# How many times the budget is scored at most: more than one word alone can ask for that.
_MOST = 2
# What a corrected word counts, against one that was found as it was written.
CORRECTED = 0.8
MOST_CORRECTIONS = 8

# The best ones by words alone, of which those with the question's words side by side rank higher.
# The vectors of text are read for these alone: `tsv || ''` reads each once for all its pairs.
_SEARCH = """
    SELECT u.chunk, u.score + {bonus} AS score FROM (
        SELECT t.chunk, t.score, t.tsv || ''::tsvector AS tsv FROM (
            SELECT c.chunk, %(factor)s::float8 * (c.sv <#> %(query)s::sparsevec) AS score, c.tsv
            FROM (
                SELECT i.chunk, i.sv, i.tsv FROM knowledge_chunk_index i {where}
                  AND i.space = ANY (%(spaces)s::int[]) {matching}
                LIMIT %(most)s
            ) c
            ORDER BY score DESC, c.chunk LIMIT %(limit)s
        ) t OFFSET 0
    ) u ORDER BY score DESC, u.chunk
"""
_MATCHING = "AND i.tsv @@ %(candidates)s::tsquery"
_NOW = "WHERE i.live"
# Chunks that another arm found, whether they hold a word of the question or not.
_THESE = "WHERE i.chunk = ANY (%(numbers)s::bigint[])"
# As of an earlier instant: per document the version, and of it the chunk set, that was live then.
_AS_OF = """
    JOIN knowledge_chunk k ON k.id = i.chunk
    JOIN knowledge_chunkset s ON s.id = k.chunk_set_id
    JOIN knowledge_documentversion v ON v.id = s.version_id
    WHERE v.ingested_at <= %(as_of)s AND (v.superseded_at IS NULL OR v.superseded_at > %(as_of)s)
      AND s.published_at <= %(as_of)s AND (s.retired_at IS NULL OR s.retired_at > %(as_of)s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A question as the index of a view takes it.

    `corrections` are words that occur nowhere, and how what each is taken for is written.
    """

    query: FormedQuery
    lexemes: Lexemes
    total: int
    frequencies: Mapping[str, int]
    corrections: Mapping[str, str]

    def notes(self) -> list[str]:
        forms = lexemes_of(self.query, self.lexemes)
        return [
            f"Nothing holds “{word}”; words like “{written}” were searched for."
            if forms[word]
            else f"Nothing holds “{word}”; it was taken for “{written}”, too common to search by."
            for word, written in self.corrections.items()
        ]


class LexicalArm:
    """Words in, scores out: a score is the share of the best one possible for the query."""

    name = LEXICAL

    def __init__(
        self, stemmer: Stemmer, *, budget: int = CANDIDATE_BUDGET, small_view: int = SMALL_VIEW
    ) -> None:
        self._stemmer = stemmer
        self._budget = budget
        self._small_view = small_view

    def prepare(self, query: KnowledgeQuery) -> Asked:
        return partial(self._asked, query)

    def _asked(self, query: KnowledgeQuery, view: SearchView, limit: int) -> Found:
        return self.search(view, query, limit)

    def search(self, view: SearchView, query: KnowledgeQuery, limit: int) -> Found:
        """Reads the question by every analyser that the caller's documents were indexed by."""
        found = [
            self._search(view, form_query(query, ANALYZERS[version]), limit)
            for version in _versions(view)
        ]
        best = _best(one.scores for one in found)
        notes = dict.fromkeys(note for one in found for note in one.notes)
        words = max(one.words for one in found)
        return Found(
            scores=best,
            notes=tuple(notes),
            words=words,
            taken=found[0].taken,
            score=lambda numbers: _best(one.score(numbers) for one in found),
        )

    def respelled(self, view: SearchView, query: KnowledgeQuery) -> str:
        """The text of a question, with words that it searches others for as it spells those."""
        read = self._read(view, form_query(query, ANALYZERS[_versions(view)[0]]))
        return respelled(query.text, read.corrections)

    def _read(self, view: SearchView, query: FormedQuery) -> _Read:
        lexemes: dict[str, Mapping[str, str | None]] = {
            language: self._stemmer.lexemes(query.stem_words, language)
            for language in view.languages
        }
        total, frequencies = self._frequencies(view, query, lexemes)
        query, corrections = self._corrected(view, query, lexemes, frequencies)
        return _Read(
            query=query,
            lexemes=lexemes,
            total=total,
            frequencies=frequencies,
            corrections=corrections,
        )

    def _search(self, view: SearchView, query: FormedQuery, limit: int) -> Found:
        read = self._read(view, query)
        total = read.total
        weighed = weigh(read.query, read.lexemes, read.frequencies, total)
        taken = words_searched(read.query, read.lexemes, read.frequencies)
        notes = (*weighed.notes, *read.notes())
        # The statistics are of the present: as of an earlier instant a word may occur that now
        # occurs nowhere.
        fewest = 0 if view.as_of is None else 1
        counted = {form: max(df, fewest) for form, df in weighed.frequencies.items()}
        if total <= self._small_view:
            # As of an earlier instant they may have stood in any number of passages.
            budget = alone = sum(counted.values()) if view.as_of is None else self._budget
        else:
            budget, alone = self._budget, self._budget // _ALONE
        candidates = bm25.candidates(counted, budget, alone=alone)
        if not weighed.vector or not candidates:
            return Found(scores={}, notes=notes, words=weighed.words, taken=taken)
        # Never by what was counted: more may stand there by now, and a part of it is no answer.
        most = _MOST * max(budget, self._budget)
        occurring = [df for df in counted.values() if df > 0]
        if len(occurring) == 1 and occurring[0] > most:
            notes = (*notes, f"{occurring[0]:,} passages hold the word; {most:,} were ranked.")

        def calibrated(scores: Iterable[tuple[int, float]]) -> dict[int, float]:
            return {chunk: bm25.calibrated(score, weighed.maximum) for chunk, score in scores}

        return Found(
            scores=calibrated(
                _score(
                    view,
                    weighed,
                    _AS_OF if view.as_of else _NOW,
                    _MATCHING,
                    {"candidates": candidates, "limit": limit, "most": most},
                )
            ),
            notes=notes,
            words=weighed.words,
            taken=taken,
            score=lambda numbers: calibrated(
                _score(
                    view,
                    weighed,
                    _THESE,
                    "",
                    {"numbers": list(numbers), "limit": len(numbers), "most": len(numbers)},
                )
            ),
        )

    def _frequencies(
        self, view: SearchView, query: FormedQuery, lexemes: Lexemes
    ) -> tuple[int, dict[str, int]]:
        forms = {form for word in lexemes_of(query, lexemes).values() for form in word}
        forms.update(heading_words(query, lexemes).values())
        return document_frequencies(view.spaces, sorted(forms), using=view.using)

    def _corrected(
        self,
        view: SearchView,
        query: FormedQuery,
        lexemes: dict[str, Mapping[str, str | None]],
        frequencies: dict[str, int],
    ) -> tuple[FormedQuery, dict[str, str]]:
        """Lets a word that occurs nowhere stand for the most frequent one that is an edit away.

        That is a stop word when one is so near: no words are more frequent. Others are words of
        what the caller may see, at a discount, and for a short word the only one there is.
        `lexemes` and `frequencies` learn of them. Returned beside the query is how each is written.
        """
        offered = _offered(query, lexemes, frequencies) if view.as_of is None else {}
        if not offered:
            return query, {}
        strings = sorted(set().union(*offered.values()))
        by_language = {language: self._stemmer.lexemes(strings, language) for language in lexemes}
        stems = {stem for found in by_language.values() for stem in found.values() if stem}
        _, known = document_frequencies(view.spaces, sorted(stems), using=view.using)
        spoken = [by_language[language] for language in stop_words_spoken(query, lexemes)]
        corrections, weights = dict[str, str](), dict(query.weights)
        for term, near in offered.items():
            best: str | None = None
            written = [one for found in spoken for one in near if found[one] is None]
            if not written:
                forms = {found[one] for found in by_language.values() for one in near}
                occurring = [form for form in forms if form and known.get(form)]
                if not occurring or (len(term.word) < LONG and len(occurring) > 1):
                    continue
                best = max(occurring, key=lambda form: (known[form], form))
                frequencies[best] = known[best]
                weights[term.word] *= CORRECTED
                written = [
                    one for found in by_language.values() for one in near if found[one] == best
                ]
            lexemes.update(
                {
                    language: {**by_word, term.spelling: best}
                    for language, by_word in lexemes.items()
                }
            )
            corrections[term.word] = min(written, key=lambda one: (len(one), one))
        return replace(query, weights=weights), corrections


def _offered(
    query: FormedQuery, lexemes: Lexemes, frequencies: Mapping[str, int]
) -> dict[Term, set[str]]:
    """What may be meant by words that occur nowhere, for the first ones that are long enough."""
    forms = lexemes_of(query, lexemes)
    unknown = (
        (term, one_edit_away(term.word))
        for term in query.terms
        if term.stem
        and forms[term.word]
        and not any(frequencies.get(form) for form in forms[term.word])
    )
    return dict(islice(((term, near) for term, near in unknown if near), MOST_CORRECTIONS))


def _versions(view: SearchView) -> list[str]:
    """The analysers that a question is read by."""
    return [version for version in view.analyzers if version in ANALYZERS] or [ANALYZER_VERSION]


def _best(found: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Each chunk's best score by any analyser."""
    best: dict[int, float] = {}
    for scores in found:
        for chunk, score in scores.items():
            best[chunk] = max(score, best.get(chunk, 0.0))
    return best


def _score(
    view: SearchView, weighed: WeighedQuery, where: str, matching: str, values: dict[str, Any]
) -> list[tuple[int, float]]:
    pairs = {
        f"pair_{number}": bm25.near(pair.first, pair.second)
        for number, pair in enumerate(weighed.pairs)
    }
    bonus = "".join(
        f" + CASE WHEN u.tsv @@ %(pair_{number})s::tsquery THEN {pair.bonus!r}::float8 ELSE 0 END"
        for number, pair in enumerate(weighed.pairs)
    )
    statement = _SEARCH.format(bonus=f"(0::float8{bonus})", where=where, matching=matching)
    with connections[view.using].cursor() as cursor:
        cursor.execute(
            statement,
            {
                "factor": -(bm25.K1 + 1),
                "query": bm25.sparse_literal(weighed.vector),
                "spaces": list(view.spaces),
                "as_of": view.as_of,
                **values,
                **pairs,
            },
        )
        found: list[tuple[int, float]] = cursor.fetchall()
    return found
