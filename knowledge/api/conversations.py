"""Files that are sent in conversations, and deleting a conversation with all that came of it."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from access.idempotency import idempotent
from access.openapi import refuses
from access.serializers import StrictSerializer
from artifacts.api.views import part_type
from knowledge.api import refusals
from knowledge.api import serializers as shapes
from knowledge.api.views import KnowledgeView, parsed, query_of
from knowledge.core.types import Actor
from knowledge.tasks import hint
from knowledge.wiring import store


class AttachmentsView(KnowledgeView):
    """Files of conversations."""

    parser_classes = (MultiPartParser,)  # type: ignore[assignment]

    @idempotent
    @refuses(*refusals.ATTACHING)
    @extend_schema(
        operation_id="attachments_create",
        request={"multipart/form-data": shapes.AttachSerializer},
        responses={201: shapes.AttachmentSerializer},
    )
    def post(self, request: Request) -> Response:
        """Keeps a file that was sent in a conversation, for as long as the conversation.

        A file that the owner sent becomes a document that only its owner finds: in the
        background, in the order of upload, under its own name. The same file twice is one
        document. A refusal is on the attachment alone.
        """
        asked = parsed(shapes.AttachSerializer, request.data).validated_data
        file = asked["file"]
        attachment = store().attach(
            file,
            self.principal(),
            conversation_id=asked["conversation_id"],
            actor=Actor(asked["actor"]),
            filename=file.name or "",
            media_type=asked["media_type"] or part_type(file),
        )
        if attachment.job is not None:
            hint(attachment.job.job_id)
        shown = store().get_attachment(attachment.attachment_id, self.principal())
        return Response(shapes.AttachmentSerializer(shown).data, status=HTTPStatus.CREATED)


class AttachmentView(KnowledgeView):
    """One file of a conversation."""

    @extend_schema(
        operation_id="attachments_retrieve", responses={200: shapes.AttachmentSerializer}
    )
    def get(self, request: Request, attachment_id: UUID) -> Response:
        """What became of a file that the caller's principal sent."""
        query_of(StrictSerializer, request)
        attachment = store().get_attachment(attachment_id, self.principal())
        return Response(shapes.AttachmentSerializer(attachment).data)


class ConversationView(KnowledgeView):
    """A conversation of the caller's principal."""

    @idempotent
    @refuses(*refusals.DELETING)
    @extend_schema(
        operation_id="conversations_delete",
        parameters=[shapes.DeleteConversationQuerySerializer],
        responses={200: shapes.ConversationReceiptSerializer},
    )
    def delete(self, request: Request, conversation_id: str) -> Response:
        """Deletes the files of a conversation, and the documents that no other one sent.

        Nothing can be attached to it afterwards. Repeating it is in order: the receipt counts
        what went this time. A document under a legal hold stays, which is recorded; repeat the
        call once the hold is lifted.
        """
        asked = parsed(
            shapes.ConversationQuerySerializer,
            {**request.query_params.dict(), "conversation_id": conversation_id},
        ).validated_data
        receipt = store().delete_conversation(principal=self.principal(), **asked)
        return Response(shapes.ConversationReceiptSerializer(receipt).data)
