"""Files of a folder that the operator chose, attached by naming them instead of by sending them."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError

from access.clock import now
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from artifacts import store
from artifacts.errors import ChecksumMismatch, FileChanged, NoWorkspace, UploadConflict
from artifacts.files import open_inside
from artifacts.models import Upload, UploadState
from artifacts.quota import require_room
from artifacts.uploads import Receipt

logger = logging.getLogger(__name__)


def attach_file(
    principal: Principal,
    request_id: UUID,
    file_path: str,
    sha256: str,
    *,
    filename: str,
    media_type: str = "",
    attribution: str = "",
) -> Receipt:
    """Keeps a file of the workspace, whose SHA-256 the caller has seen, as an artifact.

    The same call again has the same receipt, whatever has become of the file meanwhile; another one
    under its request id is an `UploadConflict`. Raises `NoWorkspace`, `ScopeMissing`, `UnsafePath`,
    `FileMissing`, `FileChanged`, `ChecksumMismatch`, `InvalidUpload` and `UploadQuotaExceeded`;
    after any of them all is as it was.
    """
    root = _workspace_of(principal)
    told = store.checked_description(filename, media_type, attribution)
    asked: dict[str, Any] = {
        "filename": told.filename,
        "media_type": told.media_type,
        "attribution": told.attribution,
        "file_path": file_path,
        "sha256": sha256,
    }
    named: dict[str, Any] = {
        "tenant_id": principal.tenant_id,
        "principal_id": principal.principal_id,
        "request_id": request_id,
    }
    if (done := _done(named, asked)) is not None:
        return done
    with open_inside(root, file_path) as file:
        steady = _Steady(file)
        with tenant_session(principal.tenant_id):
            # Before gigabytes are read for nothing.
            require_room(principal.tenant_id, steady.size)
        try:
            return _keep(principal, steady, named, asked)
        except IntegrityError:
            # Somebody was quicker under this request id.
            if (done := _done(named, asked)) is not None:
                return done
            raise


def _workspace_of(principal: Principal) -> Path:
    root: Path | None = settings.WORKSPACE_ROOT
    tenants = settings.WORKSPACE_TENANTS
    if root is None or (tenants and principal.tenant_id not in tenants):
        raise NoWorkspace
    principal.require(Scope.WRITE)
    return root


def _done(named: dict[str, Any], asked: dict[str, Any]) -> Receipt | None:
    with tenant_session(named["tenant_id"]):
        upload = Upload.objects.filter(**named).first()
    if upload is None:
        return None
    if any(getattr(upload, field) != value for field, value in asked.items()):
        raise UploadConflict("Another file was attached under this request id, or otherwise.")
    return _receipt(upload)


def _keep(
    principal: Principal, steady: _Steady, named: dict[str, Any], asked: dict[str, Any]
) -> Receipt:
    with store.putting(
        principal,
        cast("IO[bytes]", steady),
        filename=asked["filename"],
        media_type=asked["media_type"],
        attribution=asked["attribution"],
        expires_at=store.time_to_live(),
        limited=False,
    ) as artifact:
        steady.require_unchanged()
        if artifact.sha256 != asked["sha256"]:
            raise ChecksumMismatch("Look at the file again: it has another SHA-256.")
        require_room(principal.tenant_id)
        upload = Upload.objects.create(
            **named,
            **asked,
            state=UploadState.COMPLETE,
            received=artifact.byte_size,
            artifact_id=artifact.pk,
            created_at=now(),
        )
    logger.info("file_attached", extra={"artifact_id": str(artifact.pk)})
    return _receipt(upload)


def _receipt(upload: Upload) -> Receipt:
    return Receipt(
        request_id=upload.request_id,
        offset=0,
        received=upload.received,
        state=UploadState.COMPLETE,
        artifact_id=upload.artifact_id,
        sha256=upload.sha256,
    )


class _Steady(io.RawIOBase):
    """A file that must not change while it is read. Raises `FileChanged`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._before = self._look()
        self._left = self.size

    @property
    def size(self) -> int:
        return self._before.st_size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        # One byte more than there should be: a file that grows is never read for ever.
        most = self._left + 1
        block = self._file.read(most if size < 0 else min(size, most))
        self._left -= len(block)
        if self._left < 0:
            raise FileChanged
        return block

    def require_unchanged(self) -> None:
        """A file that another took the place of has lost its name, which is a change too."""
        told = ("st_dev", "st_ino", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns")
        after = self._look()
        if self._left or any(getattr(self._before, name) != getattr(after, name) for name in told):
            raise FileChanged

    def _look(self) -> os.stat_result:
        return os.fstat(self._file.fileno())
