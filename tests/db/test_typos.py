"""A word that occurs nowhere is searched for as the one it was meant to be, and a note says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from access.trust import Sensitivity
from knowledge.core.types import Visibility
from tests.support import admit, ask, principal, texts


@pytest.fixture(autouse=True)
def corpus(db: Any, blob_root: Path) -> None:
    admit("# Recovery\n\nA rollback restores the previous deployment.\n", title="Recovery")
    admit("# Rota\n\nThe weekly calendar hangs beside the door.\n", title="Rota")


@pytest.mark.parametrize("question", ["rolback", "rollbcak", "rollbackk", "deploymnet", "calender"])
def test_a_slip_finds_what_was_meant(question: str) -> None:
    exact = {"rolback": "rollback", "rollbcak": "rollback", "rollbackk": "rollback"}
    result = ask(question)
    assert len(result.passages) == 1
    assert any("Nothing holds" in note for note in result.notes)
    meant = exact.get(question, {"deploymnet": "deployment", "calender": "calendar"}.get(question))
    assert meant is not None
    assert meant in texts(result)[0].casefold()
    clean = ask(meant)
    assert not clean.notes
    assert result.passages[0].terms.match < clean.passages[0].terms.match


@pytest.mark.parametrize(
    ("question", "meant"),
    [
        ("Waht does the rollback restore?", "What does the rollback restore?"),
        ("Whaet does the rollback restore?", "What does the rollback restore?"),
        ("Wich door?", "Which door?"),
    ],
)
def test_a_slip_in_a_stop_word_counts_for_nothing(question: str, meant: str) -> None:
    """It is no rare word that nothing holds, nor a word that is as near and occurs."""
    admit("# Waste\n\nWheat is weighed wet.\n", title="Waste")
    slipped, clean = ask(question), ask(meant)
    assert texts(slipped) == texts(clean)
    assert slipped.passages[0].terms.match == clean.passages[0].terms.match
    assert "too common to search by" in slipped.notes[0]
    assert not clean.notes


def test_stop_words_are_those_of_the_language_that_is_spoken() -> None:
    admit("Eine Anlage, die nicht mehr läuft.\n", title="Anlage", language="german")
    assert ask("The weird rollback").notes == ()
    assert "“wird”" in ask("Die Anlage, die weird").notes[0]


def test_a_short_word_is_taken_for_the_only_one_that_is_near() -> None:
    assert texts(ask("dooor")) == texts(ask("dor door")) == texts(ask("door"))
    found = ask("dorr")
    assert texts(found) == texts(ask("door"))
    admit("The dorm is closed.\n", title="Dorm")
    assert not ask("dorr").passages


def test_several_slips_and_no_correction_is_used_up_by_what_has_none() -> None:
    none = "gnu emu elk hen yak e4107 n12"
    found = ask(f"{none} rolback deploymnet previuos weekyl calender hagns besdie")
    assert len(found.notes) == 7


def test_words_that_occur_are_never_corrected() -> None:
    admit("# Door\n\nThe dour porter locks it.\n", title="Door")
    assert not ask("dour porter").notes


@pytest.mark.parametrize("question", ["zzzzzzzzz", "xylophone", "E4107", "pmup"])
def test_what_is_near_nothing_finds_nothing(question: str) -> None:
    assert not ask(question).passages


def test_words_that_the_caller_may_not_see_are_not_offered() -> None:
    admit(
        "# Plan\n\nThe acquisition of Borealis.\n",
        title="Plan",
        visibility=Visibility.PRINCIPAL,
        sensitivity=Sensitivity.RESTRICTED,
    )
    assert ask("borealiss").passages
    for other in (
        principal("bob"),
        principal(tenant="globex"),
        principal(sensitivity_ceiling=Sensitivity.INTERNAL),
    ):
        result = ask("borealiss", by=other)
        assert not result.passages
        assert not any("borealis”" in note for note in result.notes)
