"""Numbers that a state gives a person, in the layouts and with the checksums that `idnumbers` knows.

Most are plain digits, and so are part numbers. A number counts when the passage names the id
(`SSN`, `Steuer-ID`), or when it has letters or separators beside a checksum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from idnumbers import get_country, list_supported_countries

_SHORT_NAME = 4


@dataclass(frozen=True, slots=True)
class _Id:
    layout: re.Pattern[str]
    named: re.Pattern[str]
    has_checksum: bool
    validator: Any

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        candidates = [
            found for found in self.layout.finditer(text) if self._is_valid(found.group())
        ]
        if candidates and self.named.search(text):
            yield from (found.span() for found in candidates)
        elif self.has_checksum:
            yield from (found.span() for found in candidates if not found.group().isdigit())

    def _is_valid(self, written: str) -> bool:
        return bool(self.validator.validate(written))


def known_countries() -> list[str]:
    """Alpha-2 codes, sorted."""
    return sorted(country.alpha2 for country in list_supported_countries())


def national_ids(text: str, *, countries: Sequence[str]) -> Iterator[tuple[int, int]]:
    for country in countries:
        yield from _id_of(country).find(text)


@cache
def _id_of(country: str) -> _Id:
    known = get_country(country)
    if known is None:
        raise ValueError(f"no national id is known of {country!r}")
    about = known.national_id.METADATA
    names = {name for name in (*about.names, about.official_name, about.id_type) if name}
    return _Id(
        # The library's patterns are of a whole string; ours stand between other words.
        layout=re.compile(
            r"(?<![\w.-])(?:"
            + about.regexp.pattern.removeprefix("^").replace("$", r"(?!\w)")
            + r")(?![\w-])",
            about.regexp.flags,
        ),
        named=re.compile("|".join(_as_words(name) for name in sorted(names))),
        has_checksum=bool(about.checksum),
        validator=known.national_id,
    )


def _as_words(name: str) -> str:
    """The name between other words, in any case; a short one (`DNI`) only as it is written."""
    words = rf"(?<!\w){re.escape(name)}(?!\w)"
    return words if len(name) <= _SHORT_NAME else f"(?i:{words})"
