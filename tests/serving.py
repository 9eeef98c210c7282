"""A web process of this test's database and blobs, as it runs in an installation."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from django.conf import settings

from tests.support import other_process

_PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Serving:
    process: subprocess.Popen[bytes]
    port: int
    blobs: Path
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextlib.contextmanager
def serving(blobs: Path, **given: str) -> Iterator[Serving]:
    """Starts `config.process web` on a port of its own, and ends it with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = other_process(
        blobs,
        PORT=str(port),
        VERBATIM_BIND="127.0.0.1",
        VERBATIM_PUBLIC_URL=f"http://127.0.0.1:{port}",
        **given,
    )
    log = blobs.with_name(f"{blobs.name}-{port}.log")
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "config.process", "web"],
            cwd=settings.BASE_DIR,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield Serving(process, port, blobs, log)
    finally:
        # It ends when its standard input does.
        process.communicate(timeout=_PATIENCE_SECONDS)
