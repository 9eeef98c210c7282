"""Switching an arm of the search on for a tenant, which takes a measured lift, and off."""

from __future__ import annotations

from django.db.models.functions import Now

from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission
from knowledge.core.arms import ArmTrial
from knowledge.core.errors import NoEmbedder, NoLift, VectorsMissing
from knowledge.core.ports import VectorFiller
from knowledge.models import ArmSwitch, KnowledgeEvent


def enable_arm(trial: ArmTrial, principal: Principal, filler: VectorFiller | None) -> None:
    """Raises `Forbidden` to whoever may not manage, `NoEmbedder`, `VectorsMissing` while passages
    of the tenant have no vector, and `NoLift`, which is recorded as well."""
    principal.require_permission(OperatorPermission.MANAGE)
    if filler is None:
        raise NoEmbedder
    if missing := filler.missing(principal.tenant_id):
        raise VectorsMissing(
            f"{missing:,} passages of {principal.tenant_id} have no vector yet: run"
            f" `manage.py embed --tenant {principal.tenant_id}` first."
        )
    enabled = not trial.shortfalls()
    _record(principal, trial.arm, enabled=enabled, trial=trial)
    if not enabled:
        raise NoLift(" ".join(trial.shortfalls()), figures=trial.figures())


def disable_arm(arm: str, principal: Principal) -> None:
    """Raises `Forbidden` to whoever may not manage."""
    principal.require_permission(OperatorPermission.MANAGE)
    _record(principal, arm, enabled=False, trial=None)


def _record(principal: Principal, arm: str, *, enabled: bool, trial: ArmTrial | None) -> None:
    """A trial that showed no lift leaves the switch as it is."""
    figures = trial.figures() if trial else {}
    changed = enabled or trial is None
    with tenant_session(principal.tenant_id):
        if changed:
            ArmSwitch.objects.update_or_create(
                tenant_id=principal.tenant_id,
                arm=arm,
                defaults={
                    "enabled": enabled,
                    "figures": figures,
                    "changed_at": Now(),
                    "changed_by": principal.principal_id,
                },
            )
        KnowledgeEvent.objects.create(
            tenant_id=principal.tenant_id,
            name=KnowledgeEvent.ARM_CHANGED if changed else KnowledgeEvent.ARM_REFUSED,
            actor=principal.principal_id,
            surface=principal.surface,
            data={"arm": arm, "enabled": enabled, **({"figures": figures} if trial else {})},
        )
