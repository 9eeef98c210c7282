"""What can go wrong with bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from access.errors import Malformed, Unavailable, VerbatimError


class ArtifactError(VerbatimError):
    """The artifact store could not do this."""


class InvalidUpload(ArtifactError, Malformed):
    """The upload is malformed."""

    code = "invalid_upload"


class UploadTooLarge(ArtifactError):
    """The file is larger than this installation takes."""

    code = "upload_too_large"
    status = 413


class ChecksumMismatch(ArtifactError):
    """The bytes are not those that their SHA-256 tells of."""

    code = "checksum_mismatch"
    status = 422


class UploadConflict(ArtifactError):
    """Another call of this upload said something else."""

    code = "upload_conflict"
    status = 409


class UploadOutOfOrder(ArtifactError):
    """The pieces of an upload follow one another without a gap or an overlap."""

    code = "upload_out_of_order"
    status = 409
    own_members: ClassVar[Mapping[str, Any]] = {
        "next_offset": {"type": "integer", "description": "Where the next piece starts."}
    }


class UploadQuotaExceeded(ArtifactError):
    """The tenant has no room for this."""

    code = "upload_quota_exceeded"
    status = 413


class RangeNotSatisfiable(ArtifactError):
    """The range lies outside the file."""

    code = "range_not_satisfiable"
    status = 416


class BlobMissing(ArtifactError):
    """The bytes of this artifact are gone."""

    code = "blob_missing"
    status = 410


class BlobDamaged(ArtifactError):
    """The bytes of this artifact are not those that were stored; an operator has to look."""

    code = "blob_damaged"
    status = 500


class StorageUnavailable(ArtifactError, Unavailable):
    """The storage of files cannot be used right now; try again shortly."""

    code = "storage_unavailable"

    def __init__(self, reason: str = "") -> None:
        super().__init__()
        self.reason = reason


class NoWorkspace(ArtifactError):
    """There is no workspace here whose files could be attached; upload the file instead."""

    code = "no_workspace"
    status = 404


class FileChanged(ArtifactError):
    """The file changed while it was read; nothing was kept of it."""

    code = "file_changed"
    status = 409
