"""A passage as HTML: escaped, instruction-like spans marked, invisible characters made visible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

# Controls but TAB and LF, and the characters that reorder, hide or smuggle text. The joiners
# U+200C and U+200D stay: scripts and emoji need them.
_INVISIBLE = re.compile(
    "([\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f])"
)


def passage_html(
    text: str, matches: Iterable[Any] = (), *, says: str = "Reads like an instruction"
) -> SafeString:
    """`matches` are a chunk's `instruction_matches`: `{family, start, end}` in characters.

    `says` is what a mark tells of the words it is around.
    """
    spans = _spans(len(text), matches)
    edges = sorted({0, len(text), *(edge for start, end, _ in spans for edge in (start, end))})
    return format_html_join(
        "", "{}", ((_piece(text, start, end, spans, says),) for start, end in pairwise(edges))
    )


def families(matches: Iterable[Any]) -> list[str]:
    """The rules that fired, once each."""
    return sorted({str(match.get("family", "")) for match in matches if isinstance(match, dict)})


def _spans(length: int, matches: Iterable[Any]) -> list[tuple[int, int, str]]:
    found = []
    for match in matches:
        if not isinstance(match, dict):
            continue
        start, end = match.get("start"), match.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= length:
            found.append((start, end, str(match.get("family", ""))))
    return found


def _piece(
    text: str, start: int, end: int, spans: Sequence[tuple[int, int, str]], says: str
) -> SafeString:
    shown = _visible(text[start:end])
    fired = sorted({family for first, last, family in spans if first <= start and end <= last})
    if not fired:
        return shown
    return format_html(
        '<mark class="instruction" title="{}: {}">{}</mark>',
        says,
        ", ".join(fired),
        shown,
    )


def _visible(text: str) -> SafeString:
    parts = _INVISIBLE.split(text)
    if len(parts) == 1:
        return format_html("{}", text)
    return mark_safe(  # noqa: S308 - both kinds of part are escaped by format_html
        "".join(
            format_html('<span class="invisible">U+{}</span>', f"{ord(part):04X}")
            if number % 2
            else format_html("{}", part)
            for number, part in enumerate(parts)
        )
    )
