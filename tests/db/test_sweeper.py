"""The sweeper: the one place where bytes die."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from access.errors import NotFound
from access.tenancy import operations_session
from artifacts import store as artifacts
from artifacts.blobs import StorageBlobStore
from artifacts.models import Artifact, SweepRun
from artifacts.sweeper import SweepReport, sweep
from artifacts.tasks import sweep as sweep_task
from knowledge.models import RetentionProposal
from tests.factories import make_attachment, make_proposal
from tests.inspection import every_row
from tests.support import admit, ask, principal, upload


def expire(*given: Artifact) -> None:
    with operations_session():
        artifacts.expire([artifact.pk for artifact in given])


def rows() -> set[str]:
    with operations_session():
        return set(Artifact.objects.values_list("filename", flat=True))


def blobs(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def aged(path: Path, hours: float) -> None:
    then = timezone.now().timestamp() - hours * 3_600
    os.utime(path, (then, then))


def orphan(root: Path, *, hours: float) -> Path:
    key = StorageBlobStore().put(io.BytesIO(b"nobody's"))
    aged(root / key, hours)
    return root / key


def away(self: StorageBlobStore, *given: Any) -> Any:
    raise ConnectionError("storage is away")


@pytest.mark.django_db
def test_expired_artifacts_go_and_others_stay(blob_root: Path) -> None:
    due = [upload(principal(), "a", "due.md"), upload(principal(tenant="globex"), "b", "theirs.md")]
    kept = upload(principal(), "c", "kept.md")
    admit("The zebra grazes.", filename="source.md")
    for blob in blobs(blob_root):
        aged(blob, 1_000)
    expire(*due)
    with pytest.raises(NotFound):
        artifacts.get(principal(), due[0].pk)
    assert sweep() == SweepReport(swept=2)
    assert rows() == {"kept.md", "source.md"}
    assert len(blobs(blob_root)) == 3
    assert artifacts.read_bytes(kept) == b"c"
    assert ask("zebra").passages
    assert sweep() == SweepReport()


@pytest.mark.django_db
def test_an_artifact_that_expires_later_or_never_stays(blob_root: Path) -> None:
    soon = upload(principal(), "a", "soon.md")
    with operations_session():
        Artifact.objects.filter(pk=soon.pk).update(expires_at=timezone.now() + timedelta(minutes=1))
        never = upload(principal(), "b", "never.md")
        Artifact.objects.filter(pk=never.pk).update(expires_at=None)
    assert sweep() == SweepReport()
    assert rows() == {"soon.md", "never.md"}


@pytest.mark.django_db
def test_blobs_without_a_row_go_after_the_grace_period(blob_root: Path) -> None:
    grace = django_settings.ORPHAN_GRACE_HOURS
    young, old = orphan(blob_root, hours=grace - 1), orphan(blob_root, hours=grace + 1)
    assert sweep() == SweepReport(orphans=1)
    assert (young.exists(), old.exists()) == (True, False)
    aged(young, grace + 1)
    assert sweep() == SweepReport(orphans=1)
    assert not blobs(blob_root)


@pytest.mark.django_db
def test_more_than_one_batch_goes_in_one_run(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artifacts.sweeper._BATCH", 3)
    expire(*(upload(principal(), str(number)) for number in range(7)))
    for _ in range(8):
        orphan(blob_root, hours=1_000)
    assert sweep() == SweepReport(swept=7, orphans=8)
    assert not blobs(blob_root)


@pytest.mark.django_db
def test_a_dry_run_counts_and_removes_nothing(blob_root: Path) -> None:
    expire(upload(principal(), "a"))
    orphan(blob_root, hours=1_000)
    assert sweep(dry_run=True) == SweepReport(swept=1, orphans=1)
    assert len(blobs(blob_root)) == 2
    assert rows() == {"note.md"}


@pytest.mark.django_db
def test_a_dry_run_tells_what_a_run_would_do(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other layers would let go of first is swept in the same run, so it is counted too."""
    for text in ("# One\n\nKept?\n", "# Two\n\nKept?\n"):
        make_proposal("acme", text=text)
    with operations_session():
        RetentionProposal.objects.update(expires_at=Now() - timedelta(days=1))
    stuck = upload(principal(), "a", "stuck.md")
    expire(stuck)
    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "delete", away)
        before = every_row(without=["artifacts_sweeprun"])
        assert sweep(dry_run=True) == SweepReport(swept=3, expired=2)
        assert every_row(without=["artifacts_sweeprun"]) == before
        assert sweep() == SweepReport(failed=3, expired=2)
        assert sweep(dry_run=True) == SweepReport(swept=3, failed=3)
    assert sweep() == SweepReport(swept=3)
    assert not [path for path in blobs(blob_root) if path.name in stuck.storage_key]


@pytest.mark.django_db
def test_a_failure_is_on_record_until_the_bytes_are_gone(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = upload(principal(), "a", "stuck.md")
    expire(stuck)
    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "delete", away)
        for attempts in (1, 2):
            sweep()
            with operations_session():
                row = Artifact.objects.stuck().get()
            assert (row.sweep_attempts, row.sweep_error) == (attempts, "ConnectionError")
            assert row.sweep_failed_at is not None
    sweep()
    assert not rows()


@pytest.mark.django_db
def test_a_storage_that_is_away_is_not_asked_for_each_of_many(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artifacts.sweeper._GIVE_UP_AFTER", 3)
    expire(*(upload(principal(), str(number)) for number in range(8)))
    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "delete", away)
        assert sweep() == SweepReport(failed=3)
        # The next run begins with those that have not been tried.
        assert sweep() == SweepReport(failed=3)
    with operations_session():
        assert Artifact.objects.stuck().count() == 6
    assert sweep() == SweepReport(swept=8)


@pytest.mark.django_db
def test_a_storage_that_cannot_be_listed_is_on_record(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(upload(principal(), "a"))
    orphan(blob_root, hours=1_000)
    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "listing", away)
        assert sweep() == SweepReport(swept=1, failed=1)
    with operations_session():
        assert SweepRun.objects.get().error == "ConnectionError"
    assert sweep() == SweepReport(orphans=1)


@pytest.mark.django_db
def test_every_run_is_on_record_for_a_month(blob_root: Path) -> None:
    expire(upload(principal(), "a"))
    orphan(blob_root, hours=1_000)
    sweep(by="operator:olga")
    sweep(dry_run=True)
    with operations_session():
        run = SweepRun.objects.get()
        assert (run.swept, run.failed, run.orphans, run.by) == (1, 0, 1, "operator:olga")
        assert run.finished_at is not None
        assert run.started_at <= run.finished_at
        SweepRun.objects.update(started_at=Now() - timedelta(days=31))
    sweep_task()
    with operations_session():
        assert [run.by for run in SweepRun.objects.all()] == ["beat"]


@pytest.mark.django_db
def test_what_something_stands_on_is_looked_at_again_before_its_bytes_go(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between finding it due and locking it, something has come to need it."""
    artifact = upload(principal(), "a")
    expire(artifact)
    asked = []

    def later_needed() -> Q:
        asked.append(artifact.pk)
        return Q(pk=artifact.pk) if len(asked) > 1 else Q(pk__in=[])

    monkeypatch.setattr("artifacts.sweeper.needed", later_needed)
    assert sweep() == SweepReport()
    assert len(asked) == 2
    assert artifacts.read_bytes(artifact) == b"a"


@pytest.mark.django_db
@pytest.mark.parametrize("made", ["attachment", "proposal"])
def test_what_a_row_holds_is_never_swept(blob_root: Path, made: str) -> None:
    """However its time came to be over: its row could not go, so its bytes must not."""
    make_attachment("acme") if made == "attachment" else make_proposal("acme")
    before = blobs(blob_root)
    with operations_session():
        Artifact.objects.exclude(origin="UPLOAD").update(expires_at=Now() - timedelta(days=1))
    assert sweep().swept == 0
    assert blobs(blob_root) == before


@pytest.mark.django_db
def test_bytes_that_cannot_go_keep_their_row_until_they_can(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, easy = upload(principal(), "a", "stuck.md"), upload(principal(), "b", "easy.md")
    expire(stuck, easy)
    delete = StorageBlobStore.delete

    def fails(self: StorageBlobStore, key: str) -> None:
        if key == stuck.storage_key:
            raise OSError("storage is away")
        delete(self, key)

    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "delete", fails)
        assert sweep() == SweepReport(swept=1, failed=1)
    assert rows() == {"stuck.md"}
    assert sweep() == SweepReport(swept=1)
    assert not rows()


@pytest.mark.django_db
def test_one_orphan_that_cannot_go_does_not_keep_the_others(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = str(orphan(blob_root, hours=1_000).relative_to(blob_root))
    others = [orphan(blob_root, hours=1_000) for _ in range(3)]
    delete = StorageBlobStore.delete

    def fails(self: StorageBlobStore, key: str) -> None:
        if key == stuck:
            raise OSError("storage is away")
        delete(self, key)

    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "delete", fails)
        assert sweep() == SweepReport(orphans=3, failed=1)
    assert not any(path.exists() for path in others)
    assert sweep() == SweepReport(orphans=1)


@pytest.mark.django_db
def test_bytes_that_are_gone_already_are_no_failure(blob_root: Path) -> None:
    """A sweep that was killed between the bytes and the row is finished by the next one."""
    artifact = upload(principal(), "a")
    expire(artifact)
    StorageBlobStore().delete(artifact.storage_key)
    assert sweep() == SweepReport(swept=1)
    assert not rows()


@pytest.mark.django_db
def test_an_empty_store_is_swept_too(blob_root: Path) -> None:
    assert sweep() == SweepReport()
    assert sweep_task() == {"swept": 0, "failed": 0, "orphans": 0, "expired": 0}


@pytest.mark.django_db(transaction=True)
def test_two_sweeps_at_once_share_the_work(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(*(upload(principal(), str(number)) for number in range(4)))
    monkeypatch.setattr("artifacts.sweeper._BATCH", 2)
    holding, other_done = threading.Event(), threading.Event()
    delete = StorageBlobStore.delete
    first = threading.local()

    def slow(self: StorageBlobStore, key: str) -> None:
        if getattr(first, "waits", False):
            first.waits = False
            holding.set()
            assert other_done.wait(60)
        delete(self, key)

    monkeypatch.setattr(StorageBlobStore, "delete", slow)

    def work(*, waits: bool) -> Callable[[], Any]:
        def run() -> SweepReport:
            first.waits = waits
            try:
                return sweep()
            finally:
                connections.close_all()

        return run

    with ThreadPoolExecutor(2) as pool:
        slower = pool.submit(work(waits=True))
        assert holding.wait(60)
        try:
            # The first holds two rows; the second neither waits for them nor takes them twice.
            faster = pool.submit(work(waits=False)).result(timeout=60)
        finally:
            other_done.set()
        reports = [slower.result(timeout=60), faster]
    assert sum(report.swept for report in reports) == 4
    assert all(report.failed == 0 for report in reports)
    assert not rows()
    assert not blobs(blob_root)
