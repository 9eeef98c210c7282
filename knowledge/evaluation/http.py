"""Searches through a real web process on loopback, as an agent would ask."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from django.db import connection

from access.models import ApiKey
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope

SEARCH: Final = "/v1/tools/knowledge.search"
_READY_SECONDS: Final = 60
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Served:
    """A web process of the installation's own database, at a port of its own."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    def ask(
        self, key: str, project: str | None, questions: Sequence[str], clients: int
    ) -> list[float]:
        """Milliseconds of every question of every client, each on a connection that it keeps."""
        with ThreadPoolExecutor(clients) as threads:
            told = threads.map(lambda _: self._client(key, project, questions), range(clients))
            return [milliseconds for times in told for milliseconds in times]

    def _client(self, key: str, project: str | None, questions: Sequence[str]) -> list[float]:
        kept = http.client.HTTPConnection(_HOST, self.port, timeout=_READY_SECONDS)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        times = []
        with contextlib.closing(kept):
            for text in questions:
                asked: dict[str, Any] = {"text": text}
                if project is not None:
                    asked["current_scope"] = project
                started = time.perf_counter()
                kept.request("POST", SEARCH, json.dumps(asked), headers)
                answer = kept.getresponse()
                body = answer.read()
                times.append((time.perf_counter() - started) * 1_000)
                if answer.status != http.client.OK:
                    raise RuntimeError(f"the search answered {answer.status}: {body[:300]!r}")
        return times


@contextlib.contextmanager
def served(**given: str) -> Iterator[Served]:
    """Starts `config.process web` and ends it with the block; settings `given` are its own."""
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PORT": str(port),
        "VERBATIM_BIND": _HOST,
        "VERBATIM_PUBLIC_URL": f"http://{_HOST}:{port}",
        **given,
    }
    if address := os.environ.get("DATABASE_URL"):
        # The same server and, where a measurement works in another one, the same database.
        path = f"/{connection.settings_dict['NAME']}"
        environment["DATABASE_URL"] = urlsplit(address)._replace(path=path).geturl()
    command = [sys.executable, "-m", "config.process", "web"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)  # noqa: S603
    try:
        _wait_until_ready(process, port)
        yield Served(port, process.pid)
    finally:
        # It ends when its standard input does.
        process.communicate(timeout=_READY_SECONDS)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _READY_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError("the web process did not start")


@contextlib.contextmanager
def key_of(principal: Principal, *scopes: Scope) -> Iterator[str]:
    """A key of the principal's, for the length of the block. An operator's is a member's."""
    key, plain = ApiKey.issue(
        tenant_id=principal.tenant_id,
        principal_id=principal.principal_id,
        name="measurement",
        scopes=list(scopes),
        projects=None,
        max_origin_trust=principal.max_origin_trust,
        sensitivity_ceiling=principal.sensitivity_ceiling,
        surface=principal.surface,
        # What is measured is the installation and not its limit.
        requests_per_minute=0,
    )
    try:
        yield plain
    finally:
        with tenant_session(principal.tenant_id):
            key.delete()
