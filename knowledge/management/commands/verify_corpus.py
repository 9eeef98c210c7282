"""manage.py verify_corpus: looks whether all that is stored is what was once written."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand
from knowledge.lifecycle.corpus import CorpusReport, Finding
from knowledge.management.progress import KindsProgress
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Compares all bytes with their hashes, and descriptors, passages, index rows, uploads and"
        " records with what they are made of. Reads only; names ids and never what they hold. Exit"
        " status 1 when something is not as it should be."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="whose; all tenants' otherwise")

    def run(self, options: dict[str, Any]) -> None:
        with KindsProgress(quiet=self.as_json) as progress:
            report = store().verify_corpus(options["tenant"], on_progress=progress.on_kind)
        self.emit(
            {
                "clean": report.clean,
                "checked": dict(report.checked),
                "unchecked": dict(report.unchecked),
                "problems": dict(report.problems),
                "findings": [asdict(finding) for finding in report.findings],
            },
            told(report),
        )
        if not report.clean:
            raise SystemExit(1)


def told(report: CorpusReport) -> str:
    """A verification for people: what is wrong first."""
    found = sum(report.problems.values())
    lines = [f"{found:,} problems:" if found else "All is as it was written."]
    lines += [f"  {_told(finding)}" for finding in report.findings]
    if found > len(report.findings):
        lines.append(f"  and {found - len(report.findings):,} more")
    counts = ", ".join(f"{count:,} {kind}s" for kind, count in report.checked.items())
    lines.append(f"Looked at: {counts or 'nothing'}.")
    if unchecked := sum(report.unchecked.values()):
        lines.append(
            f"Passages of {unchecked:,} chunk sets could not be compared with their originals."
        )
    return "\n".join(lines)


def _told(finding: Finding) -> str:
    of = f" ({finding.of})" if finding.of else ""
    whose = f" of {finding.tenant_id}" if finding.tenant_id else ""
    return f"{finding.kind} {finding.id}{whose}: {finding.problem}{of}"
