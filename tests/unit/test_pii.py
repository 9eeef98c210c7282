"""The detectors of personal data: what each takes for it, and what it leaves alone."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.adapters.pii import PiiScanner, known_countries
from knowledge.adapters.pii.numbers import _LENGTH_OF
from knowledge.core.admission import Detector, PiiRules, strictest
from knowledge.core.errors import InvalidPiiRules
from knowledge.core.types import Verdict


def found(text: str, detector: str, *countries: str) -> list[str]:
    rules = PiiRules(verdicts={Detector(detector): Verdict.QUARANTINE}, countries=countries)
    return [text[each.start : each.end] for each in PiiScanner(rules).scan(text)]


# --- e-mail ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "ann.lee@firma.de",
        "a+shop@mail.firma.co.uk",
        "o'neill@firma.ie",
        "ann_lee@FIRMA.COM",
        "jürgen@büro.de",
        "x@q.io",
    ],
)
@pytest.mark.parametrize("form", ["{}", "<{}>", "mailto:{}", "Write to {}.", "({}),", "|{}|"])
def test_an_address_is_found_whole(address: str, form: str) -> None:
    assert found(form.format(address), "email") == [address]


@pytest.mark.parametrize(
    "text",
    [
        "support@firma.de, security@firma.de and No-Reply@firma.de",
        "ann@example.com, ann@mail.example.org and ann@printer.local",
        "git@github.com:owner/repo.git",
        "https://ann@firma.de/path",
        "logo@2x.png and icon@sizes.svg",
        "npm i @scope/package@1.2.3",
        "user@host, a@b and @handle",
        "x = a @ b.T",
    ],
)
def test_an_address_of_nobody_is_not(text: str) -> None:
    assert found(text, "email") == []


# --- telephone -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "countries"),
    [
        ("+49 30 901820", ()),
        ("+1 (650) 253-0000", ()),
        ("+442079460958", ()),
        ("(650) 253-0000", ("US",)),
        ("030/901820", ("DE",)),
        ("020 7946 0958", ("FR", "GB")),
    ],
)
def test_a_telephone_number_is_found(written: str, countries: tuple[str, ...]) -> None:
    (shown,) = found(f"Call {written} before noon.", "phone", *countries)
    assert re.sub(r"\D", "", shown) == re.sub(r"\D", "", written)


@pytest.mark.parametrize(
    "text",
    [
        "(650) 253-0000 of no country that is asked about",
        "at 1700000000 or 2026-11-29 10:15:00",
        "0.408730 and 192.168.100.200",
        "+1 650 555 0199 of a story",
        "version 10.4.2 build 20261129",
        "3 + 4 and +5 %",
    ],
)
def test_a_number_that_counts_something_is_no_telephone_number(text: str) -> None:
    countries = ("DE",) if "no country" in text else ("US", "GB", "DE")
    assert found(text, "phone", *countries) == []


# --- cards -----------------------------------------------------------------------------------


def with_luhn(digits: str) -> str:
    total = sum(
        sum(divmod(int(digit) * (2 - place % 2), 10))
        for place, digit in enumerate(reversed(digits))
    )
    return digits + str(-total % 10)


CARDS = [with_luhn(each) for each in ("453971826405713", "527384619205831", "37169482053718")]


def printed(card: str, mark: str) -> str:
    sizes = (4, 6, 5) if len(card) == 15 else (4, 4, 4, 4)
    groups, at = [], 0
    for size in sizes:
        groups.append(card[at : at + size])
        at += size
    return mark.join(groups)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("mark", ["", " ", "-"])
def test_a_card_with_its_checksum_is_found(card: str, mark: str) -> None:
    written = printed(card, mark)
    assert found(f"Paid with {written}, thanks.", "card") == [written]


@pytest.mark.parametrize("card", CARDS)
def test_a_digit_that_is_wrong_makes_it_no_card(card: str) -> None:
    wrong = card[:-1] + str((int(card[-1]) + 1) % 10)
    assert found(wrong, "card") == []


@pytest.mark.parametrize(
    "form", ["0.{}", "{}.5", "x{}", "id-{}", "{}-9", "12:{}", "/{}", "{} 12 34", "{},5"]
)
def test_digits_that_are_part_of_more_are_no_card(form: str) -> None:
    assert found(form.format(CARDS[0]), "card") == []


def test_published_test_numbers_are_no_cards() -> None:
    tests = ["4" + "1" * 15, "42" * 8, "5" * 12 + "4444", "4" + "0" * 14 + "2"]
    assert [found(number, "card") for number in tests] == [[]] * len(tests)


@given(st.integers(10**12, 10**19 - 1))
def test_no_number_raises(number: int) -> None:
    assert set(found(f"n {number} m", "card")) <= {str(number)}


# --- IBANs -----------------------------------------------------------------------------------


def iban_of(country: str, account: str) -> str:
    digits = "".join(str(int(each, 36)) for each in account + country + "00")
    return f"{country}{98 - int(digits) % 97:02}{account}"


@pytest.mark.parametrize("country", sorted(_LENGTH_OF))
def test_an_iban_of_each_country_is_found(country: str) -> None:
    account = "37040044A53201300012345678901234"[: _LENGTH_OF[country] - 4]
    iban = iban_of(country, account)
    grouped = " ".join(iban[at : at + 4] for at in range(0, len(iban), 4))
    for written in (iban, grouped):
        assert found(f"To {written} BANK, please", "iban") == [written]
        assert found(f"{written}.", "iban") == [written]
    swapped = iban[:2] + f"{(int(iban[2:4]) + 1) % 100:02}" + iban[4:]
    for wrong in (swapped, iban[:-1], iban + "7", "X" + iban, iban.lower()):
        assert found(wrong, "iban") == []


@given(st.text(alphabet="DEGB0123456789 A", max_size=60))
def test_no_text_raises(text: str) -> None:
    assert all(part in text for part in found(text, "iban"))


# --- national ids ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("country", "text", "number"),
    [
        ("US", "His SSN is {}.", "-".join(("219", "09", "9999"))),
        ("US", "| Social Security Number |\n| - |\n| {} |", "-".join(("219", "09", "9998"))),
        ("DE", "Steuer-ID: {}", " ".join(("12", "345", "678", "911"))),
        ("ES", "vive en Madrid, {}", "12345678" + "Z"),
        ("IT", "nato a Roma ({})", "RSSMRA85M" + "01H501Q"),
        ("BR", "O cliente {} pagou.", "111.444." + "777-35"),
        ("NL", "BSN {}", "123456" + "782"),
        ("PL", "PESEL: {}", "800101" + "00000"),
    ],
)
def test_a_national_id_is_found(country: str, text: str, number: str) -> None:
    assert found(text.format(number), "national_id", country) == [number]
    assert found(text.format(number), "national_id", "FR") == []
    assert found(text.format("9" + number), "national_id", country) == []


@pytest.mark.parametrize(
    ("country", "text"),
    [
        ("US", "Part 219-09-9999 is in stock."),
        ("NL", "Order 123456782 was shipped."),
        ("PL", "Build 80010100000 passed."),
        ("US", "The SSN is asked for on page 12-34."),
        ("ES", "12345678A"),
    ],
)
def test_digits_that_no_word_names_are_none(country: str, text: str) -> None:
    assert found(text, "national_id", country) == []


@pytest.mark.parametrize("country", known_countries())
def test_every_country_that_can_be_named_can_be_looked_for(country: str) -> None:
    assert found("The national id of nobody.", "national_id", country) == []


# --- rules -----------------------------------------------------------------------------------


def test_equal_rules_have_equal_versions_and_others_others() -> None:
    email, card = Detector.EMAIL, Detector.CARD
    quarantine, reject = Verdict.QUARANTINE, Verdict.REJECT
    versions = [
        PiiRules(verdicts={email: quarantine, card: reject}, countries=("DE", "US")).version,
        PiiRules(verdicts={card: reject, email: quarantine}, countries=("US", "DE")).version,
        PiiRules(verdicts={email: quarantine, card: quarantine}, countries=("DE", "US")).version,
        PiiRules(verdicts={email: quarantine, card: reject}).version,
        PiiRules(verdicts={email: quarantine}).version,
    ]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 4
    assert all(version.startswith("pii-1/") for version in versions)


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidPiiRules, match="name at least one"):
        PiiRules(verdicts={Detector.NATIONAL_ID: Verdict.REJECT})
    with pytest.raises(InvalidPiiRules, match="switch it off"):
        PiiRules(verdicts={Detector.EMAIL: Verdict.ADMIT})


def test_the_stricter_verdict_wins() -> None:
    assert strictest() is Verdict.ADMIT
    assert strictest(Verdict.ADMIT, Verdict.QUARANTINE) is Verdict.QUARANTINE
    assert strictest(Verdict.REJECT, Verdict.QUARANTINE, Verdict.ADMIT) is Verdict.REJECT


def test_what_is_found_has_a_place_and_no_value() -> None:
    rules = PiiRules(verdicts={Detector.EMAIL: Verdict.REJECT})
    (each,) = PiiScanner(rules).scan("Write to ann@firma.de.")
    assert (each.detector, each.start, each.end) == (Detector.EMAIL, 9, 21)
    assert "ann" not in json.dumps([str(each.detector), each.start, each.end])
