"""Admission per chunk: the host's own policy, and what the tenant has switched on beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from access.tenancy import tenant_session
from knowledge.adapters.pii import PiiScanner
from knowledge.core.admission import Judgement, PiiRules, strictest
from knowledge.core.ports import AdmissionPolicy
from knowledge.core.types import ChunkDraft, Verdict
from knowledge.models import PiiPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantAdmission:
    """What decides over the chunks of one tenant; the stricter of the two policies wins."""

    host: AdmissionPolicy
    pii: PiiRules | None = None

    @property
    def version(self) -> str:
        return f"{self.host.version}+{self.pii.version}" if self.pii else self.host.version

    def judge(self, chunk: ChunkDraft) -> Judgement:
        own = Verdict(self.host.classify(chunk))
        if self.pii is None and own is Verdict.ADMIT:
            return Judgement(verdict=own)
        found = list(_personal_data(chunk, self.pii)) if self.pii else []
        verdicts = self.pii.verdicts if self.pii else {}
        blamed = [{"detector": self.host.version}] if own is not Verdict.ADMIT else []
        return Judgement(
            verdict=strictest(own, *(verdicts[reason["detector"]] for reason in found)),
            reasons=(*blamed, *found),
        )


def admission_of(tenant_id: str, host: AdmissionPolicy) -> TenantAdmission:
    """The policies that hold for a tenant now."""
    with tenant_session(tenant_id):
        policy = PiiPolicy.objects.filter(tenant_id=tenant_id).first()
    rules = policy.rules() if policy else None
    return TenantAdmission(host=host, pii=rules if rules and rules.verdicts else None)


def _personal_data(chunk: ChunkDraft, rules: PiiRules) -> Iterator[Mapping[str, Any]]:
    """In the text and in the headings that are shown with it."""
    scanner = PiiScanner(rules)
    for part, text in (("text", chunk.text), ("heading", "\n".join(chunk.heading_path))):
        for found in scanner.scan(text):
            yield {
                "detector": found.detector,
                "part": part,
                "start": found.start,
                "end": found.end,
            }
