"""Who is calling, as a value that the rest of the code can trust."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from access.errors import Forbidden, ProjectForbidden, ScopeMissing
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity

# What the store asks for as a scope, by the permission that gives it to an operator. An approval
# ingests in the operator's name.
_SCOPES_OF = {
    OperatorPermission.VIEW: Scope.AUDIT,
    OperatorPermission.MANAGE: Scope.WRITE,
    OperatorPermission.APPROVE: Scope.WRITE,
    OperatorPermission.DELETE: Scope.DELETE,
}
ALL_PERMISSIONS = frozenset(OperatorPermission)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller of one tenant, with what its key lets it do.

    `projects` is the set of projects it may name as current scope; `None` means all of them,
    an empty set means none. An `operator` looks after the whole tenant in the admin, so every
    document of it is visible to them, and `permissions` says what they may do there; no API key
    makes one. `key_prefix` names the key that vouched for the caller, when one did.
    `acting_operator` is who looks through the principal's eyes, when it is not themselves.
    `requests_per_minute` is the key's own limit: `None` is what holds for all keys, 0 is none.
    """

    OPERATOR_PREFIX: ClassVar[str] = "operator:"

    tenant_id: str
    principal_id: str
    scopes: frozenset[Scope] = field(default_factory=frozenset)
    projects: frozenset[str] | None = frozenset()
    max_origin_trust: OriginTrust = OriginTrust.EXTERNAL_UNTRUSTED
    sensitivity_ceiling: Sensitivity = Sensitivity.INTERNAL
    surface: str = "api"
    operator: bool = False
    permissions: frozenset[OperatorPermission] = frozenset()
    key_prefix: str = ""
    acting_operator: str = ""
    requests_per_minute: int | None = None

    @classmethod
    def for_operator(
        cls,
        tenant_id: str,
        username: str,
        permissions: frozenset[OperatorPermission] = ALL_PERMISSIONS,
    ) -> Principal:
        return cls(
            tenant_id=tenant_id,
            principal_id=f"{cls.OPERATOR_PREFIX}{username}",
            scopes=frozenset(_SCOPES_OF[one] for one in permissions if one in _SCOPES_OF),
            projects=None,
            max_origin_trust=OriginTrust.USER,
            sensitivity_ceiling=Sensitivity.RESTRICTED,
            surface="admin",
            operator=True,
            permissions=permissions,
        )

    def require(self, scope: Scope) -> None:
        if scope not in self.scopes:
            raise ScopeMissing(f"This needs an API key with the scope {scope.value}.")

    def require_permission(self, permission: OperatorPermission) -> None:
        """Raises `Forbidden` to whoever is no operator, and to one who may not do this."""
        if not self.operator:
            raise Forbidden("Only an operator of the tenant may do this.")
        if permission not in self.permissions:
            raise Forbidden(f"This needs an operator with the permission {permission.value}.")

    def may_name(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def require_project(self, project: str) -> None:
        if not self.may_name(project):
            raise ProjectForbidden("This API key may not name that project.")

    def trust_of(self, claimed: OriginTrust | None) -> OriginTrust:
        return OriginTrust.effective(claimed, self.max_origin_trust)
