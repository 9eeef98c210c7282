"""How alike two texts are and how much of one is boilerplate, without a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.likeness import SKETCH_SIZE, boilerplate, resemblance, sketch

PROSE = (
    "The night shift checks every trailer before it leaves the yard. A driver who finds a"
    " warm pallet calls the dispatcher, notes the time and waits; nobody reloads alone. The"
    " dispatcher opens a ticket, names the lot and decides whether the load goes back."
)


def test_the_same_words_have_the_same_sketch_whatever_their_case_and_spacing() -> None:
    assert sketch(PROSE) == sketch(PROSE.upper().replace(" ", "\n  "))
    assert resemblance(sketch(PROSE), sketch(PROSE)) == 1


def test_an_edit_leaves_texts_alike_and_another_text_is_not() -> None:
    edited = PROSE.replace("the time", "the hour")
    assert 0.6 < resemblance(sketch(PROSE), sketch(edited)) < 1
    assert sketch(PROSE)[0] != sketch(edited)[0]
    other = "Invoices are paid within thirty days after the receipt of goods at the warehouse."
    assert resemblance(sketch(PROSE), sketch(other)) == 0


@given(st.text(), st.text())
def test_resemblance_is_a_symmetric_share(one: str, other: str) -> None:
    a, b = sketch(one), sketch(other)
    assert 2 <= len(a) <= SKETCH_SIZE + 1
    assert 0 <= resemblance(a, b) == resemblance(b, a) <= 1
    assert resemblance(a, ()) == 0
    assert 0 <= boilerplate(one) <= 1


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "| part | price |\n| --- | --- |\n| valve | 12 |\n| seal | 3 |\n| hose | 40 |",
        "- Close the valve.\n- Drain the hose.\n- Label the drum.\n- Sign the sheet.",
        "铜账本检查完毕后阀门开启并记录时间戳",
        "Copyright is explained to new staff on their second day.",
    ],
)
def test_ordinary_text_is_no_boilerplate(text: str) -> None:
    assert boilerplate(text) < 0.35


@pytest.mark.parametrize(
    "text",
    [
        (
            'Copyright (c) 2024 Fjord. All rights reserved. Provided on an "as is" basis, without'
            " warranties; we are not liable for any damages. Redistribution of this is free."
        ),
        "Introduction ........ 1\nGetting started ..... 4\nCommands ........ 12\nIndex .... 40",
        "- [Start](a.html)\n- [Guide](b.html)\n- [Pages](c.html)\n- [More](d.html)",
        "Home\nSearch\nContact\nPrivacy",
        "| --- | --- | === » » » | a",
        "",
    ],
)
def test_licences_contents_and_ornament_are(text: str) -> None:
    assert boilerplate(text) > 0.6
