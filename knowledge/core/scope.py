"""What a caller may see, resolved once per request."""

from __future__ import annotations

from dataclasses import dataclass

from access.principal import Principal
from access.trust import Sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadScope:
    """The predicates of a read: tenant, visibility against the current project, ceiling.

    `project` is the current scope; `None` sees no project's documents, never all of them.
    `whole_tenant` is an operator's: every document of the tenant, in any project.
    """

    tenant_id: str
    principal_id: str
    project: str | None
    sensitivity_ceiling: Sensitivity
    whole_tenant: bool = False


def resolve_scope(principal: Principal, current_scope: str | None) -> ReadScope:
    """Raises `ProjectForbidden` when the key may not name the project."""
    if current_scope is not None:
        principal.require_project(current_scope)
    return ReadScope(
        tenant_id=principal.tenant_id,
        principal_id=principal.principal_id,
        project=current_scope,
        sensitivity_ceiling=principal.sensitivity_ceiling,
        whole_tenant=principal.operator,
    )
