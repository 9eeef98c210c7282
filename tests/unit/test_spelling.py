"""Words one slip of a finger away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.spelling import one_edit_away, respelled


@pytest.mark.parametrize("slip", ["rolbback", "rollbck", "rollbackk", "rollvack", "rollbakc"])
def test_each_kind_of_slip_is_undone(slip: str) -> None:
    assert "rollback" in one_edit_away(slip)


def test_the_first_letter_stays_and_the_word_itself_is_no_correction() -> None:
    assert "house" in one_edit_away("hoouse")
    assert "mouse" not in one_edit_away("house")
    assert "house" not in one_edit_away("house")


@pytest.mark.parametrize("word", ["", "fox", "e4107", "snake_case", "回滚部署指南", "abcфд"])
def test_short_words_identifiers_and_unknown_scripts_have_none(word: str) -> None:
    assert one_edit_away(word) == set()


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=30))
def test_every_correction_is_near(word: str) -> None:
    found = one_edit_away(word)
    assert len(found) <= 54 * len(word) + 26
    assert all(abs(len(one) - len(word)) <= 1 and one[0] == word[0] for one in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is the rolback late?", "Is the rollback late?"),
        ("ROLBACK, rolback-plan and Rólback", "rollback, rollback-plan and rollback"),
        ("rolbacks and norolback stay", "rolbacks and norolback stay"),
        ("", ""),
    ],
)
def test_words_are_respelled_where_they_stand_alone(text: str, expected: str) -> None:
    assert respelled(text, {"rolback": "rollback"}) == expected


@given(st.text())
def test_without_other_spellings_a_text_stays_as_it_is(text: str) -> None:
    assert respelled(text, {}) == text
