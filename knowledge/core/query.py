"""A question to weighted words: what is searched for, and what counts as a perfect answer.

Whose words weigh what:

- the words of the text weigh 1, and they alone make up the maximum a score is measured by;
- entities and the objective say what the question is about. They lift a passage that the text
  found: entity words weigh at most 1/2 each and half the text's words together, objective words
  at most 1/4 each and a quarter of them together;
- the words of an alias are an alternative to the words of its entity. They weigh as much as those
  do, or less when the alias is longer, so that a whole alias never outweighs the whole name. An
  alias of an entity that neither the text nor `entities` mentions is not used.

A word that several of them name has the greatest of its weights. When the text holds no words,
the entities take its place, and the objective takes theirs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from knowledge.core import bm25
from knowledge.core.analysis import Analyse, Term, analyse
from knowledge.core.errors import InvalidQuery
from knowledge.core.instants import checked_instant
from knowledge.core.types import KnowledgeQuery, QueryWord

MAX_TEXT: Final = 20_000
MAX_CONTEXT: Final = 20_000
MAX_WORDS: Final = 256
MAX_PAIRS: Final = 32
PROXIMITY: Final = 0.3
# What a stop word of the question weighs that stands in a passage's head. Questions about
# questions gain .04 nDCG@10; from .2 to .5 other collections move by less than .005.
HEADING_WORD: Final = 0.4

NOTHING_TO_SEARCH_FOR: Final = "There is nothing to search for: the query holds no words."
ONLY_STOP_WORDS: Final = (
    "There is nothing to search for: the query holds only words too common to search by."
)
TOO_MANY_WORDS: Final = f"Only the first {MAX_WORDS} different words were searched for."

_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
_ENTITY_SHARE: Final = 0.5
_OBJECTIVE_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class FormedQuery:
    """What to search for.

    `terms` are the distinct words with their weights in `weights`, `MAX_WORDS` at most, those of
    the text first. `sequence` are the terms of the text in order, for words that stand side by
    side. `measured` are the words that make up the maximum score. No words at all: `notes` says
    so.
    """

    terms: tuple[Term, ...]
    weights: Mapping[str, float]
    sequence: tuple[Term, ...]
    measured: frozenset[str]
    notes: tuple[str, ...]

    @property
    def stem_words(self) -> tuple[str, ...]:
        """The words that go through a stemmer."""
        return tuple(term.spelling for term in self.terms if term.stem)


def form_query(query: KnowledgeQuery, analyse: Analyse = analyse) -> FormedQuery:
    """Weigh the words of a question. Raises `InvalidQuery` when it is too long or holds a NUL."""
    _check(query)
    text = _distinct(analyse(query.text))
    entities = _distinct(term for entity in query.entities for term in analyse(entity))
    objective = _distinct(analyse(query.objective or ""))
    main = text or entities or objective

    collected: dict[str, tuple[Term, float]] = {word: (term, 1.0) for word, term in main.items()}
    for source, share in ((entities, _ENTITY_SHARE), (objective, _OBJECTIVE_SHARE)):
        _add(collected, source, min(share, share * len(main) / max(len(source), 1)))
    for terms, weight in _aliases(query, collected, analyse):
        _add(collected, terms, weight)

    kept = list(collected.values())[:MAX_WORDS]
    notes = []
    if not kept:
        notes.append(NOTHING_TO_SEARCH_FOR)
    if len(collected) > MAX_WORDS:
        notes.append(TOO_MANY_WORDS)
    weights = {term.word: weight for term, weight in kept}
    return FormedQuery(
        terms=tuple(term for term, _ in kept),
        weights=weights,
        sequence=tuple(term for term in analyse(query.text) if term.word in weights),
        measured=frozenset(word for word in main if word in weights),
        notes=tuple(notes),
    )


def _check(query: KnowledgeQuery) -> None:
    checked_instant(query.as_of)
    context = [query.objective or "", *query.entities]
    for entity, aliases in query.aliases.items():
        context += [entity, *aliases]
    opaque = json.dumps(query.beliefs, ensure_ascii=False)
    if "\\u0000" in opaque or any(map(_NO_TEXT.search, (query.text, *context, opaque))):
        raise InvalidQuery("A query is text: it holds no NUL and no half of a surrogate pair.")
    if len(query.text) > MAX_TEXT:
        raise InvalidQuery(f"The text of a query has at most {MAX_TEXT} characters.")
    if sum(map(len, context)) > MAX_CONTEXT:
        raise InvalidQuery(
            f"Objective, entities and aliases have at most {MAX_CONTEXT} characters together."
        )


def _distinct(terms: Iterable[Term]) -> dict[str, Term]:
    found: dict[str, Term] = {}
    for term in terms:
        found.setdefault(term.word, term)
    return found


def _add(
    collected: dict[str, tuple[Term, float]], terms: Mapping[str, Term], weight: float
) -> None:
    for word, term in terms.items():
        known = collected.get(word)
        if known is None or known[1] < weight:
            collected[word] = (term, weight)


def _aliases(
    query: KnowledgeQuery, collected: Mapping[str, tuple[Term, float]], analyse: Analyse
) -> list[tuple[dict[str, Term], float]]:
    """The aliases of entities whose every word is in the query, each with its words' weight."""
    weighed = []
    for entity, aliases in query.aliases.items():
        name = _distinct(analyse(entity))
        if not name or not name.keys() <= collected.keys():
            continue
        weight = min(collected[word][1] for word in name)
        for alias in aliases:
            terms = _distinct(analyse(alias))
            weighed.append((terms, weight * min(1.0, len(name) / max(len(terms), 1))))
    return weighed


# --- words to lexemes ------------------------------------------------------------------------

# Language -> word -> lexeme, `None` for a stop word: what a `Stemmer` answers, by language.
Lexemes = Mapping[str, Mapping[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two words that stand side by side in the question, and what it is worth to do so again."""

    first: str
    second: str
    bonus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedQuery:
    """A question as the index understands it.

    `vector` is the sparse vector to multiply a chunk's with, `maximum` what its score (times
    `K1 + 1`) is measured by, `frequencies` the document frequencies to choose candidates from.
    `words` is how many different words that maximum is of, so stop words are not among them.
    Without a vector there is nothing to search for and `notes` says why.
    """

    vector: Mapping[int, float]
    maximum: float
    words: int
    frequencies: Mapping[str, int]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def lexemes_of(formed: FormedQuery, lexemes: Lexemes) -> dict[str, tuple[str, ...]]:
    """The lexemes of each word over all languages, each once; empty for a stop word in all.

    A word that is not stemmed is its own lexeme. `lexemes` has an entry per language that the
    caller's documents are in; without any language the words stand as they are. A stop word of
    the question's own language has none: that it means something in another is chance.
    """
    dropped = _stop_words(formed, lexemes)
    found: dict[str, tuple[str, ...]] = {}
    for term in formed.terms:
        forms: Iterable[str | None] = (term.word,)
        if term.word in dropped:
            forms = ()
        elif term.stem and lexemes:
            forms = (by_word.get(term.spelling, term.word) for by_word in lexemes.values())
        found[term.word] = tuple(dict.fromkeys(bm25.safe_lexeme(form) for form in forms if form))
    return found


def words_searched(
    formed: FormedQuery, lexemes: Lexemes, frequencies: Mapping[str, int]
) -> tuple[QueryWord, ...]:
    """What a person is told of how their words were taken, in the order of the question."""
    forms_of = lexemes_of(formed, lexemes)
    return tuple(
        QueryWord(
            word=term.word,
            lexemes=forms_of[term.word],
            weight=formed.weights[term.word],
            passages=sum(max(frequencies.get(form, 0), 0) for form in forms_of[term.word]),
            identifier=not term.stem,
            whole=term.compound,
        )
        for term in formed.terms
    )


def heading_words(formed: FormedQuery, lexemes: Lexemes) -> dict[str, str]:
    """The stop words of a question as the heads of passages hold them: word to lexeme."""
    forms_of = lexemes_of(formed, lexemes)
    return {
        term.word: bm25.heading_word(term.word)
        for term in formed.terms
        if term.stem and not forms_of[term.word]
    }


def _stop_words(formed: FormedQuery, lexemes: Lexemes) -> frozenset[str]:
    return frozenset().union(*stop_words_spoken(formed, lexemes).values())


def stop_words_spoken(formed: FormedQuery, lexemes: Lexemes) -> dict[str, frozenset[str]]:
    """The stop words of the language that the question uses most of, of several when equal.

    A question of one word shows no language.
    """
    if len(formed.terms) == 1:
        return {}
    stems = [term for term in formed.terms if term.stem]
    stops = {
        language: frozenset(term.word for term in stems if by_word.get(term.spelling, "") is None)
        for language, by_word in lexemes.items()
    }
    most = max(map(len, stops.values()), default=0)
    return {language: words for language, words in stops.items() if len(words) == most}


def weigh(
    formed: FormedQuery, lexemes: Lexemes, frequencies: Mapping[str, int], n: int
) -> WeighedQuery:
    """Put idf to the words, given each lexeme's document frequency among `n` chunks.

    The forms that a word has in several languages are one word: they share the idf of their
    summed frequency, and the maximum counts it once. A whole identifier that occurs nowhere is
    left out of the maximum, for its parts speak for it: `valve-box` is answered by `valve box`.
    Stop words lift a passage whose head has them; they select none and are not in the maximum.
    """
    forms_of = lexemes_of(formed, lexemes)
    compounds = {term.word for term in formed.terms if term.compound}
    idfs: dict[str, float] = {}
    weights: dict[str, float] = {}
    measured: list[float] = []
    for word, forms in forms_of.items():
        if not forms:
            continue
        df = sum(max(frequencies.get(form, 0), 0) for form in forms)
        value = bm25.idf(df, n)
        for form in forms:
            idfs[form] = max(idfs.get(form, 0.0), value)
            weights[form] = max(weights.get(form, 0.0), formed.weights[word])
        if word in formed.measured and (df > 0 or word not in compounds):
            measured.append(value)
    notes = formed.notes
    if formed.terms and not idfs:
        notes = (*notes, ONLY_STOP_WORDS)
    lifting: dict[str, float] = {}
    for word, form in heading_words(formed, lexemes).items() if idfs else ():
        if (df := frequencies.get(form, 0)) > 0:
            lifting[form] = bm25.idf(df, n)
            weights[form] = HEADING_WORD * formed.weights[word]
    return WeighedQuery(
        vector=bm25.query_vector({**idfs, **lifting}, weights),
        maximum=bm25.max_score(measured or idfs.values()),
        words=len(measured),
        frequencies={form: frequencies.get(form, 0) for form in idfs},
        pairs=_pairs(formed, lexemes, idfs, frequencies),
        notes=notes,
    )


def _pairs(
    formed: FormedQuery,
    lexemes: Lexemes,
    idfs: Mapping[str, float],
    frequencies: Mapping[str, int],
) -> tuple[Pair, ...]:
    """Neighbours in the text, stop words skipped, that both occur; the most telling ones.

    Wholes are skipped too: their parts are the words that stand side by side.
    """
    by_language: Iterable[Mapping[str, str | None]] = lexemes.values() or ({},)
    found: dict[tuple[str, str], float] = {}
    dropped = _stop_words(formed, lexemes)
    for by_word in by_language:
        places: dict[int, str] = {}
        for term in formed.sequence:
            form = by_word.get(term.spelling, term.word) if term.stem else term.word
            if form and term.word not in dropped and not term.compound:
                places.setdefault(term.position, bm25.safe_lexeme(form))
        ordered = [places[position] for position in sorted(places)]
        for first, second in pairwise(ordered):
            both = frequencies.get(first, 0) > 0 and frequencies.get(second, 0) > 0
            if first != second and both:
                found[first, second] = PROXIMITY * min(idfs[first], idfs[second])
    best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MAX_PAIRS]
    return tuple(
        Pair(first=first, second=second, bonus=bonus)
        for (first, second), bonus in best
        if math.isfinite(bonus)
    )
