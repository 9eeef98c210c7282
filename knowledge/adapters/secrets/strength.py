"""Is this value a real credential, or a word, a placeholder, a path, a piece of code?

Context alone (`password = ...`) says that a value is meant to be secret; documentation is full of
values that are not. These filters look at the value only, so a placeholder never excuses what
stands beside it.
"""

# The thresholds below are this module's content; a name for each would say it twice.
# ruff: noqa: PLR2004

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter

_SHORTEST = 8

# Parts that people write when they mean "your value goes here". They are taken out of a value
# and the rest is judged: `your-api-key-here` has no rest, a real key that happens to contain
# `demo` does.
_FILLER = re.compile(
    r"example|sample|dummy|place-?holder|change[-_]?(?:me|it|this)|redacted|your|insert|replace|"
    r"x{3,}|\.{3}|…|\*{3,}|todo|fixme|hunter2|p[a@]ss\w*w[o0]rd|passw(?:or)?d?|secret|token|demo|"
    r"fake|mock|abc123|abcdefg?h?|12345(?:67890|678|6)?|123abc|qwerty|letmein|default|undefined|"
    r"my[-_]|some[-_]|[-_]here|api[-_]?key|key[-_]?(?:name|id)|username|minio|access[-_]?key|"
    r"super|correct|horse|battery|staple|foobar|deadbeef|not[-_]?a[-_]?real",
    re.IGNORECASE,
)
_FILLER_WORD = re.compile(
    r"(?:^|[-_.\W])(?:foo|bar|baz|test|admin|root|user|none|null|true|false|pass|key|value|"
    r"string|prod|dev|staging|local)(?=[-_.\W\d]|$)",
    re.IGNORECASE,
)
# A value that is read from elsewhere is no value.
_REFERENCE = re.compile(
    r"environ|getenv|config\.|settings\.|vault:|secretkeyref|process\.|args?\.|self\.|\bos\.|"
    r"aws4_|localhost|internal\.|^\$\w|^%\w+%$|^\$\{|^\{\{|^<|^%[({]|%[({]\w+[)}]|@\{|::|->|=>|"
    r"^[/~.]|^[a-z][a-z+.-]*://|^--?[a-z]+[-=]|^[a-z_]+\.[a-z_]+(?:[.(]|$)|^(?:&|\*)\w"
)
_DIGEST = re.compile(r"(?:sha(?:1|224|256|384|512)|md5|hmac-sha\d+)[:-]|0x[0-9a-f]")
_SHELL = re.compile(r"[$|\\]")
_CODE = re.compile(r"[(){}\[\]<>]")
_SEPARATED = re.compile(r"[-_./:,;=@]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED_WORD = re.compile(r"v?\d{1,4}[a-z]{0,2}|[A-Za-z]{2,12}\d{1,2}")
_RARE_PUNCTUATION = re.compile(r"[!#%^&*?+~]")
_HEX = re.compile(r"[0-9a-fA-F]+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_PASSPHRASE = re.compile(r"(?:[a-z]{3,12}[-_ .]){2,7}[a-z]{0,12}\d{0,6}")
_VOWELS = frozenset("aeiouyAEIOUY")
_TRAILING = ".,;:!?)]}\"'`*|"


def entropy(value: str) -> float:
    """Shannon entropy in bits a character."""
    length = len(value)
    return -sum(n / length * math.log2(n / length) for n in Counter(value).values())


def character_classes(value: str) -> int:
    """How many of lower case, upper case, digits and everything else occur, 0..4."""
    return (
        any(c.islower() for c in value)
        + any(c.isupper() for c in value)
        + any(c.isdigit() for c in value)
        + any(not c.isalnum() for c in value)
    )


def trimmed(value: str) -> str:
    """Without the punctuation of the sentence around it, as long as enough is left."""
    shorter = value.rstrip(_TRAILING)
    return shorter if len(shorter) >= _SHORTEST else value


def decoded_ascii(value: str) -> str | None:
    """What `value` spells in base64, when that is printable ASCII."""
    if len(value) % 4 or not _BASE64.fullmatch(value):
        return None
    try:
        text = base64.b64decode(value, altchars=b"-_").decode("ascii").strip()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if text and text.isprintable() else None


def is_placeholder(value: str) -> bool:
    """True when nothing strong is left after filler words, or the value refers elsewhere."""
    lower = value.lower()
    if _REFERENCE.search(lower):
        return True
    rest, count = _FILLER.subn("", value)
    rest, more = _FILLER_WORD.subn("", rest)
    if not count + more:
        return False
    if len(rest) < 10 or entropy(rest) < 2.9 or is_words(rest):
        return True
    digits = sum(c.isdigit() for c in rest)
    return digits == 0 or (digits == 1 and character_classes(rest) < 3)


def is_words(value: str) -> bool:
    """True for identifiers, file names, versions and hyphenated words."""
    if _RARE_PUNCTUATION.search(value):
        return False
    parts = [part for part in _SEPARATED.split(value) if part]
    if not parts:
        return True
    length = sum(map(len, parts))
    if length / len(parts) < 2.5:
        return False
    known = sum(len(part) for part in parts if _is_word(part))
    return known >= 0.85 * length


def _is_word(part: str) -> bool:
    if part.isdigit():
        return len(part) <= 4
    if part.isalpha():
        cased = part.islower() or part.isupper() or part.istitle()
        pronounceable = sum(c in _VOWELS for c in part) * 7 >= len(part)
        return cased and (len(part) <= 4 or pronounceable)
    return bool(_NUMBERED_WORD.fullmatch(part))


def is_passphrase(value: str) -> bool:
    """Several plain words and a number; only a name that says "passphrase" makes it a secret."""
    return bool(_PASSPHRASE.fullmatch(value)) and value[-1].isdigit()


def is_userinfo_password(value: str) -> bool:
    """A password in a URL's userinfo: short ones count, words and templates do not."""
    if len(value) < 6 or _CODE.search(value) or is_placeholder(value) or "$" in value[:1]:
        return False
    return character_classes(value) >= 2 and not is_words(value)


def is_mixed(value: str) -> bool:
    """Digits among letters and signs, as no word of a sentence has them."""
    return len(value) <= 64 and any(c.isdigit() for c in value) and character_classes(value) >= 3


def is_strong(value: str, *, named: bool, quoted: bool = False) -> bool:
    """A value that nobody would type as an example.

    `named` says that the context names a credential outright, which lets a UUID count; `quoted`
    that the value stood between quotes, where brackets are no code.
    """
    if len(value) < _SHORTEST or is_placeholder(value) or _DIGEST.match(value.lower()):
        return False
    inner = decoded_ascii(value)
    if inner is not None and len(inner) >= 3:
        return len(inner) >= 60 or is_strong(inner, named=named)
    if _UUID.fullmatch(value):
        return named
    if _HEX.fullmatch(value):
        digits = sum(c.isdigit() for c in value)
        return len(value) >= 24 and entropy(value) >= 2.8 and 0 < digits < len(value)
    return not is_words(value) and _looks_random(value, quoted=quoted)


def _looks_random(value: str, *, quoted: bool) -> bool:
    digits = sum(c.isdigit() for c in value)
    classes, bits = character_classes(value), entropy(value)
    if digits == 0 and (len(value) < 12 or bits < 3.4 or classes < 3):
        return False
    if _CODE.search(value):
        return quoted and classes >= 3 and digits >= 3 and len(value) >= 16 and bits >= 3.8
    if _SHELL.search(value) and not (classes == 4 and len(value) >= 10):
        return False
    if len(value) >= 20:
        return bits >= 3.5 and classes >= 2
    return classes >= 3 and bits >= (3.0 if len(value) >= 12 else 2.75)
