"""Two web processes and two workers on one installation, and what they are told to end in.

Whatever they share is shared by all of them; whoever is told to end finishes what it has begun.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import settings
from django.db import connection

from access.models import ApiKey
from access.tenancy import tenant_session
from artifacts.uploads import LARGEST_PIECE
from knowledge.adapters.database import lock_for_deletion
from knowledge.models import Document, IngestJob, KnowledgeEvent
from tests.faults.test_kills import SOURCE, Stage, stage
from tests.serving import Serving, serving
from tests.support import admit, ask, bearer, other_process
from tests.uploading import half_an_upload
from verbatim_client import Client

__all__ = ["stage"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]

PATIENCE_SECONDS = 60.0
NOTE = "# Pumps\n\nThe quokka pump runs at night.\n"
SEARCH = "/v1/tools/knowledge.search"


def eventually(true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def other_connections() -> int:
    """Those to this test's database that are not the test's own."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


def waiting_for_a_lock() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return int(cursor.fetchone()[0])


@contextlib.contextmanager
def locked(document_id: UUID) -> Iterator[None]:
    """Whoever commits a version of the document waits for the end of the block."""
    aside = connection.copy()
    try:
        with aside.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [str(document_id)])
        yield
    finally:
        aside.close()


def refused(web: Serving) -> bool:
    try:
        socket.create_connection(("127.0.0.1", web.port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


@contextlib.contextmanager
def working(blobs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker as `manage.py up` starts one; it ends when its standard input does."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "config.process", "worker"],
        cwd=settings.BASE_DIR,
        env=other_process(blobs),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield worker
    finally:
        try:
            worker.communicate(timeout=PATIENCE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


# --- what several of them share --------------------------------------------------------------


def test_two_web_processes_and_two_workers_are_one_installation(blob_root: Path) -> None:
    headers = bearer()
    with (
        serving(blob_root) as one,
        serving(blob_root) as other,
        working(blob_root),
        working(blob_root),
        httpx.Client(base_url=one.url, headers=headers, timeout=60) as first,
        httpx.Client(base_url=other.url, headers=headers, timeout=60) as second,
    ):
        clients = (first, second)
        _an_upload_goes_on_at_the_other(clients)
        _what_was_answered_is_answered_alike(clients)
        _a_limit_counts_at_both((one, other))
        _every_job_is_done_once([one, other], headers)
        # Nobody keeps a connection that it does not use.
        eventually(lambda: other_connections() == 0)


def _an_upload_goes_on_at_the_other(clients: tuple[httpx.Client, httpx.Client]) -> None:
    content = os.urandom(5 * LARGEST_PIECE + 7)
    request_id, offset = uuid4(), 0
    for client in cycle(clients):
        part = content[offset : offset + LARGEST_PIECE]
        final = offset + len(part) == len(content)
        receipt = _attach(client, request_id, offset, part, final=final)
        # Whoever asks again, wherever, is told the same.
        assert _attach(clients[0], request_id, offset, part, final=final) == receipt
        offset += len(part)
        if final:
            break
    artifact = str(receipt["artifact_id"])
    for client in clients:
        assert client.get(f"/v1/artifacts/{artifact}/content").content == content


def _attach(
    client: httpx.Client, request_id: UUID, offset: int, part: bytes, *, final: bool
) -> dict[str, object]:
    with Client(str(client.base_url), client.headers["Authorization"].split()[1]) as caller:
        return dict(
            caller.attach_piece(
                request_id=str(request_id),
                offset=offset,
                content=part,
                final=final,
                filename="log.bin",
            )
        )


def _what_was_answered_is_answered_alike(clients: tuple[httpx.Client, httpx.Client]) -> None:
    """Both are asked at the same moment: one does it, the other says the same or to ask again."""
    for number in range(5):
        key = {"Idempotency-Key": f"upload-{number}-{uuid4()}"}
        barrier = threading.Barrier(2)

        def send(client: httpx.Client, key: dict[str, str] = key) -> httpx.Response:
            barrier.wait(PATIENCE_SECONDS)  # noqa: B023 - of this turn
            file = {"file": ("pumps.md", NOTE.encode())}
            return client.post("/v1/artifacts", files=file, headers=key)

        with ThreadPoolExecutor(2) as pool:
            at_once = list(pool.map(send, clients))
        again = [
            client.post(
                "/v1/artifacts", files={"file": ("pumps.md", NOTE.encode())}, headers=key
            ).json()["artifact_id"]
            for client in clients
        ]
        answers = Counter(answer.status_code for answer in at_once)
        assert answers[201] >= 1
        assert answers[201] + answers[409] == 2, [answer.text for answer in at_once]
        made = {answer.json()["artifact_id"] for answer in at_once if answer.status_code == 201}
        assert made == set(again)
        assert len(made) == 1


def _a_limit_counts_at_both(webs: tuple[Serving, Serving]) -> None:
    _, plain = ApiKey.issue(
        tenant_id="acme", principal_id="alice", projects=None, requests_per_minute=6
    )
    # Not over the turn of a minute, at which the count begins anew.
    if (left := 60 - time.time() % 60) < 20:
        time.sleep(left + 0.5)
    answers = [
        httpx.get(
            f"{web.url}/v1/documents", headers={"Authorization": f"Bearer {plain}"}, timeout=30
        ).status_code
        for _ in range(5)
        for web in webs
    ]
    assert answers == [200] * 6 + [429] * 4


def _every_job_is_done_once(webs: list[Serving], headers: dict[str, str]) -> None:
    key = headers["Authorization"].split()[1]

    def admit_one(number: int) -> str:
        with Client(webs[number % 2].url, key) as caller:
            text = f"# Pump {number}\n\nThe quokka pump {number} runs.\n"
            artifact = caller.upload_whole(text.encode(), "pump.md")["artifact_id"]
            job = caller.ingest_later(artifact, f"Pump {number}", "tenant", origin_trust="USER")
            return str(job["job_id"])

    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(admit_one, range(16)))

    def states() -> set[str]:
        with tenant_session("acme"):
            of = IngestJob.objects.filter(job_id__in=jobs)
            return set(of.values_list("state", flat=True))

    eventually(lambda: states() == {"done"})
    with tenant_session("acme"):
        attempts = IngestJob.objects.filter(job_id__in=jobs).values_list("attempts", flat=True)
        assert list(attempts) == [1] * 16
        told = KnowledgeEvent.objects.filter(name="knowledge.document.ingested")
        documents = Counter(told.values_list("document_id", flat=True))
        assert set(documents.values()) == {1}
        assert len(documents) == Document.objects.count() == 16


# --- connections -----------------------------------------------------------------------------


def test_a_pool_is_never_larger_than_it_may_be_and_outlives_its_connections(
    blob_root: Path,
) -> None:
    document = admit(NOTE).document_id
    headers = bearer()
    size, clients = 3, 12
    with (
        serving(blob_root, DATABASE_POOL_SIZE=str(size), MCP_CONCURRENCY="2") as web,
        ThreadPoolExecutor(clients) as pool,
        httpx.Client(base_url=web.url, headers=headers, timeout=60) as client,
    ):

        def search(_: int = 0) -> int:
            return client.post(SEARCH, json={"text": "quokka pump"}).status_code

        done, most = threading.Event(), [0]
        with connection.cursor():  # ours is there before the others are counted
            asked = [pool.submit(search) for _ in range(150)]
            while not all(one.done() for one in asked):
                most[0] = max(most[0], other_connections())
                time.sleep(0.01)
        done.set()
        assert Counter(one.result() for one in asked) == {200: 150}
        assert 1 <= most[0] <= size

        # As a restart of the server, or a firewall, ends them.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
            assert cursor.fetchone()[0] >= 1
        assert [search() for _ in range(2 * size)] == [200] * 2 * size

        # While all of them are taken, whoever comes is told to come again.
        with tenant_session("acme"):
            lock_for_deletion(document)
            held = [pool.submit(search) for _ in range(size)]
            eventually(lambda: waiting_for_a_lock() == size)
            late = client.get("/v1/documents")
            assert late.status_code == 503
            assert late.headers["Retry-After"]
            assert late.json()["code"] == "unavailable"
        assert [one.result() for one in held] == [200] * size
        assert other_connections() <= size


# --- the end ---------------------------------------------------------------------------------


def test_a_web_process_that_is_told_to_end_answers_who_is_waiting(blob_root: Path) -> None:
    document = admit(NOTE).document_id
    headers = bearer()
    with serving(blob_root) as web, ThreadPoolExecutor(1) as pool:
        upload, rest = half_an_upload(web.port, headers)
        with tenant_session("acme"):
            lock_for_deletion(document)  # which a search that is about to show it waits for
            found = pool.submit(
                httpx.post,
                web.url + SEARCH,
                json={"text": "quokka pump"},
                headers=headers,
                timeout=60,
            )
            eventually(lambda: waiting_for_a_lock() == 1)
            web.process.send_signal(signal.SIGTERM)
            eventually(lambda: refused(web))
            assert not found.done()
        assert found.result(PATIENCE_SECONDS).status_code == 200
        assert len(found.result().json()["passages"]) == 1
        with upload:
            upload.sendall(rest)
            assert upload.recv(64).startswith(b"HTTP/1.1 201 ")
        assert web.process.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM), web.log.read_text()
    eventually(lambda: other_connections() == 0)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGQUIT])
def test_a_worker_that_is_told_to_end_loses_no_job(stage: Stage, told: signal.Signals) -> None:
    """SIGTERM: it finishes what it has begun. SIGQUIT: another one does."""
    document = admit(NOTE, source=SOURCE).document_id
    stage.work()
    with locked(document):
        job = stage.ingest(content=NOTE + "\nAnd by day.\n", source=replace(SOURCE, version="r1"))
        eventually(lambda: waiting_for_a_lock() == 1)
        assert stage._worker is not None
        stage._worker.send_signal(told)
        if told is signal.SIGTERM:
            with pytest.raises(subprocess.TimeoutExpired):
                stage._worker.wait(2)
        else:
            stage._worker.wait(PATIENCE_SECONDS)
    if told is signal.SIGTERM:
        assert stage._worker.wait(PATIENCE_SECONDS) == 0
        with tenant_session("acme"):
            assert IngestJob.objects.get(job_id=job).state == "done"
    else:
        stage.settle([job])
    with tenant_session("acme"):
        versions = Document.objects.get(pk=document).versions.count()
        told_of = KnowledgeEvent.objects.filter(name="knowledge.document.ingested")
        assert (versions, told_of.count()) == (2, 2)
    assert ask("quokka pump").passages[0].candidate.version == 2
