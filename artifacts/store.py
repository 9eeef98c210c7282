"""Putting, reading and expiring artifacts: the front door to bytes."""

from __future__ import annotations

import hashlib
import io
import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Final, cast
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from access.clock import now
from access.errors import NotFound
from access.idempotency import forget
from access.principal import Principal
from access.tenancy import tenant_session
from artifacts.blobs import blob_store
from artifacts.errors import ChecksumMismatch, InvalidUpload, RangeNotSatisfiable, UploadTooLarge
from artifacts.integrity import CheckedStream
from artifacts.models import Artifact, ArtifactOrigin, SourceDescriptor
from artifacts.quota import require_room

FILENAME_LIMIT = 255
ATTRIBUTION_LIMIT = 1_000
UNKNOWN_MEDIA_TYPE = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]{1,100}/[\w!#$&^.+-]{1,100}(?:\s*;[^\x00-\x1f\x7f]{0,50})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BLOCK = 1 << 20
LARGEST_PART: Final = 32 * 1024

ReadRule = Callable[[Principal, str | None], Q]
_read_rules: dict[ArtifactOrigin, ReadRule] = {}


def register_read_rule(origin: ArtifactOrigin, rule: ReadRule) -> None:
    """Lets a layer above say who may read the artifacts of an origin that it owns.

    The rule gives the condition, in SQL, under which a principal may read one on behalf of a
    project, or of none.
    """
    _read_rules[origin] = rule


_shared_rules: list[ReadRule] = []


def register_shared_rule(rule: ReadRule) -> None:
    """Lets a layer above say which artifacts others may read besides those who could anyway."""
    _shared_rules.append(rule)


KeepRule = Callable[[], Q]
_keep_rules: list[KeepRule] = []


def register_keep_rule(rule: KeepRule) -> None:
    """Lets a layer above say, in SQL, which artifacts it needs, whatever their time."""
    _keep_rules.append(rule)


def needed() -> Q:
    """The condition under which no artifact may be swept; the sweeper asks it each time."""
    condition = Q(pk__in=[])
    for rule in _keep_rules:
        condition |= rule()
    return condition


def put(
    principal: Principal,
    content: IO[bytes],
    *,
    filename: str,
    media_type: str = "",
    attribution: str = "",
) -> Artifact:
    """Stores a file for a principal; it lives `ARTIFACT_TTL_DAYS` unless something names it.

    Raises `InvalidUpload`, `UploadTooLarge` and `UploadQuotaExceeded`.
    """
    with putting(
        principal,
        content,
        filename=filename,
        media_type=media_type,
        attribution=attribution,
        expires_at=time_to_live(),
    ) as artifact:
        require_room(principal.tenant_id)
        return artifact


def time_to_live() -> datetime:
    """When an artifact that is made now goes, unless something comes to name it."""
    return now() + timedelta(days=settings.ARTIFACT_TTL_DAYS)


@contextmanager
def putting(
    principal: Principal,
    content: IO[bytes],
    *,
    filename: str,
    media_type: str = "",
    attribution: str = "",
    origin: ArtifactOrigin = ArtifactOrigin.UPLOAD,
    expires_at: datetime | None = None,
    limited: bool = True,
) -> Iterator[Artifact]:
    """Stores a file, and gives its row in the transaction that makes it.

    It may have `MAX_UPLOAD_BYTES`, unless it is not `limited`. The caller may write rows of its own
    that name it; when that fails for certain, the bytes are taken back with the row.
    """
    told = checked_description(filename, media_type, attribution)
    measured = _Measured(content, settings.MAX_UPLOAD_BYTES if limited else None)
    blobs = blob_store()
    key = blobs.put(cast("IO[bytes]", measured))
    try:
        with tenant_session(principal.tenant_id):
            yield Artifact.objects.create(
                tenant_id=principal.tenant_id,
                principal_id=principal.principal_id,
                origin=origin,
                media_type=_media_type(told),
                filename=told.filename,
                attribution=told.attribution,
                sha256=measured.sha256,
                byte_size=measured.size,
                storage_key=key,
                expires_at=expires_at,
            )
    except (OperationalError, InterfaceError):
        # Whether the row was committed is unknown; if it was not, the sweeper removes the bytes.
        raise
    except BaseException:
        blobs.delete(key)
        raise


def get(principal: Principal, artifact_id: UUID, *, current_scope: str | None = None) -> Artifact:
    """The artifact, when the principal may read it; `NotFound` when not or when expired."""
    with tenant_session(principal.tenant_id):
        there = (
            Artifact.objects.filter(id=artifact_id)
            .exclude(expires_at__lte=Now())
            .select_related("descriptor")
        )
        artifact = there.first()
        # One's own upload needs no look at what else may be read.
        if artifact is not None and (
            artifact.principal_id != principal.principal_id or artifact.origin in _read_rules
        ):
            artifact = there.filter(_readable_by(principal, current_scope)).first()
    if artifact is None:
        raise NotFound
    return artifact


def readable(principal: Principal, *, current_scope: str | None = None) -> QuerySet[Artifact]:
    """What the principal may read now, in the caller's session."""
    return Artifact.objects.exclude(expires_at__lte=Now()).filter(
        _readable_by(principal, current_scope)
    )


def keep_for_good(artifact_ids: Iterable[UUID]) -> list[Artifact]:
    """Takes the time off artifacts whose time is not up, in the caller's transaction.

    The sweeper and whoever else would keep or expire one of them takes turns with the caller.
    Returns those that are there.
    """
    locked = list(
        Artifact.objects.exclude(expires_at__lte=Now())
        .filter(pk__in=list(artifact_ids))
        .order_by("pk")
        .select_for_update()
    )
    due = [one.pk for one in locked if one.expires_at is not None]
    Artifact.objects.filter(pk__in=due).update(expires_at=None)
    return locked


def media_type_of(filename: str) -> str:
    """What a file's name says of its media type."""
    if filename.lower().endswith((".md", ".markdown")):
        return "text/markdown"
    return mimetypes.guess_type(filename)[0] or UNKNOWN_MEDIA_TYPE


def read_part(
    principal: Principal,
    artifact_id: UUID,
    sha256: str,
    *,
    offset: int = 0,
    length: int = LARGEST_PART,
    current_scope: str | None = None,
) -> tuple[Artifact, bytes]:
    """The artifact and some of its bytes, when the caller may read it and knows its hash.

    `NotFound` for anything else, the hash of another file included. Raises `RangeNotSatisfiable`
    for what begins after the end, and `BlobMissing`.
    """
    artifact = get(principal, artifact_id, current_scope=current_scope)
    if artifact.sha256 != sha256:
        raise NotFound
    if offset > artifact.byte_size:
        raise RangeNotSatisfiable(size=artifact.byte_size)
    with open_bytes(artifact) as stream:
        stream.seek(offset)
        return artifact, stream.read(min(length, LARGEST_PART))


def open_bytes(artifact: Artifact) -> IO[bytes]:
    """A seekable stream of the original bytes, checked while it is read; see `CheckedStream`.

    Raises `BlobMissing` and `StorageUnavailable`.
    """
    return cast("IO[bytes]", CheckedStream(blob_store().open(artifact.storage_key), artifact))


def read_bytes(artifact: Artifact) -> bytes:
    """All of them; also raises `BlobDamaged`."""
    with open_bytes(artifact) as stream:
        return stream.read()


def store_blob(content: bytes) -> str:
    """Writes bytes ahead of the transaction that will name them; see `discard_blob`."""
    return blob_store().put(io.BytesIO(content))


def store_checked(content: IO[bytes], *, sha256: str) -> str:
    """Writes a stream ahead of the transaction that will name it; see `discard_blob`.

    Raises `ChecksumMismatch`, and keeps nothing, when it is not of that hash.
    """
    measured = _Measured(content, None)
    key = blob_store().put(cast("IO[bytes]", measured))
    if measured.sha256 != sha256:
        blob_store().delete(key)
        raise ChecksumMismatch
    return key


def discard_blob(key: str) -> None:
    """Takes back a blob whose transaction failed."""
    blob_store().delete(key)


def expire(artifact_ids: Sequence[UUID]) -> int:
    """Hands artifacts to the sweeper, by the database's clock, which is the sweeper's too.

    Their descriptors go at once: of what is expired nothing is to be cited. The caller has bound
    the session. Returns how many.
    """
    SourceDescriptor.objects.filter(artifact__in=artifact_ids).delete()
    forget(artifact_ids)
    return Artifact.objects.filter(id__in=artifact_ids).update(expires_at=Now())


def expire_now(artifact: Artifact) -> None:
    """Hands one artifact of the caller's own to the sweeper."""
    with tenant_session(artifact.tenant_id):
        expire([artifact.pk])


def _readable_by(principal: Principal, current_scope: str | None) -> Q:
    own = Q(principal_id=principal.principal_id) & ~Q(origin__in=list(_read_rules))
    for origin, rule in _read_rules.items():
        own |= Q(origin=origin) & rule(principal, current_scope)
    for shared in _shared_rules:
        own |= shared(principal, current_scope)
    return own


@dataclass(frozen=True, slots=True)
class Description:
    """What whoever uploads a file says of it; an empty media type is left to its name."""

    filename: str
    media_type: str
    attribution: str


def checked_description(filename: str, media_type: str, attribution: str) -> Description:
    """What was said of a file, when it can be kept; raises `InvalidUpload`."""
    media_type = media_type.strip()
    if media_type and not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidUpload("The media type must look like 'text/markdown'.")
    return Description(
        filename=_checked(filename, "file name", FILENAME_LIMIT, required=True),
        media_type=media_type.lower(),
        attribution=_checked(attribution, "attribution", ATTRIBUTION_LIMIT),
    )


def _checked(value: str, what: str, limit: int, *, required: bool = False) -> str:
    if _CONTROL.search(value):
        raise InvalidUpload(f"The {what} holds a control character.")
    value = value.strip()
    if required and not value:
        raise InvalidUpload(f"The {what} is empty.")
    if len(value) > limit:
        raise InvalidUpload(f"The {what} is longer than {limit} characters.")
    return value


def _media_type(told: Description) -> str:
    if told.media_type and not told.media_type.startswith(UNKNOWN_MEDIA_TYPE):
        return told.media_type
    return media_type_of(told.filename)


class _Measured(io.RawIOBase):
    """A stream that hashes and counts what is read through it, up to a limit of bytes, if any."""

    def __init__(self, inner: IO[bytes], limit: int | None) -> None:
        self._inner = inner
        self._limit = limit
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = size if size >= 0 else _BLOCK
        block = self._inner.read(wanted)
        # As much as was asked for, unless it is the end: a bucket takes no small part in between.
        while block and len(block) < wanted and (more := self._inner.read(wanted - len(block))):
            block += more
        self._hash.update(block)
        self.size += len(block)
        if self._limit is not None and self.size > self._limit:
            raise UploadTooLarge(f"A file may have at most {self._limit:,} bytes.")
        return block
