"""manage.py up: everything that serves, from one command, until it is told to stop."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from config import demo
from config.process import ENDS_WITHIN_SECONDS

_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Command(BaseCommand):
    help = "Starts the services, the web server, a worker and beat, and stops them all together."
    requires_system_checks: list[str] = []  # noqa: RUF012 - the framework's shape

    def handle(self, *_args: Any, **_options: Any) -> None:
        _require_free_port()
        call_command("check", database=["default"])
        self._tell("Bringing the database up to date ...")
        call_command("migrate", interactive=False, verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        shown = demo.prepare(self._tell)
        # From here on being told to stop is a good end, whoever tells us.
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt), _children() as children:
            _start(children, "web")
            _wait_until_ready(children)
            _start(children, "worker")
            _start(children, "beat")
            self._welcome(shown)
            _watch(children)
        self._tell("Stopped.")

    def _tell(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _welcome(self, shown: demo.Demo | None) -> None:
        url = settings.VERBATIM_PUBLIC_URL
        lines = ["", "Verbatim is running. Ctrl-C stops it.", "", f"  Home      {url}/"]
        if shown is None:
            lines += [f"  Admin     {url}/admin/", f"  API docs  {url}/docs/", ""]
            self._tell("\n".join(lines))
            return
        demo.keep(shown, url)
        lines += [
            f"  Admin     {url}/admin/  (user {demo.OPERATOR}, password {shown.password})",
            f"  API docs  {url}/docs/",
            f"  API key   {shown.api_key}  (tenant {demo.TENANT}, principal {demo.PRINCIPAL})",
            f"  All of this is also in {os.path.relpath(demo.path())}",
            "",
            *_conversation(shown),
        ]
        self._tell("\n".join(lines))


def _require_free_port() -> None:
    family = socket.AF_INET6 if ":" in settings.BIND else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server will: a port that only remembers old connections is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.BIND, settings.PORT))
        except OSError as error:
            raise CommandError(
                f"Port {settings.PORT} of {settings.BIND} cannot be used ({error.strerror}): stop "
                "what serves there, or set PORT to another.",
                returncode=1,
            ) from error


# --- the child processes


_Children = dict[str, subprocess.Popen[bytes]]


@contextlib.contextmanager
def _children() -> Iterator[_Children]:
    """What `_start` puts in for the length of the block; all of it ends with the block."""
    children: _Children = {}
    try:
        yield children
    finally:
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # we are stopping already
        hurry = threading.Event()
        # Who presses it again will not wait for what is being answered.
        signal.signal(signal.SIGINT, lambda *_: hurry.set())
        _end(list(children.values()), hurry)


def _start(children: _Children, name: str) -> None:
    environment = {
        # A terminal that shows the way in is worth more than one that scrolls.
        "LOG_LEVEL": "WARNING",
        **({"DATABASE_POOL_SIZE": "20"} if name == "web" else {}),
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    children[name] = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "config.process", name],
        cwd=settings.BASE_DIR,
        env=environment,
        stdin=subprocess.PIPE,
        # Ctrl-C reaches us alone, and we end them in order.
        start_new_session=True,
    )


def _end(children: list[subprocess.Popen[bytes]], hurry: threading.Event) -> None:
    for child in children:
        child.terminate()
    deadline = time.monotonic() + ENDS_WITHIN_SECONDS
    while any(child.poll() is None for child in children):
        if hurry.is_set() or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    for child in children:
        # What is left of it, its own children included; a task cut short is done again.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdin:
            child.stdin.close()


def _check_alive(children: _Children) -> None:
    for name, child in children.items():
        if (status := child.poll()) is not None:
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            raise CommandError(
                f"The {name} process ended {how}, so everything else was stopped.", returncode=1
            )


def _watch(children: _Children) -> None:
    while True:
        _check_alive(children)
        time.sleep(_LOOK_SECONDS)


# --- talking to our own web process


def _request(
    method: str, path: str, body: dict[str, Any] | None = None, key: str = ""
) -> tuple[int, Any]:
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.BIND, settings.BIND)  # noqa: S104
    connection = http.client.HTTPConnection(here, settings.PORT, timeout=30)
    headers = {"Host": urlsplit(settings.VERBATIM_PUBLIC_URL).netloc}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def _wait_until_ready(children: _Children) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        _check_alive(children)
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            status, _ = _request("GET", "/readyz")
            if status == http.HTTPStatus.OK:
                return
        time.sleep(_LOOK_SECONDS)
    raise CommandError("The web process does not become ready.", returncode=1)


def _conversation(shown: demo.Demo) -> list[str]:
    """A question as a command to copy, what it really answers, and where that is from."""
    url = settings.VERBATIM_PUBLIC_URL
    question = {"text": demo.first_question(), "max_passages": 1}
    path = "/v1/tools/knowledge.search"
    command = (
        f"  curl -s {url}{path} \\\n"
        f"    -H 'Authorization: Bearer {shown.api_key}' \\\n"
        "    -H 'Content-Type: application/json' \\\n"
        f"    -d {shlex.quote(json.dumps(question))}"
    )
    lines = ["Ask it something:", "", command, ""]
    try:
        status, answer = _request("POST", path, question, shown.api_key)
        if status != http.HTTPStatus.OK:
            return [*lines, f"It answers with status {status}: {answer.get('detail')}", ""]
        if not answer["passages"]:
            return [*lines, "It finds nothing: the sample documents have been deleted.", ""]
        first = answer["passages"][0]
        status, cited = _request("GET", f"/v1/chunks/{first['chunk_id']}", key=shown.api_key)
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return lines
    lines += ["It answers with JSON, and in that the block for a model:", ""]
    lines += [f"  {line}".rstrip() for line in answer["block"].splitlines()]
    if status == http.HTTPStatus.OK:
        source = f"{cited['source']['filename']}, version {cited['version']}"
        lines += [
            "",
            f"It quotes lines {cited['line_start']} to {cited['line_end']} of {source}.",
        ]
        if link := first.get("citation_url"):
            lines.append(f"See it in place: {link}")
    return [*lines, ""]
