"""What a tenant has switched on of the built-in policy for personal data."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from knowledge.core.admission import Detector, PiiRules
from knowledge.core.types import Verdict


class PiiPolicy(models.Model):
    """The rules of one tenant; no row means that nothing is looked for.

    `verdicts` maps the name of each detector that is on to `quarantine` or `reject`.
    """

    tenant_id = models.CharField(max_length=100, primary_key=True)
    verdicts = models.JSONField(default=dict)
    countries = ArrayField(models.CharField(max_length=2), default=list, blank=True)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.CharField(max_length=200)

    class Meta:
        verbose_name = "policy for personal data"
        verbose_name_plural = "policy for personal data"
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="pii_policy_tenant_named"),
        )

    def __str__(self) -> str:
        return f"Personal data in {self.tenant_id}"

    def rules(self) -> PiiRules:
        return PiiRules(
            verdicts={
                Detector(name): Verdict(verdict) for name, verdict in sorted(self.verdicts.items())
            },
            countries=tuple(self.countries),
        )
