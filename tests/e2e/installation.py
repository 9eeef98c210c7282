"""An installation that a test starts with the one command, and that ends with the test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from config.places import Places
from verbatim_client import Client, SearchResult

PATIENCE_SECONDS = 180.0


class Installation:
    """An installation of its own: a folder, a port, and the `up` that serves it."""

    def __init__(self, var: Path) -> None:
        self.var = var
        self.output = var.with_name("output.txt")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.running: list[subprocess.Popen[bytes]] = []

    def up(self) -> subprocess.Popen[bytes]:
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=settings.BASE_DIR,
                env={
                    "PATH": os.environ["PATH"],
                    "VERBATIM_VAR": str(self.var),
                    "PORT": str(self.port),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def up_and_serving(self) -> subprocess.Popen[bytes]:
        process = self.up()
        self.wait(lambda: process.poll() is not None or "See it in place" in self.printed())
        assert process.poll() is None, self.printed()
        # The last to start; a test that ends it at once would not see it.
        self.wait(lambda: len(self.children()) >= 3)
        return process

    def printed(self) -> str:
        return self.output.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """Web, worker and beat, wherever they hang by now."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "environ"])
            if "config.process" in (process.info["cmdline"] or ())
            and (process.info["environ"] or {}).get("VERBATIM_VAR") == str(self.var)
        ]

    def child(self, name: str) -> psutil.Process:
        return next(p for p in self.children() if p.cmdline()[-1] == name and p.ppid() > 1)

    def demo(self) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads((self.var / "demo.json").read_text())
        return kept

    def client(self) -> Client:
        """As the demo's principal."""
        return Client(f"http://127.0.0.1:{self.port}", self.demo()["api_key"])

    def search(self, text: str) -> SearchResult:
        with self.client() as client:
            return client.search(text)

    def wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.2)

    def servers(self) -> list[int]:
        places = Places.of(self.var)
        folders = {str(places.postgres), str(places.valkey)}
        return [p.pid for p in psutil.process_iter(["cwd"]) if p.info["cwd"] in folders]
