"""Quotes: found letter by letter, or by what white space, marks and capitals may do to them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.quoting import QuoteMatch, QuoteOutcome, find_quote

PASSAGE = "The relay \u2013 see \u201cWidgets\u201d \u2013 is of\ufb01cially\n  rated at 5\u00a0A. Don\u2019t exceed it."


@pytest.mark.parametrize(
    ("quote", "outcome"),
    [
        ("rated at", QuoteOutcome.EXACT),
        (PASSAGE, QuoteOutcome.EXACT),
        ("officially rated", QuoteOutcome.NORMALISED),
        ('see "Widgets" - is', QuoteOutcome.NORMALISED),
        ("don't EXCEED it.", QuoteOutcome.NORMALISED),
        ("5 A", QuoteOutcome.NORMALISED),
        ("\n the relay ", QuoteOutcome.NORMALISED),
    ],
)
def test_found(quote: str, outcome: QuoteOutcome) -> None:
    found = find_quote(quote, PASSAGE)
    assert found is not None
    assert found.outcome is outcome


@pytest.mark.parametrize(
    "quote",
    ["", " \n", "rated at 6 A", "the relay is", "relay-", "of\ufb01cially rated at5", "ratedat"],
)
def test_not_found(quote: str) -> None:
    assert find_quote(quote, PASSAGE) is None


def test_a_piece_of_a_character_is_no_quote() -> None:
    assert find_quote("F", "of\ufb01ce") == QuoteMatch(
        outcome=QuoteOutcome.NORMALISED, start=1, end=2
    )
    assert find_quote("I", "of\ufb01ce") is None
    assert find_quote("S", "stra\u00dfe") == QuoteMatch(
        outcome=QuoteOutcome.NORMALISED, start=0, end=1
    )
    assert find_quote("SE", "stra\u00dfe") is None


def test_another_composition_of_the_same_letters() -> None:
    found = find_quote(unicodedata.normalize("NFD", "caf\u00e9"), "a caf\u00e9 here")
    assert found == QuoteMatch(outcome=QuoteOutcome.NORMALISED, start=2, end=6)


text = st.text(st.characters(codec="utf-8"), max_size=80).map(
    lambda value: unicodedata.normalize("NFC", value)
)


@given(text, st.data())
def test_every_slice_of_a_passage_is_a_quote_of_it(passage: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(passage)))
    end = data.draw(st.integers(start, len(passage)))
    quote = passage[start:end]
    found = find_quote(quote, passage)
    if not quote.strip():
        assert found is None
        return
    assert found is not None
    assert found.outcome is QuoteOutcome.EXACT
    assert passage[found.start : found.end] == quote


@given(text, st.sampled_from([str.upper, str.swapcase, lambda value: value.replace(" ", "\n\t ")]))
def test_what_is_found_is_the_same_but_for_what_is_forgiven(passage: str, change: object) -> None:
    changed = unicodedata.normalize("NFC", change(passage))  # type: ignore[operator]
    found = find_quote(changed, passage)
    if found is not None:
        again = find_quote(passage[found.start : found.end], changed)
        assert again is not None
