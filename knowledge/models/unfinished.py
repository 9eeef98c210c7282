"""Versions whose chunks are still being committed, batch by batch."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from artifacts.models import Artifact
from knowledge.models.chunk import ChunkSet
from knowledge.models.document import VisibilitySpace


class UnfinishedVersionQuerySet(models.QuerySet["UnfinishedVersion"]):
    def renew(self, document_id: UUID, token: UUID, lease: timedelta) -> bool:
        """Whether the lease is still the token's; if so it now lasts that long from now on."""
        held = self.filter(document_id=document_id, lease_token=token)
        return held.update(lease_until=Now() + lease) == 1


class UnfinishedVersion(models.Model):
    """The one version of a document that is being committed, and who is at it.

    Until it is whole there is no document version and, if it is the first, no document: its chunk
    set has no version, so no reader can come from a document to its chunks or back. Finalizing
    makes the version and removes this row; so does whoever gives it up.
    """

    document_id = models.UUIDField(primary_key=True, editable=False)
    tenant_id = models.CharField(max_length=100)
    version = models.PositiveIntegerField()
    chunk_set = models.OneToOneField(ChunkSet, on_delete=models.PROTECT, related_name="unfinished")
    original = models.OneToOneField(Artifact, on_delete=models.PROTECT, related_name="+")
    space = models.ForeignKey(VisibilitySpace, on_delete=models.PROTECT, related_name="unfinished")
    ingested_by_principal_id = models.CharField(max_length=200)
    title = models.CharField(max_length=500)
    source_type = models.CharField(max_length=100, blank=True)
    source_id = models.CharField(max_length=2_000, blank=True)
    source_version = models.CharField(max_length=500, blank=True)
    # Who works on it: a background job's name, which survives its worker, or nobody's.
    lease_holder = models.CharField(max_length=100, blank=True)
    lease_token = models.UUIDField()
    lease_until = models.DateTimeField()
    started_at = models.DateTimeField()

    objects = UnfinishedVersionQuerySet.as_manager()

    class Meta:
        ordering = ("-started_at",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="unfinished_tenant_named"),
        )
        indexes = (
            # What nobody has worked on for days.
            models.Index(fields=["lease_until"], name="unfinished_abandoned"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} v{self.version}, unfinished"
