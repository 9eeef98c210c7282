"""Switching automatic recall on for a tenant, which takes a measured gain, and off."""

from __future__ import annotations

from django.db.models.functions import Now

from access.errors import Forbidden
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.errors import NoGain
from knowledge.core.preturn import Trial
from knowledge.models import KnowledgeEvent, PreturnPolicy


def enable_preturn(trial: Trial, principal: Principal) -> None:
    """Raises `Forbidden` to whoever is no operator, and `NoGain`, which is recorded as well."""
    _require_operator(principal)
    enabled = not trial.shortfalls()
    _record(principal, enabled=enabled, trial=trial)
    if not enabled:
        raise NoGain(" ".join(trial.shortfalls()), figures=trial.figures())


def disable_preturn(principal: Principal) -> None:
    """Raises `Forbidden` to whoever is no operator."""
    _require_operator(principal)
    _record(principal, enabled=False, trial=None)


def _record(principal: Principal, *, enabled: bool, trial: Trial | None) -> None:
    """A trial that showed no gain leaves the switch as it is."""
    figures = trial.figures() if trial else {}
    with tenant_session(principal.tenant_id):
        if enabled or trial is None:
            PreturnPolicy.objects.update_or_create(
                tenant_id=principal.tenant_id,
                defaults={
                    "enabled": enabled,
                    "figures": figures,
                    "changed_at": Now(),
                    "changed_by": principal.principal_id,
                },
            )
        KnowledgeEvent.objects.create(
            tenant_id=principal.tenant_id,
            name=(
                KnowledgeEvent.PRETURN_CHANGED
                if enabled or trial is None
                else KnowledgeEvent.PRETURN_REFUSED
            ),
            actor=principal.principal_id,
            surface=principal.surface,
            data={"enabled": enabled, **({"figures": figures} if trial else {})},
        )


def _require_operator(principal: Principal) -> None:
    if not principal.operator:
        raise Forbidden("Only an operator of the tenant may do this.")
