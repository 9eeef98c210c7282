"""Words that are one slip of a finger away, for words that occur nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from knowledge.core.analysis import fold

SHORTEST: Final = 4
"""Characters. Shorter words are one edit away from anything."""
LONG: Final = 5
"""Characters. Shorter words are one edit away from many others, so that of several which occur
none is the one that was meant."""

_LETTERS: Final = re.compile(r"[^\W\d_]+")
_ALPHABETS: Final = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "αβγδεζηθικλμνξοπρστυφχψω",
)


def one_edit_away(word: str) -> set[str]:
    """All strings that one swap, omission, insertion or replacement makes of a folded word.

    The first letter stays: it is rarely mistyped, and most false friends differ in it. A word
    that is too short or of no alphabet known here has none. (Damerau, "A technique for computer
    detection and correction of spelling errors", 1964.)
    """
    alphabet = next((letters for letters in _ALPHABETS if set(word) <= set(letters)), None)
    if alphabet is None or len(word) < SHORTEST:
        return set()
    found = set()
    for at in range(1, len(word)):
        before, after = word[:at], word[at:]
        found.add(before + after[1:])
        found.update(before + letter + after for letter in alphabet)
        found.update(before + letter + after[1:] for letter in alphabet)
        if len(after) > 1:
            found.add(before + after[1] + after[0] + after[2:])
    found.update(word + letter for letter in alphabet)
    return found - {word}


def respelled(text: str, spellings: Mapping[str, str]) -> str:
    """The text with other spellings of some of its words, which are given as folded words."""
    if not spellings:
        return text
    return _LETTERS.sub(lambda found: spellings.get(fold(found[0]), found[0]), text)
