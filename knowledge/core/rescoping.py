"""Changing who may find a document or a record, and holding it: who may, and where it is then."""

from __future__ import annotations

from typing import Any, Protocol

from access.errors import Malformed
from access.principal import Principal
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity
from knowledge.core.errors import SensitivityAboveCeiling, UntrustedOrigin
from knowledge.core.types import DocumentChange, Visibility


def require_change_rights(principal: Principal, change: DocumentChange) -> None:
    """What can be refused without a look at what is to be changed.

    Raises `Malformed`, `ScopeMissing`, `Forbidden`, `UntrustedOrigin`, `ProjectForbidden` and
    `SensitivityAboveCeiling`.
    """
    if change.title is None and not change.rescopes and change.legal_hold is None:
        raise Malformed(
            "Say what to change: title, visibility, project_scope, sensitivity or legal_hold."
        )
    if principal.operator:
        principal.require_permission(OperatorPermission.MANAGE)
    else:
        if change.title is not None or change.rescopes:
            principal.require(Scope.WRITE)
        if change.legal_hold is not None:
            principal.require(Scope.DELETE)
    trusted = principal.trust_of(change.origin_trust).at_least(OriginTrust.USER)
    if not (principal.operator or trusted):
        raise UntrustedOrigin("The turn's origin trust is below USER. Let a person change this.")
    if change.project_scope is not None:
        principal.require_project(change.project_scope)
    ceiling = principal.sensitivity_ceiling
    if change.sensitivity is not None and not change.sensitivity.at_most(ceiling):
        raise SensitivityAboveCeiling(
            f"This key sees up to '{ceiling}', so it would lose sight of this. Let an"
            " operator, or a key with a higher ceiling, do this."
        )


class Space(Protocol):
    """Where something is visible: the fields of a visibility space."""

    id: int
    visibility: str
    project_scope: str | None
    sensitivity: str


def space_after(former: Space, owner: str, change: DocumentChange) -> dict[str, Any]:
    """The fields of the space after a change; one that is a principal's is its owner's.

    Raises `Malformed`.
    """
    visibility = change.visibility or Visibility(former.visibility)
    project = change.project_scope
    if visibility is Visibility.PROJECT:
        project = project or former.project_scope
    if (visibility is Visibility.PROJECT) != (project is not None):
        raise Malformed("project_scope is given exactly when visibility is 'project'.")
    return {
        "visibility": visibility,
        "project_scope": project,
        "principal_id": owner if visibility is Visibility.PRINCIPAL else None,
        "sensitivity": change.sensitivity or Sensitivity(former.sensitivity),
    }


def described_space(space: Space) -> dict[str, Any]:
    """A space as an event tells of it."""
    return {
        "space": space.id,
        "visibility": space.visibility,
        "project_scope": space.project_scope,
        "sensitivity": space.sensitivity,
    }
