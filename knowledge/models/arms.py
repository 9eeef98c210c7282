"""Which tenants have which arm of the search, and what was measured when it was switched on."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone


class ArmSwitch(models.Model):
    """One tenant's switch of an arm; no row means off. `figures` are those that switched it on."""

    tenant_id = models.CharField(max_length=100)
    arm = models.CharField(max_length=20)
    enabled = models.BooleanField(default=False)
    figures = models.JSONField(default=dict)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.CharField(max_length=200)

    class Meta:
        verbose_name = "search arm"
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="arm_switch_tenant_named"),
            models.UniqueConstraint(fields=["tenant_id", "arm"], name="arm_switch_once"),
        )

    def __str__(self) -> str:
        return f"The {self.arm} arm in {self.tenant_id}"
