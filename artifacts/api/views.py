"""Uploading a file, reading what is known of it, and downloading it."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import IO
from uuid import UUID

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from access.authentication import principal_of
from access.errors import ProjectForbidden
from access.idempotency import idempotent
from access.openapi import refuses
from access.serializers import ReadQuerySerializer
from access.streaming import as_served
from artifacts import store
from artifacts.api.ranges import parse_range
from artifacts.api.serializers import ArtifactSerializer, UploadSerializer
from artifacts.errors import (
    BlobDamaged,
    BlobMissing,
    InvalidUpload,
    RangeNotSatisfiable,
    StorageUnavailable,
    UploadQuotaExceeded,
    UploadTooLarge,
)
from artifacts.models import Artifact

_BLOCK = 64 * 1024
# A download is never shown as a page of ours: only these types are named, all else is bytes.
_PLAIN_TYPES = {"text/plain", "text/markdown", "application/json", "application/pdf"}
_SERVED_TYPES = {*_PLAIN_TYPES, store.UNKNOWN_MEDIA_TYPE}


class ArtifactsView(APIView):
    """Files that a principal uploads."""

    parser_classes = (MultiPartParser,)

    @idempotent
    @refuses(InvalidUpload, UploadTooLarge, UploadQuotaExceeded, StorageUnavailable)
    @extend_schema(
        operation_id="artifacts_create",
        request={"multipart/form-data": UploadSerializer},
        responses={201: ArtifactSerializer},
    )
    def post(self, request: Request) -> Response:
        """Uploads a file, to be admitted with `knowledge.ingest`."""
        upload = UploadSerializer(data=request.data)
        upload.is_valid(raise_exception=True)
        file = upload.validated_data["file"]
        artifact = store.put(
            principal_of(request),
            file,
            filename=file.name or "",
            media_type=upload.validated_data["media_type"] or part_type(file),
            attribution=upload.validated_data["attribution"],
        )
        return Response(ArtifactSerializer(artifact).data, status=HTTPStatus.CREATED)


class ArtifactView(APIView):
    """One artifact."""

    @refuses(ProjectForbidden)
    @extend_schema(
        operation_id="artifacts_retrieve",
        parameters=[ReadQuerySerializer],
        responses={200: ArtifactSerializer},
    )
    def get(self, request: Request, artifact_id: UUID) -> Response:
        """What is known of a file that the caller may read."""
        return Response(ArtifactSerializer(_artifact(request, artifact_id)).data)


class ArtifactContentView(APIView):
    """The bytes of one artifact."""

    @refuses(ProjectForbidden, RangeNotSatisfiable, BlobMissing, BlobDamaged, StorageUnavailable)
    @extend_schema(
        operation_id="artifacts_content",
        parameters=[ReadQuerySerializer],
        responses={
            (200, *sorted(_SERVED_TYPES)): OpenApiTypes.BINARY,
            (206, *sorted(_SERVED_TYPES)): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, artifact_id: UUID) -> HttpResponseBase:
        """Downloads the original bytes; takes a single byte range.

        With `If-Range` and another ETag than today's the answer is the whole file.
        """
        artifact = _artifact(request, artifact_id)
        # Only GET has ranges; and only our own strong ETag says that the file is still the same.
        same = request.headers.get("If-Range", etag_of(artifact)) == etag_of(artifact)
        wanted = request.headers.get("Range") if same and request.method == "GET" else None
        try:
            return download(request, artifact, wanted)
        except RangeNotSatisfiable as outside:
            response = Response(outside.problem(), status=outside.status)
            response["Content-Range"] = f"bytes */{artifact.byte_size}"
            return response


def part_type(file: UploadedFile[bytes]) -> str:
    """What the part of a multipart body says of itself; clients call any text `text/plain`.

    Then the file's name knows better, and a stated charset is kept either way.
    """
    stated = file.content_type or ""
    if stated == "text/plain" and store.media_type_of(file.name or "").startswith("text/"):
        stated = store.media_type_of(file.name or "")
    return f"{stated}; charset={file.charset}" if stated and file.charset else stated


def _artifact(request: Request, artifact_id: UUID) -> Artifact:
    asked = ReadQuerySerializer(data=request.query_params.dict())
    asked.is_valid(raise_exception=True)
    return store.get(principal_of(request), artifact_id, **asked.validated_data)


def etag_of(artifact: Artifact) -> str:
    return f'"{artifact.sha256}"'


def download(
    request: HttpRequest | Request, artifact: Artifact, range_header: str | None = None
) -> StreamingHttpResponse:
    """The bytes as an attachment that no browser renders; also for the admin's downloads.

    A file that is not what was stored breaks off before its last bytes; see `CheckedStream`.
    """
    wanted = parse_range(range_header, artifact.byte_size)
    start, end = wanted or (0, artifact.byte_size - 1)
    stream = store.open_bytes(artifact)
    essence = artifact.media_type.partition(";")[0].strip()
    response = StreamingHttpResponse(
        as_served(request, _Blocks(stream, start, end - start + 1)),
        status=HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK,
        content_type=essence if essence in _PLAIN_TYPES else store.UNKNOWN_MEDIA_TYPE,
    )
    if wanted:
        response["Content-Range"] = f"bytes {start}-{end}/{artifact.byte_size}"
    response["Accept-Ranges"] = "bytes"
    response["Content-Length"] = str(end - start + 1)
    disposition = content_disposition_header(as_attachment=True, filename=artifact.filename)
    response["Content-Disposition"] = disposition or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    response["ETag"] = etag_of(artifact)
    return response


class _Blocks(Iterator[bytes]):
    """The bytes a block at a time; closed by the response, also when nobody reads them."""

    def __init__(self, stream: IO[bytes], start: int, length: int) -> None:
        self._stream = stream
        self._left = length
        stream.seek(start)

    def __next__(self) -> bytes:
        block = self._stream.read(min(_BLOCK, self._left)) if self._left > 0 else b""
        if not block:
            self.close()
            raise StopIteration
        self._left -= len(block)
        return block

    def close(self) -> None:
        self._stream.close()
