"""Searching as somebody else: an operator sees what that principal would see, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission, Sensitivity
from knowledge.core.types import PLAYGROUND_SURFACE, KnowledgeQuery, SearchResult
from knowledge.models import KnowledgeEvent
from knowledge.retrieval.search import Searcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewpoint:
    """Through whose eyes: a principal of the tenant under a ceiling, who may name one project."""

    principal_id: str
    current_scope: str | None
    sensitivity_ceiling: Sensitivity

    def principal(self, tenant_id: str, *, surface: str, acting_operator: str) -> Principal:
        """Reads and nothing else: it has no scope, no trust and is no operator."""
        named = frozenset() if self.current_scope is None else frozenset({self.current_scope})
        return Principal(
            tenant_id=tenant_id,
            principal_id=self.principal_id,
            projects=named,
            sensitivity_ceiling=self.sensitivity_ceiling,
            surface=surface,
            acting_operator=acting_operator,
        )


def search_as(
    searcher: Searcher, query: KnowledgeQuery, viewpoint: Viewpoint, operator: Principal
) -> SearchResult:
    """What the principal would find; trace and event say that it was the operator who asked.

    Raises `Forbidden` to whoever is no operator, and what `search` raises.
    """
    operator.require_permission(OperatorPermission.VIEW)
    seen_by = viewpoint.principal(
        operator.tenant_id,
        surface=PLAYGROUND_SURFACE,
        acting_operator=operator.principal_id,
    )
    with tenant_session(operator.tenant_id):
        result = searcher.search(query, seen_by)
        KnowledgeEvent.objects.create(
            tenant_id=operator.tenant_id,
            name=KnowledgeEvent.SEARCHED_AS,
            actor=operator.principal_id,
            surface=PLAYGROUND_SURFACE,
            data={"principal_id": viewpoint.principal_id, "trace_id": str(result.trace_id)},
        )
    return result
