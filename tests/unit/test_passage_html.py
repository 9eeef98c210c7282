"""Passages as HTML: what is in them can be seen, and what is copied is what was there."""

from __future__ import annotations

import html
import re

import pytest

from knowledge.passage_html import passage_html, visible_html


def copied(shown: str) -> str:
    """The text of the elements: what a selection takes along."""
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


@pytest.mark.parametrize(
    ("character", "label"),
    [
        ("\u202e", "U+202E RLO"),
        ("\u200b", "U+200B ZWSP"),
        ("\xa0", "U+00A0 NBSP"),
        ("\xad", "U+00AD SHY"),
        ("\ufeff", "U+FEFF BOM"),
        ("\u3000", "U+3000"),
        ("\u3164", "U+3164"),
        ("\U000e0041", "U+E0041"),
        ("\U000e0101", "U+E0101"),
        ("\x1b", "U+001B"),
        ("\x85", "U+0085"),
    ],
)
def test_what_is_not_seen_is_named(character: str, label: str) -> None:
    shown = visible_html(f"a{character}b")
    assert f'data-code="{label}"' in shown
    control = character < "\xa0"
    assert copied(shown) == ("ab" if control else f"a{character}b")


@pytest.mark.parametrize(
    "text", ["می\u200cخواهم", "👩\u200d💻", "❤\ufe0f", "क्\u200dष", "tab\tand\nline"]
)
def test_what_scripts_and_emoji_need_is_left_alone(text: str) -> None:
    assert visible_html(text) == text


@pytest.mark.parametrize("text", ["pass\u200cword", "pass\u200dword", "a\ufe01b", "end\u200d"])
def test_joiners_and_selectors_beside_ascii_are_named(text: str) -> None:
    assert 'class="invisible"' in visible_html(text)
    assert copied(visible_html(text)) == text


def test_marks_name_their_rules_and_stay_in_the_text() -> None:
    matches = [
        {"family": "override", "part": "text", "start": 0, "end": 6},
        {"family": "reveal", "part": "text", "start": 3, "end": 9},
        {"family": "override", "part": "heading", "start": 0, "end": 3},
        {"family": "beyond", "part": "text", "start": 3, "end": 99},
    ]
    shown = passage_html("<b>ignore</b>", matches)
    assert re.findall(r'data-rule="([^"]*)"', shown) == ["override", "override, reveal", "reveal"]
    assert "<b>" not in shown
    assert copied(shown) == "<b>ignore</b>"
