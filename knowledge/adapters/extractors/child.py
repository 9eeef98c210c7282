"""Starting a disposable child process for one file, and making sure that it is gone afterwards.

Plain `subprocess`, so that it works inside Celery's prefork pool, whose processes may not have
`multiprocessing` children. The answer is JSON, never a pickle: a child that a file has taken over
can only give a wrong text.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import knowledge
from knowledge.adapters.reading.answers import Reason
from knowledge.adapters.reading.child import LENGTH, OUT_OF_MEMORY
from knowledge.core.errors import (
    EmptyExtraction,
    EncryptedDocument,
    ExtractionBusy,
    ExtractionInterrupted,
    ExtractionMemory,
    ExtractionTimeout,
    Refused,
    TooLarge,
    TooMuchText,
    UnreadableDocument,
)

logger = logging.getLogger(__name__)

INSPECTION_SECONDS = 10.0
EXTRACTION_SECONDS = 60.0
"""Deadlines from the call on, waiting for a slot included."""

LARGEST_INPUT = LARGEST_ANSWER = 32 * 1024**2
LARGEST_MEMORY = 512 * 1024**2
AT_ONCE = 2
"""Children of one process at a time."""

_LAST_WORD_SECONDS = 2.0
_PIECE = 1 << 16
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from knowledge.adapters.reading.child import main; main()"
)
# One arena: each further one would reserve much of the address space that a child may have.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}

_REFUSALS: Mapping[str, type[Refused]] = {
    Reason.ENCRYPTED: EncryptedDocument,
    Reason.UNREADABLE: UnreadableDocument,
    Reason.EMPTY: EmptyExtraction,
    Reason.TOO_LARGE: TooMuchText,
    Reason.MEMORY: ExtractionMemory,
}


class _Slots:
    """At most `AT_ONCE` children; a process forked off from this one has slots of its own."""

    def __init__(self) -> None:
        self._all_free()
        os.register_at_fork(after_in_child=self._all_free)

    def _all_free(self) -> None:
        self._free = threading.BoundedSemaphore(AT_ONCE)

    @contextlib.contextmanager
    def one(self, ends: float) -> Iterator[None]:
        taken = False
        try:
            taken = self._free.acquire(timeout=max(ends - time.monotonic(), 0))
            if not taken:
                raise ExtractionBusy
            yield
        finally:
            if taken:
                self._free.release()


_slots = _Slots()


def read(content: bytes, *, format: str, task: str, seconds: float) -> dict[str, Any]:  # noqa: A002
    """What the task of that format's reader finds in `content`, as the reader's own mapping.

    Raises the `Refused` that the reader asks for, `TooLarge`, `ExtractionTimeout` and
    `ExtractionMemory`, all for good; and `ExtractionBusy` or `ExtractionInterrupted`, after
    which it may be tried again. When this returns or raises, the child has ended and been reaped.
    """
    began = time.monotonic()
    ends = began + seconds
    if len(content) > LARGEST_INPUT:
        raise TooLarge(
            f"A file of this kind can have {LARGEST_INPUT} bytes, and this one has {len(content)}.",
            limit=LARGEST_INPUT,
        )
    with _slots.one(ends):
        started = time.monotonic()
        try:
            answer = _asked(content, format=format, task=task, ends=ends)
        except TimeoutError:
            if started - began > seconds / 2:
                raise ExtractionBusy from None
            raise ExtractionTimeout(seconds=seconds) from None
    return _found(answer)


def _found(answer: bytes) -> dict[str, Any]:
    try:
        said = json.loads(answer)
        if "refused" not in said:
            return dict(said["found"])
        refusal = _REFUSALS[said["refused"]]
        detail, members = str(said.get("detail", "")), dict(said.get("members", {}))
        if "error" in said:
            told = {"error": str(said["error"]), "stack": [str(line) for line in said["stack"]]}
            logger.info("document_unreadable", extra=told)
    except (ValueError, KeyError, TypeError):
        raise UnreadableDocument from None
    raise refusal(detail, **members)


def _asked(content: bytes, *, format: str, task: str, ends: float) -> bytes:  # noqa: A002
    """The answer of a fresh child. Raises `TimeoutError`, and what its end says when it has none."""
    child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
        [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _START, *_import_paths()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # What a library writes there could quote the file.
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
    try:
        request = {
            "format": format,
            "task": task,
            "parent": os.getpid(),
            "seconds": max(ends - time.monotonic(), 0.1),
            "memory_bytes": LARGEST_MEMORY,
            "content_bytes": len(content),
            "answer_bytes": LARGEST_ANSWER,
        }
        header = json.dumps(request).encode()
        answer = _exchanged(child, [len(header).to_bytes(LENGTH, "big") + header, content], ends)
        if answer is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LAST_WORD_SECONDS)
    finally:
        _end(child)
    if answer is None:
        raise _told_by(child.returncode)
    return answer


def _import_paths() -> list[str]:
    """Where this process finds modules, which is where its child has to look."""
    root = str(Path(knowledge.__file__).resolve().parent.parent)
    return [root, *(str(Path(entry).absolute()) for entry in sys.path if entry)]


def _exchanged(child: subprocess.Popen[bytes], parts: list[bytes], ends: float) -> bytes | None:
    """Send the parts and wait for the answer; `None` when the child ends without one.

    The input stays open: its end tells the child that its parent is gone.
    """
    to_child, from_child = cast("Any", child.stdin), cast("Any", child.stdout)
    received = bytearray()
    waiting = [memoryview(part) for part in parts if part]
    with selectors.DefaultSelector() as ready:
        for descriptor in (to_child.fileno(), from_child.fileno()):
            os.set_blocking(descriptor, False)
        ready.register(to_child, selectors.EVENT_WRITE)
        ready.register(from_child, selectors.EVENT_READ)
        while True:
            left = ends - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in ready.select(left):
                if key.fd == to_child.fileno():
                    if not _sent(to_child.fileno(), waiting):
                        ready.unregister(to_child)
                    continue
                piece = os.read(from_child.fileno(), _PIECE)
                received += piece
                answer = _whole(received)
                if answer is not None or not piece:
                    return answer


def _sent(descriptor: int, waiting: list[memoryview]) -> bool:
    """Write what fits now; whether something is left to write."""
    try:
        written = os.write(descriptor, waiting[0])
    except BlockingIOError:
        return True
    except BrokenPipeError:
        return False
    waiting[0] = waiting[0][written:]
    if not waiting[0]:
        waiting.pop(0)
    return bool(waiting)


def _whole(received: bytearray) -> bytes | None:
    if len(received) < LENGTH:
        return None
    size = int.from_bytes(received[:LENGTH], "big")
    if size > LARGEST_ANSWER:
        # A child of ours would have said so itself.
        raise UnreadableDocument
    return bytes(received[LENGTH:]) if len(received) >= LENGTH + size else None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child with all that it may have started, and reap it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    child.wait()


def _told_by(status: int) -> Exception:
    """What the end of a child without an answer means."""
    if status in {-signal.SIGXCPU, -signal.SIGALRM}:
        return ExtractionTimeout()
    if status == OUT_OF_MEMORY:
        return ExtractionMemory()
    if status in {-signal.SIGKILL, -signal.SIGTERM}:
        # None of our limits ends a child so: somebody did, or the machine ran out of memory.
        return ExtractionInterrupted()
    return UnreadableDocument()
