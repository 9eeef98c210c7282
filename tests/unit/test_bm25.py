"""Weights, literals and candidates of the lexical arm."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core import bm25
from knowledge.core.analysis import analyse
from tests.unit.retrieval_fakes import STEMMER

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
LITERAL = re.compile(r"'(?:[^'\\]|''|\\\\)*'")


def row(title: str, path: str, body: str) -> bm25.IndexRow:
    return bm25.index_row(title, path, body, lexicon(title, path, body))


def lexicon(title: str, path: str, body: str) -> bm25.Lexicon:
    return bm25.Lexicon([title, path], [body], lambda words: STEMMER.lexemes(words, "english"))


def test_the_weight_of_a_word_is_the_bracket_of_the_formula() -> None:
    made = row("Kettle", "Copper", "the kettles kettle valve")
    dl, hl = 5, 2  # kettle x 3, copper, valve; the stop word counts nowhere
    body = 1.2 * (0.25 + 0.75 * dl / 120)
    head = 1.2 * (0.25 + 0.75 * hl / 8)
    assert made.weights[bm25.lexeme_id("kettle")] == pytest.approx(
        3 / (3 + body) + 0.5 * 1 / (1 + head)
    )
    assert made.weights[bm25.lexeme_id("valve")] == pytest.approx(1 / (1 + body))
    assert made.lexemes == {"kettle", "copper", "valve"}


def test_positions_carry_the_field_and_leave_room_between_fields() -> None:
    made = row("Kettle", "Copper pot", "a kettle")
    assert made.tsvector == "'kettle':1A,25D 'copper':12B 'pot':13B"


def test_a_stop_word_is_kept_in_the_head_alone_and_under_a_name_of_its_own() -> None:
    found = row("what is it", "", "what is a kettle")
    assert bm25.heading_word("what") in found.lexemes
    assert "what" not in found.lexemes
    assert not analyse(bm25.heading_word("what"))[0].word.startswith("?")
    with_body = row("", "", "what is a kettle")
    assert with_body.lexemes == {"kettle"}


def test_positions_keep_to_the_limits_of_a_tsvector() -> None:
    made = row("", "", "kettle " * 20_000)
    positions = made.tsvector.split(":")[1].split(",")
    assert len(positions) == bm25.MAX_POSITIONS_PER_LEXEME
    late = row("", "", "the " * 60_000 + "valve")
    assert late.tsvector == "'valve':16383D"


@pytest.mark.long
def test_a_heading_of_a_million_words_stays_within_bounds() -> None:
    words = " ".join(f"w{i}" for i in range(200_000))
    made = row(words, words, words)
    assert len(made.tsvector) < 4_000_000
    assert sum(len(lexeme) for lexeme in made.lexemes) < 1_000_000
    assert len(made.weights) <= bm25.MAX_WEIGHTS


def test_the_rarest_words_keep_their_weight_when_there_are_too_many() -> None:
    words = " ".join(f"w{i}" for i in range(1_000))
    frequencies = {f"w{i}": i for i in range(1_000)}
    made = bm25.index_row("", "", words, lexicon("", "", words), frequencies=frequencies)
    assert len(made.lexemes) == 1_000
    assert bm25.lexeme_id("w0") in made.weights
    assert bm25.lexeme_id("w999") not in made.weights
    assert made == bm25.index_row("", "", words, lexicon("", "", words), frequencies=frequencies)


@given(any_text, any_text, any_text)
def test_a_row_has_the_words_of_the_analysis_at_their_positions(
    title: str, path: str, body: str
) -> None:
    made, start = row(title, path, body), 0
    expected: dict[str, list[str]] = {}
    for weight, text in (("A", title), ("B", path), ("D", body)):
        terms = analyse(text)
        lexemes = STEMMER.lexemes([term.spelling for term in terms if term.stem], "english")
        for term in terms:
            lexeme = lexemes[term.spelling] if term.stem else term.word
            if weight != "D":
                lexeme = lexeme or bm25.heading_word(term.word)
            if lexeme:
                place = f"{start + term.position}{weight}"
                expected.setdefault(bm25.safe_lexeme(lexeme), []).append(place)
        start += terms[-1].position + 10 if terms else 0
    assert made.tsvector == " ".join(
        f"{bm25.quoted_lexeme(lexeme)}:{','.join(places)}" for lexeme, places in expected.items()
    )
    assert made.lexemes == set(expected)


def test_colliding_lexemes_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "lexeme_id", lambda lexeme: 7)
    made = row("", "", "kettle valve")
    assert list(made.weights) == [7]
    assert bm25.query_vector({"kettle": 1.0, "valve": 2.0}) == {7: 3.0}


def test_lexeme_ids_never_change() -> None:
    assert bm25.lexeme_id("kettle") == 68_790_502
    assert all(0 <= bm25.lexeme_id(str(i)) < 2**29 for i in range(1_000))


def test_sparse_literals_count_from_one_in_order() -> None:
    assert bm25.sparse_literal({9: 0.5, 0: 1.25}) == "{1:1.25,10:0.5}/1000000000"
    assert bm25.sparse_literal({}) == "{}/1000000000"


def test_idf_falls_with_frequency_and_never_to_nothing() -> None:
    values = [bm25.idf(df, 100) for df in (0, 1, 10, 100, 5_000)]
    assert values == sorted(values, reverse=True)
    assert min(values) > 0
    assert bm25.idf(3, 0) == bm25.idf(0, 0) > 0


def test_a_calibrated_score_is_a_share_of_the_best() -> None:
    maximum = bm25.max_score([1.0, 2.0])
    assert maximum == pytest.approx(2.2 * 3)
    assert bm25.calibrated(3.3, maximum) == pytest.approx(0.5)
    assert bm25.calibrated(99, maximum) == 1.0
    assert bm25.calibrated(-1, maximum) == bm25.calibrated(1, 0) == 0.0
    assert bm25.calibrated(math.nan, maximum) == 0.0


def test_candidates_are_the_rarest_words_within_the_budget() -> None:
    frequencies = {"common": 900, "rare": 3, "some": 40, "absent": 0}
    assert bm25.candidates(frequencies, 100, alone=100) == "'rare' | 'some'"


def test_a_common_word_needs_company() -> None:
    frequencies = {"a": 50, "b": 60, "c": 70, "d": 80, "e": 900}
    assert bm25.candidates(frequencies, 200, alone=50) == (
        "'a' | 'b' & ('c' | 'd') | 'c' & ('d' | 'e')"
    )
    assert bm25.candidates({"a": 500, "b": 600, "c": 700, "d": 800}, 100, alone=10) == (
        "'a' & ('b' | 'c')"
    )
    # Nobody is left to stand beside, and something was selected already.
    assert bm25.candidates({"a": 40, "b": 60}, 100, alone=50) == "'a'"
    assert bm25.candidates({"a": 500}, 100, alone=10) == "'a'"
    assert bm25.candidates({"a": 0}, 100, alone=10) == ""


@given(any_text, any_text)
def test_any_string_makes_a_well_formed_literal(first: str, second: str) -> None:
    literal = bm25.quoted_lexeme(first)
    assert LITERAL.fullmatch(literal)
    assert "\0" not in literal
    assert len(literal) <= 2 + 2 * 64
    literal.encode()
    assert re.fullmatch(
        rf"{LITERAL.pattern} <-> {LITERAL.pattern} \| {LITERAL.pattern} <2> {LITERAL.pattern}",
        bm25.near(first, second),
    )
    bm25.candidates({first: 3, second: 5}, 4, alone=4)


@given(any_text, any_text, any_text)
def test_weights_are_positive_and_finite_for_any_text(title: str, path: str, body: str) -> None:
    made = row(title, path, body)
    assert all(math.isfinite(value) and value > 0 for value in made.weights.values())
    assert all(0 <= key < bm25.SPARSE_DIMENSIONS for key in made.weights)
    assert made.tsvector.count("':") >= len(made.lexemes)
    made.tsvector.encode()


@given(
    st.dictionaries(any_text, st.integers(-5, 10**7)), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_candidates_hold_a_word_that_occurs_or_there_are_none(
    frequencies: dict[str, int], budget: int, alone: int
) -> None:
    found = bm25.candidates(frequencies, budget, alone=alone)
    occurring = [word for word, df in frequencies.items() if word and df > 0]
    assert bool(found) == bool(occurring)
    if found:
        rarest = min(occurring, key=lambda word: (frequencies[word], word))
        assert found.startswith(bm25.quoted_lexeme(rarest))
