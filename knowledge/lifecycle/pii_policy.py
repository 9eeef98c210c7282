"""Switching the detectors of personal data on and off for a tenant."""

from __future__ import annotations

from django.utils import timezone

from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission
from knowledge.adapters.pii import known_countries
from knowledge.core.admission import PiiRules
from knowledge.core.errors import InvalidPiiRules
from knowledge.models import KnowledgeEvent, PiiPolicy


def set_pii_policy(rules: PiiRules, principal: Principal) -> PiiPolicy:
    """Puts the tenant's rules in the place of those it had, with an event.

    They decide over what is admitted from now on; what is there keeps its verdicts. Raises
    `Forbidden` to whoever is no operator and `InvalidPiiRules`.
    """
    principal.require_permission(OperatorPermission.MANAGE)
    unknown = sorted(set(rules.countries) - set(known_countries()))
    if unknown:
        raise InvalidPiiRules(
            f"Nothing is known of ids of {', '.join(unknown)}."
            f" Countries are {', '.join(known_countries())}."
        )
    verdicts = {str(detector): str(verdict) for detector, verdict in rules.verdicts.items()}
    with tenant_session(principal.tenant_id):
        policy, _ = PiiPolicy.objects.update_or_create(
            tenant_id=principal.tenant_id,
            defaults={
                "verdicts": verdicts,
                "countries": sorted(rules.countries),
                "changed_at": timezone.now(),
                "changed_by": principal.principal_id,
            },
        )
        KnowledgeEvent.objects.create(
            tenant_id=principal.tenant_id,
            name=KnowledgeEvent.PII_POLICY_CHANGED,
            actor=principal.principal_id,
            surface=principal.surface,
            data={
                "verdicts": verdicts,
                "countries": sorted(rules.countries),
                "version": rules.version,
            },
        )
    return policy
