"""What a tenant wants done with passages that hold personal data. Pure values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from knowledge.core.errors import InvalidPiiRules
from knowledge.core.fingerprint import frame
from knowledge.core.types import Verdict

PII_RULES_VERSION: Final = "pii-1"
"""Of the detectors themselves; another rule needs another version."""

_STRICTNESS: Final = (Verdict.ADMIT, Verdict.QUARANTINE, Verdict.REJECT)
_VERSION_CHARACTERS: Final = 12


class Detector(StrEnum):
    """A kind of personal data that is looked for."""

    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    NATIONAL_ID = "national_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalData:
    """Where in a text personal data stands; never what it says. Offsets in characters."""

    detector: Detector
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiRules:
    """Which detectors a tenant has switched on, with the verdict of each.

    `countries` (ISO 3166 alpha-2) are those whose national ids are looked for, and whose telephone
    numbers are known without their country code. Raises `InvalidPiiRules`.
    """

    verdicts: Mapping[Detector, Verdict]
    countries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if Verdict.ADMIT in self.verdicts.values():
            raise InvalidPiiRules("A detector quarantines or rejects; switch it off to admit.")
        if Detector.NATIONAL_ID in self.verdicts and not self.countries:
            raise InvalidPiiRules("National ids are those of countries: name at least one.")

    @property
    def version(self) -> str:
        """Of the detectors and of these rules: equal rules have equal versions anywhere."""
        rules = [f"{detector}={self.verdicts[detector]}" for detector in sorted(self.verdicts)]
        digest = hashlib.sha256(frame(rules, sorted(self.countries))).hexdigest()
        return f"{PII_RULES_VERSION}/{digest[:_VERSION_CHARACTERS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict, and why: `{detector, part, start, end}` in the chunk's text or heading path.

    The verdict of the host's own policy has its version as `detector`, and no place.
    """

    verdict: Verdict
    reasons: tuple[Mapping[str, Any], ...] = ()


def strictest(*verdicts: Verdict) -> Verdict:
    return max(verdicts, key=_STRICTNESS.index, default=Verdict.ADMIT)
