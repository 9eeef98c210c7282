"""Many requests at once to a real web process: how long they take, and what it has left over."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil
from django.db import connection

from knowledge.evaluation.bench import Viewer, mixed, people_s_questions, questions_of, spread_of
from knowledge.evaluation.http import SEARCH, key_of, served

_TIMEOUT_SECONDS: Final = 60
_LOOK_SECONDS: Final = 1.0
_MEGABYTE: Final = 1024**2
_OFF_TOPIC: Final = Path(__file__).with_name("off_topic.txt")
# Connections that a web process keeps at most, as `manage.py up` has it.
_POOL_SIZE: Final = "20"
# What agents and the people beside them do, in these proportions.
_TURN: Final = (
    *("search", "search", "mcp", "search", "chunk", "search"),
    *("search", "mcp", "list", "quote"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to ask, with which key; `process` is the web process, when it is ours to look at."""

    url: str
    key: str
    project: str | None = None
    process: psutil.Process | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Until so many requests were made, or so many seconds have passed, by so many at once."""

    clients: int
    seconds: float | None = None
    requests: int | None = None
    # Not measured: until the process has loaded what it needs and its caches are full.
    warm_up: int = 500


@dataclass(slots=True)
class _Told:
    """What the clients have seen, by kind of request."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, milliseconds: float, failure: str | None) -> None:
        with self.lock:
            self.milliseconds.setdefault(kind, []).append(milliseconds)
            if failure is not None:
                self.failures[f"{kind}: {failure}"] += 1


def load(target: Target, questions: Sequence[str], amount: Amount) -> dict[str, Any]:
    """Asks until it has been enough, and tells of all but the warm-up."""
    asked = itertools.cycle(questions)
    once = Amount(clients=amount.clients, requests=amount.warm_up)
    _ask(target, asked, once, lambda _told: None)
    before = _held(target)
    looks = [before]
    started = time.perf_counter()
    told = _ask(target, asked, amount, lambda _told: looks.append(_held(target)))
    seconds = time.perf_counter() - started
    looks.append(_held(target))
    every = [one for of_kind in told.milliseconds.values() for one in of_kind]
    failed = told.failures.total()
    return {
        "clients": amount.clients,
        "seconds": round(seconds, 1),
        "warm_up": amount.warm_up,
        "requests": len(every),
        "requests_per_second": round(len(every) / seconds, 1),
        "errors": dict(told.failures),
        "error_rate": round(failed / len(every), 5) if every else 0.0,
        "latency_ms": spread_of(every),
        "latency_ms_by_kind": {
            kind: {"requests": len(times), **spread_of(times)}
            for kind, times in sorted(told.milliseconds.items())
        },
        "process": _growth(looks) if target.process else None,
    }


def bench_load(viewer: Viewer, amount: Amount, sources: Sequence[Path] = ()) -> dict[str, Any]:
    """The same of a web process started for it, about passages of the viewer's own."""
    people = people_s_questions(sources)
    questions = mixed(people, questions_of(viewer, 200), 200)
    with (
        served(DATABASE_POOL_SIZE=_POOL_SIZE, LOG_LEVEL="WARNING") as web,
        key_of(viewer.principal) as key,
    ):
        target = Target(
            url=web.url, key=key, project=viewer.project, process=psutil.Process(web.pid)
        )
        return load(target, questions, amount)


def anybody_s_questions(sources: Sequence[Path]) -> list[str]:
    """For an installation that is not ours to look into: those of collections, or of no topic."""
    return people_s_questions(sources) or _OFF_TOPIC.read_text().splitlines()


def _ask(
    target: Target, questions: Iterator[str], amount: Amount, look: Callable[[_Told], None]
) -> _Told:
    """Calls `look` about once a second while the clients ask."""
    told = _Told()
    until = None if amount.seconds is None else time.perf_counter() + amount.seconds
    tickets = None if amount.requests is None else iter(range(amount.requests))
    lock = threading.Lock()

    def more() -> str | None:
        with lock:
            over = until is not None and time.perf_counter() >= until
            if over or (tickets is not None and next(tickets, None) is None):
                return None
            return next(questions)

    with ThreadPoolExecutor(amount.clients) as threads:
        asking = [
            threads.submit(_client, target, more, told, number) for number in range(amount.clients)
        ]
        while not all(one.done() for one in asking):
            time.sleep(_LOOK_SECONDS)
            look(told)
        for one in asking:
            one.result()
    return told


def _client(target: Target, more: Callable[[], str | None], told: _Told, number: int) -> None:
    """One caller on a connection that it keeps, each beginning elsewhere in the turn."""
    address = urlsplit(target.url)
    kind_of = (
        http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    )
    kept = kind_of(address.netloc, timeout=_TIMEOUT_SECONDS)
    headers = {
        "Authorization": f"Bearer {target.key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    found: dict[str, str] = {}
    kinds = itertools.islice(itertools.cycle(_TURN), number, None)
    with contextlib.closing(kept):
        while (text := more()) is not None:
            kind = next(kinds)
            if kind in {"chunk", "quote"} and not found:
                kind = "search"
            method, path, body = _request(kind, text, target.project, found)
            started = time.perf_counter()
            failure: str | None = None
            try:
                kept.request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = kept.getresponse()
                content = answer.read()
                if answer.status != http.client.OK:
                    failure = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                failure = type(error).__name__
                kept.close()  # the next request opens it again
            told.add(kind, (time.perf_counter() - started) * 1_000, failure)
            if kind == "search" and failure is None:
                passages = json.loads(content)["passages"]
                found = passages[0] if passages else found


def _request(
    kind: str, text: str, project: str | None, found: Mapping[str, str]
) -> tuple[str, str, dict[str, Any] | None]:
    scope = {} if project is None else {"current_scope": project}
    query = "" if project is None else f"?current_scope={project}"
    match kind:
        case "search":
            return "POST", SEARCH, {"text": text, **scope}
        case "chunk":
            return "GET", f"/v1/chunks/{found['chunk_id']}{query}", None
        case "quote":
            quote = {"chunk_id": found["chunk_id"], "quote": found["text"][:200]}
            return "POST", "/v1/tools/knowledge.verify_quote", {"quotes": [quote], **scope}
        case "list":
            return "GET", f"/v1/documents{query}", None
        case _:
            call = {"name": "search", "arguments": {"query": text}}
            return (
                "POST",
                "/mcp",
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    resident: int
    connections: int
    threads: int
    files: int


def _held(target: Target) -> _Held:
    """What the web process holds at this moment; nothing when it is not ours to look at."""
    if target.process is None:
        return _Held(resident=0, connections=0, threads=0, files=0)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        (connections,) = cursor.fetchone()
    return _Held(
        resident=target.process.memory_info().rss,
        connections=connections,
        threads=target.process.num_threads(),
        files=target.process.num_fds(),
    )


def _growth(looks: Sequence[_Held]) -> dict[str, Any]:
    """From after the warm-up to the end, and the most in between."""
    first, last = looks[0], looks[-1]
    return {
        "memory_mb": {
            "after_warm_up": round(first.resident / _MEGABYTE, 1),
            "at_end": round(last.resident / _MEGABYTE, 1),
            "most": round(max(look.resident for look in looks) / _MEGABYTE, 1),
            "grown": round((last.resident - first.resident) / _MEGABYTE, 1),
            # A tenth of the way each: one that levels off is a cache, one that does not is a leak.
            "on_the_way": [
                round(looks[(len(looks) - 1) * part // 10].resident / _MEGABYTE, 1)
                for part in range(11)
            ],
        },
        **{
            name: {
                "after_warm_up": getattr(first, name),
                "at_end": getattr(last, name),
                "most": max(getattr(look, name) for look in looks),
            }
            for name in ("connections", "threads", "files")
        },
    }
