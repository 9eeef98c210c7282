"""Text to the words that an index stores and a query asks for: one function for both sides.

A query is words and nothing else: quotes, a minus, parentheses and `OR` have no meaning here, so
no string is a wrong query. The rules, in the order in which they apply:

1. NFKC; invisible characters (format characters, variation selectors, fillers) are dropped.
2. Words are runs of letters, digits and marks. Single `- . / \\ @`, underscores and `://` join
   runs into an identifier; a leading dot (`.NET`) and a trailing `++` or `#` (`C++`, `C#`) belong
   to it.
3. An identifier is kept whole and in parts. Parts take successive positions and the whole stands
   at the position of its first part, so that `widget-core` and `widget core` are one phrase.
4. Scripts that set no spaces between words become overlapping pairs of characters.
5. Case is folded (Unicode full case folding), accents are dropped from Latin, Greek and Cyrillic
   letters, vowel points from Hebrew and Arabic.
6. No word is longer than `MAX_WORD` characters: a longer one is its first 40 characters, `~` and
   16 hex digits of its SHA-256, so that it is still found by its own spelling.

A change to any of these rules changes what an index holds and needs a new `ANALYZER_VERSION`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

ANALYZER_VERSION: Final = "words-1"
MAX_WORD: Final = 64

_PREFIX_OF_LONG_WORD: Final = 40
_MAX_VERSION_PREFIXES: Final = 8
_MIN_CAMEL_PIECES: Final = 2
_MIN_LETTERS_BEFORE_DIGITS: Final = 3
_MIN_MEAN_PIECE: Final = 3


class Term(NamedTuple):
    """One word of a text.

    `position` counts from 1. With `stem` the word is letters alone and goes through the stemmer
    of the text's language, where a stop word disappears; without it the word is the lexeme.
    `compound` marks a whole whose parts stand beside it as terms of their own.
    """

    word: str
    position: int
    stem: bool
    compound: bool = False
    accented: str = ""

    @property
    def spelling(self) -> str:
        """What a stemmer is asked about: accents tell `für` and `à` from words that stand alone."""
        return self.accented or self.word


# A word, its offset in positions, `stem`, `compound` and the word with its accents where it has
# any; plain tuples, for there are many.
_Item = tuple[str, int, bool, bool, str]
_Expansion = tuple[tuple[_Item, ...], int]


# --- character classes -----------------------------------------------------------------------

# Scripts whose words no space separates. Hangul has spaces, but glues particles to its words, so
# that pairs find a noun in any of its forms.
_UNSPACED_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x3005, 0x3007),  # ideographic iteration mark and zero
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3041, 0x318F),  # Hiragana, Katakana, Bopomofo, Hangul compatibility Jamo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA000, 0xA4CF),  # Yi
    (0xA960, 0xA97F),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),
    (0xAA80, 0xAADF),  # Tai Viet
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),
    (0x16FE0, 0x18DFF),  # Tangut, Khitan
    (0x1AFF0, 0x1B2FF),  # Kana supplements, Nushu
    (0x20000, 0x3FFFF),  # Han extensions
)
# Beyond this the standard assigns only Han, private use and invisible characters.
_LAST_CLASSIFIED: Final = 0x1FFFF


def _as_class(codes: list[int]) -> str:
    """The inside of a character class for code points in ascending order."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def _classify() -> tuple[str, str, str, str]:
    """Character classes: word starts, unspaced letters, marks, invisible characters."""
    unspaced_codes = {
        code
        for first, last in _UNSPACED_RANGES
        if last <= _LAST_CLASSIFIED
        for code in range(first, last + 1)
    }
    starts: list[int] = []
    unspaced: list[int] = []
    marks: list[int] = []
    # Default_Ignorable_Code_Point where the category says letter or mark: a joiner, fillers.
    invisible: set[int] = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}
    invisible.update(range(0x180B, 0x1810), range(0xFE00, 0xFE10))
    for code in range(_LAST_CLASSIFIED + 1):
        if code in invisible:
            continue
        character = chr(code)
        category = unicodedata.category(character)
        if category == "Cf":
            invisible.add(code)
        elif category[0] == "M":
            marks.append(code)
        elif category[0] == "L" or character.isalnum():
            if code in unspaced_codes and not character.isdecimal():
                unspaced.append(code)
            else:
                starts.append(code)
    return (
        _as_class(starts),
        _as_class(unspaced) + r"\U00020000-\U0003ffff",
        _as_class(marks),
        _as_class(sorted(invisible)) + r"\U000e0000-\U000e0fff",
    )


_START, _UNSPACED, _MARK, _INVISIBLE = _classify()
# Printable ASCII that may stand in a URL; what it ends in is trimmed afterwards.
_URL_TAIL: Final = r"[!#-&(-;=?-_a-~]"


def _token_pattern(start: str, inside: str) -> str:
    """A run of words joined by connectors.

    No two parts of it can match the same character, so no input makes it backtrack: time is
    linear. Connectors are consumed possessively for the same reason.
    """
    run = f"[{start}][{inside}]*+"
    return (
        rf"(?:(?<![{inside}.])\.(?=[{start}]))?{run}(?:(?:[-./@\\]|_++){run})*"
        rf"(?:://{_URL_TAIL}++|\+\+[0-9]{{0,4}}(?![{inside}+])|\#(?![{inside}#]))?"
    )


_ASCII_TOKEN: Final = re.compile(_token_pattern("A-Za-z0-9", "A-Za-z0-9"))
_TOKEN: Final = re.compile(
    f"[{_UNSPACED}][{_UNSPACED}{_MARK}]*+|" + _token_pattern(_START, _START + _MARK)
)
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]")
_CLUSTER: Final = re.compile(f"[{_UNSPACED}][{_MARK}]*+")
_INVISIBLE_RUN: Final = re.compile(f"[{_INVISIBLE}]+")
# More than 30 marks on one letter is no text, and normalising sorts them in quadratic time. The
# bound is that of the Stream-Safe Text Format (UAX #15, section 13). The two halfwidth sound
# marks are letters that become marks.
_TOO_MANY_MARKS: Final = re.compile(rf"([{_MARK}\uff9e\uff9f]{{30}})[{_MARK}\uff9e\uff9f]++")


# --- folding ---------------------------------------------------------------------------------

_LATIN_GREEK_CYRILLIC: Final = (
    r"A-Za-z\u00c0-\u024f\u0250-\u02af\u0370-\u03ff\u0400-\u052f\u1c80-\u1c8f\u1d00-\u1dbf"
    r"\u1e00-\u1fff\u2c60-\u2c7f\u2de0-\u2dff\ua640-\ua69f\ua720-\ua7ff\uab30-\uab6f"
)
# Short i is a letter of Cyrillic alphabets, not an accent: Russian endings turn on it.
_SHORT_I: Final = "\u0439"
_SHORT_I_DECOMPOSED: Final = re.compile("\u0438([\u0300-\u0305\u0307-\u036f]*)\u0306")
_ACCENTS: Final = re.compile(f"([{_LATIN_GREEK_CYRILLIC}])[{_MARK}]+")
_VOWEL_POINTS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670]+"
)
# Letters with a stroke have no decomposition; the usual spelling without it, as in unaccent.
_STROKES: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)
_MAX_FOLDINGS: Final = 4


def _fold_once(word: str) -> str:
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    decomposed = _SHORT_I_DECOMPOSED.sub(_SHORT_I, decomposed)
    plain = _VOWEL_POINTS.sub("", _ACCENTS.sub(r"\1", decomposed)).translate(_STROKES)
    return unicodedata.normalize("NFKC", plain)


def fold(word: str) -> str:
    """Case and accents folded, so far that folding again changes nothing."""
    if word.isascii():
        return word.lower()
    return _remembered_fold(word) if len(word) <= MAX_WORD else _fold_fully(word)


def _cased(word: str) -> str:
    """Case folded, accents kept."""
    return unicodedata.normalize("NFC", word.lower())


def _fold_fully(word: str) -> str:
    folded = _fold_once(word)
    for _ in range(_MAX_FOLDINGS):
        if (again := _fold_once(folded)) == folded:
            break
        folded = again
    return folded


_remembered_fold: Final = lru_cache(maxsize=32_768)(_fold_fully)


def bounded(word: str) -> str:
    """The word itself, or 57 characters that stand for one longer than `MAX_WORD`."""
    if len(word) <= MAX_WORD:
        return word
    digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{word[:_PREFIX_OF_LONG_WORD]}~{digest[:16]}"


# --- identifiers -----------------------------------------------------------------------------

_AROUND_URL_PARTS: Final = re.compile(r"[^A-Za-z0-9._\-]+")
_AT_PATH: Final = re.compile(r"[/\\@]")
# A dot between digits belongs to a version: `widget-1.2.3.tar.gz` is widget, 1.2.3, tar, gz.
_AT_DOT: Final = re.compile(r"(?<!\d)\.|\.(?!\d)")
_AT_HYPHEN: Final = re.compile(r"-|_+")
_LEVELS: Final = (_AT_PATH, _AT_DOT, _AT_HYPHEN)
_DOT_LEVEL: Final = 1
_VERSION: Final = re.compile(r"([^\W\d_]*+)(\d+(?:\.\d+)+)")
_LANGUAGE_SUFFIX: Final = re.compile(r"(?s)(.*?)(\+\+|#)([0-9]*)\Z")


class _Identifier:
    """Collects the whole and the parts of one token."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[_Item] = []

    def add(self, text: str, at: int, *, compound: bool = False) -> bool:
        word = fold(text)
        if not word:
            return False
        stem = len(word) <= MAX_WORD and word.isalpha()
        accented = "" if text.isascii() or not stem else _cased(text)
        if accented == word or not accented.isalpha():
            accented = ""
        self.items.append((bounded(word), at, stem, compound, accented))
        return True

    def url(self, text: str, at: int) -> int:
        text = text.rstrip("!#$%&()*+,-./:;=?@[\\]^_|}~")
        parts = [part for found in _AROUND_URL_PARTS.split(text) if (part := found.strip("._-"))]
        if len(parts) > 1:
            self.add(text, at, compound=True)
        for part in parts:
            at = self.joined(part, _DOT_LEVEL, at)
        return at

    def joined(self, text: str, level: int, at: int) -> int:
        """Emit `text` and its parts from position `at` on; the first position after them."""
        if text.isalnum():
            return self.leaf(text, at)
        for number in range(level, len(_LEVELS)):
            if number == _DOT_LEVEL and text[0] == ".":
                self.add(text, at, compound=True)
                return self.joined(text[1:], number, at)
            parts = [part for part in _LEVELS[number].split(text) if part]
            if len(parts) > 1:
                self.add(text, at, compound=True)
                for part in parts:
                    at = self.joined(part, number + 1, at)
                return at
            if not parts:
                return at
            text = parts[0]
        return self.leaf(text, at)

    def leaf(self, text: str, at: int) -> int:
        if text.isalpha() and (text.islower() or text[1:].islower() or text.isupper()):
            return at + self.add(text, at)
        if text[-1] == "#" or "++" in text:
            return self.language(text, at)
        if "." in text:
            return self.version(text, at)
        pieces = _pieces(text) if len(text) <= MAX_WORD else []
        if not pieces:
            return at + self.add(text, at)
        self.add(text, at, compound=True)
        for piece in pieces:
            at += self.add(piece, at)
        return at

    def language(self, text: str, at: int) -> int:
        """`C++`, `C#`, `C++17`, `libstdc++`: a lone letter is no part, or C++ would find C#."""
        match = _LANGUAGE_SUFFIX.match(text)
        base, suffix, number = match.groups() if match else (text, "", "")
        self.add(text, at, compound=bool(number) or len(base) > 1)
        if number:
            self.add(base + suffix, at, compound=len(base) > 1)
        if len(base) > 1:
            return max(self.leaf(base, at), at + 1)
        return at + 1

    def version(self, text: str, at: int) -> int:
        """`v1.2.3` also as `1.2.3` and `1.2`, `python3.11` also as `python`, `3.11`."""
        match = _VERSION.match(text)
        if match is None:
            return at + self.add(text, at)
        letters, number = match.groups()
        named = len(letters) > 1
        self.add(text, at, compound=named)
        if named:
            at += self.add(letters, at)
        if number != text:
            self.add(number, at)
        components = number.split(".", _MAX_VERSION_PREFIXES)
        for count in range(2, len(components)):
            self.add(".".join(components[:count]), at)
        return at + 1


def _pieces(text: str) -> list[str]:
    """The parts of `camelCase`, `HTTPServer` or `python3`; none when it is not such a name.

    `mRNA`, `iPhone` and `DNase` stay whole: the first part has at least two letters and the parts
    three on average. Cutting every word with an inner capital costs precision on prose.
    """
    cuts = [0]
    for i in range(1, len(text)):
        before, here = text[i - 1], text[i]
        new_hump = here.isupper() and (
            before.islower() or (before.isupper() and i + 1 < len(text) and text[i + 1].islower())
        )
        if new_hump or before.isdecimal() != here.isdecimal():
            cuts.append(i)
    pieces = [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    names = [piece for piece in pieces if not piece.isdecimal()]
    if not names or names[0] != pieces[0]:
        return []
    if len(names) == 1:
        named = len(pieces) == _MIN_CAMEL_PIECES and len(names[0]) >= _MIN_LETTERS_BEFORE_DIGITS
        return pieces if named and names[0].isalpha() else []
    mean = sum(map(len, names)) / len(names)
    return pieces if len(names[0]) > 1 and mean >= _MIN_MEAN_PIECE else []


# --- the analysis ----------------------------------------------------------------------------


def _pairs(run: str) -> Iterator[str]:
    characters = _CLUSTER.findall(run)
    if len(characters) == 1:
        yield characters[0]
    for first, second in pairwise(characters):
        yield first + second


def visible(text: str) -> str:
    """Compatibility forms and invisible characters resolved."""
    shown = _INVISIBLE_RUN.sub("", text)
    return _INVISIBLE_RUN.sub("", unicodedata.normalize("NFKC", _TOO_MANY_MARKS.sub(r"\1", shown)))


# Punctuation that is never a part of the word it touches: the quick way for ordinary prose.
_BEFORE_WORD: Final = "(['\""
_AFTER_WORD: Final = ",.;:!?)]'\""


def _expand(text: str) -> _Expansion:
    """The words of a text without white space, and how many positions they take."""
    if text.isascii():
        plain = text.lstrip(_BEFORE_WORD).rstrip(_AFTER_WORD)
        if plain.isalpha() and (plain.islower() or plain[1:].islower()):
            return ((bounded(plain.lower()), 0, len(plain) <= MAX_WORD, False, ""),), 1
        tokens = _ASCII_TOKEN.findall(text)
    else:
        tokens = _TOKEN.findall(visible(text))
    identifier = _Identifier()
    at = 0
    for token in tokens:
        if not token.isascii() and _UNSPACED_RUN.match(token):
            for pair in _pairs(token):
                identifier.items.append((bounded(pair), at, False, False, ""))
                at += 1
        elif "://" in token:
            at = identifier.url(token, at)
        else:
            at = identifier.joined(token, 0, at)
    return tuple(identifier.items), at


# Most words of a text were seen before. Only short ones are kept, so memory stays bounded.
_remembered: Final = lru_cache(maxsize=65_536)(_expand)


def expansion(piece: str) -> _Expansion:
    """The words of a text without white space, as `(word, offset, stem, compound, accented)`, and
    how many positions they take."""
    return _remembered(piece) if len(piece) <= MAX_WORD else _expand(piece)


def analyse(text: str) -> list[Term]:
    """The words of `text` in order; wholes before their parts. Never raises, linear time.

    Several terms may share a position (a whole and its first part, a version and its prefixes);
    positions have no gaps. The same text gives the same terms wherever it stands.
    """
    terms: list[Term] = []
    append = terms.append
    new = tuple.__new__  # the named constructor costs as much as the rest of the loop
    at = 1
    for piece in text.split():
        items, width = _remembered(piece) if len(piece) <= MAX_WORD else _expand(piece)
        for word, offset, stem, compound, accented in items:
            append(new(Term, (word, at + offset, stem, compound, accented)))
        at += width
    return terms


Analyse = Callable[[str], list[Term]]

ANALYZERS: dict[str, Analyse] = {ANALYZER_VERSION: analyse}
"""Every version that an index may still hold. While documents are being indexed anew, a question
is read by each version that the caller's documents were indexed by; an old one goes from here
when no installation has rows of it any more."""
