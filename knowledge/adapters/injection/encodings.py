"""Forms in which a phrase hides from a plain search, and what they spell."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decoded:
    """`text[start:end]` spells `plain`."""

    start: int
    end: int
    plain: str


def _readable(data: bytes) -> str | None:
    """The bytes as text when they are words; binary data and identifiers are not."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    shown = text.replace("\n", " ").replace("\t", " ").replace("\r", " ")
    return text if " " in shown and shown.isprintable() else None


def _base64(run: str) -> str | None:
    body = re.sub(r"\s+", "", run).rstrip("=")
    try:
        return _readable(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_"))
    except binascii.Error:
        return None


def _base32(run: str) -> str | None:
    body = run.rstrip("=")
    try:
        return _readable(base64.b32decode(body + "=" * (-len(body) % 8)))
    except binascii.Error:
        return None


def _base85(run: str) -> str | None:
    try:
        if run.startswith("<~"):
            return _readable(base64.a85decode(run, adobe=run.endswith("~>")))
        return _readable(base64.b85decode(run))
    except ValueError:
        return None


def _hex(run: str) -> str | None:
    return _readable(bytes.fromhex(run))


def _binary(run: str) -> str | None:
    bits = re.sub(r"\s", "", run)
    return _readable(int(bits, 2).to_bytes(len(bits) // 8, "big"))


def _unescaped(run: str) -> str | None:
    return re.sub(r"(?:%|\\x|\\u00)([0-9a-fA-F]{2})", lambda m: chr(int(m.group(1), 16)), run)


# Tag characters repeat ASCII, invisibly, in a block of their own.
_TAG_BLOCK = 0xE0000
_CANCEL_TAG = "\U000e007f"


def _tags(run: str) -> str | None:
    return "".join(chr(ord(c) - _TAG_BLOCK) for c in run if c != _CANCEL_TAG)


def _unspaced(run: str) -> str | None:
    """Single letters with one separator between them, words with more."""
    return re.sub(r"(\w)[ \u00a0._-](?=\w)", r"\1", run)


_MORSE = {
    code: letter
    for letter, code in zip(
        "abcdefghijklmnopqrstuvwxyz",
        [
            ".-",
            "-...",
            "-.-.",
            "-..",
            ".",
            "..-.",
            "--.",
            "....",
            "..",
            ".---",
            "-.-",
            ".-..",
            "--",
            "-.",
            "---",
            ".--.",
            "--.-",
            ".-.",
            "...",
            "-",
            "..-",
            "...-",
            ".--",
            "-..-",
            "-.--",
            "--..",
        ],
        strict=True,
    )
}


def _morse(run: str) -> str | None:
    words = re.split(r"\s*/\s*|\s{3,}", run.strip())
    return " ".join("".join(_MORSE.get(code, "") for code in word.split()) for word in words)


_RUNS: tuple[tuple[re.Pattern[str], Callable[[str], str | None]], ...] = (
    (re.compile(r"[\U000e0020-\U000e007f]{4,}+"), _tags),
    (re.compile(r"(?<![A-Z2-7])[A-Z2-7]{32,}+={0,6}(?![A-Za-z0-9])"), _base32),
    (
        re.compile(
            r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}+(?:\r?\n[A-Za-z0-9+/_-]{8,}+)*+={0,2}"
        ),
        _base64,
    ),
    (re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){16,}+(?![0-9A-Za-z])"), _hex),
    (re.compile(r"(?<!\S)<~[^\s~]{24,4000}(?:~>)?|(?<!\S)[!-~]{40,4000}(?!\S)"), _base85),
    (re.compile(r"(?<![01])(?:[01]{8}\s?){8,}+"), _binary),
    (re.compile(r"(?:%[0-9a-fA-F]{2}[^\s%]{0,40}){4,}+"), _unescaped),
    (re.compile(r"(?:(?:\\x|\\u00)[0-9a-fA-F]{2}[^\\\n]{0,40}){4,}+"), _unescaped),
    (re.compile(r"(?<!\w)(?:\w[ \u00a0._-]{1,3}){10,}+\w?"), _unspaced),
    (re.compile(r"(?<![.\-/])[.-](?:[.\-/ ]){40,}+"), _morse),
)
# The shortest run of these has no white space in it, so only the long words are looked at.
_LONG_WORD = re.compile(r"\S{24,}")
_IN_A_LONG_WORD = (_base32, _hex, _base85)
# Where the pattern of base64, which goes on over line ends, may begin.
_BASE64_BEGINS = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}")


def decoded_runs(text: str) -> Iterator[Decoded]:
    """Encoded runs and what they spell. Linear: patterns repeat possessively or within bounds."""
    words = [word.span() for word in _LONG_WORD.finditer(text)]
    for pattern, decode in _RUNS:
        if decode is _tags and text.isascii():
            continue
        if decode is _unescaped and "%" not in text and "\\" not in text:
            continue
        for match in _runs(pattern, decode, text, words):
            plain = decode(match.group())
            if plain:
                yield Decoded(match.start(), match.end(), plain)


def _runs(
    pattern: re.Pattern[str],
    decode: Callable[[str], str | None],
    text: str,
    words: Sequence[tuple[int, int]],
) -> Iterator[re.Match[str]]:
    """What `pattern.finditer(text)` finds, with less looking."""
    if decode is _base64:
        yield from _base64_runs(pattern, text, words)
    elif decode in _IN_A_LONG_WORD:
        for start, end in words:
            yield from pattern.finditer(text, start, end)
    else:
        yield from pattern.finditer(text)


def _base64_runs(
    pattern: re.Pattern[str], text: str, words: Sequence[tuple[int, int]]
) -> Iterator[re.Match[str]]:
    done = 0
    for start, end in words:
        begin = _BASE64_BEGINS.search(text, max(start, done), end)
        while begin:
            run = pattern.match(text, begin.start())
            if run is None:
                break
            yield run
            done = run.end()
            begin = _BASE64_BEGINS.search(text, done, end)


# --- forms of the whole text --------------------------------------------------------------------

_LEET = str.maketrans("013457@$", "oieastas")
# How the words that matter look when the text is turned; without one there is nothing to turn.
_ROT13_SIGNS = ("vtaber", "vafgehpg", "cebzcg", "flfgrz", "qvfertneq", "erirny")
_REVERSED_SIGNS = ("erongi", "tcurtsni", "tpmorp", "metsys", "dragersid", "laever")
_LEET_SIGNS = (
    "1gn",
    "gn0r",
    "n0r3",
    "pr3v",
    "v1ou",
    "1nstr",
    "nstruct10n",
    "pr0mp",
    "syst3",
    "0verr",
)


def turned_texts(lower: str) -> Iterator[tuple[str, bool]]:
    """The whole text under rot13, in leet and backwards (then offsets run backwards too)."""
    if any(sign in lower for sign in _ROT13_SIGNS):
        yield codecs.decode(lower, "rot13"), False
    if any(sign in lower for sign in _LEET_SIGNS):
        yield lower.translate(_LEET), False
    if any(sign in lower for sign in _REVERSED_SIGNS):
        yield lower[::-1], True
