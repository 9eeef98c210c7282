"""Automatic recall: knowledge for a turn that did not ask for any, or nothing at all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.preturn import EmptyReason
from knowledge.core.types import KnowledgeQuery, OmittedReason, RecallKind, SearchResult
from knowledge.models import PreturnPolicy
from knowledge.retrieval.search import Searcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """`reason` says why there is no passage; `result` is `None` when nothing was looked for."""

    result: SearchResult | None
    reason: EmptyReason | None

    @property
    def block_tokens(self) -> int:
        """What the turn pays: an empty block is not sent and costs nothing."""
        return 0 if self.result is None or self.reason else self.result.block.tokens


def preturn(searcher: Searcher, query: KnowledgeQuery, principal: Principal) -> Recalled:
    """What `recall` finds, when the tenant has automatic recall switched on.

    While it is off a call costs one look at the switch. Raises what a search raises.
    """
    with tenant_session(principal.tenant_id):
        enabled = PreturnPolicy.objects.filter(tenant_id=principal.tenant_id, enabled=True).exists()
    if not enabled:
        return Recalled(result=None, reason=EmptyReason.DISABLED)
    return recall(searcher, query, principal)


def recall(searcher: Searcher, query: KnowledgeQuery, principal: Principal) -> Recalled:
    """A search that is stricter than others; a query may ask for a higher floor, not a lower."""
    policy = searcher.policy
    asked = replace(
        query,
        kind=RecallKind.PRETURN,
        min_score=max(policy.preturn_min_score, query.min_score or 0.0),
        least_words=policy.preturn_least_words,
    )
    result = searcher.search(asked, principal)
    if result.passages:
        return Recalled(result=result, reason=None)
    pressed = any(one.reason is OmittedReason.BUDGET for one in result.omitted)
    reason = EmptyReason.BUDGET if pressed else EmptyReason.BELOW_FLOOR
    return Recalled(result=result, reason=reason)
