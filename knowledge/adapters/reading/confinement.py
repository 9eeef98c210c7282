"""What a child process takes away from itself before it looks at a file."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_OPEN_FILES = 64
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DENIED = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.")
_WATCHER_STACK = 256 * 1024


def confine(*, parent: int, seconds: float, memory: int) -> None:
    """Limit this process for good; what the kernel does not offer is left out.

    `seconds` bounds both CPU and wall time, so that even a child that nobody waits for any more
    ends. Must run while there is a single thread: a user namespace asks for that.
    """
    whole = max(int(seconds) + 1, 1)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    # One second between the limits: the first is a signal that tells what happened.
    _limit(resource.RLIMIT_CPU, whole, whole + 1)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)
    if sys.platform == "linux":
        # Darwin does not take this limit.
        _limit(resource.RLIMIT_AS, memory)
        _leave_the_network()
        _die_with(parent)
    sys.addaudithook(_deny)


def end_with_input(descriptor: int) -> None:
    """End this process as soon as its input does: then whoever started it is gone."""

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os._exit(1)

    threading.stack_size(_WATCHER_STACK)
    threading.Thread(target=wait, daemon=True).start()


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    wanted = soft if hard is None else hard
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        wanted = min(wanted, ceiling)
    resource.setrlimit(kind, (min(soft, wanted), wanted))


def _leave_the_network() -> None:
    """A network namespace without interfaces; kernels that forbid it are tolerated."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        libc.unshare(_CLONE_NEWNET)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _die_with(parent: int) -> None:
    # After the namespace: a change of credentials clears it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _deny(event: str, arguments: tuple[Any, ...]) -> None:
    """A second wall where there is no namespace: no sockets, no processes, no file to write."""
    if event.startswith(_DENIED):
        raise PermissionError(event)
    if event == "open" and len(arguments) == 3 and int(arguments[2] or 0) & _WRITING:  # noqa: PLR2004 - path, mode, flags
        raise PermissionError(event)
