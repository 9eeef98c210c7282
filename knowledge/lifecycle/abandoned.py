"""Unfinished versions that nobody came back for."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models.functions import Now

from access.tenancy import operations_session
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import lock_document
from knowledge.models import UnfinishedVersion

logger = logging.getLogger(__name__)


def discard_abandoned(after: timedelta) -> int:
    """Discards every version whose lease ran out that long ago; the sweeper takes their bytes.

    Returns how many. Each goes in a transaction of its own, under its document's lock.
    """
    with operations_session():
        candidates = list(
            UnfinishedVersion.objects.filter(lease_until__lt=Now() - after).values_list(
                "document_id", flat=True
            )
        )
    discarded = 0
    for document_id in candidates:
        with operations_session():
            lock_document(document_id)
            found = UnfinishedVersion.objects.filter(
                document_id=document_id, lease_until__lt=Now() - after
            ).first()
            if found is None:  # somebody came back
                continue
            leftovers.discard(found, None)
            discarded += 1
        logger.info("unfinished_version_discarded", extra={"document_id": str(document_id)})
    return discarded
