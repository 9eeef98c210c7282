"""Originals in pieces: up, with a journal that survives whatever dies, and down again."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from access.errors import NotFound, ProjectForbidden, ScopeMissing
from access.openapi import refuses
from access.serializers import StrictSerializer
from artifacts import uploads
from artifacts.errors import (
    BlobDamaged,
    BlobMissing,
    ChecksumMismatch,
    FileChanged,
    InvalidUpload,
    NoWorkspace,
    RangeNotSatisfiable,
    StorageUnavailable,
    UploadConflict,
    UploadOutOfOrder,
    UploadQuotaExceeded,
)
from artifacts.files import FileMissing, UnsafePath
from artifacts.models import UploadState
from artifacts.store import ATTRIBUTION_LIMIT, FILENAME_LIMIT, LARGEST_PART, read_part
from artifacts.workspace import attach_file
from knowledge.api.views import KnowledgeView, parsed

_LARGEST_OFFSET = 2**53 - 1


@extend_schema_field(OpenApiTypes.BYTE)
class Base64Field(serializers.CharField):
    """Bytes as base64 with its padding, and nothing else: no line ends, no other alphabet."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        # Of a blank text the framework makes no value: it stays a text.
        return super().run_validation(data) or b""

    def to_internal_value(self, data: Any) -> Any:
        try:
            return base64.b64decode(super().to_internal_value(data), validate=True)
        except (binascii.Error, ValueError) as error:
            raise serializers.ValidationError("Give the bytes as base64.") from error

    def to_representation(self, value: Any) -> str:
        return base64.b64encode(value).decode("ascii")


def sha256_field(**given: Any) -> serializers.RegexField:
    return serializers.RegexField(r"^[0-9a-f]{64}\Z", **given)


class AttachPieceSerializer(StrictSerializer):
    request_id = serializers.UUIDField(
        help_text="Of your own choice and the same for all pieces of a file; nobody else's matters."
    )
    offset = serializers.IntegerField(min_value=0, max_value=_LARGEST_OFFSET)
    content = Base64Field(allow_blank=True, help_text="At most 48 KiB of bytes, as base64.")
    sha256 = sha256_field(help_text="Of the bytes of this piece, in lower case.")
    final = serializers.BooleanField(help_text="Whether the file ends with this piece.")
    filename = serializers.CharField(max_length=FILENAME_LIMIT)
    media_type = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")
    attribution = serializers.CharField(
        max_length=ATTRIBUTION_LIMIT, required=False, allow_blank=True, default=""
    )


class AttachFileSerializer(StrictSerializer):
    file_path = serializers.CharField(
        max_length=4_096,
        trim_whitespace=False,
        help_text="Within the workspace: from its root on, or with it.",
    )
    sha256 = sha256_field(help_text="Of the file as you have seen it, in lower case.")
    request_id = serializers.UUIDField(help_text="Of your own choice, one for each file.")
    filename = serializers.CharField(max_length=FILENAME_LIMIT)
    attribution = serializers.CharField(max_length=ATTRIBUTION_LIMIT, allow_blank=True)
    media_type = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")


class AttachReceiptSerializer(serializers.Serializer[Any]):
    request_id = serializers.UUIDField()
    offset = serializers.IntegerField()
    received = serializers.IntegerField(
        help_text="Bytes of the file up to the end of this piece: where the next one starts."
    )
    state = serializers.ChoiceField(choices=[UploadState.RECEIVING, UploadState.COMPLETE])
    artifact_id = serializers.UUIDField(allow_null=True, help_text="With the final piece.")
    sha256 = serializers.CharField(allow_null=True, help_text="Of the whole file, with the final.")


class AttachmentPartSerializer(StrictSerializer):
    artifact = serializers.UUIDField(
        help_text="An artifact of your own, or the source of a document that you may see."
    )
    sha256 = sha256_field(help_text="Of the whole file: the reference and the hash must match.")
    offset = serializers.IntegerField(
        min_value=0, max_value=_LARGEST_OFFSET, required=False, default=0
    )
    length = serializers.IntegerField(
        min_value=1, max_value=LARGEST_PART, required=False, default=LARGEST_PART
    )
    current_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )


class AttachmentContentSerializer(serializers.Serializer[Any]):
    artifact_id = serializers.UUIDField(source="artifact.id")
    content = Base64Field(help_text="As base64.")
    offset = serializers.IntegerField()
    next_offset = serializers.IntegerField(
        allow_null=True, help_text="Where to go on; null when this is the end."
    )
    size = serializers.IntegerField(source="artifact.byte_size")
    sha256 = serializers.CharField(source="artifact.sha256", help_text="Of the whole file.")
    media_type = serializers.CharField(source="artifact.media_type")
    filename = serializers.CharField(source="artifact.filename")
    attribution = serializers.CharField(source="artifact.attribution")
    descriptor_id = serializers.CharField(
        source="artifact.descriptor.descriptor_id",
        default=None,
        allow_null=True,
        help_text="Of a document's source; a file that nothing cites has none.",
    )


class AttachPieceView(KnowledgeView):
    """A file in pieces."""

    @refuses(
        InvalidUpload,
        ChecksumMismatch,
        UploadConflict,
        UploadOutOfOrder,
        UploadQuotaExceeded,
        StorageUnavailable,
    )
    @extend_schema(
        operation_id="knowledge_attach",
        request=AttachPieceSerializer,
        responses={200: AttachReceiptSerializer},
    )
    def post(self, request: Request) -> Response:
        """Takes the next piece of a file; with the final one the file is an artifact of yours.

        Ask again, with the very same, whenever an answer did not come: the receipt is the same. 409
        `upload_conflict` is for something else at the same offset, or another description of the
        file; 409 `upload_out_of_order` says where to go on, `next_offset`. Either changes nothing.
        """
        asked = parsed(AttachPieceSerializer, request.data).validated_data
        receipt = uploads.attach(
            self.principal(),
            asked["request_id"],
            uploads.Piece(
                **{name: asked[name] for name in ("offset", "content", "sha256", "final")}
            ),
            **{name: asked[name] for name in ("filename", "media_type", "attribution")},
        )
        return Response(AttachReceiptSerializer(receipt).data)


class AttachFileView(KnowledgeView):
    """A file of the workspace."""

    @refuses(
        NoWorkspace,
        ScopeMissing,
        UnsafePath,
        FileMissing,
        FileChanged,
        InvalidUpload,
        ChecksumMismatch,
        UploadConflict,
        UploadQuotaExceeded,
        StorageUnavailable,
    )
    @extend_schema(
        operation_id="knowledge_attach_file",
        request=AttachFileSerializer,
        responses={200: AttachReceiptSerializer},
    )
    def post(self, request: Request) -> Response:
        """Keeps a file of this installation's workspace as an artifact of yours, without sending it.

        Needs `knowledge.write`. Regular files alone, by a path without links, that have no second
        name and do not change meanwhile. Ask again, with the very same, whenever an answer did not
        come. Without a workspace the answer is 404 `no_workspace`: upload the file instead.
        """
        asked = dict(parsed(AttachFileSerializer, request.data).validated_data)
        receipt = attach_file(
            self.principal(),
            asked.pop("request_id"),
            asked.pop("file_path"),
            asked.pop("sha256"),
            **asked,
        )
        return Response(AttachReceiptSerializer(receipt).data)


class AttachmentPartView(KnowledgeView):
    """An original in parts."""

    @refuses(
        NotFound,
        ProjectForbidden,
        RangeNotSatisfiable,
        BlobMissing,
        BlobDamaged,
        StorageUnavailable,
    )
    @extend_schema(
        operation_id="knowledge_attachment",
        request=AttachmentPartSerializer,
        responses={200: AttachmentContentSerializer},
    )
    def post(self, request: Request) -> Response:
        """Gives bytes of an original, at most 32 KiB; follow `next_offset` until it is null."""
        asked = dict(parsed(AttachmentPartSerializer, request.data).validated_data)
        artifact, content = read_part(
            self.principal(), asked.pop("artifact"), asked.pop("sha256"), **asked
        )
        end = asked["offset"] + len(content)
        shown = {
            "artifact": artifact,
            "content": content,
            "offset": asked["offset"],
            "next_offset": end if end < artifact.byte_size else None,
        }
        return Response(AttachmentContentSerializer(shown).data)
