"""The one place where bytes die.

Safe to run twice, at the same time, and to be killed at any point: the bytes go first and the
row last, so that whatever is interrupted is found again by the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from access.tenancy import operations_session
from artifacts.blobs import blob_store
from artifacts.models import Artifact
from artifacts.store import needed

logger = logging.getLogger(__name__)
_BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """How many artifacts went, how many could not go yet, how many blobs had no row."""

    swept: int = 0
    failed: int = 0
    orphans: int = 0


_beforehand: list[Callable[[], None]] = []


def register_expiry(expire: Callable[[], None]) -> None:
    """Lets a layer above hand over, before each sweep, what its own rows kept until now."""
    _beforehand.append(expire)


def sweep(*, dry_run: bool = False) -> SweepReport:
    """Removes the blob and the row of every expired artifact, and blobs that have no row.

    A blob without a row is removed only after `ORPHAN_GRACE_HOURS`: an ingest writes its source
    before the transaction that names it.
    """
    if not dry_run:
        for expire in _beforehand:
            expire()
    swept, failed = _sweep_expired(dry_run=dry_run)
    orphans, stuck = _sweep_orphans(dry_run=dry_run)
    report = SweepReport(swept=swept, failed=failed + stuck, orphans=orphans)
    logger.info(
        "sweep_finished",
        extra={"swept": report.swept, "failed": report.failed, "orphans": report.orphans},
    )
    return report


def _sweep_expired(*, dry_run: bool) -> tuple[int, int]:
    if dry_run:
        with operations_session():
            return Artifact.objects.expired().exclude(needed()).count(), 0
    swept, failed = 0, set[UUID]()
    while True:
        with operations_session(), transaction.atomic():
            # Locked rows belong to a sweep that is running now; skipping them is what makes two
            # at once safe.
            due = list(
                Artifact.objects.expired()
                .exclude(pk__in=failed)
                # Whatever its time says: what a document stands on stays.
                .exclude(needed())
                .select_for_update(skip_locked=True)
                .order_by("expires_at")[:_BATCH]
            )
            gone = []
            for artifact in due:
                try:
                    blob_store().delete(artifact.storage_key)
                except OSError as error:
                    failed.add(artifact.pk)
                    logger.warning(
                        "sweep_failed",
                        extra={"artifact_id": str(artifact.pk), "error": type(error).__name__},
                    )
                else:
                    gone.append(artifact.pk)
            Artifact.objects.filter(pk__in=gone).delete()
            swept += len(gone)
        if len(due) < _BATCH:
            return swept, len(failed)


def _sweep_orphans(*, dry_run: bool) -> tuple[int, int]:
    before = timezone.now() - timedelta(hours=settings.ORPHAN_GRACE_HOURS)
    blobs, batch = blob_store(), list[str]()
    gone = failed = 0

    def remove_unknown() -> None:
        nonlocal gone, failed
        with operations_session():
            known = set(
                Artifact.objects.filter(storage_key__in=batch).values_list("storage_key", flat=True)
            )
        for key in batch:
            if key in known:
                continue
            try:
                if not dry_run:
                    blobs.delete(key)
            except OSError as error:
                failed += 1
                logger.warning("sweep_failed", extra={"key": key, "error": type(error).__name__})
            else:
                gone += 1
        batch.clear()

    for key, written in blobs.listing():
        if written < before:
            batch.append(key)
        if len(batch) == _BATCH:
            remove_unknown()
    if batch:
        remove_unknown()
    return gone, failed
