"""How much a tenant may keep of what it uploads, where a limit is set."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from access import audit
from access.clock import now
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission
from artifacts.errors import UploadQuotaExceeded
from artifacts.models import Artifact, ArtifactOrigin, Upload, UploadQuota, UploadState

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('upload quota of ' || %s, 0))"


def require_room(tenant_id: str, more: int = 0) -> None:
    """Raises `UploadQuotaExceeded` when uploads, with so many bytes more, are over the quota.

    In the caller's transaction, which is alone with the tenant's quota until it ends. What is
    expired counts until it is swept, for until then it takes up room.
    """
    quota = quota_of(tenant_id)
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


def quota_of(tenant_id: str) -> int:
    """The tenant's own quota, or that of all; 0 is no limit. The caller has bound the session."""
    own = UploadQuota.objects.filter(tenant_id=tenant_id)
    quota: int | None = own.values_list("quota_bytes", flat=True).first()
    return settings.UPLOAD_QUOTA_BYTES if quota is None else quota


def set_quota(operator: Principal, quota_bytes: int) -> UploadQuota:
    """Gives the operator's tenant a quota of its own. Raises `Forbidden`."""
    operator.require_permission(OperatorPermission.MANAGE)
    with tenant_session(operator.tenant_id):
        quota, _ = UploadQuota.objects.update_or_create(
            tenant_id=operator.tenant_id,
            defaults={
                "quota_bytes": quota_bytes,
                "changed_at": now(),
                "changed_by": operator.principal_id,
            },
        )
        _record(operator, quota_bytes)
    return quota


def drop_quota(operator: Principal) -> None:
    """Lets what holds for all tenants hold for the operator's again. Raises `Forbidden`."""
    operator.require_permission(OperatorPermission.MANAGE)
    with tenant_session(operator.tenant_id):
        UploadQuota.objects.filter(tenant_id=operator.tenant_id).delete()
        _record(operator, None)


def _record(operator: Principal, quota_bytes: int | None) -> None:
    audit.record(
        audit.UPLOAD_QUOTA_CHANGED,
        operator.tenant_id,
        actor=operator.principal_id,
        data={"quota_bytes": quota_bytes},
    )
