"""What a search showed the model, so that it can be shown again."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from access.models import vocabulary_choices
from access.trust import Sensitivity


class RecallTrace(models.Model):
    """One search: who asked what, under which policy, and the hash of the block it rendered."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    surface = models.CharField(max_length=50)
    current_scope = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is "none"
    sensitivity_ceiling = models.CharField(max_length=20, choices=vocabulary_choices(Sensitivity))
    query_text = models.TextField()
    as_of = models.DateTimeField()
    live = models.BooleanField(default=True)
    policy = models.CharField(max_length=50)
    analyzer_version = models.CharField(max_length=50)
    beliefs = models.JSONField(default=list)
    notes = ArrayField(models.TextField(), default=list)
    omitted = models.JSONField(default=list)
    block_sha256 = models.CharField(max_length=64)
    block_tokens = models.PositiveIntegerField()
    duration_ms = models.FloatField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("-created_at",)
        indexes = (models.Index(fields=["tenant_id", "-created_at"], name="trace_newest"),)

    def __str__(self) -> str:
        return str(self.id)


class TracedPassage(models.Model):
    """A passage as it was rendered. The text is the chunk's own and is not copied here."""

    trace = models.ForeignKey(RecallTrace, on_delete=models.CASCADE, related_name="passages")
    tenant_id = models.CharField(max_length=100)
    position = models.PositiveIntegerField()
    chunk_id = models.CharField(max_length=40)
    document_id = models.UUIDField()
    content_sha256 = models.CharField(max_length=64)
    title = models.TextField()
    heading_path = ArrayField(models.TextField(), default=list)
    doc_date = models.DateField(null=True)
    instruction_like = models.BooleanField()
    tokens = models.PositiveIntegerField()
    score = models.FloatField()
    terms = models.JSONField()
    arms = models.JSONField()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("trace_id", "position")
        constraints = (
            models.UniqueConstraint(fields=("trace", "position"), name="traced_passage_position"),
        )
        indexes = (
            # Deleting a document scrubs what traces say of it.
            models.Index(fields=["document_id"], name="traced_passage_document"),
        )

    def __str__(self) -> str:
        return f"{self.chunk_id} in {self.trace_id}"
