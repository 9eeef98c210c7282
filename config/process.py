"""One of the processes that `manage.py up` runs: `python -m config.process web|worker|beat`.

It ends when its standard input does. That is how it learns that `up` is gone even when `up` was
killed and could tell nobody.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Final

# A web process that is told to end has so long for what it has begun, an upload that still arrives
# among it; whoever ends it by force waits for longer. The units and the compose file say the same.
ANSWERS_WITHIN_SECONDS: Final = 30
ENDS_WITHIN_SECONDS: Final = 40
_WORKERS = "2"


def _end_with_parent() -> None:
    def wait() -> None:
        # Not through sys.stdin: its lock, held for ever, would break the end of the process.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def web() -> None:
    import uvicorn  # noqa: PLC0415 - each process loads only what it runs
    from django.conf import settings  # noqa: PLC0415

    uvicorn.run(
        "config.asgi:application",
        host=settings.BIND,
        port=settings.PORT,
        # Our logging stays as it is; an access log would write queries down.
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=ANSWERS_WITHIN_SECONDS,
    )


def worker() -> None:
    from celery.exceptions import SecurityWarning  # noqa: PLC0415

    from config.celery import app  # noqa: PLC0415

    # Celery warns of running as root, where a pickled message could do anything; ours are JSON.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["--quiet", "worker", f"--concurrency={_WORKERS}", *alone])


def beat() -> None:
    from config.celery import app  # noqa: PLC0415

    app.start(["--quiet", "beat", "--pidfile="])


PROCESSES: dict[str, Callable[[], None]] = {"web": web, "worker": worker, "beat": beat}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    _end_with_parent()
    PROCESSES[sys.argv[1]]()
