"""E-mail addresses of people: not those of roles, of examples, or of programs."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ADDRESS = re.compile(
    r"(?<![\w.+/%-])(?P<local>\w(?:[\w.+'-]{0,62}\w)?)"
    r"@(?P<domain>(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24})(?![\w-])"
)
# RFC 2142, and what else answers for nobody in particular.
_ROLES = """
    abuse admin administrator billing careers contact enquiries feedback ftp git hello help
    hostmaster info jobs legal marketing media news no-reply noc noreply office partners postmaster
    press privacy root sales security service subscribe support team unsubscribe usenet user
    username uucp webmaster www
"""
_NOBODY = frozenset(_ROLES.split())
# RFC 2606 and RFC 6761: names that can belong to nobody.
_RESERVED = re.compile(
    r"(?:^|\.)(?:example(?:\.(?:com|net|org|edu))?|test|invalid|localhost|local|internal)$"
)
# `logo@2x.png` and the like.
_FILE_ENDING = re.compile(r"\.(?:css|gif|html|ico|jpe?g|js|json|md|png|py|sh|svg|ts|txt|webp)$")


def emails(text: str) -> Iterator[tuple[int, int]]:
    if "@" not in text:
        return
    for found in _ADDRESS.finditer(text):
        domain = found["domain"].lower()
        local = found["local"].lower().partition("+")[0]
        if not (local in _NOBODY or _RESERVED.search(domain) or _FILE_ENDING.search(domain)):
            yield found.span()
