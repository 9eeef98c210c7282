"""Deleting a conversation: its files go, and with them the documents that they became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from access.idempotency import forget
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission
from artifacts import store as artifacts
from knowledge.adapters.database import lock_document, now
from knowledge.core.errors import LegalHold
from knowledge.core.ports import VectorSink
from knowledge.lifecycle.delete import record_legal_hold, withdraw_document
from knowledge.models import Attachment, Conversation, Deletion, IngestJob, KnowledgeEvent
from knowledge.models.deletion import PENDING_SWEEP, SWEPT


class DocumentOutcome(StrEnum):
    """What became of a document: gone, kept for another conversation, or held by law.

    `never` is one that was still to be made, and now never will be.
    """

    DELETED = "deleted"
    KEPT = "kept"
    HELD = "held"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationDocument:
    """`receipt` says what went, when the document was deleted."""

    document_id: UUID
    outcome: DocumentOutcome
    receipt: Deletion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationReceipt:
    """What this call removed. `deleted_at` is when the conversation was first deleted."""

    conversation_id: str
    deleted_at: datetime
    attachments: int
    documents: tuple[ConversationDocument, ...]

    @property
    def bytes_state(self) -> str:
        """`pending_sweep` while bytes that this call let go of are still there."""
        receipts = (one.receipt for one in self.documents if one.receipt)
        pending = any(receipt.bytes_state == PENDING_SWEEP for receipt in receipts)
        return PENDING_SWEEP if self.attachments or pending else SWEPT


def delete_conversation(
    conversation_id: str,
    principal: Principal,
    vectors: VectorSink | None = None,
    *,
    reason: str = "",
    owner: str = "",
) -> ConversationReceipt:
    """Removes a conversation's files, what they became and what they were about to become.

    It is the principal's own, or for an operator that of the `owner` whom they name; raises
    `Forbidden` when anybody else names one, or an operator who may not delete.

    One transaction. It can be repeated: what a legal hold kept goes with a later call, once the
    hold is lifted. A conversation that is not known is deleted as well, so that a file that is
    being sent to it at this moment is refused.
    """
    if owner:
        principal.require_permission(OperatorPermission.DELETE)
    with tenant_session(principal.tenant_id):
        conversation = _closed(
            conversation_id, principal.tenant_id, owner or principal.principal_id
        )
        left = Attachment.objects.filter(conversation=conversation)
        ids = {one for one in left.values_list("document_id", flat=True) if one is not None}
        # Always in the same order, so that two deletions take turns.
        documents = [
            _withdraw(document_id, conversation, principal, vectors, reason)
            for document_id in sorted(ids)
        ]
        held = [one.document_id for one in documents if one.outcome is DocumentOutcome.HELD]
        receipt = ConversationReceipt(
            conversation_id=conversation_id,
            deleted_at=conversation.deleted_at or now(),
            # What is held keeps its file too.
            attachments=_remove(list(left.exclude(document_id__in=held))),
            documents=tuple(documents),
        )
        if receipt.attachments or receipt.documents:
            _record(receipt, principal, reason)
    return receipt


def _closed(conversation_id: str, tenant_id: str, owner: str) -> Conversation:
    """The conversation, deleted from now on; files that are being sent to it came before."""
    conversation, _ = Conversation.objects.select_for_update().get_or_create(
        tenant_id=tenant_id,
        principal_id=owner,
        conversation_id=conversation_id,
    )
    if conversation.deleted_at is None:
        conversation.deleted_at = now()
        conversation.save(update_fields=["deleted_at"])
    return conversation


def _withdraw(
    document_id: UUID,
    conversation: Conversation,
    principal: Principal,
    vectors: VectorSink | None,
    reason: str,
) -> ConversationDocument:
    """Deletes the document unless another conversation of the principal sent it as well."""
    # A worker publishes under this lock, and only while its job is there.
    lock_document(document_id)
    IngestJob.objects.filter(
        attachment__conversation=conversation, document_id=document_id
    ).delete()
    elsewhere = Attachment.objects.filter(
        document_id=document_id, conversation__deleted_at__isnull=True
    )
    if elsewhere.exists():
        return ConversationDocument(document_id=document_id, outcome=DocumentOutcome.KEPT)
    try:
        gone = withdraw_document(
            document_id, conversation.principal_id, principal, vectors, reason=reason
        )
    except LegalHold:
        record_legal_hold(document_id, principal)
        return ConversationDocument(document_id=document_id, outcome=DocumentOutcome.HELD)
    outcome = DocumentOutcome.DELETED if gone and gone.versions else DocumentOutcome.NEVER
    return ConversationDocument(document_id=document_id, outcome=outcome, receipt=gone)


def _remove(attachments: Sequence[Attachment]) -> int:
    files = [attachment.artifact_id for attachment in attachments]
    Attachment.objects.filter(pk__in=[attachment.pk for attachment in attachments]).delete()
    forget(attachment.attachment_id for attachment in attachments)
    artifacts.expire(files)
    return len(files)


def _record(receipt: ConversationReceipt, principal: Principal, reason: str) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=principal.tenant_id,
        name=KnowledgeEvent.CONVERSATION_DELETED,
        actor=principal.principal_id,
        surface=principal.surface,
        data={
            "conversation_id": receipt.conversation_id,
            "reason": reason,
            "attachments": receipt.attachments,
            "documents": {str(one.document_id): str(one.outcome) for one in receipt.documents},
        },
    )
