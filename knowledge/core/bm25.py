"""BM25 over two fields as one inner product of sparse vectors, and the candidates to score.

The score of a chunk for the words `j` of a query is

    (K1 + 1) * sum over j of idf_j * ( tf / (tf + K1 * (1 - B + B * dl / AVGDL))
                          + HEAD_WEIGHT * h / (h + K1 * (1 - B + B * max(hl, 1) / AVGHL)) )

after Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009),
with the head (title and heading path) as a field of its own. `tf` counts a lexeme's positions in
head and body together, `h` those in the head; `dl` and `hl` are the lengths, counted likewise.
Title and path repeat in every chunk of a document, which is meant: a chunk is found by the
heading it stands under.

The bracket is fixed when a chunk is indexed and is its sparse vector; the idf belongs to the
query. The average lengths are therefore constants of the analyser's version, so that a score
moves only with document frequencies and a floor on it keeps its meaning.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from knowledge.core.analysis import MAX_WORD, bounded, expansion

K1: Final = 1.2
B: Final = 0.75
# On six collections .5 is never .003 nDCG@10 behind .3 and up to .017 ahead; .8 and more lose on
# abstracts, whose titles are long.
HEAD_WEIGHT: Final = 0.5
AVGDL: Final = 120.0
AVGHL: Final = 8.0

SPARSE_DIMENSIONS: Final = 1_000_000_000
_ID_BITS: Final = 29
# A sparse vector stored inline must fit one page of PostgreSQL, which ends at 1,008 entries.
MAX_WEIGHTS: Final = 900

# Limits of PostgreSQL's tsvector: a position, positions of one lexeme, and (with room to spare)
# the bytes of all of it.
MAX_POSITION: Final = 16_383
MAX_POSITIONS_PER_LEXEME: Final = 255
_MAX_VECTOR_BYTES: Final = 900_000
_BYTES_PER_POSITION: Final = 2
_BYTES_PER_LEXEME: Final = 8
_MOST_BYTES_OF_A_LEXEME: Final = 4 * MAX_WORD + _BYTES_PER_LEXEME
_IN_BODY: Final = tuple(f"{position}D" for position in range(MAX_POSITION + 1))

# Title and path stand in every chunk, so one contrived heading must not crowd out the bodies.
MAX_HEAD_TERMS: Final = 1_000
# Positions between the fields, so that no phrase runs from one into the next.
_FIELD_GAP: Final = 10
# Beside how many of the next words one may stand that is too common to be looked at by itself.
_PARTNERS: Final = 2


# --- lexemes and literals --------------------------------------------------------------------


@lru_cache(maxsize=65_536)
def safe_lexeme(lexeme: str) -> str:
    """The lexeme as it is stored: never too long, and of characters that PostgreSQL can hold."""
    if lexeme.isascii() and "\0" not in lexeme:
        return bounded(lexeme)
    return bounded(lexeme.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


@lru_cache(maxsize=65_536)
def lexeme_id(lexeme: str) -> int:
    """The lexeme's coordinate, 0 <= id < 2**29, the same in every version and process.

    The first 29 bits of SHA-256 of its UTF-8. It counts from zero like the keys of pgvector's
    `SparseVector`; the text form of a sparsevec counts from one. Two lexemes that collide share a
    coordinate and their weights are summed.
    """
    digest = hashlib.sha256(safe_lexeme(lexeme).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> (32 - _ID_BITS)


def heading_word(stop_word: str) -> str:
    """What a stop word of a head is stored as: a name that no word of a text can have.

    In a body a stop word says nothing. In a title or heading, which is short and often a question
    (`How long can I ...`), it tells one from the next.
    """
    return safe_lexeme(f"?{stop_word}")


def quoted_lexeme(lexeme: str) -> str:
    """A lexeme as tsvector and tsquery read it: quoted, quotes and backslashes doubled."""
    return _quoted(safe_lexeme(lexeme))


def _quoted(stored: str) -> str:
    if stored.isalnum():
        return f"'{stored}'"
    escaped = stored.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def any_of(lexemes: Iterable[str]) -> str:
    """A tsquery literal that matches any of the lexemes; empty (matches nothing) without any."""
    return " | ".join(quoted_lexeme(lexeme) for lexeme in lexemes if lexeme)


def near(first: str, second: str) -> str:
    """A tsquery literal: `second` follows `first` at once or after one word."""
    a, b = quoted_lexeme(first), quoted_lexeme(second)
    return f"{a} <-> {b} | {a} <2> {b}"


def sparse_literal(vector: Mapping[int, float]) -> str:
    """pgvector's text form of a sparse vector with `SPARSE_DIMENSIONS` dimensions."""
    entries = ",".join(f"{key + 1}:{value:.7g}" for key, value in sorted(vector.items()))
    return f"{{{entries}}}/{SPARSE_DIMENSIONS}"


# --- the index side --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """What the index stores of one chunk.

    `tsvector` is a literal to be cast, `weights` the sparse vector by `lexeme_id`, `lexemes` the
    distinct lexemes for the statistics of document frequency. Stop words are in it from the head
    alone, as `heading_word`.
    """

    tsvector: str
    weights: Mapping[int, float]
    lexemes: frozenset[str]


_Placed = tuple[tuple[tuple[str, int], ...], int]


class Lexicon:
    """What the index stores of each piece of a document's texts, with offsets in positions.

    A text is cut at white space, and most pieces occur many times: each is analysed once, and the
    stemmer (spellings to lexemes, `None` for a stop word) is asked once for all their words.
    """

    def __init__(
        self,
        heads: Iterable[str],
        bodies: Iterable[str],
        lexemes: Callable[[list[str]], Mapping[str, str | None]],
    ) -> None:
        in_heads = {piece: expansion(piece) for text in heads for piece in text.split()}
        in_bodies = {
            piece: expansion(piece)
            for piece in {piece for text in bodies for piece in text.split()}
        }
        lexeme_of = lexemes(
            sorted(
                {
                    accented or word
                    for expansions in (in_heads, in_bodies)
                    for items, _ in expansions.values()
                    for word, _, stem, _, accented in items
                    if stem
                }
            )
        )

        def stored(word: str, accented: str, *, stem: bool) -> str:
            return safe_lexeme((lexeme_of.get(accented or word, word) if stem else word) or "")

        self.head: dict[str, _Placed] = {
            piece: (
                tuple(
                    (stored(word, accented, stem=stem) or heading_word(word), offset)
                    for word, offset, stem, _, accented in items
                ),
                width,
            )
            for piece, (items, width) in in_heads.items()
        }
        # In a body a stop word says nothing.
        self.body: dict[str, _Placed] = {
            piece: (
                tuple(
                    (lexeme, offset)
                    for word, offset, stem, _, accented in items
                    if (lexeme := stored(word, accented, stem=stem))
                ),
                width,
            )
            for piece, (items, width) in in_bodies.items()
        }


def index_row(
    title: str,
    path: str,
    body: str,
    lexicon: Lexicon,
    *,
    frequencies: Mapping[str, int] | None = None,
) -> IndexRow:
    """The index row of a chunk from its three fields, whose texts the lexicon was made of.

    `frequencies` (document frequency by lexeme) decides which words stay when there are more than
    `MAX_WEIGHTS`: the rarest.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    start = _add_head(title, "A", 0, places, lexicon)
    start = _add_head(path, "B", start, places, lexicon)
    head = {lexeme: len(found) for lexeme, found in places.items()}
    # Terms that share a position and a lexeme are two occurrences; PostgreSQL merges them.
    at = start + 1
    for piece in body.split():
        placed, width = lexicon.body[piece]
        for lexeme, offset in placed:
            try:
                place = _IN_BODY[at + offset]
            except IndexError:
                place = _IN_BODY[-1]
            places[lexeme].append(place)
        at += width
    entries = _entries(places)
    return IndexRow(
        tsvector=" ".join(entries.values()),
        weights=_weights(
            {lexeme: len(found) for lexeme, found in places.items()}, head, frequencies or {}
        ),
        lexemes=frozenset(entries),
    )


def _add_head(
    text: str, weight: str, start: int, places: defaultdict[str, list[str]], lexicon: Lexicon
) -> int:
    """Adds the words of a title or path. Returns from where the next field counts."""
    at, last, left = 1, 0, MAX_HEAD_TERMS
    for piece in text.split():
        placed, width = lexicon.head[piece]
        for lexeme, offset in placed[:left]:
            last = at + offset
            places[lexeme].append(f"{min(start + last, MAX_POSITION)}{weight}")
        left -= len(placed)
        if left <= 0:
            break
        at += width
    return start + last + _FIELD_GAP if last else start


def _entries(places: Mapping[str, list[str]]) -> dict[str, str]:
    """The lexemes with their positions as a tsvector spells them, as many as its type holds."""
    total = sum(map(len, places.values()))
    if len(places) * _MOST_BYTES_OF_A_LEXEME + total * _BYTES_PER_POSITION < _MAX_VECTOR_BYTES:
        return {
            lexeme: f"{_quoted(lexeme)}:{','.join(found[:MAX_POSITIONS_PER_LEXEME])}"
            for lexeme, found in places.items()
        }
    entries: dict[str, str] = {}
    room = _MAX_VECTOR_BYTES
    for lexeme, found in places.items():
        kept = found[:MAX_POSITIONS_PER_LEXEME]
        room -= len(lexeme.encode()) + _BYTES_PER_LEXEME + _BYTES_PER_POSITION * len(kept)
        if room < 0:
            break
        entries[lexeme] = f"{_quoted(lexeme)}:{','.join(kept)}"
    return entries


def _weights(
    tf: Mapping[str, int], head: Mapping[str, int], frequencies: Mapping[str, int]
) -> dict[int, float]:
    body_norm = K1 * (1 - B + B * sum(tf.values()) / AVGDL)
    head_norm = K1 * (1 - B + B * max(sum(head.values()), 1) / AVGHL)
    kept: Iterable[str] = tf
    if len(tf) > MAX_WEIGHTS:
        # Without statistics a word's own count is the best guess at how common it is.
        kept = sorted(tf, key=lambda word: (frequencies.get(word, 0), tf[word], word))[:MAX_WEIGHTS]
    weights: dict[int, float] = {}
    for lexeme in kept:
        count = tf[lexeme]
        value = count / (count + body_norm)
        if in_head := head.get(lexeme, 0):
            value += HEAD_WEIGHT * in_head / (in_head + head_norm)
        key = lexeme_id(lexeme)
        weights[key] = weights.get(key, 0.0) + value
    return weights


# --- the query side --------------------------------------------------------------------------


def idf(df: int, n: int) -> float:
    """Inverse document frequency, always positive. A word the corpus lacks (df = 0) is rarest.

    `log(1 + (n - df + .5) / (df + .5))`; statistics may lag, so df is taken as at most n.
    """
    n = max(n, 0)
    df = min(max(df, 0), n)
    return math.log1p((n - df + 0.5) / (df + 0.5))


def query_vector(
    idfs: Mapping[str, float], weights: Mapping[str, float] | None = None
) -> dict[int, float]:
    """A query's sparse vector: the idf of each lexeme times its weight (1 where none is given)."""
    vector: dict[int, float] = {}
    for lexeme, value in idfs.items():
        weighted = value * (1.0 if weights is None else weights.get(lexeme, 1.0))
        if weighted > 0:
            key = lexeme_id(lexeme)
            vector[key] = vector.get(key, 0.0) + weighted
    return vector


def max_score(idfs: Iterable[float]) -> float:
    """The score of a chunk that is full of every word of the query, but for the head's bonus."""
    return (K1 + 1) * math.fsum(idfs)


def calibrated(score: float, maximum: float) -> float:
    """A score as a share of the best possible one, 0..1 and comparable between queries."""
    if not (maximum > 0 and math.isfinite(score)):
        return 0.0
    return min(max(score / maximum, 0.0), 1.0)


def candidates(frequencies: Mapping[str, int], budget: int, *, alone: int) -> str:
    """A tsquery that matches the chunks worth scoring; empty when no word occurs at all.

    Rare words decide a BM25 score, so words are taken rarest first, until their frequencies sum to
    more than `budget` chunks, of which the index reads no more than the numbers. As many as sum to
    at most `alone` chunks select a chunk by themselves; each commoner one must stand beside one
    of the next words, since a chunk with that word and none of the rest would be far down. Words
    that occur nowhere are left out. The rarest word of all always selects something.
    """
    present = sorted((df, lexeme) for lexeme, df in frequencies.items() if df > 0 and lexeme)
    selected: list[str] = []
    total = 0
    for place, (df, lexeme) in enumerate(present):
        beside = [partner for _, partner in present[place + 1 : place + 1 + _PARTNERS]]
        total += df
        if selected and (total > budget or (total > alone and not beside)):
            break
        word = quoted_lexeme(lexeme)
        selected.append(word if total <= alone or not beside else f"{word} & ({any_of(beside)})")
    return " | ".join(selected)
