"""Files that arrive in pieces: a journal that survives whatever dies, and the file when it is whole.

A piece is acknowledged when it is committed, never before, so none that was acknowledged is lost.
The same call again has the same receipt; one that says anything else changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.db.models.functions import Now

from access.clock import now
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from artifacts import store
from artifacts.errors import ChecksumMismatch, InvalidUpload, UploadConflict, UploadOutOfOrder
from artifacts.models import Upload, UploadPiece, UploadState
from artifacts.quota import require_room

logger = logging.getLogger(__name__)
LARGEST_PIECE: Final = 48 * 1024
_PIECES_AT_ONCE: Final = 32
_EXPIRED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes of a file from an offset on, with their SHA-256; the `final` one may be empty."""

    offset: int
    content: bytes
    sha256: str
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a piece. `received` is how much of the file there was with it.

    `artifact_id` and `sha256`, of the whole file, are those of the final piece.
    """

    request_id: UUID
    offset: int
    received: int
    state: UploadState
    artifact_id: UUID | None = None
    sha256: str | None = None


def attach(
    principal: Principal,
    request_id: UUID,
    piece: Piece,
    *,
    filename: str,
    media_type: str = "",
    attribution: str = "",
) -> Receipt:
    """Takes the next piece of a file, or tells again what became of one; the final makes the file.

    Raises `ChecksumMismatch`, `InvalidUpload`, `UploadConflict`, `UploadOutOfOrder` (with
    `next_offset`) and `UploadQuotaExceeded`; after any of them all is as it was.
    """
    _require_sound(piece)
    told = store.checked_description(filename, media_type, attribution)
    with tenant_session(principal.tenant_id):
        upload = _journal(principal, request_id, told)
        _accept(upload, piece, told)
    if piece.final:
        upload = _completed(upload, principal)
    return Receipt(
        request_id=request_id,
        offset=piece.offset,
        received=piece.offset + len(piece.content),
        state=UploadState.COMPLETE if piece.final else UploadState.RECEIVING,
        artifact_id=upload.artifact_id if piece.final else None,
        sha256=upload.sha256 if piece.final else None,
    )


def expire_uploads(*, dry_run: bool) -> int:
    """Drops the journals that were never finished and that nobody came back for. Returns how many.

    What the sweeper asks before each sweep. A journal that is being written to is left alone.
    """
    if dry_run:
        with operations_session():
            return Upload.objects.filter(expires_at__lte=Now()).count()
    dropped = 0
    while True:
        with operations_session():
            due = Upload.objects.filter(expires_at__lte=Now()).order_by("expires_at")
            found = _drop(due[:_EXPIRED_AT_ONCE])
        dropped += found
        if found < _EXPIRED_AT_ONCE:
            return dropped


def cancel(chosen: QuerySet[Upload]) -> int:
    """Drops those of an operator's choice that are unfinished, now. Returns how many.

    In the operator's session. One that is being written to this moment is left alone.
    """
    return _drop(chosen.exclude(state=UploadState.COMPLETE))


def _drop(unfinished: QuerySet[Upload]) -> int:
    found = list(unfinished.select_for_update(skip_locked=True).values_list("pk", flat=True))
    UploadPiece.objects.filter(upload__in=found).delete()
    Upload.objects.filter(pk__in=found).delete()
    return len(found)


# --- the journal -------------------------------------------------------------------------------


def _require_sound(piece: Piece) -> None:
    if len(piece.content) > LARGEST_PIECE:
        raise InvalidUpload(f"A piece may have at most {LARGEST_PIECE:,} bytes.")
    if not piece.content and not piece.final:
        raise InvalidUpload("Only the final piece may be empty.")
    if hashlib.sha256(piece.content).hexdigest() != piece.sha256:
        raise ChecksumMismatch("Send the piece again: these bytes have another SHA-256.")


def _journal(principal: Principal, request_id: UUID, told: store.Description) -> Upload:
    """The upload's row, made when there is none, and locked: its writers take turns."""
    named = {
        "tenant_id": principal.tenant_id,
        "principal_id": principal.principal_id,
        "request_id": request_id,
    }
    while True:
        upload = Upload.objects.select_for_update().filter(**named).first()
        if upload is not None:
            return upload
        # Of two at once the later waits here for the earlier.
        fresh = Upload(
            **named,
            filename=told.filename,
            media_type=told.media_type,
            attribution=told.attribution,
            state=UploadState.RECEIVING,
            expires_at=_expiry(),
        )
        Upload.objects.bulk_create([fresh], ignore_conflicts=True)


def _accept(upload: Upload, piece: Piece, told: store.Description) -> None:
    """Adds the piece to the locked journal, unless it is there already."""
    if told != store.Description(upload.filename, upload.media_type, upload.attribution):
        raise UploadConflict("This upload began with another file name, media type or attribution.")
    known = upload.pieces.filter(offset=piece.offset).defer("content").first()
    if known is not None:
        same = (known.sha256, known.final) == (piece.sha256, piece.final)
        if same and known.size == len(piece.content):
            return
        raise UploadConflict("This upload has another piece at this offset.")
    if upload.state != UploadState.RECEIVING:
        raise UploadConflict("This upload has had its final piece.")
    if piece.offset != upload.received:
        raise UploadOutOfOrder(
            f"The next piece starts at {upload.received}.", next_offset=upload.received
        )
    require_room(upload.tenant_id, len(piece.content))
    UploadPiece.objects.create(
        upload=upload,
        tenant_id=upload.tenant_id,
        offset=piece.offset,
        size=len(piece.content),
        sha256=piece.sha256,
        final=piece.final,
        content=piece.content,
    )
    upload.received += len(piece.content)
    upload.state = UploadState.ASSEMBLING if piece.final else UploadState.RECEIVING
    upload.expires_at = _expiry()
    upload.save(update_fields=["received", "state", "expires_at"])


def _expiry() -> datetime:
    return now() + timedelta(days=settings.UPLOAD_DAYS)


# --- the file ----------------------------------------------------------------------------------


def _completed(upload: Upload, principal: Principal) -> Upload:
    """The upload with its artifact, made now unless it is there.

    In a transaction after that of the final piece: whoever dies here leaves all pieces, and the
    final one sent again goes on from there.
    """
    with tenant_session(principal.tenant_id):
        upload = Upload.objects.select_for_update().get(pk=upload.pk)
        if upload.state == UploadState.COMPLETE:
            return upload
        pieces = upload.pieces.order_by("offset").values_list("content", flat=True)
        joined = _Joined(piece or b"" for piece in pieces.iterator(_PIECES_AT_ONCE))
        with store.putting(
            principal,
            io.BufferedReader(joined),
            filename=upload.filename,
            media_type=upload.media_type,
            attribution=upload.attribution,
            expires_at=store.time_to_live(),
            limited=False,
        ) as artifact:
            if artifact.byte_size != upload.received:
                raise RuntimeError("the pieces of an upload do not add up")
            upload.state = UploadState.COMPLETE
            upload.artifact_id, upload.sha256 = artifact.pk, artifact.sha256
            upload.expires_at = None
            upload.save(update_fields=["state", "artifact_id", "sha256", "expires_at"])
            upload.pieces.update(content=None)
    logger.info("upload_completed", extra={"artifact_id": str(upload.artifact_id)})
    return upload


class _Joined(io.RawIOBase):
    """A stream of pieces, of which it holds one at a time."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._pieces: Iterator[bytes | memoryview] = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        into = memoryview(cast("bytearray", buffer))
        while not self._left:
            following = next(self._pieces, None)
            if following is None:
                return 0
            self._left = memoryview(following)
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
