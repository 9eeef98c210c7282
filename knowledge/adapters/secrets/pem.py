"""Private keys in PEM and PuTTY armour, however the lines of their body are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from knowledge.adapters.secrets.candidates import Candidate
from knowledge.adapters.secrets.strength import entropy

_HEADER = re.compile(
    r"-{4,5} ?BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-Lines: \d{1,4}"
)
_NEXT_ARMOUR = re.compile(r"-{4,5} ?(?:BEGIN|END) |Private-MAC:")
# The body may be literal \n, \r\n, quoted array elements, concatenation, YAML or block quotes.
_BODY_PIECE = re.compile(r"[A-Za-z0-9+/=]{16,}+")
_LINE_ESCAPE = re.compile(r"\\+[nr]")
_WINDOW = 16_384
# An elided body in a document ("MIIE...") is short; the smallest real key, Ed25519, has 64.
_SHORTEST_BODY = 60
_LEAST_ENTROPY = 4.2


def is_key_body(body: str) -> bool:
    """Enough base64 to be a key, and not the same few letters over and over."""
    return len(body) >= _SHORTEST_BODY and entropy(body) >= _LEAST_ENTROPY


def pem_candidates(text: str) -> Iterator[Candidate]:
    if "PRIVATE KEY" not in text and "Private-Lines" not in text:
        return
    for header in _HEADER.finditer(text):
        begin = header.end()
        armour = _NEXT_ARMOUR.search(text, begin, begin + _WINDOW)
        window = text[begin : armour.start() if armour else begin + _WINDOW]
        # Same length, so that offsets hold: the n of a literal \n is not a letter of the key.
        window = _LINE_ESCAPE.sub(lambda escape: " " * len(escape.group()), window)
        pieces = list(_BODY_PIECE.finditer(window))
        body = "".join(piece.group() for piece in pieces)
        if is_key_body(body):
            yield Candidate(
                "private-key", "context", begin + pieces[0].start(), begin + pieces[-1].end()
            )
