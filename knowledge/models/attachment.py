"""Files that were sent in conversations, and what became of them."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.db.models import Case, Q, Value, When
from django.utils import timezone

from access.models import one_of, vocabulary_choices
from artifacts.models import Artifact
from knowledge.core.types import Actor, AttachmentState, JobState
from knowledge.models.job import IngestJob


class Conversation(models.Model):
    """A conversation of one principal, under the host's own name for it.

    The row is made by its first attachment or by its deletion, and stays: what is sent to a
    deleted conversation afterwards, or at the same moment, is refused by it.
    """

    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    conversation_id = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="conversation_tenant_named"),
            models.UniqueConstraint(
                fields=("tenant_id", "principal_id", "conversation_id"),
                name="conversation_of_principal",
            ),
        )

    def __str__(self) -> str:
        return self.conversation_id


class AttachmentQuerySet(models.QuerySet["Attachment"]):
    def with_state(self) -> models.QuerySet[Any]:
        """With `state`, a word of `AttachmentState`, and all that an answer shows."""
        by_job = [When(job__state=state, then=Value(str(shown))) for state, shown in _SHOWN.items()]
        return self.select_related("artifact", "conversation", "job").annotate(
            state=Case(
                When(~Q(refusal=""), then=Value(str(AttachmentState.REFUSED))),
                When(document_id__isnull=True, then=Value(str(AttachmentState.STORED))),
                *by_job,
                default=Value(str(AttachmentState.DELETED)),
                output_field=models.CharField(),
            )
        )


class Attachment(models.Model):
    """One file of a conversation. Its artifact lives as long as the conversation.

    `document_id` is set exactly when the file is to become a document; its job, which is the
    place in the queue, says how far that is. The job goes with the document. `refusal` is the
    code of one that was refused before it got a place.
    """

    number = models.BigAutoField(primary_key=True)
    attachment_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    conversation = models.ForeignKey(
        Conversation, on_delete=models.PROTECT, related_name="attachments"
    )
    principal_id = models.CharField(max_length=200)
    actor = models.CharField(max_length=10, choices=vocabulary_choices(Actor))
    surface = models.CharField(max_length=50)
    artifact = models.OneToOneField(Artifact, on_delete=models.PROTECT, related_name="+")
    refusal = models.CharField(max_length=60, blank=True)
    document_id = models.UUIDField(null=True, blank=True)
    job = models.OneToOneField(
        IngestJob, on_delete=models.SET_NULL, null=True, blank=True, related_name="attachment"
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = AttachmentQuerySet.as_manager()

    class Meta:
        ordering = ("-number",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="attachment_tenant_named"),
            models.CheckConstraint(condition=one_of("actor", Actor), name="attachment_actor"),
            models.CheckConstraint(
                condition=Q(document_id__isnull=True, refusal="") | Q(actor=Actor.PRINCIPAL),
                name="attachment_admitted_only_if_owner_sent",
            ),
        )
        indexes = (
            # Whether another conversation sent the same file.
            models.Index(fields=["document_id"], name="attachment_document"),
            # The admin's list, newest first; those of a time.
            models.Index(fields=["tenant_id", "-number"], name="attachment_newest"),
            models.Index(fields=["created_at"], name="attachment_created"),
        )

    def __str__(self) -> str:
        return str(self.attachment_id)

    @property
    def reason(self) -> str:
        """The code of its refusal, or of its last failure."""
        problem = self.job.problem if self.job else None
        return self.refusal or (str(problem["code"]) if problem else "")


_SHOWN = {
    JobState.QUEUED: AttachmentState.PENDING,
    JobState.RUNNING: AttachmentState.PENDING,
    JobState.DONE: AttachmentState.INGESTED,
    JobState.REFUSED: AttachmentState.REFUSED,
    JobState.FAILED: AttachmentState.FAILED,
}
