"""Which tenants have automatic recall, and what was measured when it was switched on."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone


class PreturnPolicy(models.Model):
    """One tenant's switch; no row means off. `figures` are those that switched it on."""

    tenant_id = models.CharField(max_length=100, primary_key=True)
    enabled = models.BooleanField(default=False)
    figures = models.JSONField(default=dict)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.CharField(max_length=200)

    class Meta:
        verbose_name = "automatic recall"
        verbose_name_plural = "automatic recall"
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="preturn_tenant_named"),
        )

    def __str__(self) -> str:
        return f"Automatic recall in {self.tenant_id}"
