"""Files that the owner sends in a conversation: kept, and when the owner sent them, ingested."""

from __future__ import annotations

from dataclasses import replace
from typing import IO
from uuid import UUID

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact, ArtifactOrigin
from knowledge.core import fingerprint
from knowledge.core.errors import ConversationDeleted, Refused
from knowledge.core.types import Actor, AttachmentState, Authority, IngestRequest, Visibility
from knowledge.ingest import jobs
from knowledge.ingest.pipeline import Ingestor
from knowledge.models import Attachment, Conversation, IngestJob, KnowledgeEvent
from knowledge.models.attachment import AttachmentQuerySet

MOST_ATTEMPTS = 4
"""The first, and three more after transient failures."""


def attach(
    ingestor: Ingestor,
    principal: Principal,
    content: IO[bytes],
    *,
    conversation_id: str,
    actor: Actor,
    filename: str,
    media_type: str = "",
) -> Attachment:
    """Stores a file of a conversation, and marks it pending when the owner sent it.

    Both are one transaction. Raises `ConversationDeleted` when the conversation is gone, and then
    nothing was stored.
    """
    with artifacts.putting(
        principal,
        content,
        filename=filename,
        media_type=media_type,
        origin=ArtifactOrigin.ATTACHMENT,
    ) as artifact:
        attachment = Attachment(
            tenant_id=principal.tenant_id,
            conversation=_open(principal, conversation_id),
            principal_id=principal.principal_id,
            actor=actor,
            surface=principal.surface,
            artifact=artifact,
        )
        if _sent_by_owner(principal, actor):
            _enqueue(ingestor, attachment, principal)
        attachment.save()
    return attachment


def attachment_of(attachment_id: UUID, principal: Principal) -> Attachment:
    """What became of a file that the principal sent; `NotFound` for anybody else's."""
    with tenant_session(principal.tenant_id):
        attachment: Attachment | None = (
            Attachment.objects.with_state()
            .filter(
                attachment_id=attachment_id,
                principal_id=principal.principal_id,
                conversation__deleted_at__isnull=True,
            )
            .first()
        )
    if attachment is None:
        raise NotFound
    return attachment


def retry(
    ingestor: Ingestor, attachments: AttachmentQuerySet, *, asked_by: str
) -> list[Attachment]:
    """Puts those that were refused, or failed too often, at the end of the queue once more."""
    retried = []
    for attachment in (
        attachments.with_state()
        .filter(
            state__in=[AttachmentState.REFUSED, AttachmentState.FAILED],
            conversation__deleted_at__isnull=True,
        )
        .order_by("number")
    ):
        with tenant_session(attachment.tenant_id):
            IngestJob.objects.filter(attachment=attachment).delete()
            _enqueue(
                ingestor,
                attachment,
                Principal(
                    tenant_id=attachment.tenant_id,
                    principal_id=attachment.principal_id,
                    surface=attachment.surface,
                ),
            )
            attachment.save(update_fields=["job", "document_id", "refusal"])
            KnowledgeEvent.objects.create(
                tenant_id=attachment.tenant_id,
                name=KnowledgeEvent.ATTACHMENT_RETRIED,
                document_id=attachment.document_id,
                actor=asked_by,
                surface="admin",
                data={"attachment_id": str(attachment.attachment_id)},
            )
        retried.append(attachment)
    return retried


def _open(principal: Principal, conversation_id: str) -> Conversation:
    """The conversation, held until the transaction ends: its deletion waits, or came before."""
    conversation, _ = Conversation.objects.select_for_update().get_or_create(
        tenant_id=principal.tenant_id,
        principal_id=principal.principal_id,
        conversation_id=conversation_id,
    )
    if conversation.deleted_at is not None:
        raise ConversationDeleted
    return conversation


def _sent_by_owner(principal: Principal, actor: Actor) -> bool:
    """The human admission that ingestion asks for: only the owner's own message is one.

    A key that cannot vouch for a person cannot do so by the name of an actor either.
    """
    return (
        actor is Actor.PRINCIPAL
        and Scope.WRITE in principal.scopes
        and principal.max_origin_trust.at_least(OriginTrust.USER)
    )


def _enqueue(ingestor: Ingestor, attachment: Attachment, principal: Principal) -> None:
    """A place in the queue, or the reason why it never gets one."""
    document_id = fingerprint.document_id_for_attachment(
        principal.tenant_id, principal.principal_id, attachment.artifact.sha256
    )
    try:
        attachment.job = jobs.enqueue(
            ingestor,
            fixed_request(attachment.artifact, document_id),
            as_owner(principal),
            attempts=MOST_ATTEMPTS,
        )
    except Refused as refused:
        attachment.job, attachment.document_id = None, None
        attachment.refusal = refused.code
    else:
        attachment.document_id = document_id
        attachment.refusal = ""


def fixed_request(artifact: Artifact, document_id: UUID) -> IngestRequest:
    """What every attachment is admitted as; nobody who sends one has a say in it."""
    return IngestRequest(
        artifact_id=artifact.pk,
        title=artifact.filename,
        visibility=Visibility.PRINCIPAL,
        sensitivity=Sensitivity.INTERNAL,
        authority=Authority.PRINCIPAL_SUPPLIED,
        derived_id=document_id,
        origin_trust=OriginTrust.USER,
        # Another attachment of the same file may have begun it.
        resume=True,
    )


def as_owner(principal: Principal) -> Principal:
    """The owner as the caller of the ingest: it may do that and nothing else."""
    return replace(
        principal,
        scopes=frozenset({Scope.WRITE}),
        projects=frozenset(),
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.INTERNAL,
    )
