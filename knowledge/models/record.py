"""Records that cite sources, every revision of them, and which sources those name."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from access.models import one_of, vocabulary_choices
from knowledge.core.records import RecordChange, RecordKind, Revision
from knowledge.core.scope import ReadScope
from knowledge.core.wording import TITLE_LIMIT
from knowledge.models.deletion import Deletion
from knowledge.models.document import VisibilitySpace


class RecordQuerySet(models.QuerySet["Record"]):
    def readable(self, scope: ReadScope) -> RecordQuerySet:
        """The records that a caller may see, by the door that documents have."""
        return self.filter(space__in=VisibilitySpace.objects.visible_to(scope))

    def citing(self, source: str) -> RecordQuerySet:
        """Those whose latest revision cites a source, by its descriptor's id."""
        return self.filter(
            pk__in=RecordSource.objects.filter(descriptor_id=source, current=True).values("record")
        )


class Record(models.Model):
    """What is one for all revisions of a record.

    `revision` and `sha256` are those of the latest, which a write has to have seen. `label` is one
    line of it for lists. `principal_id` is who made it.
    """

    record_id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    kind = models.CharField(max_length=20, choices=vocabulary_choices(RecordKind))
    principal_id = models.CharField(max_length=200)
    space = models.ForeignKey(VisibilitySpace, on_delete=models.PROTECT, related_name="records")
    label = models.CharField(max_length=TITLE_LIMIT)
    revision = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    legal_hold = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "record_id")
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="record_tenant_named"),
            models.CheckConstraint(condition=one_of("kind", RecordKind), name="record_kind"),
            models.CheckConstraint(condition=Q(revision__gte=1), name="record_revision"),
            models.CheckConstraint(
                condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="record_sha256"
            ),
        )
        indexes = (
            # The API's and the admin's list, newest first.
            models.Index(fields=["tenant_id", "-created_at", "record_id"], name="record_newest"),
        )

    def __str__(self) -> str:
        return self.label


class RecordRevision(models.Model):
    """One revision, as it was written: `canonical` is JSON by RFC 8785, `sha256` its hash.

    The database refuses any change of one. `request_id` is its writer's own, and `request_sha256`
    says what was asked for with it, so that the same request has the same answer.
    """

    record = models.ForeignKey(Record, on_delete=models.CASCADE, related_name="revisions")
    tenant_id = models.CharField(max_length=100)
    revision = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    # Empty for the first.
    previous_sha256 = models.CharField(max_length=64, blank=True)
    change = models.CharField(max_length=20, choices=vocabulary_choices(RecordChange))
    canonical = models.TextField()
    principal_id = models.CharField(max_length=200)
    surface = models.CharField(max_length=50)
    reason = models.CharField(max_length=500, blank=True)
    request_id = models.UUIDField()
    request_sha256 = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        ordering = ("record_id", "-revision")
        constraints = (
            models.UniqueConstraint(fields=("record", "revision"), name="revision_of_record"),
            models.UniqueConstraint(
                fields=("tenant_id", "principal_id", "request_id"), name="revision_once"
            ),
            models.CheckConstraint(condition=~Q(tenant_id=""), name="revision_tenant_named"),
            models.CheckConstraint(
                condition=one_of("change", RecordChange), name="revision_change"
            ),
            models.CheckConstraint(
                condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="revision_sha256"
            ),
            models.CheckConstraint(
                condition=Q(revision=1, previous_sha256="")
                | Q(revision__gt=1, previous_sha256__regex=r"^[0-9a-f]{64}$"),
                name="revision_follows",
            ),
        )

    def __str__(self) -> str:
        return f"{self.record_id} r{self.revision}"

    def value(self) -> Revision:
        return Revision.read(self.canonical)


class RecordSource(models.Model):
    """That some revision of a record cites a source; `current` says whether the latest does.

    The original is kept for it, and whoever may see the record may read the original, unless it
    is a document's: that lives and opens with its document. `deletion` is that of the document.
    There is no foreign key to the descriptor: a citation outlives it.
    """

    record = models.ForeignKey(Record, on_delete=models.CASCADE, related_name="sources")
    tenant_id = models.CharField(max_length=100)
    descriptor_id = models.CharField(max_length=64)
    artifact_id = models.UUIDField()
    current = models.BooleanField()
    deletion = models.ForeignKey(
        Deletion, on_delete=models.PROTECT, null=True, blank=True, related_name="citing"
    )

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="record_source_tenant_named"),
            models.UniqueConstraint(fields=("record", "descriptor_id"), name="record_source_once"),
        )
        indexes = (
            # What cites a source, and what an original is kept for.
            models.Index(fields=["descriptor_id"], name="record_source_cited"),
            models.Index(fields=["artifact_id"], name="record_source_kept"),
        )

    def __str__(self) -> str:
        return f"{self.descriptor_id} in {self.record_id}"
