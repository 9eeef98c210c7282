"""What is known of a chunk's wording without its text: how alike two are, how much is boilerplate.

Both are computed once, when a chunk is admitted, so that a search can rank a hundred candidates
without reading their texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import nsmallest
from itertools import accumulate
from typing import Final
from zlib import crc32

SKETCH_SIZE: Final = 16
_SHINGLE_WORDS: Final = 3

_LICENCE: Final = re.compile(
    r"(?i)\b(?:all rights reserved|without warrant(?:y|ies)|as is\W{0,3} basis|licensed under"
    r"|permission is hereby granted|redistributions? (?:of|in)|terms and conditions of use"
    r"|copyright (?:©|\(c\)|\d{4})|liab(?:le|ility) for any (?:claim|damages?)"
    r"|do not sell my|cookie (?:policy|preferences|settings)|subscribe to our newsletter)"
)
# No run of white space is begun in its middle or shared by two parts: each costs its length once.
_LIST_LINE: Final = re.compile(r"(?<![ \t>])(?:[ \t>]*(?:[-*+•·|»]|\d{1,3}[.)])[ \t]+)+")
_ENTRY_END: Final = re.compile(
    r"(?:(?:\.{3}|…|\|)[ \t]*|[ \t]{2})\d{1,4}[ \t|]*$|\]\([^)\n]*\)[ \t|]*$"
)
_NAVIGATION: Final = frozenset(
    {
        "home", "next", "previous", "back", "top", "contents", "index", "search", "menu", "sitemap",
        "imprint", "privacy", "contact", "login", "about", "help", "faq", "cookies", "print",
    }
)  # fmt: skip
_NEITHER_LETTER_NOR_DIGIT: Final = re.compile(r"[\W_]+")
# Without one of these in it, an ASCII text holds none of the phrases: cheaper to look for.
_LICENCE_SIGNS: Final = (
    *(
        "rights reserved",
        "without warrant",
        "as is",
        "licensed under",
        "permission is",
        "conditions",
    ),
    *("redistribution", "copyright", "liab", "do not sell", "cookie", "newsletter"),
)
# More letters than the longest of them has; the marks around an entry hold none.
_MORE_THAN_A_WORD: Final = re.compile(r"(?:[^\W\d_][\W\d_]*+){9}")
_FEWEST_LINES: Final = 4
_LICENCE_PHRASES_OF_A_WHOLE: Final = 3
_MOST: Final = 0.5
_ORDINARY_SYMBOL_SHARE: Final = 0.4
_COLUMNS_OF_AN_ENTRY: Final = 2
# Characters. What is longer is no title, and a pattern tried at each of its characters costs the
# square of them.
_LONGEST_ENTRY: Final = 500


def sketch(text: str) -> tuple[int, ...]:
    """A hash of the folded text, then the smallest hashes of its runs of three words.

    The bottom-k sketch of Broder ("On the resemblance and containment of documents", 1997):
    `resemblance` of two sketches estimates the share of runs that the texts have in common.
    Case and white space are folded.
    """
    words = text.casefold().split()
    whole = " ".join(words).encode("utf-8", "surrogatepass")
    # Where each word begins in it, and one beyond its end: a run is a slice.
    sizes = map(len, whole.split(b" "))
    begins = [*accumulate((size + 1 for size in sizes), initial=0)]
    last = max(1, len(words) - _SHINGLE_WORDS + 1)
    ends = begins[min(_SHINGLE_WORDS, len(words)) :] or [0]
    runs = {crc32(whole[begin : end - 1]) for begin, end in zip(begins[:last], ends, strict=False)}
    return (crc32(whole), *nsmallest(SKETCH_SIZE, runs))


def resemblance(one: Sequence[int], other: Sequence[int]) -> float:
    """0..1, an estimate of the Jaccard coefficient; 0 when either sketch is missing."""
    if not one or not other:
        return 0.0
    if one == other:
        return 1.0
    mine, theirs = set(one[1:]), set(other[1:])
    smallest = nsmallest(min(SKETCH_SIZE, len(mine | theirs)), mine | theirs)
    return sum(value in mine and value in theirs for value in smallest) / len(smallest)


def boilerplate(text: str) -> float:
    """How much of a text is licence, navigation, table of contents or ornament, 0..1.

    Three plain measures, the greatest of which counts: the phrases of licences and footers (three
    different ones make a whole); the share of lines, when most, that are entries which lead
    elsewhere (links alone, words of navigation, titles with a page number); and how far more than
    two fifths of the visible characters are neither letters nor digits (rules, bars of icons).
    """
    ornament = _ornament(text)
    lower = text.lower()
    may_be_legal = not text.isascii() or any(sign in lower for sign in _LICENCE_SIGNS)
    phrases = {
        match.group().casefold() for match in (_LICENCE.finditer(text) if may_be_legal else ())
    }
    legal = min(len(phrases) / _LICENCE_PHRASES_OF_A_WHOLE, 1.0)
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < _FEWEST_LINES:
        return max(legal, ornament)
    leading = sum(map(_leads_elsewhere, lines)) / len(lines)
    return max(legal, ornament, leading if leading > _MOST else 0.0)


def _ornament(text: str) -> float:
    visible = "".join(text.split())
    alphanumeric = len(_NEITHER_LETTER_NOR_DIGIT.sub("", visible))
    symbols = 1.0 - alphanumeric / len(visible) if visible else 1.0
    return max(symbols - _ORDINARY_SYMBOL_SHARE, 0.0) / (1.0 - _ORDINARY_SYMBOL_SHARE)


def _leads_elsewhere(line: str) -> bool:
    if len(line) > _LONGEST_ENTRY:
        return False
    if _ENTRY_END.search(line):
        # A table's row may end in a number too; an entry is a title and little else.
        return line.count("|") <= _COLUMNS_OF_AN_ENTRY
    if _MORE_THAN_A_WORD.search(line):
        return False
    entry = _LIST_LINE.sub("", line).strip(" \t|»›>·•*_").casefold()
    return entry in _NAVIGATION
