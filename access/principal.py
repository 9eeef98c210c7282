"""Who is calling, as a value that the rest of the code can trust."""

from __future__ import annotations

from dataclasses import dataclass, field

from access.errors import ProjectForbidden, ScopeMissing
from access.trust import OriginTrust, Scope, Sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller of one tenant, with what its key lets it do.

    `projects` is the set of projects it may name as current scope; `None` means all of them,
    an empty set means none.
    """

    tenant_id: str
    principal_id: str
    scopes: frozenset[Scope] = field(default_factory=frozenset)
    projects: frozenset[str] | None = frozenset()
    max_origin_trust: OriginTrust = OriginTrust.EXTERNAL_UNTRUSTED
    sensitivity_ceiling: Sensitivity = Sensitivity.INTERNAL
    surface: str = "api"

    def require(self, scope: Scope) -> None:
        if scope not in self.scopes:
            raise ScopeMissing(f"This needs an API key with the scope {scope.value}.")

    def may_name(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def require_project(self, project: str) -> None:
        if not self.may_name(project):
            raise ProjectForbidden("This API key may not name that project.")

    def trust_of(self, claimed: OriginTrust | None) -> OriginTrust:
        return OriginTrust.effective(claimed, self.max_origin_trust)
