"""The stemmer on PostgreSQL's own dictionaries."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from knowledge.adapters.stemmer import PostgresStemmer

pytestmark = pytest.mark.django_db


def test_words_become_lexemes_and_stop_words_disappear() -> None:
    found = PostgresStemmer().lexemes(["retries", "the", "kettles", "retry"], "english")
    assert found == {"retries": "retri", "the": None, "kettles": "kettl", "retry": "retri"}


def test_each_language_has_its_own_dictionary() -> None:
    stemmer = PostgresStemmer()
    assert stemmer.lexemes(["hauser", "und"], "german") == {"hauser": "haus", "und": None}
    assert stemmer.lexemes(["und"], "english") == {"und": "und"}
    assert stemmer.lexemes(["домами"], "russian") == {"домами": "дом"}


def test_simple_asks_nobody() -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert PostgresStemmer().lexemes(["the", "Kettles"], "simple") == {
            "the": "the",
            "Kettles": "Kettles",
        }
    assert len(queries) == 0


def test_a_call_is_one_statement_and_a_second_call_none() -> None:
    stemmer = PostgresStemmer()
    words = [f"kettle{chr(97 + i // 26)}{chr(97 + i % 26)}s" for i in range(600)]
    with CaptureQueriesContext(connection) as queries:
        first = stemmer.lexemes(words, "english")
        assert stemmer.lexemes(words[:10], "english").items() <= first.items()
    assert len(queries) == 1
    assert len(first) == 600


def test_many_words_line_up_beyond_the_positions_of_one_vector() -> None:
    letters = "bcdfghjklm"
    words = [
        "q" + letters[i // 10_000] + letters[i // 1_000 % 10] + letters[i // 100 % 10]
        + letters[i // 10 % 10] + letters[i % 10] + "ings"
        for i in range(32_000)
    ]  # fmt: skip
    found = PostgresStemmer().lexemes(words, "english")
    assert found == {word: word.removesuffix("s") for word in words}


def test_words_that_are_not_one_token_stand_for_themselves() -> None:
    odd = ["retries", "two words", "a-b", "x's \\ y", "the", "…", "http://a.test/b"]
    found = PostgresStemmer().lexemes(odd, "english")
    assert found == {
        "retries": "retri",
        "two words": "two words",
        "a-b": "a-b",
        "x's \\ y": "x's \\ y",
        "the": None,
        "…": "…",
        "http://a.test/b": "http://a.test/b",
    }


def test_memory_is_bounded() -> None:
    stemmer = PostgresStemmer(remembered=3)
    stemmer.lexemes(["one", "two", "three", "four", "five"], "english")
    with CaptureQueriesContext(connection) as queries:
        stemmer.lexemes(["five"], "english")
        assert len(queries) == 0
        stemmer.lexemes(["one"], "english")
    assert len(queries) == 1


def test_no_words_need_no_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert PostgresStemmer().lexemes([], "english") == {}
    assert len(queries) == 0


def test_accents_tell_a_stop_word_and_are_gone_from_a_lexeme() -> None:
    stemmer = PostgresStemmer()
    assert stemmer.lexemes(["für", "häuser", "über"], "german") == {
        "für": None,
        "häuser": "haus",
        "über": None,
    }
    french = stemmer.lexemes(["à", "été", "réservoirs"], "french")
    assert french["à"] is None
    assert french["réservoirs"] == stemmer.lexemes(["reservoirs"], "french")["reservoirs"]
    assert stemmer.lexemes(["Küche"], "simple") == {"Küche": "kuche"}
