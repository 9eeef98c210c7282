"""Bytes, what describes them, and the journals by which they came."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

import rfc8785
from django.db.models import Q
from django.db.models.functions import Now

from artifacts.blobs import blob_store
from artifacts.descriptors import canonical_of, descriptor_id
from artifacts.errors import BlobDamaged, BlobMissing
from artifacts.models import Artifact, SourceDescriptor, Upload, UploadState
from knowledge.lifecycle.corpus.findings import Check, Problem

_BLOCK: Final = 1 << 20
_PIECES_AT_ONCE: Final = 32


def _blob(artifact: Artifact) -> Iterator[Problem]:
    try:
        stream = blob_store().open(artifact.storage_key)
    except BlobMissing:
        yield Problem(problem="bytes missing")
        return
    digest, size = hashlib.sha256(), 0
    try:
        with stream:
            # One byte more than there should be says that there are more.
            while size <= artifact.byte_size and (block := stream.read(_BLOCK)):
                digest.update(block)
                size += len(block)
    except (BlobDamaged, BlobMissing):
        yield Problem(problem="bytes changed while they were read")
        return
    if size != artifact.byte_size:
        yield Problem(problem="bytes of another length")
    elif digest.hexdigest() != artifact.sha256:
        yield Problem(problem="bytes of another hash")


def _descriptor(descriptor: SourceDescriptor) -> Iterator[Problem]:
    said = descriptor.canonical.encode()
    if descriptor_id(said) != descriptor.descriptor_id:
        yield Problem(problem="id is not its hash")
    if not is_canonical(descriptor.canonical):
        yield Problem(problem="not canonical JSON")
    artifact = Artifact.objects.filter(pk=descriptor.artifact_id).first()
    if artifact is None:
        yield Problem(problem="artifact missing")
    elif canonical_of(artifact) != said or artifact.tenant_id != descriptor.tenant_id:
        yield Problem(problem="says something else than its artifact", of=str(artifact.pk))


def is_canonical(text: str) -> bool:
    """Whether a JSON text has the one spelling of RFC 8785."""
    try:
        value: Any = json.loads(text)
        return rfc8785.dumps(value) == text.encode()
    except (ValueError, rfc8785.CanonicalizationError):
        return False


def _journal(upload: Upload) -> Iterator[Problem]:
    yield from _pieces(upload)
    if upload.state != UploadState.COMPLETE:
        return
    # An artifact lives and dies by its own time; what there is of it must be what was sent.
    artifact = Artifact.objects.filter(pk__in=[upload.artifact_id]).first()
    if artifact is None:
        return
    if artifact.sha256 != upload.sha256 or artifact.byte_size != upload.received:
        yield Problem(problem="another file than its artifact", of=str(artifact.pk))
    if artifact.tenant_id != upload.tenant_id or artifact.principal_id != upload.principal_id:
        yield Problem(problem="somebody else's artifact", of=str(artifact.pk))


def _pieces(upload: Upload) -> Iterator[Problem]:
    if upload.file_path:  # read from the workspace, it came in none
        return
    arriving = upload.state != UploadState.COMPLETE
    end, final = 0, False
    for piece in upload.pieces.order_by("offset").iterator(_PIECES_AT_ONCE):
        if piece.offset != end or final:
            yield Problem(problem="pieces do not follow one another", of=str(piece.offset))
        end, final = piece.offset + piece.size, piece.final
        if not arriving:
            continue
        content = bytes(piece.content or b"")
        if len(content) != piece.size or hashlib.sha256(content).hexdigest() != piece.sha256:
            yield Problem(problem="piece of another hash", of=str(piece.offset))
    if end != upload.received or final != (upload.state != UploadState.RECEIVING):
        yield Problem(problem="pieces are not what was received")


CHECKS: Final = (
    Check(
        kind="artifact",
        # What is expired may be gone already: the sweeper takes the bytes first.
        rows=lambda: Artifact.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now())),
        look=_blob,
    ),
    Check(kind="descriptor", rows=SourceDescriptor.objects.all, look=_descriptor),
    Check(kind="upload", rows=Upload.objects.all, look=_journal),
)
