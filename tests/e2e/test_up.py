"""`manage.py up`: one command starts everything, and everything ends with it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings

from config.embedded import kill_and_remove
from config.places import Places

_PATIENCE_SECONDS = 180.0


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

    def search(self, text: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {
            "Authorization": f"Bearer {self.demo()['api_key']}",
            "Content-Type": "application/json",
        }
        try:
            connection.request(
                "POST", "/v1/tools/knowledge.search", json.dumps({"text": text}), headers
            )
            answer = connection.getresponse()
            assert answer.status == 200
            found: dict[str, Any] = json.loads(answer.read())
            return found
        finally:
            connection.close()

    def request(self, method: str, path: str, body: bytes = b"", kind: str = "") -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.demo()['api_key']}"}
        try:
            connection.request(
                method, path, body, headers | ({"Content-Type": kind} if kind else {})
            )
            answer = connection.getresponse()
            told: dict[str, Any] = json.loads(answer.read())
            assert answer.status < 300, told
            return told
        finally:
            connection.close()

    def attach(self, text: str, conversation: str) -> str:
        """Sends a file as its owner; returns the attachment's id."""
        fields = {"conversation_id": conversation, "actor": "principal"}
        parts = [
            f'Content-Disposition: form-data; name="{k}"\r\n\r\n{v}' for k, v in fields.items()
        ]
        parts.append(
            'Content-Disposition: form-data; name="file"; filename="note.md"\r\n'
            f"Content-Type: text/markdown\r\n\r\n{text}"
        )
        body = "".join(f"--part\r\n{part}\r\n" for part in parts) + "--part--\r\n"
        sent = self.request(
            "POST", "/v1/attachments", body.encode(), "multipart/form-data; boundary=part"
        )
        return str(sent["attachment_id"])

    def wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not ready():
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.2)

    def servers(self) -> list[int]:
        places = Places.of(self.var)
        folders = {str(places.postgres), str(places.valkey)}
        return [p.pid for p in psutil.process_iter(["cwd"]) if p.info["cwd"] in folders]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path / "var")
    yield installation
    for process in installation.running:
        process.kill()
        process.wait()
    for child in installation.children():
        child.kill()
    kill_and_remove(Places.of(installation.var))
    shutil.rmtree(installation.var, ignore_errors=True)


@pytest.mark.long
def test_one_command_answers_a_question_and_a_second_start_keeps_everything(
    installation: Installation,
) -> None:
    first = installation.up_and_serving()
    demo = installation.demo()
    assert (installation.var / "demo.json").stat().st_mode & 0o777 == 0o600
    assert demo["url"] == f"http://localhost:{installation.port}/"
    assert demo["admin"]["password"] in installation.printed()
    assert demo["api_key"] in installation.printed()
    found = installation.search("How do we roll back a deployment?")
    assert "choose **Roll back**" in found["passages"][0]["text"]

    second = installation.up()
    assert second.wait(_PATIENCE_SECONDS) == 1
    assert f"Port {installation.port} of 127.0.0.1 cannot be used" in installation.printed()
    assert installation.search("How do we roll back a deployment?")["passages"]

    first.send_signal(signal.SIGTERM)
    assert first.wait(_PATIENCE_SECONDS) == 0
    assert installation.children() == []
    assert installation.servers() == []

    again = installation.up_and_serving()
    assert installation.demo() == demo
    later = installation.search("How do we roll back a deployment?")
    assert [p["chunk_id"] for p in later["passages"]] == [p["chunk_id"] for p in found["passages"]]
    again.send_signal(signal.SIGINT)
    assert again.wait(_PATIENCE_SECONDS) == 0
    assert installation.children() == []
    assert installation.servers() == []


@pytest.mark.faults
@pytest.mark.parametrize("name", ["web", "worker", "beat"])
def test_when_one_process_dies_all_stop_and_it_is_named(
    installation: Installation, name: str
) -> None:
    process = installation.up_and_serving()
    installation.child(name).kill()
    assert process.wait(_PATIENCE_SECONDS) == 1
    assert f"The {name} process ended by signal 9" in installation.printed()
    assert installation.children() == []
    assert installation.servers() == []


@pytest.mark.faults
def test_after_a_kill_of_up_its_processes_end_and_a_new_one_serves(
    installation: Installation,
) -> None:
    process = installation.up_and_serving()
    process.kill()
    process.wait()
    installation.wait(lambda: installation.children() == [])
    assert installation.servers() != []
    again = installation.up_and_serving()
    assert installation.search("How big is the learning budget?")["passages"]
    again.send_signal(signal.SIGTERM)
    assert again.wait(_PATIENCE_SECONDS) == 0
    assert installation.servers() == []


@pytest.mark.faults
def test_after_a_kill_of_everything_at_once_a_new_one_serves(installation: Installation) -> None:
    process = installation.up_and_serving()
    demo = installation.demo()
    everything = [process.pid, *(child.pid for child in installation.children())]
    for pid in [*everything, *installation.servers()]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    installation.up_and_serving()
    assert installation.demo() == demo
    assert installation.search("How big is the learning budget?")["passages"]


@pytest.mark.faults
def test_what_was_attached_before_a_kill_of_everything_is_ingested_after_it(
    installation: Installation,
) -> None:
    """On the real broker, worker and database: nothing lost, nothing twice, within a minute."""
    process = installation.up_and_serving()
    texts = [f"# Note {n}\n\nThe quokka number {n} runs.\n" for n in range(6)]
    sent = [installation.attach(text, f"c-{n}") for n, text in enumerate([*texts, texts[0]])]
    everything = [process.pid, *(child.pid for child in installation.children())]
    for pid in [*everything, *installation.servers()]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    installation.up_and_serving()
    started = time.monotonic()

    def states() -> list[dict[str, Any]]:
        return [installation.request("GET", f"/v1/attachments/{one}") for one in sent]

    installation.wait(lambda: all(one["state"] == "ingested" for one in states()))
    assert time.monotonic() - started < 60
    documents = {one["document_id"] for one in states()}
    assert len(documents) == 6
    for document in documents:
        shown = installation.request("GET", f"/v1/documents/{document}")
        assert [version["version"] for version in shown["versions"]] == [1]
    gone = installation.request("DELETE", "/v1/conversations/c-1")
    assert [one["outcome"] for one in gone["documents"]] == ["deleted"]
    kept = installation.request("DELETE", "/v1/conversations/c-0")
    assert [one["outcome"] for one in kept["documents"]] == ["kept"]
