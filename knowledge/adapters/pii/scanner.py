"""All detectors that a tenant has switched on, over one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from knowledge.adapters.pii.emails import emails
from knowledge.adapters.pii.national_ids import national_ids
from knowledge.adapters.pii.numbers import cards, ibans
from knowledge.adapters.pii.phones import phones
from knowledge.core.admission import Detector, PersonalData, PiiRules

Span = tuple[int, int]


class PiiScanner:
    """Finds personal data by the rules of one tenant. Deterministic, without state."""

    def __init__(self, rules: PiiRules) -> None:
        self._detectors: dict[Detector, Callable[[str], Iterator[Span]]] = {
            detector: _finder(detector, rules.countries) for detector in sorted(rules.verdicts)
        }

    def scan(self, text: str) -> list[PersonalData]:
        """What was found, by detector and place. A place may belong to two detectors."""
        return [
            PersonalData(detector=detector, start=start, end=end)
            for detector, find in self._detectors.items()
            for start, end in sorted(set(find(text)))
        ]


def _finder(detector: Detector, countries: tuple[str, ...]) -> Callable[[str], Iterator[Span]]:
    match detector:
        case Detector.EMAIL:
            return emails
        case Detector.PHONE:
            return partial(phones, countries=countries)
        case Detector.CARD:
            return cards
        case Detector.IBAN:
            return ibans
        case Detector.NATIONAL_ID:
            return partial(national_ids, countries=countries)
