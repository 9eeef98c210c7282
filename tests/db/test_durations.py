"""How long things take is counted once, by whichever process did them, and read from any."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest
import redis
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from access import durations as module
from access.authentication import Caller
from access.durations import (
    HISTOGRAMS,
    INGESTS,
    REQUESTS,
    TOOLS,
    WAITS,
    Histogram,
    durations,
    observe,
    timed,
)
from access.errors import VerbatimError
from config.metrics import with_duration
from knowledge.mcp.application import PATH, McpApplication
from knowledge.mcp.server import _called
from knowledge.mcp.tools import BY_NAME, Host
from tests.support import admit, bearer, other_process, principal, upload, work

pytestmark = pytest.mark.django_db

_OTHER = """
import sys, threading, django
django.setup()
from access.durations import TOOLS, observe

def many():
    for _ in range(50):
        observe(TOOLS, sys.argv[1], "answered", seconds=0.02)

threads = [threading.Thread(target=many) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def counted(histogram: Histogram, *labels: str) -> tuple[int, float]:
    """How many there are, and their seconds."""
    found = durations()[histogram].get(labels)
    return (sum(found.buckets), found.seconds) if found else (0, 0.0)


def scraped(client: Client, settings: Settings) -> dict[tuple[str, frozenset[str]], float]:
    settings.METRICS_ON_LOOPBACK = True
    text = client.get("/metrics").content.decode()
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_several_processes_and_threads_count_together(blob_root: Path) -> None:
    tool = f"tool-{uuid4().hex}"
    processes = [
        subprocess.Popen([sys.executable, "-c", _OTHER, tool], env=other_process(blob_root))
        for _ in range(2)
    ]
    observe(TOOLS, tool, "answered", seconds=0.7)
    assert [process.wait(120) for process in processes] == [0, 0]
    found = durations()[TOOLS][tool, "answered"]
    # Up to 25 ms, and up to a second.
    assert (found.buckets[2], found.buckets[7], sum(found.buckets)) == (200, 1, 201)
    assert found.seconds == pytest.approx(200 * 0.02 + 0.7)


def test_threads_that_begin_at_once_count_by_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made, several = redis.Redis.from_url, [], 8

    def slow(*given: Any, **named: Any) -> Any:
        made.append(given)
        time.sleep(0.1)
        return real(*given, **named)

    monkeypatch.setattr(redis.Redis, "from_url", slow)
    module._client.cache_clear()
    tool, together = f"tool-{uuid4().hex}", Barrier(several)

    def count(_: int) -> None:
        together.wait(20)
        observe(TOOLS, tool, "answered", seconds=0.1)

    with ThreadPoolExecutor(several) as pool:
        list(pool.map(count, range(several)))
    assert len(made) == 1
    assert counted(TOOLS, tool, "answered")[0] == several


def test_bounds_belong_to_their_bucket_and_what_is_longer_to_the_last() -> None:
    tool = f"tool-{uuid4().hex}"
    for seconds in (0.0, 0.005, 0.0051, 10.0, 10.1, -0.1):
        observe(TOOLS, tool, "answered", seconds=seconds)
    found = durations()[TOOLS][tool, "answered"]
    assert (found.buckets[0], found.buckets[1], *found.buckets[-2:]) == (3, 1, 1, 1)


def test_prometheus_reads_buckets_that_add_up(client: Client, settings: Settings) -> None:
    tool = f"tool-{uuid4().hex}"
    for seconds in (0.004, 0.02, 0.02, 20.0):
        observe(TOOLS, tool, "answered", seconds=seconds)
    found = scraped(client, settings)
    name = TOOLS.name
    told = {
        bound: found[f"{name}_bucket", frozenset({tool, "answered", bound})]
        for bound in ("0.005", "0.01", "0.025", "10", "+Inf")
    }
    assert told == {"0.005": 1, "0.01": 1, "0.025": 3, "10": 3, "+Inf": 4}
    assert found[f"{name}_count", frozenset({tool, "answered"})] == 4
    assert found[f"{name}_sum", frozenset({tool, "answered"})] == pytest.approx(20.044)


def test_a_request_is_counted_by_its_route_and_never_by_its_address(client: Client) -> None:
    hidden = f"zebra{uuid4().hex}"
    routes = {
        "/v1/documents": ("GET", "/v1/documents", "2xx"),
        f"/v1/chunks/{hidden}": ("GET", "/v1/chunks/<str:chunk_id>", "4xx"),
        f"/{hidden}": ("GET", "unknown", "4xx"),
    }
    key = bearer()
    for address, labels in routes.items():
        before, _ = counted(REQUESTS, *labels)
        client.get(address, headers=key)
        after, seconds = counted(REQUESTS, *labels)
        # Others of this test run may have asked as well.
        assert after > before, labels
        assert seconds > 0
    client.generic(hidden.upper(), "/v1/documents", headers=key)
    assert counted(REQUESTS, "other", "/v1/documents", "4xx")[0] >= 1
    assert hidden not in repr(durations()).lower()


def test_whoever_asks_whether_we_live_is_not_counted(client: Client) -> None:
    for address in ("/livez", "/readyz", "/metrics"):
        client.get(address)
    assert not {route for _, route, _ in durations()[REQUESTS]} & {"/livez", "/readyz", "/metrics"}


def test_so_is_one_to_an_application_beside_django_s(client: Client) -> None:
    async def fails(*_: Any) -> None:
        raise RuntimeError

    async def answers(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await anyio.sleep(0.5)
        await send({"type": "http.response.body", "body": b""})

    async def ask(application: Any, route: str) -> None:
        transport = httpx.ASGITransport(
            with_duration(route, application), raise_app_exceptions=False
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as asking:
            await asking.request("BREW", f"/{uuid4().hex}")

    route = f"/{uuid4().hex}"
    anyio.run(ask, answers, route)
    # Until its answer began, and not until it ended.
    assert durations()[REQUESTS]["other", route, "2xx"].seconds < 0.5
    anyio.run(ask, fails, route)
    assert counted(REQUESTS, "other", route, "5xx")[0] == 1
    # Nobody runs it, so it says that it cannot answer.
    before, _ = counted(REQUESTS, "other", PATH, "5xx")
    anyio.run(ask, McpApplication(), PATH)
    assert counted(REQUESTS, "other", PATH, "5xx")[0] > before


def test_ingests_are_counted_by_what_came_of_them(blob_root: Path) -> None:
    outcomes = ("ingested", "unchanged", "refused", "failed")
    before = {outcome: counted(INGESTS, outcome)[0] for outcome in outcomes}
    admit("The zebra pump starts by hand.")
    admit("The zebra pump starts by hand.")
    with pytest.raises(VerbatimError):
        admit(b"\x00\x01", filename="a.txt", media_type="text/plain")
    with pytest.raises(RuntimeError), timed(INGESTS):
        raise RuntimeError
    assert all(counted(INGESTS, outcome)[0] > before[outcome] for outcome in outcomes)


def test_the_wait_of_a_job_ends_when_a_worker_takes_it(blob_root: Path, client: Client) -> None:
    before, _ = counted(WAITS, "first")
    artifact = upload(principal(), "# Pumps\n\nThe zebra pump.\n")
    asked = {
        "artifact": str(artifact.pk),
        "title": "Pumps",
        "visibility": "tenant",
        "background": True,
    }
    answer = client.post(
        "/v1/tools/knowledge.ingest",
        asked | {"origin_trust": "USER"},
        content_type="application/json",
        headers=bearer(),
    )
    assert answer.status_code == 202, answer.content
    work()
    assert counted(WAITS, "first")[0] > before


def test_a_tool_is_counted_by_what_came_of_it(blob_root: Path) -> None:
    host = Host(caller=(Caller(principal()), principal()))
    before = {outcome: counted(TOOLS, "fetch", outcome)[0] for outcome in ("answered", "refused")}
    found = admit("The zebra pump starts by hand.").chunk_ids[0]
    assert not _called(BY_NAME["fetch"], {"id": found}, host).is_error
    assert _called(BY_NAME["fetch"], {"id": "kc_0123456789abcdef"}, host).is_error
    assert all(counted(TOOLS, "fetch", outcome)[0] > n for outcome, n in before.items())


def test_when_it_cannot_be_counted_nobody_fails_and_nobody_waits_twice(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_pause", module._Pause())
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    module._client.cache_clear()
    try:
        observe(TOOLS, "search", "answered", seconds=1.0)
        assert module._pause.until > 0
        assert durations() == {}
        settings.METRICS_ON_LOOPBACK = True
        assert client.get("/metrics").status_code == 200
    finally:
        module._client.cache_clear()


def test_every_histogram_says_what_it_is_and_its_bounds_rise() -> None:
    for histogram in HISTOGRAMS:
        assert histogram.name.endswith("_seconds")
        assert list(histogram.bounds) == sorted(set(histogram.bounds))
