"""What is left of a deleted document: that it was, who could see it, and what went with it."""

from __future__ import annotations

import uuid
from typing import Final

from django.contrib.postgres.aggregates import ArrayAgg
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Value

from artifacts.models import Artifact
from knowledge.core.scope import ReadScope
from knowledge.models.document import VisibilitySpace

PENDING_SWEEP: Final = "pending_sweep"
SWEPT: Final = "swept"


class _IsOneOf(models.Func):
    """Whether a value is among those of an array, written so that the value's index answers."""

    arity = 2
    template = "(%(expressions)s))"
    arg_joiner = " = ANY ("
    output_field = models.BooleanField()


class DeletionQuerySet(models.QuerySet["Deletion"]):
    def visible_to(self, scope: ReadScope) -> DeletionQuerySet:
        """Those of documents that a caller could have seen, by the rules of a living one."""
        return self.filter(space__in=VisibilitySpace.objects.visible_to(scope))

    def with_bytes(self) -> DeletionQuerySet:
        """With `bytes_left`: whether any of its sources still has a row, and so bytes."""
        sources = Artifact.objects.filter(_IsOneOf(F("pk"), OuterRef("sources")))
        return self.annotate(bytes_left=Exists(sources))

    def with_records(self, scope: ReadScope) -> DeletionQuerySet:
        """With `records`: the ids of records that a caller may see and that cite its sources."""
        seen = Q(citing__record__space__in=VisibilitySpace.objects.visible_to(scope))
        return self.annotate(
            records=ArrayAgg("citing__record", filter=seen, distinct=True, default=Value([]))
        )


class Deletion(models.Model):
    """One deletion: the tombstone of its document and the receipt of what went, in one row.

    No title, no path, no word of it. A document that was admitted and deleted again has two.
    `space` is where it was visible when it went. `readable` says that it had a version, which
    somebody could have read; one that was never finished had none. `left` counts, store by store,
    what a query after the deletion still found in the same transaction: nothing, or there is no
    such row.
    """

    deletion_id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    document_id = models.UUIDField()
    space = models.ForeignKey(VisibilitySpace, on_delete=models.PROTECT, related_name="deletions")
    ingested_by_principal_id = models.CharField(max_length=200)
    readable = models.BooleanField()
    actor = models.CharField(max_length=200)
    surface = models.CharField(max_length=50)
    reason = models.CharField(max_length=500, blank=True)
    deleted_at = models.DateTimeField()

    versions = models.PositiveIntegerField()
    chunk_sets = models.PositiveIntegerField()
    chunks = models.PositiveIntegerField()
    index_rows = models.PositiveIntegerField()
    embeddings = models.PositiveIntegerField()
    traced_passages = models.PositiveIntegerField()
    proposals = models.PositiveIntegerField()
    jobs = models.PositiveIntegerField()
    descriptors = models.PositiveIntegerField()
    left = models.JSONField(default=dict)
    sources = ArrayField(models.UUIDField(), default=list)
    storage_keys = ArrayField(models.CharField(max_length=100), default=list)

    objects = DeletionQuerySet.as_manager()

    class Meta:
        ordering = ("-deleted_at", "deletion_id")
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="deletion_tenant_named"),
        )
        indexes = (
            # Whether an id that names nothing once named a document.
            models.Index(fields=["document_id", "-deleted_at"], name="deletion_of_document"),
            # The admin's list, newest first.
            models.Index(
                fields=["tenant_id", "-deleted_at", "deletion_id"], name="deletion_newest"
            ),
        )

    def __str__(self) -> str:
        return str(self.deletion_id)

    @property
    def bytes_state(self) -> str:
        """`pending_sweep` while any of its sources has bytes, `swept` from then on.

        Of the moment at which the row was read: see `with_bytes`.
        """
        return PENDING_SWEEP if vars(self)["bytes_left"] else SWEPT


class DeletedChunk(models.Model):
    """The id of a chunk that went with its document, and nothing of what it said.

    `readable` is false for one that nobody could have been shown: set aside, or never published.
    `number` is what index rows and vectors knew it by; no other chunk ever has it.
    """

    pk = models.CompositePrimaryKey("chunk_id", "deletion_id")
    chunk_id = models.CharField(max_length=40)
    deletion = models.ForeignKey(Deletion, on_delete=models.PROTECT, related_name="chunk_ids")
    tenant_id = models.CharField(max_length=100)
    number = models.BigIntegerField()
    readable = models.BooleanField()

    def __str__(self) -> str:
        return self.chunk_id
