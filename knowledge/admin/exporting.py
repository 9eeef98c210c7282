"""A document to take along: its originals, its passages and what is known of both, in one file."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from typing import IO, Any, Final
from wsgiref.util import FileWrapper

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import F
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.text import get_valid_filename

from access.principal import Principal
from access.streaming import streamed
from artifacts import store as artifacts
from artifacts.errors import BlobMissing
from knowledge.models import Chunk, Document, DocumentVersion, KnowledgeEvent

_IN_MEMORY: Final = 4 * 1024**2
_BLOCK: Final = 64 * 1024
_NAME_LIMIT: Final = 80


def exported(
    request: HttpRequest, document: Document, operator: Principal
) -> StreamingHttpResponse:
    """A zip of `document.json`, `passages.jsonl` and `originals/`, as an attachment.

    Passages are those of every version and chunk set, quarantined ones included, for an operator
    may read them. The event says who took it along.
    """
    versions = list(
        DocumentVersion.objects.filter(document=document)
        .select_related("source")
        .prefetch_related("chunk_sets")
        .order_by("version")
    )
    # What does not fit in memory goes to a file that nobody else can open, and that closing removes.
    packed = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        missing = _pack_originals(archive, versions)
        described = {**_described(document, versions), "originals_missing": missing}
        archive.writestr("document.json", _json(described, indent=2))
        with archive.open("passages.jsonl", "w", force_zip64=True) as passages:
            for passage in _passages(document):
                passages.write(_json(passage).encode() + b"\n")
    KnowledgeEvent.objects.create(
        tenant_id=document.tenant_id,
        name=KnowledgeEvent.EXPORTED,
        document_id=document.pk,
        actor=operator.principal_id,
        surface=operator.surface,
        data={"versions": len(versions)},
    )
    return zip_response(request, packed, f"{document.pk}.zip")


def zip_response(request: HttpRequest, packed: IO[bytes], filename: str) -> StreamingHttpResponse:
    """What was just packed, as an attachment."""
    size = packed.seek(0, io.SEEK_END)
    packed.seek(0)
    pieces = FileWrapper(packed, _BLOCK)
    response = streamed(request, pieces, filename=filename, content_type="application/zip")
    response["Content-Length"] = str(size)
    return response


def _pack_originals(archive: zipfile.ZipFile, versions: list[DocumentVersion]) -> list[int]:
    """Puts each version's bytes in. Returns the versions whose bytes are not there."""
    missing = []
    for version in versions:
        try:
            with (
                artifacts.open_bytes(version.source) as original,
                archive.open(_original_name(version), "w", force_zip64=True) as into,
            ):
                shutil.copyfileobj(original, into)
        except BlobMissing:
            missing.append(version.version)
    return missing


def _original_name(version: DocumentVersion) -> str:
    """Whatever its uploader called it, a name that stays inside of its folder."""
    safe = get_valid_filename(f"v-{version.source.filename}").removeprefix("v-")
    return f"originals/v{version.version}/{safe[-_NAME_LIMIT:].lstrip('.') or 'original'}"


def _described(document: Document, versions: list[DocumentVersion]) -> dict[str, Any]:
    return {
        "document_id": document.pk,
        "tenant_id": document.tenant_id,
        "title": document.title,
        "visibility": document.space.visibility,
        "project_scope": document.space.project_scope,
        "principal_id": document.space.principal_id,
        "sensitivity": document.space.sensitivity,
        "ingested_by_principal_id": document.ingested_by_principal_id,
        "legal_hold": document.legal_hold,
        "source": {"type": document.source_type, "id": document.source_id},
        "created_at": document.created_at,
        "versions": [
            {
                "version": version.version,
                "source_version": version.source_version,
                "media_type": version.media_type,
                "language": version.language,
                "doc_date": version.doc_date,
                "authority": version.authority,
                "page_count": version.page_count,
                "truncated": version.truncated,
                "warnings": version.warnings,
                "ingested_at": version.ingested_at,
                "superseded_at": version.superseded_at,
                "original": {
                    "path": _original_name(version),
                    "filename": version.source.filename,
                    "sha256": version.source.sha256,
                    "byte_size": version.source.byte_size,
                },
                "chunk_sets": [
                    {
                        "chunk_set_id": chunk_set.pk,
                        "chunker_version": chunk_set.chunker_version,
                        "state": chunk_set.state,
                        "chunks": chunk_set.chunk_count,
                        "quarantined": chunk_set.quarantined_count,
                        "rejected": chunk_set.rejected_count,
                        "flagged": chunk_set.flagged_count,
                    }
                    for chunk_set in version.chunk_sets.all()
                ],
            }
            for version in versions
        ],
    }


def _passages(document: Document) -> Iterator[dict[str, Any]]:
    fields = (
        *("chunk_id", "chunk_set_id", "ordinal", "heading_path", "text", "start", "end"),
        *("line_start", "line_end", "page_start", "page_end", "tokens", "content_sha256"),
        *("verdict", "contains_instruction_like_text"),
    )
    rows = Chunk.objects.filter(chunk_set__version__document=document)
    ordered = rows.order_by("chunk_set__version__version", "chunk_set_id", "ordinal")
    named = ordered.annotate(version=F("chunk_set__version__version"))
    yield from named.values("version", *fields).iterator(chunk_size=500)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=indent)
