"""Values that are published as examples, and the grammar of placeholders.

Both are matched against the whole of one value: an example exempts itself and nothing beside it.
Neither looks at file names or at comments.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = Path(__file__).with_name("allowlist.json")


@dataclass(frozen=True, slots=True)
class Allowlist:
    """`published` are SHA-256 digests of exact values; `placeholders` match whole values."""

    version: int
    published: frozenset[str]
    placeholders: tuple[re.Pattern[str], ...]

    def allows(self, value: str) -> bool:
        if hashlib.sha256(value.encode()).hexdigest() in self.published:
            return True
        return any(pattern.fullmatch(value) for pattern in self.placeholders)


@cache
def load_allowlist() -> Allowlist:
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    return Allowlist(
        version=data["version"],
        published=frozenset(data["published_sha256"]),
        placeholders=tuple(re.compile(entry["pattern"]) for entry in data["placeholders"]),
    )
