"""The disposable child, with real processes: what it may not do, and that it is gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import billiard
import psutil
import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings

from knowledge.adapters.extractors import Extractors, PdfExtractor, child, parsed
from knowledge.core.errors import (
    ExtractionBusy,
    ExtractionInterrupted,
    ExtractionMemory,
    ExtractionTimeout,
    KnowledgeError,
    TooLarge,
    TooMuchText,
    UnreadableDocument,
)
from tests.documents import lines, pdf

Misbehave = Callable[[str], None]
LINUX = sys.platform == "linux"


@pytest.fixture
def misbehave(monkeypatch: pytest.MonkeyPatch) -> Misbehave:
    """Have the children do something else than read, where they would read."""

    def install(body: str) -> None:
        start = (
            "import sys; sys.path[:] = sys.argv[1:]\n"
            "import os, time, signal\n"
            "from knowledge.adapters.reading import child\n"
            f"def act(content):\n{textwrap.indent(body, '    ')}\n"
            "def answer(request, content):\n"
            "    try:\n"
            "        return {'found': {'said': act(content)}}\n"
            "    except MemoryError:\n"
            "        return {'refused': 'memory'}\n"
            "    except Exception as error:\n"
            "        return {'found': {'said': type(error).__name__}}\n"
            "child._answer = answer\n"
            "child.main()\n"
        )
        monkeypatch.setattr(child, "_START", start)

    return install


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    assert _children() == []


def _children() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if "knowledge.adapters.reading" in " ".join(_command(process))
    ]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _read(content: bytes = b"content", seconds: float = 20.0) -> Any:
    found = child.read(content, format="pdf", task="extract", seconds=seconds)
    return found["said"] if "said" in found else found["text"]


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_large_content_arrives_whole_and_so_does_a_large_answer(misbehave: Misbehave) -> None:
    misbehave("return content.decode()[::-1]")
    content = b"0123456789" * 1_000_000
    assert _read(content) == content.decode()[::-1]


def test_the_child_knows_nothing_of_the_application(
    misbehave: Misbehave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_FOR_THE_PARENT", "x")
    misbehave(
        "for name in ('pdf', 'html', 'docx'):\n"
        "    __import__('knowledge.adapters.reading.' + name)\n"
        "roots = {name.split('.')[0] for name in sys.modules}\n"
        "return sorted(roots & {'django', 'access', 'config', 'artifacts', 'celery', 'psycopg'})"
        " + sorted(set(os.environ) - {'MALLOC_ARENA_MAX', 'LC_CTYPE'})"
    )
    assert _read() == []


class TestLimits:
    def test_a_child_that_sleeps_ends_at_the_deadline(self, misbehave: Misbehave) -> None:
        misbehave("time.sleep(60)")
        began = time.monotonic()
        with pytest.raises(ExtractionTimeout):
            _read(seconds=1.0)
        assert time.monotonic() - began < 4

    def test_a_child_that_spins_in_c_ends_at_the_deadline(self, misbehave: Misbehave) -> None:
        misbehave("return 7 ** (10 ** 9) > 0")
        with pytest.raises(ExtractionTimeout):
            _read(seconds=1.0)

    def test_a_child_that_does_not_read_its_input_ends_at_the_deadline(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(child, "_START", "import time; time.sleep(60)")
        with pytest.raises(ExtractionTimeout):
            _read(b"x" * 5_000_000, seconds=1.0)

    def test_even_a_child_that_nobody_waits_for_ends(self, misbehave: Misbehave) -> None:
        """The limits are the child's own: here the parent grants more than it told the child."""
        misbehave("signal.setitimer(signal.ITIMER_REAL, 1)\ntime.sleep(60)")
        with pytest.raises(ExtractionTimeout):
            _read(seconds=30)

    def test_processor_time_is_limited(self, misbehave: Misbehave) -> None:
        misbehave(
            "import resource\n"
            "hard = resource.getrlimit(resource.RLIMIT_CPU)\n"
            "resource.setrlimit(resource.RLIMIT_CPU, (1, hard[1]))\n"
            "while True: pass"
        )
        with pytest.raises(ExtractionTimeout):
            _read(seconds=30)

    @pytest.mark.skipif(not LINUX, reason="this system does not limit address space")
    def test_memory_is_limited(self, misbehave: Misbehave) -> None:
        misbehave("return len(bytearray(600 * 1024 ** 2))")
        with pytest.raises(ExtractionMemory):
            _read()

    @pytest.mark.parametrize(
        ("limit", "most"),
        [("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", 0), ("RLIMIT_NOFILE", 64), ("RLIMIT_CPU", 22)],
    )
    def test_limits_that_are_set(self, misbehave: Misbehave, limit: str, most: int) -> None:
        misbehave(f"import resource\nreturn max(resource.getrlimit(resource.{limit}))")
        assert _read(seconds=20) <= most

    def test_input_is_limited(self) -> None:
        with pytest.raises(TooLarge):
            _read(b"x" * (child.LARGEST_INPUT + 1))

    def test_output_is_limited(self, misbehave: Misbehave) -> None:
        misbehave("return 'x' * (33 * 1024 ** 2)")
        with pytest.raises(TooMuchText) as refused:
            _read()
        assert refused.value.code == "extraction_too_large"

    @pytest.mark.parametrize("size", [2**63, 2**40])
    def test_a_child_that_lies_about_its_answer_is_not_believed(
        self, misbehave: Misbehave, size: int
    ) -> None:
        misbehave(f"child._write(3, ({size}).to_bytes(8, 'big') + b'x' * 100)\ntime.sleep(60)")
        # The private copy of its output is the first descriptor that was free.
        with pytest.raises(UnreadableDocument):
            _read(seconds=10)

    @pytest.mark.parametrize("answer", ["b'no json'", "b'[]'", "b'{}'", 'b\'{"refused": "x"}\''])
    def test_an_answer_that_makes_no_sense_is_a_refusal(
        self, misbehave: Misbehave, answer: str
    ) -> None:
        misbehave(
            f"said = {answer}\nchild._write(3, len(said).to_bytes(8, 'big') + said)\nos._exit(0)"
        )
        with pytest.raises(UnreadableDocument):
            _read()


class TestWalls:
    def test_no_sockets(self, misbehave: Misbehave) -> None:
        misbehave("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM)")
        assert _read() == "PermissionError"

    @pytest.mark.skipif(not LINUX, reason="this system has no namespaces")
    def test_no_network_where_namespaces_can_be_made(self, misbehave: Misbehave) -> None:
        own = str(Path("/proc/self/ns/net").readlink())
        if subprocess.run(["unshare", "-Un", "true"], check=False, capture_output=True).returncode:
            pytest.skip("no namespaces here")
        misbehave("return os.readlink('/proc/self/ns/net')")
        assert _read() != own

    def test_no_processes(self, misbehave: Misbehave) -> None:
        misbehave("os.fork()")
        assert _read() == "PermissionError"

    def test_no_files(self, misbehave: Misbehave, tmp_path: Path) -> None:
        misbehave(f"open({str(tmp_path / 'made')!r}, 'w').write('x')")
        assert _read() == "PermissionError"
        assert list(tmp_path.iterdir()) == []

    def test_what_a_library_prints_is_lost(
        self, misbehave: Misbehave, capfd: pytest.CaptureFixture[str]
    ) -> None:
        misbehave(
            "print('to be lost', flush=True)\n"
            "print('to be lost', file=sys.stderr, flush=True)\n"
            "os.write(1, b'to be lost')\nos.write(2, b'to be lost')\nreturn 'good'"
        )
        assert _read() == "good"
        assert "to be lost" not in "".join(capfd.readouterr())


class TestTheEnd:
    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ("os.kill(os.getpid(), signal.SIGSEGV)", UnreadableDocument),
            ("os.abort()", UnreadableDocument),
            ("os._exit(3)", UnreadableDocument),
            ("os._exit(70)", ExtractionMemory),
            ("os.kill(os.getpid(), signal.SIGXCPU)", ExtractionTimeout),
            ("os.kill(os.getpid(), signal.SIGKILL)", ExtractionInterrupted),
        ],
    )
    def test_what_an_end_without_an_answer_means(
        self, misbehave: Misbehave, body: str, expected: type[KnowledgeError]
    ) -> None:
        misbehave(body)
        with pytest.raises(expected):
            _read()

    @pytest.mark.parametrize("cancelled_by", [KeyboardInterrupt, SoftTimeLimitExceeded])
    def test_cancellation_ends_the_child_before_its_slot_is_free(
        self, misbehave: Misbehave, cancelled_by: type[BaseException]
    ) -> None:
        def cancel(*_: Any) -> None:
            raise cancelled_by

        misbehave("time.sleep(60)")
        before = signal.signal(signal.SIGUSR1, cancel)
        try:
            timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with pytest.raises(cancelled_by):
                _read()
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)
        assert _children() == []
        misbehave("return 'next'")
        assert _read() == "next"

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
    def test_a_child_dies_with_its_parent(self, how: signal.Signals) -> None:
        program = (
            "from knowledge.adapters.extractors import child\n"
            "child._START = 'import sys; sys.path[:] = sys.argv[1:]\\n"
            "from knowledge.adapters.reading import child\\nimport time\\n"
            "child._answer = lambda *_: time.sleep(60)\\nchild.main()'\n"
            "child.read(b'x', format='pdf', task='extract', seconds=50)\n"
        )
        parent = subprocess.Popen([sys.executable, "-c", program], cwd=settings.BASE_DIR)
        try:
            seen = psutil.Process(parent.pid)
            assert _within(20, lambda: bool(seen.children()))
            (young,) = seen.children()
            # Long enough to have confined itself; before that the end of its input ends it too.
            time.sleep(1)
            parent.send_signal(how)
            parent.wait(10)
            assert _within(10, lambda: not young.is_running())
        finally:
            with suppress(ProcessLookupError):
                parent.kill()
            parent.wait()

    def test_the_end_of_its_input_ends_a_child(self, misbehave: Misbehave) -> None:
        """As on systems that do not tell a child of its parent's death."""
        misbehave("time.sleep(60)")
        request = {
            "format": "pdf",
            "task": "extract",
            "parent": os.getpid(),
            "seconds": 50,
            "memory_bytes": 2**29,
            "content_bytes": 1,
            "answer_bytes": 100,
        }
        header = json.dumps(request).encode()
        young = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", child._START, *child._import_paths()],
            stdin=subprocess.PIPE,
        )
        assert young.stdin
        young.stdin.write(len(header).to_bytes(8, "big") + header + b"x")
        young.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            young.wait(1)
        young.stdin.close()
        assert young.wait(10) == 1


def _in_a_worker() -> None:
    os._exit(0 if _read(pdf(lines("Words here."))) == "Words here." else 1)


def test_it_works_in_a_process_of_a_prefork_pool() -> None:
    """Those are daemons, which may not have children through multiprocessing."""
    worker = billiard.Process(target=_in_a_worker, daemon=True)
    worker.start()
    worker.join(20)
    assert worker.exitcode == 0


def test_where_a_reader_fails_is_logged_and_not_over_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"), pytest.raises(UnreadableDocument):
        child.read(b"%PDF-1.7 confidential", format="pdf", task="extract", seconds=20)
    (record,) = caplog.records
    assert record.getMessage() == "document_unreadable"
    assert record.__dict__["error"] == "PdfStreamError"
    assert "pdf.py" in record.__dict__["stack"][1]
    assert "confidential" not in str(record.__dict__)


def test_inspection_has_less_time_than_extraction(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, float] = {}

    def note(content: bytes, *, format: str, task: str, seconds: float) -> Any:  # noqa: A002
        asked[task] = seconds
        return child.read(content, format=format, task=task, seconds=seconds)

    monkeypatch.setattr(parsed, "read", note)
    content = pdf(lines("Words here."))
    PdfExtractor().inspect(content)
    PdfExtractor().extract(content, media_type="application/pdf", charset=None)
    assert asked == {"inspect": 10, "extract": 60}


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("time.sleep(60)", None),
        ("os.abort()", UnreadableDocument),
        ("os._exit(70)", ExtractionMemory),
    ],
)
def test_a_first_look_that_takes_too_long_says_nothing(
    misbehave: Misbehave,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    refused: type[KnowledgeError] | None,
) -> None:
    monkeypatch.setattr(parsed, "INSPECTION_SECONDS", 1.0)
    misbehave(body)
    if refused is None:
        return Extractors().inspect(b"%PDF-1.7", "application/pdf")
    with pytest.raises(refused):
        Extractors().inspect(b"%PDF-1.7", "application/pdf")
    return None


class TestSlots:
    def test_two_at_once_and_the_third_waits(self, misbehave: Misbehave) -> None:
        misbehave("time.sleep(1.5)\nreturn 'done'")
        most, said = 0, []
        threads = [threading.Thread(target=lambda: said.append(_read())) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, len(_children()))
            time.sleep(0.05)
        assert said == ["done"] * 4
        assert most == child.AT_ONCE

    def test_waiting_counts(self, misbehave: Misbehave) -> None:
        misbehave("time.sleep(3)\nreturn 'done'")
        threads = [threading.Thread(target=_read) for _ in range(child.AT_ONCE)]
        for thread in threads:
            thread.start()
        assert _within(5, lambda: len(_children()) == child.AT_ONCE)
        began = time.monotonic()
        with pytest.raises(ExtractionBusy) as busy:
            _read(seconds=0.5)
        assert time.monotonic() - began < 2
        assert busy.value.status == 503
        for thread in threads:
            thread.join()

    def test_every_kind_of_end_frees_its_slot(self, misbehave: Misbehave) -> None:
        for body in ("os.abort()", "raise MemoryError", "os._exit(0)", "time.sleep(9)"):
            for _ in range(child.AT_ONCE + 1):
                misbehave(body)
                with pytest.raises(KnowledgeError):
                    _read(seconds=0.7)
        misbehave("return 'free'")
        assert _read() == "free"

    def test_a_forked_process_has_slots_of_its_own(self, misbehave: Misbehave) -> None:
        misbehave("return 'good'")
        with child._slots.one(time.monotonic() + 1), child._slots.one(time.monotonic() + 1):
            pid = os.fork()
            if not pid:
                status = 1
                with suppress(BaseException):
                    status = 0 if _read(seconds=15) == "good" else 1
                os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
