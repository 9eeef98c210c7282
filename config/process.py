"""One of the processes that `manage.py up` runs: `python -m config.process web|worker|beat`.

It ends when its standard input does. That is how it learns that `up` is gone even when `up` was
killed and could tell nobody.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

_WORKERS = "2"


def _end_with_parent() -> None:
    def wait() -> None:
        sys.stdin.buffer.read()
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
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=5,
    )


def worker() -> None:
    from config.celery import app  # noqa: PLC0415

    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", f"--concurrency={_WORKERS}", *quiet])


def beat() -> None:
    from config.celery import app  # noqa: PLC0415

    app.start(["beat", "--pidfile="])


PROCESSES: dict[str, Callable[[], None]] = {"web": web, "worker": worker, "beat": beat}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    _end_with_parent()
    PROCESSES[sys.argv[1]]()
