"""The one trace of a refusal: a number per tenant, day and reason."""

from __future__ import annotations

import logging

from django.db import connection
from django.utils import timezone

from access.tenancy import tenant_session

logger = logging.getLogger(__name__)


def count_refusal(tenant_id: str, reason: str) -> None:
    """Runs in a transaction of its own, after the refused ingest has left nothing."""
    with tenant_session(tenant_id), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO knowledge_refusalcount AS r (tenant_id, day, reason, count)"
            " VALUES (%s, %s, %s, 1)"
            " ON CONFLICT (tenant_id, day, reason) DO UPDATE SET count = r.count + 1",
            [tenant_id, timezone.now().date(), reason],
        )
    logger.info("ingest_refused", extra={"reason": reason, "tenant_id": tenant_id})
