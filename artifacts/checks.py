"""System checks of the storage: whether it can be used, and whether what is deleted goes."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004

from artifacts.errors import StorageUnavailable


@register("storage", deploy=True)
def bucket_can_be_used(**_given: Any) -> list[CheckMessage]:
    """Asks the bucket, so it is part of `check --deploy` alone and of no start."""
    if settings.ARTIFACT_STORAGE != "s3":
        return []
    from artifacts.s3 import S3BlobStore  # noqa: PLC0415 - an extra

    try:
        versioned = S3BlobStore().keeps_deleted()
    except StorageUnavailable as error:
        return [
            Error(
                f"The bucket cannot be asked about itself ({error.reason}).",
                hint="See ARTIFACT_S3_* in .env.example, and docs/storage.md for what its keys"
                " must allow.",
                id="artifacts.E001",
            )
        ]
    if versioned:
        return [
            Warning(
                "The bucket keeps versions, so what is deleted is not gone from it.",
                hint="Use a bucket that never had versioning, or a rule that ends old versions.",
                id="artifacts.W001",
            )
        ]
    return []
