"""Telephone numbers, by the rules that Google keeps of every country's numbering plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from phonenumbers import Leniency, PhoneNumberMatcher

_INTERNATIONAL = re.compile(r"\+[ (]{0,2}\d")
_NATIONAL = re.compile(r"\d(?:[ ().\-/]{0,2}\d){6}")
# A number of several groups; one of digits alone may as well count something else, and two with
# a point between them are a decimal.
_GROUPED = re.compile(r"(?!\d+\.\d+$).*\d[ ().\-/]+\d", re.DOTALL)
# Kept free for stories and examples by the North American numbering plan.
_FICTIONAL = re.compile(r"\D*1?\D*\d{3}\D{0,3}555\D?01\d\d")


def phones(text: str, *, countries: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Those with a country code, and of the countries also those without, when in groups."""
    if _INTERNATIONAL.search(text):
        yield from _valid(text, None)
    if countries and _NATIONAL.search(text):
        for country in countries:
            yield from _valid(text, country)


def _valid(text: str, country: str | None) -> Iterator[tuple[int, int]]:
    for found in PhoneNumberMatcher(text, country, Leniency.STRICT_GROUPING):
        written = found.raw_string
        if (written.startswith("+") or _GROUPED.match(written)) and not _FICTIONAL.fullmatch(
            written
        ):
            yield found.start, found.end
