"""What a search showed the model, so that it can be shown again."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from access.models import one_of, vocabulary_choices
from access.trust import Sensitivity
from knowledge.core.types import RecallKind


class RecallTrace(models.Model):
    """One search: who asked what, under which policy, and the hash of the block it rendered.

    `shown` counts its passages, and `pressed` says that one was left out for want of room. When
    its time as a whole is over it is thinned to ids, hashes and counts: what is `NULL` then was
    there and has been forgotten.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    surface = models.CharField(max_length=50)
    kind = models.CharField(
        max_length=10, choices=vocabulary_choices(RecallKind), default=RecallKind.SEARCH
    )
    current_scope = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is "none"
    sensitivity_ceiling = models.CharField(max_length=20, choices=vocabulary_choices(Sensitivity))
    query_text = models.TextField(null=True)  # noqa: DJ001 - NULL is "forgotten"
    # Who looked through the principal's eyes; empty when it was the principal.
    acting_operator = models.CharField(max_length=200, blank=True, default="")
    # What stood beside the text, its limits, and how scores were made; the words searched for.
    asked = models.JSONField(default=dict, null=True)
    words = models.JSONField(default=list, null=True)
    as_of = models.DateTimeField()
    live = models.BooleanField(default=True)
    policy = models.CharField(max_length=50)
    analyzer_version = models.CharField(max_length=50)
    beliefs = models.JSONField(default=list, null=True)
    notes = ArrayField(models.TextField(), default=list, null=True)
    omitted = models.JSONField(default=list)
    shown = models.PositiveIntegerField(default=0)
    pressed = models.BooleanField(default=False)
    block_sha256 = models.CharField(max_length=64)
    block_tokens = models.PositiveIntegerField()
    duration_ms = models.FloatField()
    created_at = models.DateTimeField()
    thinned_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=one_of("kind", RecallKind), name="trace_kind"),
            models.CheckConstraint(
                condition=Q(
                    thinned_at__isnull=True,
                    query_text__isnull=False,
                    beliefs__isnull=False,
                    notes__isnull=False,
                    asked__isnull=False,
                    words__isnull=False,
                )
                | Q(
                    thinned_at__isnull=False,
                    query_text__isnull=True,
                    beliefs__isnull=True,
                    notes__isnull=True,
                    asked__isnull=True,
                    words__isnull=True,
                ),
                name="trace_whole_or_thinned",
            ),
        )
        indexes = (
            models.Index(fields=["tenant_id", "-created_at"], name="trace_newest"),
            # The admin's list of one principal's, or of one surface's.
            models.Index(
                fields=["tenant_id", "principal_id", "-created_at"], name="trace_of_principal"
            ),
            models.Index(fields=["tenant_id", "surface", "-created_at"], name="trace_of_surface"),
            # What is to be thinned, what is to be dropped, and what a day's figures are of.
            models.Index(
                fields=["created_at"], condition=Q(thinned_at__isnull=True), name="trace_whole"
            ),
            models.Index(fields=["created_at"], name="trace_oldest"),
        )

    def __str__(self) -> str:
        return str(self.id)


class TracedPassage(models.Model):
    """A passage as it was rendered. The text is the chunk's own and is not copied here.

    Of a thinned trace id and hashes, flag and tokens are left.
    """

    trace = models.ForeignKey(RecallTrace, on_delete=models.CASCADE, related_name="passages")
    tenant_id = models.CharField(max_length=100)
    position = models.PositiveIntegerField()
    chunk_id = models.CharField(max_length=40)
    document_id = models.UUIDField()
    content_sha256 = models.CharField(max_length=64)
    title = models.TextField(null=True)  # noqa: DJ001 - NULL is "forgotten"
    heading_path = ArrayField(models.TextField(), null=True)
    doc_date = models.DateField(null=True)
    instruction_like = models.BooleanField()
    tokens = models.PositiveIntegerField()
    score = models.FloatField(null=True)
    terms = models.JSONField(null=True)
    arms = models.JSONField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("trace_id", "position")
        constraints = (
            models.UniqueConstraint(fields=("trace", "position"), name="traced_passage_position"),
        )
        indexes = (
            # Deleting a document scrubs what traces say of it; its page shows the latest.
            models.Index(fields=["document_id", "-id"], name="traced_passage_document"),
        )

    def __str__(self) -> str:
        return f"{self.chunk_id} in {self.trace_id}"
