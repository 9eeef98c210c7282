"""What a verification finds: ids of what is not as it should be, and never what stands in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import QuerySet

MOST_NAMED: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a row that was looked at; `of` names a part of it, such as a chunk."""

    problem: str
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem, in which kind of thing, whose, and the ids to find it by."""

    kind: str
    problem: str
    tenant_id: str
    id: str
    of: str = ""


@dataclass(slots=True)
class CorpusReport:
    """`checked` counts what was looked at, `problems` what was wrong, of which some are named.

    `unchecked` counts what could be looked at in part alone: chunk sets of an extractor that this
    installation has not, whose passages were not compared with the original.
    """

    checked: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.problems

    def add(self, finding: Finding) -> None:
        self.problems[f"{finding.kind}: {finding.problem}"] += 1
        if len(self.findings) < MOST_NAMED:
            self.findings.append(finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How rows of one kind are looked at: which they are, and what is wrong with one.

    Both run in a session that sees them. A row has a `tenant_id`.
    """

    kind: str
    rows: Callable[[], QuerySet[Any]]
    look: Callable[[Any], Iterator[Problem]]
