"""How good and how fast a scanner is, over texts whose answer is known. Pure: texts in, numbers out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from knowledge.core.ports import InstructionScanner, SecretScanner

PLAIN = "plain"
BENIGN = "BENIGN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`found` of `total` texts."""

    found: int
    total: int

    @property
    def rate(self) -> float:
        return self.found / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryTexts:
    """What a scanner does to texts with nothing to find; `seconds` is wall-clock time."""

    flagged: int
    total: int
    megabytes: float
    seconds: float

    @property
    def flagged_per_thousand(self) -> float:
        return 1_000 * self.flagged / self.total if self.total else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.megabytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretMeasures:
    """`plain` and `disguised` count the rows that are not arguable; `missed` names what was not found."""

    scanner: str
    plain: Share
    disguised: Share
    arguable: Share
    by_transform: Mapping[str, Share]
    by_kind: Mapping[str, Share]
    missed: tuple[str, ...]
    ordinary: OrdinaryTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionMeasures:
    """`attacks` flagged of all, `lookalikes` wrongly flagged of all."""

    scanner: str
    attacks: Share
    lookalikes: Share
    by_family: Mapping[str, Share]
    ordinary: OrdinaryTexts


@dataclass(slots=True)
class _Tally:
    found: int = 0
    total: int = 0

    def add(self, *, found: bool) -> None:
        self.total += 1
        self.found += found

    def share(self) -> Share:
        return Share(found=self.found, total=self.total)


@dataclass(slots=True)
class _Tallies:
    tallies: dict[str, _Tally] = field(default_factory=dict)

    def add(self, name: str, *, found: bool) -> None:
        self.tallies.setdefault(name, _Tally()).add(found=found)

    def shares(self) -> dict[str, Share]:
        return {name: tally.share() for name, tally in sorted(self.tallies.items())}


def measure_secrets(
    rows: Iterable[Mapping[str, Any]], ordinary: Sequence[str], scanner: SecretScanner
) -> SecretMeasures:
    """Recall over `rows` (`kind`, `transform`, `arguable`, `text`), false alarms over `ordinary`."""
    plain, disguised, arguable = _Tally(), _Tally(), _Tally()
    transforms, kinds = _Tallies(), _Tallies()
    missed: list[str] = []
    for row in rows:
        found = bool(scanner.scan(row["text"]))
        if row["arguable"]:
            arguable.add(found=found)
        else:
            (plain if row["transform"] == PLAIN else disguised).add(found=found)
        transforms.add(row["transform"], found=found)
        kinds.add(row["kind"], found=found)
        if not found:
            missed.append(f"{row['kind']}/{row['transform']}")
    return SecretMeasures(
        scanner=scanner.version,
        plain=plain.share(),
        disguised=disguised.share(),
        arguable=arguable.share(),
        by_transform=transforms.shares(),
        by_kind=kinds.shares(),
        missed=tuple(missed),
        ordinary=_measure_ordinary(ordinary, lambda text: bool(scanner.scan(text))),
    )


def measure_instructions(
    rows: Iterable[Mapping[str, Any]], ordinary: Sequence[str], scanner: InstructionScanner
) -> InstructionMeasures:
    """Recall over `rows` (`source`, `family`, `payload`), false alarms over `ordinary`.

    A row whose `source` ends in BENIGN is a look-alike that must not be flagged.
    """
    attacks, lookalikes, families = _Tally(), _Tally(), _Tallies()
    for row in rows:
        found = bool(scanner.scan(row["payload"]))
        (lookalikes if row["source"].endswith(BENIGN) else attacks).add(found=found)
        families.add(row["family"], found=found)
    return InstructionMeasures(
        scanner=scanner.version,
        attacks=attacks.share(),
        lookalikes=lookalikes.share(),
        by_family=families.shares(),
        ordinary=_measure_ordinary(ordinary, lambda text: bool(scanner.scan(text))),
    )


def _measure_ordinary(texts: Sequence[str], flags: Callable[[str], bool]) -> OrdinaryTexts:
    flags("warm-up")
    size = sum(len(text.encode(errors="replace")) for text in texts)
    started = time.perf_counter()
    flagged = sum(flags(text) for text in texts)
    return OrdinaryTexts(
        flagged=flagged,
        total=len(texts),
        megabytes=size / 1e6,
        seconds=time.perf_counter() - started,
    )
