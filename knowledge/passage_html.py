"""A passage as HTML: escaped, instruction-like spans marked, invisible characters made visible.

A mark shows what a character is beside the character itself, which is still there: what somebody
selects and copies is the passage as it is. What is written by a style sheet is copied by nobody.
Control characters alone are left out, for a terminal that they are pasted into obeys them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

# Controls but TAB and LF; what reorders, hides or smuggles text; letters that have no shape; and
# spaces that are not the one on the keyboard.
_ALWAYS = (
    "\x00-\x08\x0b-\x1f\x7f-\xa0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u2064\u2066-\u206f\u2800\u3000\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Scripts and emoji need joiners and variation selectors; beside plain ASCII they only hide.
_INVISIBLE = re.compile(
    rf"([{_ALWAYS}]|(?<=[\x00-\x7f])[\u200c\u200d\ufe00-\ufe0f]|[\u200c\u200d](?=[\x00-\x7f]|\Z))"
)
_SHORT = {
    "\xa0": "NBSP",
    "\xad": "SHY",
    "\u200b": "ZWSP",
    "\u200c": "ZWNJ",
    "\u200d": "ZWJ",
    "\u200e": "LRM",
    "\u200f": "RLM",
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2060": "WJ",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
    "\ufeff": "BOM",
}


def passage_html(
    text: str,
    matches: Iterable[Any] = (),
    *,
    says: str = "Reads like an instruction",
) -> SafeString:
    """`matches` are a chunk's `instruction_matches`: `{family, start, end}` in characters.

    `says` is what a mark tells of the words it is around; a word that was searched for needs none.
    """
    spans = _spans(len(text), matches)
    edges = sorted({0, len(text), *(edge for start, end, _ in spans for edge in (start, end))})
    return format_html_join(
        "", "{}", ((_piece(text, start, end, spans, says),) for start, end in pairwise(edges))
    )


def visible_html(text: str) -> SafeString:
    """Any text, escaped, with its invisible characters marked."""
    parts = _INVISIBLE.split(text)
    if len(parts) == 1:
        return format_html("{}", text)
    return mark_safe(  # noqa: S308 - both kinds of part are escaped
        "".join(
            _mark(part) if number % 2 else format_html("{}", part)
            for number, part in enumerate(parts)
        )
    )


def families(matches: Iterable[Any]) -> list[str]:
    """The rules that fired, once each."""
    return sorted({str(match.get("family", "")) for match in matches if isinstance(match, dict)})


def _spans(length: int, matches: Iterable[Any]) -> list[tuple[int, int, str]]:
    found = []
    for match in matches:
        # What fired in a heading has its place in the heading.
        if not isinstance(match, dict) or match.get("part") == "heading":
            continue
        start, end = match.get("start"), match.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= length:
            found.append((start, end, str(match.get("family", ""))))
    return found


def _piece(
    text: str, start: int, end: int, spans: Sequence[tuple[int, int, str]], says: str
) -> SafeString:
    shown = visible_html(text[start:end])
    fired = sorted({family for first, last, family in spans if first <= start and end <= last})
    if not fired:
        return shown
    if not says:
        return format_html('<mark class="hit">{}</mark>', shown)
    rules = ", ".join(fired)
    return format_html(
        '<mark class="instruction" title="{}: {}" data-rule="{}">{}</mark>',
        says,
        rules,
        rules,
        shown,
    )


def _mark(character: str) -> SafeString:
    """A `bdi`, so that what reorders text reorders nothing outside of its own mark."""
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "control character").lower()
    return format_html(
        '<bdi class="invisible" role="img" aria-label="{}" title="{}" data-code="{}">{}</bdi>',
        f"{code} {name}",
        f"{code} {name}",
        f"{code} {_SHORT[character]}" if character in _SHORT else code,
        "" if unicodedata.category(character) == "Cc" else character,
    )
