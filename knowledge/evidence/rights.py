"""Who may write records, and where."""

from __future__ import annotations

from typing import Any

from access.errors import Malformed
from access.principal import Principal
from access.trust import OriginTrust, Scope
from knowledge.core.errors import SensitivityAboveCeiling, UntrustedOrigin
from knowledge.core.records import Placement, Writing
from knowledge.core.types import Visibility


def require_writer(principal: Principal, writing: Writing) -> None:
    """What an ingest asks: the scope, and a turn that a person or the system vouches for."""
    principal.require(Scope.WRITE)
    if not principal.trust_of(writing.origin_trust).at_least(OriginTrust.USER):
        raise UntrustedOrigin(
            "The turn's origin trust is below USER. Let a person write this record."
        )
    if writing.current_scope is not None:
        principal.require_project(writing.current_scope)


def space_of(placement: Placement, principal: Principal) -> dict[str, Any]:
    """The fields of the visibility space of a new record.

    Raises `Malformed`, `ProjectForbidden` and `SensitivityAboveCeiling`.
    """
    of_project = placement.visibility is Visibility.PROJECT
    if of_project != (placement.project_scope is not None):
        raise Malformed("project_scope is given exactly when visibility is 'project'.")
    if placement.project_scope is not None:
        principal.require_project(placement.project_scope)
    if not placement.sensitivity.at_most(principal.sensitivity_ceiling):
        raise SensitivityAboveCeiling(
            f"This key sees up to '{principal.sensitivity_ceiling}', so it would not see the record."
        )
    own = placement.visibility is Visibility.PRINCIPAL
    return {
        "tenant_id": principal.tenant_id,
        "visibility": placement.visibility,
        "project_scope": placement.project_scope,
        "principal_id": principal.principal_id if own else None,
        "sensitivity": placement.sensitivity,
    }
