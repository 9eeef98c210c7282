from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.normalising import normalise

MARKDOWN = "text/markdown"
PLAIN = "text/plain"

messy = st.lists(
    st.one_of(
        st.sampled_from(
            ["\n", "\r\n", "\r", "\t", " ", "  \t", "\n\n\n\n", "\f", "\u2028", "\x85", "\xa0"]
        ),
        st.sampled_from(["e\u0301", "\u0327\u0301", "\u1100\u1161\u11a8", "\u212b", "\ufeff"]),
        st.sampled_from(["vim: set ts=3:", "-*- tab-width: 2 -*-", "# word"]),
        st.text(max_size=6),
    ),
    max_size=30,
).map("".join)


def plain(text: str) -> str:
    return normalise(text, media_type=PLAIN).text


def test_each_change_of_the_closed_list() -> None:
    assert plain("cafe\u0301") == "caf\u00e9"
    assert plain("one\r\ntwo\r\n") == "one\ntwo\n"
    assert plain("a\tb") == "a       b"
    assert plain("a  \nb\t\n") == "a\nb\n"
    assert plain("a\n\n\n\n\nb") == "a\n\n\nb"
    assert plain("\n\n\n\na") == "\n\na"


@pytest.mark.parametrize("character", ["\f", "\u2028", "\x85", "\v", "\ufeff", "\u200b"])
def test_nothing_else_changes(character: str) -> None:
    assert plain(f"a{character}b\r c") == f"a{character}b\r c"


@pytest.mark.parametrize(
    ("text", "media_type", "width"),
    [
        ("x\ty", MARKDOWN, 4),
        ("x\ty", "text/x-python", 8),
        ("# -*- tab-width: 2 -*-\nx\ty", PLAIN, 2),
        ("x\ty\n# vim: set et ts=3 sw=3:", PLAIN, 3),
        ("x\ty\n/* vi:tabstop=5 */", MARKDOWN, 5),
        ("x\ty\n# Local Variables:\n# tab-width: 6\n# End:", PLAIN, 6),
        ("x\ty\n# vim: ts=99", PLAIN, 8),
        ("x\ty\n" + "vim: " * 300 + "ts=2", PLAIN, 8),
    ],
)
def test_tabs_go_to_the_next_stop_of_the_files_own_width(
    text: str, media_type: str, width: int
) -> None:
    lines = normalise(text, media_type=media_type).text.split("\n")
    assert "x" + " " * (width - 1) + "y" in lines


def test_columns_are_counted_in_characters() -> None:
    assert plain("äöü\tx") == "äöü     x"
    assert plain("12345678\tx") == "12345678        x"
    assert plain("a\rb\tx") == "a\rb     x"


@given(messy)
def test_normalising_again_changes_nothing(text: str) -> None:
    for media_type in (PLAIN, MARKDOWN):
        once = normalise(text, media_type=media_type).text
        assert normalise(once, media_type=media_type).text == once


@given(messy)
def test_the_result_keeps_the_promises_of_the_list(text: str) -> None:
    result = plain(text)
    assert unicodedata.is_normalized("NFC", result)
    assert "\t" not in result
    assert "\r\n" not in result
    assert "\n\n\n\n" not in result
    assert not any(line.endswith(" ") for line in result.split("\n"))
    visible = "".join(unicodedata.normalize("NFC", text).split())
    assert "".join(result.split()) == visible


@given(messy, st.data())
def test_marks_move_with_the_text(text: str, data: st.DataObject) -> None:
    marks = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    result = normalise(text, media_type=PLAIN, marks=marks)
    assert result.text == plain(text)
    assert all(0 <= mark <= len(result.text) for mark in result.marks)
    moved = dict(zip(marks, result.marks, strict=True))
    assert sorted(moved.values()) == [moved[mark] for mark in sorted(moved)]


@given(st.lists(messy.filter(lambda page: page.strip() != ""), min_size=1, max_size=4))
def test_a_mark_before_a_word_still_stands_before_it(pages: list[str]) -> None:
    text, marks = "", []
    for page in pages:
        marks.append(len(text))
        text += f"\u2192{page}\n"
    result = normalise(text, media_type=PLAIN, marks=marks)
    arrows = [at for at in result.marks if result.text[at] == "\u2192"]
    assert len(arrows) == len(pages)


def test_a_mark_in_what_was_stripped_moves_to_where_it_was() -> None:
    text = "a   \n\n\n\n\n\nb"
    assert normalise(text, media_type=PLAIN, marks=[3, 8, len(text) - 1]).marks == (1, 3, 4)


def test_long_runs_of_combining_marks_are_composed_in_linear_time() -> None:
    text = "a" + "\u0301\u0327" * 30_000
    assert plain(text) == unicodedata.normalize("NFC", "a" + "\u0327" * 30_000 + "\u0301" * 30_000)


@pytest.mark.long
def test_ten_megabytes_in_one_line() -> None:
    text = "word e\u0301\t" * 1_300_000
    assert plain(text) == ("word \u00e9  " * 1_300_000).rstrip()
