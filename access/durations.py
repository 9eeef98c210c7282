"""How long things take, counted where every process counts, for whoever scrapes any of them.

A count is two increments in Valkey, so that it does not matter which of several processes, on
however many hosts, did the work or is asked about it. Labels are words of ours, routes of ours and
names of tools: never what somebody wrote.
"""

from __future__ import annotations

import json
import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Final

import redis
from django.conf import settings

logger = logging.getLogger(__name__)

# With another layout of what is counted comes another name.
_KEY: Final = "verbatim:durations:1"
_SUM: Final = "sum"
_PATIENCE_SECONDS: Final = 1
_PAUSE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """What is measured, by which labels, and the upper bounds of its buckets in seconds."""

    name: str
    says: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]


_ANSWERS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WORK: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)

REQUESTS: Final = Histogram(
    name="verbatim_request_duration_seconds",
    says="From the arrival of a request to the beginning of its answer.",
    labels=("method", "route", "status"),
    bounds=_ANSWERS,
)
TOOLS: Final = Histogram(
    name="verbatim_mcp_tool_duration_seconds",
    says="Calls of a tool by agents.",
    labels=("tool", "outcome"),
    bounds=_ANSWERS,
)
INGESTS: Final = Histogram(
    name="verbatim_ingest_duration_seconds",
    says="Ingests, from admission to commit.",
    labels=("outcome",),
    bounds=_WORK,
)
WAITS: Final = Histogram(
    name="verbatim_job_wait_seconds",
    says="From when a background ingest was due until a worker took it.",
    labels=("attempt",),
    bounds=_WORK,
)
HISTOGRAMS: Final = (REQUESTS, TOOLS, INGESTS, WAITS)


@dataclass(frozen=True, slots=True)
class Counted:
    """`buckets[i]` counts what took at most `bounds[i]` and more than the bound before; the last
    entry counts what took longer than all of them."""

    buckets: tuple[int, ...]
    seconds: float


@dataclass(slots=True)
class _Pause:
    """While the counts cannot be kept nobody waits for them again and again."""

    until: float = field(default=0.0)


_pause = _Pause()
_beginning: Final = Lock()


def observe(histogram: Histogram, *labels: str, seconds: float) -> None:
    """Counts one. What cannot be counted is not, and nobody's work fails for it."""
    if time.monotonic() < _pause.until:
        return
    place = bisect_left(histogram.bounds, seconds)
    named = [histogram.name, *labels]
    try:
        with _counts().pipeline(transaction=False) as both:
            both.hincrby(_KEY, json.dumps([*named, place]), 1)
            both.hincrby(_KEY, json.dumps([*named, _SUM]), round(max(seconds, 0.0) * 1_000_000))
            both.execute()
    except redis.RedisError as error:
        _pause.until = time.monotonic() + _PAUSE_SECONDS
        logger.warning("durations_not_counted", extra={"error": type(error).__name__})


@dataclass(slots=True)
class Timed:
    """What is being measured: its last label is said when it is known."""

    outcome: str = "failed"


@contextmanager
def timed(histogram: Histogram, *labels: str) -> Iterator[Timed]:
    """Counts how long the block took under its outcome, which is `failed` until it says another."""
    began, told = time.monotonic(), Timed()
    try:
        yield told
    finally:
        observe(histogram, *labels, told.outcome, seconds=time.monotonic() - began)


def durations() -> Mapping[Histogram, Mapping[tuple[str, ...], Counted]]:
    """All that was ever counted, by labels; nothing when it cannot be read."""
    found: dict[Histogram, dict[tuple[str, ...], list[int]]] = {one: {} for one in HISTOGRAMS}
    by_name = {histogram.name: histogram for histogram in HISTOGRAMS}
    try:
        kept = _counts().hgetall(_KEY)
    except redis.RedisError as error:
        logger.warning("durations_not_read", extra={"error": type(error).__name__})
        return {}
    for spelled, count in kept.items():
        name, *labels, place = json.loads(spelled)
        histogram = by_name.get(name)
        if histogram is None:  # of another release
            continue
        size = len(histogram.bounds) + 2
        counts = found[histogram].setdefault(tuple(labels), [0] * size)
        counts[size - 1 if place == _SUM else place] = int(count)
    return {
        histogram: {
            labels: Counted(tuple(counts[:-1]), counts[-1] / 1_000_000)
            for labels, counts in sorted(by_labels.items())
        }
        for histogram, by_labels in found.items()
    }


def _counts() -> redis.Redis:
    """One client for all threads. Of two that begin at once one would be left to nobody, and close
    its connections, while it is being used."""
    with _beginning:
        return _client()


@cache
def _client() -> redis.Redis:
    """Of this process and, as its connections are made anew after a fork, of its children."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=_PATIENCE_SECONDS,
        socket_connect_timeout=_PATIENCE_SECONDS,
    )
