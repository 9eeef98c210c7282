"""The tracked metrics, a row for each tenant and day."""

from __future__ import annotations

from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

LATENCY_MS: Final = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)
"""The upper bounds of `DailyFigures.latency`."""


class DailyFigures(models.Model):
    """What a tenant did in a day of UTC, as `roll_up` counts it out of traces, events and answers.

    `latency[i]` counts the searches of every kind that took at most `LATENCY_MS[i]`; the last
    entry counts all. `citations` counts by verdict. What was refused is in `RefusalCount`. The
    last eight are no counts of the day but of the corpus, when it was last looked at on that day:
    `shares` divides them by visibility, sensitivity and media type.
    """

    pk = models.CompositePrimaryKey("tenant_id", "day")
    tenant_id = models.CharField(max_length=100)
    day = models.DateField()
    ingested = models.BigIntegerField(default=0)
    searches = models.BigIntegerField(default=0)
    assembles = models.BigIntegerField(default=0)
    preturns = models.BigIntegerField(default=0)
    empty = models.BigIntegerField(default=0)
    pressed = models.BigIntegerField(default=0)
    without_arm = models.BigIntegerField(default=0)
    on_replica = models.BigIntegerField(default=0)
    fell_back = models.BigIntegerField(default=0)
    passages = models.BigIntegerField(default=0)
    block_tokens = models.BigIntegerField(default=0)
    duration_ms = models.FloatField(default=0)
    latency = ArrayField(models.BigIntegerField())
    answers = models.BigIntegerField(default=0)
    drawn = models.BigIntegerField(default=0)
    citing = models.BigIntegerField(default=0)
    citations = models.JSONField(default=dict)
    documents = models.BigIntegerField(null=True)
    versions = models.BigIntegerField(null=True)
    chunks = models.BigIntegerField(null=True)
    flagged = models.BigIntegerField(null=True)
    quarantined = models.BigIntegerField(null=True)
    held = models.BigIntegerField(null=True)
    source_bytes = models.BigIntegerField(null=True)
    shares = models.JSONField(null=True)
    rolled_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="figures_tenant_named"),
        )
        # Those of all tenants since a day.
        indexes = (models.Index(fields=["day"], name="figures_day"),)

    def __str__(self) -> str:
        return f"{self.tenant_id} on {self.day}"
