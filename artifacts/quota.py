"""How much a tenant may keep of what it uploads, where this installation sets a limit."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from artifacts.errors import UploadQuotaExceeded
from artifacts.models import Artifact, ArtifactOrigin, Upload, UploadState

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('upload quota of ' || %s, 0))"


def require_room(tenant_id: str, more: int = 0) -> None:
    """Raises `UploadQuotaExceeded` when uploads, with so many bytes more, are over the quota.

    In the caller's transaction, which is alone with the tenant's quota until it ends. What is
    expired counts until it is swept, for until then it takes up room.
    """
    quota = settings.UPLOAD_QUOTA_BYTES
    if not quota:
        return
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [tenant_id])
    files = Artifact.objects.filter(tenant_id=tenant_id, origin=ArtifactOrigin.UPLOAD)
    arriving = Upload.objects.filter(tenant_id=tenant_id).exclude(state=UploadState.COMPLETE)
    kept = files.aggregate(sum=Sum("byte_size", default=0))["sum"]
    kept += arriving.aggregate(sum=Sum("received", default=0))["sum"]
    if kept + more > quota:
        raise UploadQuotaExceeded(
            f"The uploads of a tenant may take up {quota:,} bytes. Wait until some have expired, or"
            " ask the operator for more."
        )
