"""The one place where bytes die.

Safe to run twice, at the same time, and to be killed at any point: the bytes go first and the
row last, so that whatever is interrupted is found again by the next run. What is due, and how long
ago anything was, is the database's to say: the clock of the host that sweeps is asked nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Final, Protocol
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from access.clock import now
from access.tenancy import operations_session
from artifacts.blobs import blob_store
from artifacts.errors import StorageUnavailable
from artifacts.models import Artifact, SweepRun
from artifacts.store import needed

logger = logging.getLogger(__name__)
_BATCH = 200
# So many failures without a success in between: the storage is away, and the next run tries again.
_GIVE_UP_AFTER: Final = 20
_KEPT_RUNS: Final = timedelta(days=30)
_Remove = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a pass did: artifacts and blobs without a row that went, and what could not go yet.

    `expired` counts the rows, such as unfinished uploads, that let go of their bytes because of
    this pass. Of a dry run the counts are what a pass would try now, and `failed` those among them
    that could not go the last time.
    """

    swept: int = 0
    failed: int = 0
    orphans: int = 0
    expired: int = 0


class Expiry(Protocol):
    """What a layer above lets go of before each sweep."""

    def __call__(self, *, dry_run: bool) -> int:
        """Hands over what its own rows kept until now, or only counts it. Returns how many."""
        ...


_beforehand: list[tuple[Expiry, bool]] = []


def register_expiry(expire: Expiry, *, to_sweep: bool = True) -> None:
    """Lets something else hand over, before each sweep, what its own rows kept until now.

    `to_sweep`: that is artifacts, which this pass removes; if not, what it kept goes with its rows.
    """
    _beforehand.append((expire, to_sweep))


def sweep(*, dry_run: bool = False, by: str = "sweeper") -> SweepReport:
    """Removes the blob and the row of every expired artifact, and blobs that have no row.

    A blob without a row is removed only after `ORPHAN_GRACE_HOURS`: an ingest writes its source
    before the transaction that names it. What the storage does not let go is on record at its
    artifact and is tried again by every run. The run is on record too, unless it is a dry one.
    """
    if dry_run:
        return _forecast()
    run = _begin(by)
    expired = sum(expire(dry_run=False) for expire, _ in _beforehand)
    swept, failed = _sweep_expired()
    orphans, stuck, error = _sweep_orphans()
    report = SweepReport(swept=swept, failed=failed + stuck, orphans=orphans, expired=expired)
    _finish(run, report, error)
    logger.info(
        "sweep_finished",
        extra={
            "swept": report.swept,
            "failed": report.failed,
            "orphans": report.orphans,
            "expired": report.expired,
        },
    )
    return report


# --- expired artifacts -----------------------------------------------------------------------


def _sweep_expired() -> tuple[int, int]:
    blobs = blob_store()
    swept, failed = 0, set[UUID]()
    in_a_row = 0
    while True:
        with operations_session(), transaction.atomic():
            # Locked rows belong to a sweep that is running now; skipping them is what makes two
            # at once safe. Those that have failed before come last.
            locked = list(
                Artifact.objects.expired()
                .exclude(pk__in=failed)
                # Whatever its time says: what a document stands on stays.
                .exclude(needed())
                .select_for_update(skip_locked=True)
                .order_by("sweep_attempts", "expires_at")[:_BATCH]
            )
            gone = []
            for artifact in _still_due(locked):
                error = _removed(blobs.delete, artifact.storage_key, artifact_id=str(artifact.pk))
                if error:
                    failed.add(artifact.pk)
                    in_a_row += 1
                    Artifact.objects.filter(pk=artifact.pk).update(
                        sweep_attempts=F("sweep_attempts") + 1,
                        sweep_error=error,
                        sweep_failed_at=Now(),
                    )
                else:
                    gone.append(artifact.pk)
                    in_a_row = 0
                if in_a_row == _GIVE_UP_AFTER:
                    break
            Artifact.objects.filter(pk__in=gone).delete()
            swept += len(gone)
        if len(locked) < _BATCH or in_a_row == _GIVE_UP_AFTER:
            return swept, len(failed)


def _still_due(locked: Iterable[Artifact]) -> list[Artifact]:
    """Those that nothing points to now that no row can come to point to them any more."""
    due = Artifact.objects.expired().filter(pk__in=[artifact.pk for artifact in locked])
    still = set(due.exclude(needed()).values_list("pk", flat=True))
    return [artifact for artifact in locked if artifact.pk in still]


def _removed(remove: _Remove, key: str, artifact_id: str = "") -> str:
    """Removes a blob; returns the name of the error when that cannot be."""
    try:
        remove(key)
    except Exception as error:  # noqa: BLE001 - every storage has errors of its own
        named = {"artifact_id": artifact_id} if artifact_id else {"key": key}
        logger.warning("sweep_failed", extra={**named, "error": _name_of(error)})
        return _name_of(error)
    return ""


def _name_of(error: Exception) -> str:
    reason = error.reason if isinstance(error, StorageUnavailable) else ""
    return (reason or type(error).__name__)[:60]


# --- blobs without a row -----------------------------------------------------------------------


def _sweep_orphans() -> tuple[int, int, str]:
    """How many went, how many could not, and the name of what kept it from looking further."""
    gone = failed = 0
    try:
        for keys, remove in _orphans():
            for key in keys:
                if _removed(remove, key):
                    failed += 1
                else:
                    gone += 1
    except Exception as error:  # noqa: BLE001 - a storage that cannot be listed now can be later
        logger.warning("sweep_listing_failed", extra={"error": _name_of(error)})
        return gone, failed + 1, _name_of(error)
    return gone, failed, ""


def _orphans() -> Iterator[tuple[list[str], _Remove]]:
    """Keys that no row names and that were written, or begun, before the grace period began.

    In batches, each with what removes it.
    """
    with operations_session():
        before = now() - timedelta(hours=settings.ORPHAN_GRACE_HOURS)
    blobs = blob_store()
    for listing, remove in ((blobs.listing, blobs.delete), (blobs.unfinished, blobs.give_up)):
        old = (key for key, written in listing() if written < before)
        while batch := list(islice(old, _BATCH)):
            yield _unknown(batch), remove


def _unknown(keys: list[str]) -> list[str]:
    with operations_session():
        rows = Artifact.objects.filter(storage_key__in=keys)
        known = set(rows.values_list("storage_key", flat=True))
    return [key for key in keys if key not in known]


# --- what is known of a run --------------------------------------------------------------------


def _forecast() -> SweepReport:
    handed_over = [(expire(dry_run=True), to_sweep) for expire, to_sweep in _beforehand]
    expired = sum(count for count, _ in handed_over)
    with operations_session():
        due = Artifact.objects.expired().exclude(needed())
        swept, stuck = due.count(), due.stuck().count()
    orphans = sum(len(keys) for keys, _ in _orphans())
    swept += sum(count for count, to_sweep in handed_over if to_sweep)
    return SweepReport(swept=swept, failed=stuck, orphans=orphans, expired=expired)


def _begin(by: str) -> SweepRun:
    with operations_session():
        SweepRun.objects.filter(started_at__lt=Now() - _KEPT_RUNS).delete()
        return SweepRun.objects.create(started_at=now(), by=by)


def _finish(run: SweepRun, report: SweepReport, error: str) -> None:
    with operations_session():
        SweepRun.objects.filter(pk=run.pk).update(
            finished_at=now(),
            swept=report.swept,
            failed=report.failed,
            orphans=report.orphans,
            expired=report.expired,
            error=error,
        )
