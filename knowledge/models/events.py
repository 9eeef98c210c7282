"""What happened: events with ids and no content, and counters of refusals."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone


class KnowledgeEvent(models.Model):
    """One change of the corpus, written in the transaction that made it.

    `data` holds ids, counts and versions only. There is no foreign key: an event outlives the
    document it speaks of.
    """

    INGESTED = "knowledge.document.ingested"
    RECHUNKED = "knowledge.document.rechunked"
    RECHUNK_REFUSED = "knowledge.document.rechunk_refused"
    DELETED = "knowledge.document.deleted"
    RETITLED = "knowledge.document.retitled"
    RESCOPED = "knowledge.document.rescoped"
    HELD = "knowledge.document.held"
    HOLD_LIFTED = "knowledge.document.hold_lifted"
    RELEASED = "knowledge.chunk.released"
    PURGED = "knowledge.chunk.purged"
    PII_POLICY_CHANGED = "knowledge.pii_policy.changed"
    PRETURN_CHANGED = "knowledge.preturn.changed"
    PRETURN_REFUSED = "knowledge.preturn.refused"
    ARM_CHANGED = "knowledge.arm.changed"
    ARM_REFUSED = "knowledge.arm.refused"
    MODEL_SWITCHED = "knowledge.model.switched"
    DELETE_REFUSED = "knowledge.document.delete_refused"
    CONVERSATION_DELETED = "knowledge.conversation.deleted"
    BULK_BEGUN = "knowledge.bulk.begun"
    BULK_CANCELLED = "knowledge.bulk.cancelled"
    EXPORTED = "knowledge.document.exported"
    CORPUS_EXPORTED = "knowledge.corpus.exported"
    CORPUS_IMPORTED = "knowledge.corpus.imported"
    JOB_RETRIED = "knowledge.job.retried"
    ATTACHMENT_RETRIED = "knowledge.attachment.retried"
    SEARCHED_AS = "knowledge.search.as_another"
    GOLDEN_SET_CHANGED = "knowledge.golden_set.changed"
    GOLDEN_SET_REMOVED = "knowledge.golden_set.removed"
    GOLDEN_SET_RUN = "knowledge.golden_set.run"
    GOLDEN_SET_EXPORTED = "knowledge.golden_set.exported"
    PROPOSAL_PARKED = "knowledge.proposal.parked"
    PROPOSAL_APPROVED = "knowledge.proposal.approved"
    PROPOSAL_DECLINED = "knowledge.proposal.declined"
    PROPOSAL_EXPIRED = "knowledge.proposal.expired"
    RECORD_CREATED = "knowledge.record.created"
    RECORD_SAVED = "knowledge.record.saved"
    RECORD_CORRECTED = "knowledge.record.corrected"
    RECORD_ANNOTATED = "knowledge.record.annotated"
    RECORD_RECONCILED = "knowledge.record.reconciled"
    RECORD_RESCOPED = "knowledge.record.rescoped"
    RECORD_HELD = "knowledge.record.held"
    RECORD_HOLD_LIFTED = "knowledge.record.hold_lifted"
    RECORD_DELETED = "knowledge.record.deleted"
    RECORD_DELETE_REFUSED = "knowledge.record.delete_refused"

    tenant_id = models.CharField(max_length=100)
    name = models.CharField(max_length=100)
    document_id = models.UUIDField(null=True, blank=True)
    version = models.PositiveIntegerField(null=True, blank=True)
    actor = models.CharField(max_length=200)
    surface = models.CharField(max_length=50)
    data = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "event"
        ordering = ("-at", "-id")
        indexes = (
            # The event log, newest first, and the events of one document.
            models.Index(fields=["tenant_id", "-at"], name="event_newest"),
            models.Index(fields=["document_id", "-at"], name="event_of_document"),
            # How many were admitted, by day.
            models.Index(
                fields=["at"],
                condition=Q(name="knowledge.document.ingested"),
                name="event_ingested",
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} at {self.at:%Y-%m-%d %H:%M:%S}"


class RefusalCount(models.Model):
    """The one thing that a refused ingest leaves: a number per tenant, day and reason."""

    pk = models.CompositePrimaryKey("tenant_id", "day", "reason")
    tenant_id = models.CharField(max_length=100)
    day = models.DateField()
    reason = models.CharField(max_length=60)
    count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="refusal_tenant_named"),
        )

    def __str__(self) -> str:
        return f"{self.reason} on {self.day}: {self.count}"
