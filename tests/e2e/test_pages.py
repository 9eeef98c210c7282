"""The README and the pages below docs/, typed as they stand into an installation of their own.

A clone is made and served as the README says. Each page is one session of a shell in it: its
commands run in order, with what the page takes as given (`GIVEN`) before them, and what a page
shows as output has to be of the shape of what is printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from config.embedded import kill_and_remove
from config.places import Places
from tests.e2e.installation import Installation
from tests.pages import (
    GIVEN,
    PAGES,
    PLACEHOLDERS,
    ROOT,
    blocks,
    name_of,
    output_pattern,
    to_run,
)

pytestmark = pytest.mark.long

_README = ROOT / "README.md"
_MARK = "::block "
_END = "END OF THE PROGRAM"
_PATIENCE_SECONDS = 900
_LEFT_BEHIND = shutil.ignore_patterns(
    "var", ".venv", ".git", "__pycache__", ".*_cache", ".hypothesis"
)
_RUN = {name_of(page): found for page in PAGES if (found := to_run(page))}


class Clone(Installation):
    """The project in a folder of its own, with the environment of this process in `.venv`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "var")
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=_LEFT_BEHIND)
        (folder / ".venv").symlink_to(sys.prefix)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PORT": str(self.port),
            # Compiled once for all sessions of this clone.
            "SECRET_RULES_CACHE": str(ROOT / "var" / "secret-rules"),
        }

    def up(self) -> subprocess.Popen[bytes]:
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                [".venv/bin/python", "manage.py", "up"],
                cwd=self.folder,
                # What `children` knows them by; it is what holds when nothing is set.
                env={**self.environment(), "VERBATIM_VAR": str(self.var)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def here(self, text: str) -> str:
        """What a page says, where its addresses are those of this installation."""
        for address in ("http://localhost:8000", "https://verbatim.example.org"):
            text = text.replace(address, f"http://localhost:{self.port}")
        return text


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    clone = Clone(tmp_path_factory.mktemp("newcomer") / "verbatim")
    try:
        clone.up_and_serving()
        yield clone
    finally:
        for process in clone.running:
            process.terminate()
            process.wait()
        kill_and_remove(Places.of(clone.var))


def _script(page: str, clone: Clone) -> str:
    lines = ["set -euo pipefail", GIVEN.get(page, "")]
    for number, block in enumerate(_RUN[page]):
        lines.append(f"echo '{_MARK}{number}'")
        text = clone.here(block.text).rstrip("\n")
        for written, given in PLACEHOLDERS.get(page, {}).items():
            text = text.replace(written, given)
        if block.file:
            folder = Path(block.file).parent
            lines += [f"mkdir -p {folder}", f"cat > {block.file} <<'{_END}'", text, _END]
        elif block.language == "python":
            lines += [f".venv/bin/python - <<'{_END}'", text, _END]
        elif block.status:
            # Of its last command, which the page says is refused.
            lines += ["set +e", text, "status=$?", "set -e"]
            lines.append(f'[ "$status" = {block.status} ] || {{ echo "status $status"; exit 99; }}')
        else:
            lines.append(text)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", _RUN)
def test_what_a_page_says_is_what_happens(page: str, clone: Clone, tmp_path: Path) -> None:
    script = tmp_path / "session.sh"
    script.write_text(_script(page, clone))
    ran = subprocess.run(
        ["bash", script],
        cwd=clone.folder,
        env=clone.environment() | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    printed = re.split(rf"^{_MARK}\d+\n", ran.stdout, flags=re.MULTILINE)[1:]
    last = _RUN[page][len(printed) - 1] if printed else "before the first block"
    assert ran.returncode == 0, f"{last}\n{ran.stdout}\n{ran.stderr}"
    for block, output in zip(_RUN[page], printed, strict=True):
        if block.shows is not None:
            pattern = output_pattern(clone.here(block.shows))
            # A bar of progress that went away leaves an empty line.
            assert pattern.fullmatch(output.lstrip("\n")), (
                f"{block} shows\n{block.shows}\nand it is\n{output}"
            )


def test_the_start_prints_what_the_readme_shows(clone: Clone) -> None:
    [shown] = [block for block in blocks(_README) if "Verbatim is running." in block.text]
    assert output_pattern(clone.here(shown.text)).fullmatch(clone.printed())


def test_the_processes_of_a_server_run_as_the_readme_says(clone: Clone, tmp_path: Path) -> None:
    """On servers that are somebody else's: those of the clone, named by their addresses."""
    places = Places.of(clone.var)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = {
        **clone.environment(),
        "PATH": f"{clone.folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "DATABASE_URL": places.database_url(),
        "REDIS_URL": places.redis_url(),
        "SECRET_KEY": "x" * 60,
        "VERBATIM_PUBLIC_URL": f"http://localhost:{port}",
        "VERBATIM_VAR": str(tmp_path / "var"),
        "UVICORN_PORT": str(port),
    }
    (tmp_path / "var").mkdir()
    [block] = [block for block in blocks(_README) if block.text.startswith("python manage.py mig")]
    commands = [line.partition("#")[0].split() for line in block.text.splitlines()]
    assert [command[0] for command in commands] == [
        "python",
        "python",
        "uvicorn",
        "celery",
        "celery",
    ]
    for command in commands[:2]:
        subprocess.run(command, cwd=clone.folder, env=environment, check=True, capture_output=True)

    for command in commands[2:]:
        _start_and_end(command, environment, clone, tmp_path / f"{command[-1]}.log")


def _start_and_end(
    command: list[str], environment: dict[str, str], clone: Clone, log: Path
) -> None:
    def is_up() -> bool:
        if process.poll() is not None:
            return True
        if command[0] == "celery":
            told = {"worker": " ready.", "beat": "beat: Starting"}[command[-1]]
            return told in log.read_text(errors="replace")
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(f"{environment['VERBATIM_PUBLIC_URL']}/readyz", timeout=30)
            return answer.status_code == 200
        return False

    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=clone.folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        clone.wait(is_up)
        assert process.poll() is None, log.read_text()
        process.terminate()
        assert process.wait(60) in {0, -signal.SIGTERM}, log.read_text()
    finally:
        process.kill()
        process.wait()
