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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
from django.db import connection

from access.trust import Scope
from knowledge.evaluation.bench import Viewer, mixed, people_s_questions, questions_of, spread_of
from knowledge.evaluation.http import SEARCH, key_of, served

_TIMEOUT_SECONDS: Final = 60
_JSON: Final = "application/json"
_LOOK_SECONDS: Final = 1.0
_MEGABYTE: Final = 1024**2
_OFF_TOPIC: Final = Path(__file__).with_name("off_topic.txt")
# Connections that a web process keeps at most, as `manage.py up` has it.
_POOL_SIZE: Final = "20"
# What agents and the people beside them do, in these proportions: reading, and writing.
_READS: Final = (
    *("search", "search", "mcp", "search", "chunk", "search"),
    *("search", "mcp", "list", "quote"),
)
_WRITES: Final = (
    *("upload", "ingest", "cite", "upload", "ingest", "cite"),
    *("upload", "ingest", "cite", "delete"),
)
# Questions that a document to be admitted is made of.
_QUESTIONS_A_DOCUMENT: Final = 12


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
    # The share of requests that write. What they admit is deleted when all has been measured.
    writes: float = 0.0


@dataclass(slots=True)
class _Told:
    """What the clients have seen, by kind of request, and the documents that they left."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    documents: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, milliseconds: float, failure: str | None) -> None:
        with self.lock:
            self.milliseconds.setdefault(kind, []).append(milliseconds)
            if failure is not None:
                self.failures[f"{kind}: {failure}"] += 1


def load(target: Target, questions: Sequence[str], amount: Amount) -> dict[str, Any]:
    """Asks until it has been enough, and tells of all but the warm-up."""
    asked = itertools.cycle(questions)
    once = replace(amount, seconds=None, requests=amount.warm_up)
    warmed = _ask(target, asked, once, lambda _told: None)
    before = _held(target)
    looks = [before]
    started = time.perf_counter()
    told = _ask(target, asked, amount, lambda _told: looks.append(_held(target)))
    seconds = time.perf_counter() - started
    looks.append(_held(target))
    for document in (*warmed.documents, *told.documents):
        _delete(target, document)
    every = [one for of_kind in told.milliseconds.values() for one in of_kind]
    failed = told.failures.total()
    return {
        "clients": amount.clients,
        "seconds": round(seconds, 1),
        "warm_up": amount.warm_up,
        "writes": amount.writes,
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
        key_of(viewer.principal, Scope.WRITE) as key,
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

    def more() -> list[str] | None:
        with lock:
            over = until is not None and time.perf_counter() >= until
            if over or (tickets is not None and next(tickets, None) is None):
                return None
            return list(itertools.islice(questions, _QUESTIONS_A_DOCUMENT if amount.writes else 1))

    with ThreadPoolExecutor(amount.clients) as threads:
        asking = [
            threads.submit(_client, target, more, told, kinds)
            for kinds in (_kinds(amount.writes, number) for number in range(amount.clients))
        ]
        while not all(one.done() for one in asking):
            time.sleep(_LOOK_SECONDS)
            look(told)
        for one in asking:
            one.result()
    return told


def _kinds(writes: float, number: int) -> Iterator[str]:
    """The kinds of request of one client, each of which begins elsewhere in the turn."""
    reading, writing = (
        itertools.islice(itertools.cycle(turn), number, None) for turn in (_READS, _WRITES)
    )
    due = 0.0
    while True:
        due += writes
        if due >= 1:
            due -= 1
            yield next(writing)
        else:
            yield next(reading)


@dataclass(slots=True)
class _Seen:
    """What a client has been given, for what it asks next."""

    passage: Mapping[str, str] = field(default_factory=dict)
    trace: str = ""
    artifact: str = ""
    documents: list[str] = field(default_factory=list)

    def instead(self, kind: str) -> str:
        """The kind itself, or what has to come before it."""
        match kind:
            case "chunk" | "quote" | "cite" if not self.passage:
                return "search"
            case "ingest" if not self.artifact:
                return "upload"
            case "delete" if not self.documents:
                return "search"
        return kind

    def keep(self, kind: str, content: bytes) -> None:
        match kind:
            case "search":
                answer = json.loads(content)
                if answer["passages"]:
                    self.passage, self.trace = answer["passages"][0], answer["trace_id"]
            case "upload":
                self.artifact = json.loads(content)["artifact_id"]
            case "ingest":
                self.artifact = ""
                self.documents.append(json.loads(content)["document_id"])
            case "delete":
                self.documents.pop(0)


def _client(
    target: Target, more: Callable[[], list[str] | None], told: _Told, kinds: Iterator[str]
) -> None:
    """One caller on a connection that it keeps."""
    seen = _Seen()
    with _connected(target) as kept:
        while (texts := more()) is not None:
            kind = seen.instead(next(kinds))
            request = _request(kind, texts, target.project, seen)
            started = time.perf_counter()
            failure: str | None = None
            try:
                status, content = _answer(kept, target, request)
                if not _is_well(kind, status):
                    failure = str(status)
            except (OSError, http.client.HTTPException) as error:
                failure = type(error).__name__
                kept.close()  # the next request opens it again
            told.add(kind, (time.perf_counter() - started) * 1_000, failure)
            if failure is None:
                seen.keep(kind, content)
    with told.lock:
        told.documents += seen.documents


def _is_well(kind: str, status: int) -> bool:
    """A passage that another client has deleted meanwhile is gone, and has to be said to be."""
    gone = kind == "chunk" and status == http.client.GONE
    return gone or status in {http.client.OK, http.client.CREATED}


def _connected(target: Target) -> contextlib.closing[http.client.HTTPConnection]:
    address = urlsplit(target.url)
    kind_of = (
        http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    )
    return contextlib.closing(kind_of(address.netloc, timeout=_TIMEOUT_SECONDS))


# Method, path, and a body of this media type.
_Request = tuple[str, str, bytes | None, str]


def _answer(
    kept: http.client.HTTPConnection, target: Target, request: _Request
) -> tuple[int, bytes]:
    method, path, body, media_type = request
    headers = {
        "Authorization": f"Bearer {target.key}",
        "Content-Type": media_type,
        "Accept": "application/json, text/event-stream",
    }
    kept.request(method, path, body, headers)
    answer = kept.getresponse()
    return answer.status, answer.read()


def _delete(target: Target, document: str) -> None:
    with _connected(target) as kept:
        _answer(kept, target, ("DELETE", f"/v1/documents/{document}", None, _JSON))


def _request(kind: str, texts: Sequence[str], project: str | None, seen: _Seen) -> _Request:
    scope = {} if project is None else {"current_scope": project}
    query = "" if project is None else f"?current_scope={project}"
    request: _Request
    match kind:
        case "search":
            request = _posted(SEARCH, {"text": texts[0], **scope})
        case "chunk":
            request = "GET", f"/v1/chunks/{seen.passage['chunk_id']}{query}", None, _JSON
        case "quote":
            asked = {"quotes": [_quoted(seen)], **scope}
            request = _posted("/v1/tools/knowledge.verify_quote", asked)
        case "list":
            request = "GET", f"/v1/documents{query}", None, _JSON
        case "upload":
            request = "POST", "/v1/artifacts", *_form(texts)
        case "ingest":
            admitted = {"artifact": seen.artifact, "title": "A note", "visibility": "tenant"}
            request = _posted("/v1/tools/knowledge.ingest", admitted | {"origin_trust": "USER"})
        case "cite":
            said = {"trace_id": seen.trace, "answer_id": uuid4().hex, "answered": True}
            request = _posted("/v1/citations", said | {"citations": [_quoted(seen)]})
        case "delete":
            request = "DELETE", f"/v1/documents/{seen.documents[0]}", None, _JSON
        case _:
            call = {"name": "search", "arguments": {"query": texts[0]}}
            request = _posted(
                "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            )
    return request


def _posted(path: str, body: Mapping[str, Any]) -> _Request:
    return "POST", path, json.dumps(body).encode(), _JSON


def _quoted(seen: _Seen) -> dict[str, str]:
    return {"chunk_id": seen.passage["chunk_id"], "quote": seen.passage["text"][:200]}


def _form(texts: Sequence[str]) -> tuple[bytes, str]:
    """A form with one small document, like no other, and its media type."""
    name = uuid4().hex
    text = "\n\n".join([f"# Note {name}", *texts])
    body = (
        f"--{name}\r\nContent-Disposition: form-data; name=file; filename=note.md\r\n"
        f"Content-Type: text/markdown\r\n\r\n{text}\r\n--{name}--\r\n"
    )
    return body.encode(), f"multipart/form-data; boundary={name}"


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
