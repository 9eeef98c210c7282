"""Words that are one slip of a finger away, for words that occur nowhere."""

from __future__ import annotations

from typing import Final

SHORTEST: Final = 5
"""Characters. Shorter words are one edit away from too many others."""

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
