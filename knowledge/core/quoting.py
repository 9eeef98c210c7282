"""Whether a passage says what it is quoted as saying, and where.

A quote that is not in a passage letter by letter may still be its words: models and word processors
change white space, quotation marks, dashes, ligatures and capitals, and nothing else of what is
listed here is forgiven. Every character of the answer is the passage's own.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class QuoteOutcome(StrEnum):
    """How a quote fared. `misattributed`: another passage that the caller may see says it."""

    EXACT = "exact"
    NORMALISED = "normalised"
    MISATTRIBUTED = "misattributed"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteMatch:
    """Where a passage holds a quote: `passage[start:end]` are its words."""

    outcome: QuoteOutcome
    start: int
    end: int


_SINGLE: Final = "\u2018\u2019\u201a\u201b\u2039\u203a\u02bc\u2032`\u00b4"
_DOUBLE: Final = "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\u301d\u301e\u301f\uff02"
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_LIGATURES: Final = {
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\ufb05": "st",
    "\ufb06": "st",
}
_ALIKE: Final = {
    **dict.fromkeys(_SINGLE, "'"),
    **dict.fromkeys(_DOUBLE, '"'),
    **dict.fromkeys(_DASHES, "-"),
    **_LIGATURES,
}


def find_quote(quote: str, passage: str) -> QuoteMatch | None:
    """The first place that holds the quote, letter by letter if there is one; `None` otherwise.

    A quote of white space alone is in no passage.
    """
    if not quote.strip():
        return None
    at = passage.find(quote)
    if at >= 0:
        return QuoteMatch(outcome=QuoteOutcome.EXACT, start=at, end=at + len(quote))
    wanted, _ = _folded(unicodedata.normalize("NFC", quote).strip())
    folded, origins = _folded(passage)
    at = folded.find(wanted)
    while at >= 0:
        after = at + len(wanted)
        # A quote ends where a character does: `f` is no quote of a ligature.
        starts = at == 0 or origins[at] != origins[at - 1]
        ends = after == len(folded) or origins[after] != origins[after - 1]
        if starts and ends:
            end = origins[after - 1] + 1
            return QuoteMatch(outcome=QuoteOutcome.NORMALISED, start=origins[at], end=end)
        at = folded.find(wanted, at + 1)
    return None


def _folded(text: str) -> tuple[str, list[int]]:
    """The text with what is forgiven made equal, and the offset each character comes from."""
    folded: list[str] = []
    origins: list[int] = []
    for offset, character in enumerate(text):
        if character.isspace():
            alike = "" if folded and folded[-1] == " " else " "
        else:
            alike = _ALIKE.get(character) or character.casefold()
        folded.extend(alike)
        origins.extend([offset] * len(alike))
    return "".join(folded), origins
