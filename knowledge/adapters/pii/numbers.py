"""Payment cards (ISO/IEC 7812) and IBANs (ISO 13616), each with its checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator

# --- cards -----------------------------------------------------------------------------------

_DIGITS = re.compile(r"(?<![\w.,:/+-])\d(?:[ -]?\d){12,18}(?![\w-]|[.,:/]\d)")
# Issuers and the lengths of their numbers: Visa, Mastercard, American Express, Diners Club,
# Discover, JCB, UnionPay.
_ISSUED = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"
    r"|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}"
    r"|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}"
    r"|6(?:011|4[4-9]\d|5\d{2})\d{12}"
    r"|35(?:2[89]|[3-8]\d)\d{12}"
    r"|62\d{14,17}"
)
# As cards are printed and typed: without a break, in fours, or in 4-6-5 and 4-6-4.
_PRINTED = re.compile(
    r"\d+|\d{4}(?P<a>[ -])\d{4}(?:(?P=a)\d{4}){1,2}(?:(?P=a)\d{1,3}|(?P=a)\d{4})?"
    r"|\d{4}(?P<b>[ -])\d{6}(?P=b)\d{4,5}"
)
# The published test numbers repeat themselves; numbers of real cards hardly ever do.
_REPETITION = re.compile(r"(\d)\1{4}")
_FEWEST_DIFFERENT_DIGITS = 5


def cards(text: str) -> Iterator[tuple[int, int]]:
    for found in _DIGITS.finditer(text):
        written = found.group()
        digits = re.sub(r"[ -]", "", written)
        if (
            _PRINTED.fullmatch(written)
            and _ISSUED.fullmatch(digits)
            and _luhn(digits)
            and len({*digits}) >= _FEWEST_DIFFERENT_DIGITS
            and not _REPETITION.search(digits)
        ):
            yield found.span()


def _luhn(digits: str) -> bool:
    """The checksum of ISO/IEC 7812-1: every second digit from the right is doubled."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value // 10 + value % 10 for value in doubled) % 10 == 0


# --- IBANs -----------------------------------------------------------------------------------

# Characters of an IBAN by country, as in the registry that SWIFT keeps.
_LENGTHS = {
    length: countries.split()
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FK FO GL NL SD FI",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
}
_LENGTH_OF = {country: length for length, countries in _LENGTHS.items() for country in countries}
_BEGINNING = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?= ?[A-Z0-9])")


def ibans(text: str) -> Iterator[tuple[int, int]]:
    for found in _BEGINNING.finditer(text):
        length = _LENGTH_OF.get(found.group()[:2], 0)
        end, written = found.start(), ""
        while len(written) < length and end < len(text):
            if text[end].isascii() and (text[end].isdigit() or text[end].isupper()):
                written += text[end]
            elif text[end] != " " or len(written) % 4 or text[end - 1] == " ":
                break
            end += 1
        if (
            length
            and len(written) == length
            and not text[end : end + 1].isalnum()
            and _mod_97(written)
        ):
            yield found.start(), end


def _mod_97(iban: str) -> bool:
    """The checksum of ISO 7064 MOD 97-10 over the rearranged number."""
    return int("".join(str(int(each, 36)) for each in iban[4:] + iban[:4])) % 97 == 1
