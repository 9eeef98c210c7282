"""Real workers, a real broker and a real database, and SIGKILL for each of them.

Whatever dies and wherever: nothing is half searchable, nothing is lost, nothing is there twice, no
bytes are left over after a sweep, and everything is final within a minute.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psutil
import pytest
import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections
from pytest_django import Settings

from access.errors import Unavailable
from access.tenancy import operations_session, tenant_session
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from config import embedded
from config.celery import app
from config.places import Places
from knowledge import tasks
from knowledge.core.types import ConnectorIdentity, Verdict
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    IngestJob,
    KnowledgeEvent,
    UnfinishedVersion,
)
from knowledge.wiring import store
from tests.db.test_batches import asked, long_note
from tests.faults.worker import POINTS
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, principal

T = TypeVar("T")
FINAL_WITHIN_SECONDS = 60.0
RUNS = int(os.environ.get("FAULT_RUNS", "100"))
SOURCE = ConnectorIdentity(type="wiki", id="pumps", version="r0")
PARTS = 9


def stubborn(work: Callable[[], T]) -> T:
    """Does it again while the database is away."""
    deadline = time.monotonic() + FINAL_WITHIN_SECONDS
    while True:
        try:
            return work()
        except (DatabaseError, InterfaceError, Unavailable):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Stage:
    """A worker on this test's database, its own queue of the session's broker, and the faults."""

    def __init__(self, folder: Path, blob_root: Path) -> None:
        self.queue = f"faults-{os.getpid()}-{folder.name}"
        self.fault_file = folder / "fault"
        self.log = folder / "worker.log"
        name = connection.settings_dict["NAME"]
        self._environment = {
            **os.environ,
            "DATABASE_URL": re.sub(r"@/[^?]*", f"@/{name}", os.environ["DATABASE_URL"]),
            "ARTIFACT_ROOT": str(blob_root),
            "FAULT_QUEUE": self.queue,
            "FAULT_FILE": str(self.fault_file),
        }
        self._worker: subprocess.Popen[bytes] | None = None

    # --- the worker

    def work(self) -> None:
        """Starts the worker unless it is there."""
        if self._worker is None or self._worker.poll() is not None:
            with self.log.open("ab") as log:
                self._worker = subprocess.Popen(
                    [sys.executable, "-m", "tests.faults.worker"],
                    cwd=settings.BASE_DIR,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def kill_worker(self) -> None:
        if self._worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._worker.pid, signal.SIGKILL)
            self._worker.wait()

    def kill_a_child(self, rng: random.Random) -> None:
        """One of the processes that do the work; the worker puts another in its place."""
        with contextlib.suppress(psutil.Error, IndexError):
            assert self._worker is not None
            rng.choice(psutil.Process(self._worker.pid).children(recursive=True)).kill()

    def arm(self, point: str, scope: str) -> None:
        aside = self.fault_file.with_suffix(".new")
        aside.write_text(f"{point};{scope}")
        aside.rename(self.fault_file)

    # --- broker and database

    def flush_broker(self) -> None:
        client = redis.Redis.from_url(settings.REDIS_URL)
        client.delete(self.queue, "unacked", "unacked_index")
        client.close()

    def kill_database(self, rng: random.Random) -> None:
        """The whole server, or one process of it, after which it restarts itself."""
        places = _places()
        processes = embedded._processes("postgres", places.postgres)
        postmaster = embedded._postmaster(places)
        if rng.random() < 0.5:
            processes = [rng.choice([one for one in processes if one != postmaster])]
        embedded._signal(processes, signal.SIGKILL)
        with embedded._alone(places):
            embedded._ensure_postgres(places)

    # --- ingests

    def ingest(self, **given: Any) -> UUID:
        """A background ingest, hinted at through the broker as a request would."""
        job = stubborn(lambda: store().ingest_later(asked(**given), principal()))
        self.hint(tasks.run_ingest_job, str(job.job_id))
        return job.job_id

    def hint(self, task: Any, *given: str) -> None:
        task.apply_async(given, queue=self.queue, retry=False)

    def settle(self, jobs: list[UUID]) -> None:
        """Beats like beat, and keeps a worker there, until the jobs are final."""
        deadline = time.monotonic() + FINAL_WITHIN_SECONDS
        while True:
            self.work()
            self.hint(tasks.reconcile_ingest_jobs)
            states = stubborn(lambda: _states(jobs))
            if states == {"done"}:
                return
            assert states <= {"queued", "running", "done"}, (states, self.told())
            assert time.monotonic() < deadline, (states, self.told())
            time.sleep(0.3)

    def told(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


def _places() -> Places:
    host = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)["host"][0]
    return Places.throw_away(Path(host).parent)


def _states(jobs: list[UUID]) -> set[str]:
    with tenant_session("acme"):
        return set(IngestJob.objects.filter(job_id__in=jobs).values_list("state", flat=True))


@pytest.fixture
def stage(
    transactional_db: None, tmp_path: Path, blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    stage = Stage(tmp_path, blob_root)
    monkeypatch.setattr(tasks, "_send", lambda task, row_id: stage.hint(task, str(row_id)))
    try:
        yield stage
    finally:
        stage.kill_worker()
        stage.flush_broker()
        app.close()


# --- what must hold --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A document and how many versions and chunks it has now."""

    document_id: UUID
    version: int
    parts: int


@dataclass(slots=True)
class Seen:
    """What readers saw: how many chunks of which version the index held live, in one statement,
    and of which versions the passages of a search were."""

    live: set[tuple[tuple[int, int], ...]]
    found: set[frozenset[int]]

    def assert_one_or_the_other(self, *allowed: tuple[int, int]) -> None:
        """Whole versions only, `(version, chunks)`, one at a time and never none."""
        assert self.live <= {(one,) for one in allowed}, self
        assert self.found <= {frozenset([version]) for version, _ in allowed}, self


_LIVE = """
    SELECT v.version, count(*) FROM knowledge_chunk_index i
    JOIN knowledge_chunk c ON c.id = i.chunk JOIN knowledge_chunkset s ON s.id = c.chunk_set_id
    JOIN knowledge_documentversion v ON v.id = s.version_id
    WHERE i.live AND v.document_id = %s GROUP BY v.version ORDER BY v.version
"""


@contextlib.contextmanager
def reader(word: str, document_id: UUID) -> Iterator[Seen]:
    """Looks without a pause, by a search and by a count, and keeps each thing that it saw."""
    seen = Seen(live=set(), found=set())
    ended = threading.Event()

    def look() -> None:
        found = ask(word, max_passages=50, max_per_document=50, budget_tokens=100_000).passages
        with tenant_session("acme"), connection.cursor() as cursor:
            cursor.execute(_LIVE, [document_id])
            live = tuple(cursor.fetchall())
        seen.found.add(frozenset(passage.candidate.version for passage in found))
        seen.live.add(live)

    def keep_looking() -> None:
        try:
            while not ended.is_set():
                stubborn(look)
                time.sleep(0.02)
        finally:
            connections.close_all()

    thread = threading.Thread(target=keep_looking)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def assert_all_is_well(expected: list[Expected], blob_root: Path, given: Settings) -> None:
    given.ORPHAN_GRACE_HOURS = 0
    sweep()
    with tenant_session("acme"):
        assert not UnfinishedVersion.objects.exists()
        assert Document.objects.count() == len(expected)
        for one in expected:
            versions = DocumentVersion.objects.filter(document_id=one.document_id)
            assert sorted(versions.values_list("version", flat=True)) == [
                *range(1, one.version + 1)
            ]
            current = versions.get(superseded_at__isnull=True)
            assert current.version == one.version
            chunk_set = current.chunk_sets.get()
            assert chunk_set.state == "live"
            assert chunk_set.chunks.filter(verdict=Verdict.ADMIT).count() == one.parts
            assert sorted(chunk_set.chunks.values_list("ordinal", flat=True)) == [*range(one.parts)]
            ingested = KnowledgeEvent.objects.filter(
                document_id=one.document_id, name=KnowledgeEvent.INGESTED
            )
            assert ingested.count() == one.version
        assert ChunkSet.objects.filter(version__isnull=True).count() == 0
        ids = list(Chunk.objects.values_list("chunk_id", flat=True))
        assert len(set(ids)) == len(ids)
    with operations_session():
        keys = set(Artifact.objects.values_list("storage_key", flat=True))
    files = {str(path.relative_to(blob_root)) for path in blob_root.rglob("*") if path.is_file()}
    assert files == keys
    assert_statistics_are_those_of_the_live_rows()


# --- at named points -------------------------------------------------------------------------

IN_EVERY_RUN = ("claimed", "batch written", "finalizing")


def die_at(stage: Stage, points: list[tuple[str, str]], blob_root: Path, given: Settings) -> None:
    old = admit(long_note(3, "zebra"), source=SOURCE)
    stage.work()
    version, before = 1, (1, 3)
    for point, scope in points:
        version += 1
        with reader("zebra", old.document_id) as seen:
            stage.arm(point, scope)
            job = stage.ingest(
                content=long_note(PARTS, "zebra"),
                source=replace(SOURCE, version=f"r{version}"),
                title=f"Pumps {version}",
            )
            stage.settle([job])
        after = (version, PARTS)
        assert not stage.fault_file.exists(), f"nobody came to {point}"
        seen.assert_one_or_the_other(before, after)
        before = after
        assert_all_is_well(
            [Expected(document_id=old.document_id, version=version, parts=PARTS)], blob_root, given
        )
    with tenant_session("acme"):
        assert set(IngestJob.objects.values_list("attempts", flat=True)) <= {1, 2}
        assert IngestJob.objects.filter(attempts=2).exists()


def test_a_worker_killed_at_the_worst_points(
    stage: Stage, blob_root: Path, settings: Settings
) -> None:
    die_at(stage, [(point, "child") for point in IN_EVERY_RUN], blob_root, settings)


@pytest.mark.faults
@pytest.mark.parametrize("scope", ["child", "worker"])
def test_a_worker_killed_at_every_named_point(
    stage: Stage, blob_root: Path, settings: Settings, scope: str
) -> None:
    die_at(stage, [(point, scope) for point in POINTS], blob_root, settings)


# --- at random -------------------------------------------------------------------------------


@pytest.mark.faults
def test_whatever_is_killed_and_whenever(
    stage: Stage, blob_root: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run: an edited document and a new one, and up to three faults at random moments."""
    seed = int(os.environ.get("FAULT_SEED") or time.time_ns() % 1_000_000)
    with capsys.disabled():
        print(f"\nFAULT_SEED={seed} FAULT_RUNS={RUNS}")
    rng = random.Random(seed)
    expected = [
        Expected(
            document_id=admit(long_note(4, "zebra"), source=SOURCE).document_id, version=1, parts=4
        )
    ]
    stage.work()
    counts = dict.fromkeys(("kill worker", "kill child", "kill database", "flush broker"), 0)
    for run in range(1, RUNS + 1):
        edited = expected[0]
        parts = rng.randint(3, 12)
        with reader("zebra", edited.document_id) as seen:
            jobs = [
                stage.ingest(
                    content=long_note(parts, "zebra"),
                    source=replace(SOURCE, version=f"r{run}"),
                    title=f"Pumps {run}",
                    batch_size=rng.randint(1, 4),
                ),
                stage.ingest(
                    content=long_note(5, f"okapi{run}"),
                    source=replace(SOURCE, id=f"okapi{run}"),
                    batch_size=rng.randint(1, 8),
                ),
            ]
            for _ in range(rng.randint(1, 3)):
                time.sleep(rng.random() * 1.5)
                fault = rng.choice(list(counts))
                counts[fault] += 1
                match fault:
                    case "kill worker":
                        stage.kill_worker()
                        stage.work()
                    case "kill child":
                        stage.kill_a_child(rng)
                    case "kill database":
                        stage.kill_database(rng)
                    case "flush broker":
                        stage.flush_broker()
            stage.settle(jobs)
        expected[0] = Expected(
            document_id=edited.document_id, version=edited.version + 1, parts=parts
        )
        seen.assert_one_or_the_other((edited.version, edited.parts), (edited.version + 1, parts))
        with tenant_session("acme"):
            new = IngestJob.objects.get(job_id=jobs[1]).document_id
        assert new is not None
        expected.append(Expected(document_id=new, version=1, parts=5))
        stubborn(lambda: assert_all_is_well(expected, blob_root, settings))
        with capsys.disabled():
            print(f"\r{run} of {RUNS} runs", end="", flush=True)
    with capsys.disabled():
        print(f": {counts}")
