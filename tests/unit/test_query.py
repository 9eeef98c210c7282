"""Questions to weighted words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core import bm25
from knowledge.core.errors import InvalidQuery
from knowledge.core.query import (
    HEADING_WORD,
    MAX_CONTEXT,
    MAX_TEXT,
    MAX_WORDS,
    NOTHING_TO_SEARCH_FOR,
    ONLY_STOP_WORDS,
    TOO_MANY_WORDS,
    Lexemes,
    form_query,
    heading_words,
    lexemes_of,
    weigh,
)
from knowledge.core.types import KnowledgeQuery
from tests.unit.retrieval_fakes import STEMMER

any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def english(words: tuple[str, ...]) -> Lexemes:
    return {"english": STEMMER.lexemes(words, "english")}


def test_the_words_of_the_text_weigh_one() -> None:
    formed = form_query(KnowledgeQuery(text="copper kettle, kettle?"))
    assert formed.weights == {"copper": 1.0, "kettle": 1.0}
    assert formed.measured == {"copper", "kettle"}
    assert formed.notes == ()


@pytest.mark.parametrize("text", ["", "  ", "🚀", "---", '"" | ()'])
def test_no_words_is_an_empty_query_that_says_why(text: str) -> None:
    formed = form_query(KnowledgeQuery(text=text))
    assert formed.terms == ()
    assert formed.notes == (NOTHING_TO_SEARCH_FOR,)
    weighed = weigh(formed, {}, {}, 10)
    assert weighed.vector == {}
    assert weighed.notes == (NOTHING_TO_SEARCH_FOR,)


def test_stop_words_alone_say_why_too() -> None:
    formed = form_query(KnowledgeQuery(text="it is what it is"))
    weighed = weigh(formed, english(formed.stem_words), {}, 10)
    assert weighed.vector == {}
    assert weighed.notes == (ONLY_STOP_WORDS,)


def test_stop_words_lift_a_heading_and_select_and_measure_nothing() -> None:
    formed = form_query(KnowledgeQuery(text="what is a kettle?"))
    lexemes = english(formed.stem_words)
    what = bm25.heading_word("what")
    assert heading_words(formed, lexemes)["what"] == what
    plain = weigh(formed, lexemes, {"kettle": 3}, 10)
    lifted = weigh(formed, lexemes, {"kettle": 3, what: 2}, 10)
    assert lifted.vector == {
        **plain.vector,
        bm25.lexeme_id(what): pytest.approx(HEADING_WORD * bm25.idf(2, 10)),
    }
    assert lifted.maximum == plain.maximum
    assert lifted.frequencies == plain.frequencies == {"kettle": 3}
    assert lifted.pairs == plain.pairs


def test_limits() -> None:
    for query in (
        KnowledgeQuery(text="a\0b"),
        KnowledgeQuery(text="a", objective="\0"),
        KnowledgeQuery(text="a", entities=("x\0",)),
        KnowledgeQuery(text="a", aliases={"x": ("\0",)}),
        KnowledgeQuery(text="a" * (MAX_TEXT + 1)),
        KnowledgeQuery(text="a", entities=("x" * (MAX_CONTEXT + 1),)),
    ):
        with pytest.raises(InvalidQuery):
            form_query(query)
    form_query(KnowledgeQuery(text="a" * MAX_TEXT))


def test_only_so_many_different_words_are_searched() -> None:
    text = " ".join(f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(MAX_WORDS + 20))
    formed = form_query(KnowledgeQuery(text=text))
    assert len(formed.terms) == MAX_WORDS
    assert formed.notes == (TOO_MANY_WORDS,)
    assert formed.measured == formed.weights.keys()


def test_entities_and_objective_lift_but_are_not_measured() -> None:
    formed = form_query(
        KnowledgeQuery(
            text="descale copper kettle",
            entities=("Boiler Seven",),
            objective="write the yearly maintenance plan for the plant",
        )
    )
    assert formed.measured == {"descale", "copper", "kettle"}
    assert formed.weights["boiler"] == 0.5
    assert 0 < formed.weights["maintenance"] <= 0.25
    objective = [w for word, w in formed.weights.items() if word in {"write", "yearly", "plan"}]
    assert sum(objective) <= 0.25 * 3


def test_context_stands_in_for_a_missing_text() -> None:
    formed = form_query(KnowledgeQuery(text="", entities=("kettle",), objective="descale"))
    assert formed.measured == {"kettle"}
    assert form_query(KnowledgeQuery(text="", objective="descale")).measured == {"descale"}


def test_aliases_are_alternatives_of_what_is_mentioned() -> None:
    formed = form_query(
        KnowledgeQuery(
            text="where is the boiler",
            aliases={"boiler": ("steam kettle", "heater"), "pump": ("lifter",)},
        )
    )
    assert formed.weights["heater"] == 1.0
    assert formed.weights["steam"] == formed.weights["kettle"] == 0.5
    assert "lifter" not in formed.weights
    assert not {"heater", "steam", "kettle"} & formed.measured


def test_an_alias_alone_scores_like_the_name() -> None:
    formed = form_query(KnowledgeQuery(text="boiler", aliases={"boiler": ("heater",)}))
    weighed = weigh(formed, english(formed.stem_words), {"boiler": 5, "heater": 5}, 100)
    by_name = weighed.vector[bm25.lexeme_id("boiler")]
    assert weighed.vector[bm25.lexeme_id("heater")] == by_name
    assert weighed.maximum == pytest.approx(2.2 * by_name)


def test_forms_of_several_languages_are_one_word() -> None:
    formed = form_query(KnowledgeQuery(text="kettles"))
    lexemes = {
        "english": STEMMER.lexemes(["kettles"], "english"),
        "simple": STEMMER.lexemes(["kettles"], "simple"),
    }
    assert lexemes_of(formed, lexemes) == {"kettles": ("kettle", "kettles")}
    weighed = weigh(formed, lexemes, {"kettle": 3, "kettles": 2}, 100)
    assert weighed.maximum == pytest.approx(2.2 * bm25.idf(5, 100))
    assert set(weighed.vector.values()) == {bm25.idf(5, 100)}


def test_a_word_the_corpus_lacks_counts_at_the_highest_idf() -> None:
    formed = form_query(KnowledgeQuery(text="kettle zeppelin"))
    weighed = weigh(formed, english(formed.stem_words), {"kettle": 50}, 100)
    assert weighed.maximum == pytest.approx(2.2 * (bm25.idf(50, 100) + bm25.idf(0, 100)))


def test_a_whole_that_occurs_nowhere_leaves_the_answer_to_its_parts() -> None:
    formed = form_query(KnowledgeQuery(text="valve-box"))
    frequencies = {"valve": 3, "box": 4}
    apart = weigh(formed, english(formed.stem_words), frequencies, 100)
    assert apart.maximum == pytest.approx(2.2 * (bm25.idf(3, 100) + bm25.idf(4, 100)))
    whole = weigh(formed, english(formed.stem_words), {**frequencies, "valve-box": 1}, 100)
    assert whole.maximum > apart.maximum


def test_pairs_are_neighbours_that_occur() -> None:
    formed = form_query(KnowledgeQuery(text="the copper valve-box or kettles zeppelin"))
    frequencies = {"copper": 5, "valve": 5, "box": 2, "kettle": 9}
    weighed = weigh(formed, english(formed.stem_words), frequencies, 100)
    assert {(pair.first, pair.second) for pair in weighed.pairs} == {
        ("copper", "valve"),
        ("valve", "box"),
        ("box", "kettle"),
    }
    assert all(pair.bonus > 0 for pair in weighed.pairs)


@given(any_text, any_text, st.lists(any_text, max_size=3))
def test_no_text_raises(text: str, objective: str, entities: list[str]) -> None:
    query = KnowledgeQuery(
        text=text,
        objective=objective,
        entities=tuple(entities),
        aliases=dict.fromkeys(entities, (objective, text)),
    )
    formed = form_query(query)
    weighed = weigh(formed, english(formed.stem_words), {}, 5)
    assert len(formed.terms) <= MAX_WORDS
    assert all(0 < weight <= 1 for weight in formed.weights.values())
    assert formed == form_query(query)
    assert bool(weighed.vector) != bool(weighed.notes)
    bm25.candidates(weighed.frequencies, 100, alone=10)


class Tongues:
    """Stop words by language; everything else is its own lexeme."""

    stops = {  # noqa: RUF012 - a table
        "english": {"how", "is", "the", "what", "a"},
        "german": {"die", "der", "was", "ist"},
    }

    def lexemes(self, words: tuple[str, ...]) -> dict[str, dict[str, str | None]]:
        return {
            language: {word: None if word in stops else word for word in words}
            for language, stops in self.stops.items()
        }


def test_a_stop_word_of_the_questions_language_is_dropped_in_all() -> None:
    formed = form_query(KnowledgeQuery(text="how is the valve cleaned in what was die Halle"))
    forms = lexemes_of(formed, Tongues().lexemes(formed.stem_words))
    assert [word for word, found in forms.items() if not found] == ["how", "is", "the", "what"]
    assert forms["die"] == ("die",)


def test_a_question_of_one_word_shows_no_language() -> None:
    formed = form_query(KnowledgeQuery(text="die"))
    assert lexemes_of(formed, Tongues().lexemes(formed.stem_words)) == {"die": ("die",)}
    both = form_query(KnowledgeQuery(text="what is the"))
    assert not any(lexemes_of(both, Tongues().lexemes(both.stem_words)).values())


@pytest.mark.parametrize("belief", ["a\0b", "\ud800", {"id": ["\udfff"]}, {"a\0": 1}])
def test_beliefs_are_opaque_but_storable(belief: object) -> None:
    with pytest.raises(InvalidQuery):
        form_query(KnowledgeQuery(text="kettle", beliefs=(belief,)))
    assert form_query(KnowledgeQuery(text="kettle", beliefs=("b1", {"id": "\\u0041"}))).terms
