"""A Celery worker like the real one, into which tests put faults from outside.

`python -m tests.faults.worker`, with `FAULT_QUEUE` to listen to and `FAULT_FILE` to look at: while
that file holds the name of a point, whoever comes to it takes the file away and dies by SIGKILL,
`child` (the process that works) or `worker` (all of them). Leases are shortened, so that what a
dead worker held is free again in seconds.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import django

SHORT = timedelta(seconds=2)

# Where a worker may die: what is called there, and whether before or after it did its work.
POINTS = {
    "claimed": ("knowledge.models.job:IngestJobQuerySet.claim", "after"),
    "reading": ("knowledge.ingest.pipeline:normalised", "before"),
    "scanning": ("knowledge.core.scanning:SecretGate.check", "after"),
    "planned": ("knowledge.ingest.pipeline:Ingestor.plan", "after"),
    "bytes stored": ("artifacts.store:store_blob", "after"),
    "begun": ("knowledge.ingest.commit:_begin", "after"),
    "batch written": ("knowledge.ingest.batches:_write", "after"),
    "between batches": ("knowledge.ingest.batches:_embedded", "before"),
    "finalizing": ("knowledge.ingest.batches:_NewVersion.finalize", "after"),
    "published": ("knowledge.ingest.commit:carry_out", "after"),
    "recorded": ("knowledge.ingest.jobs:_record_result", "after"),
}


def _fault(point: str) -> None:
    path = Path(os.environ["FAULT_FILE"])
    try:
        armed, scope = path.read_text().split(";")
        if armed != point:
            return
        path.unlink()
    except (FileNotFoundError, ValueError):
        return
    if scope == "child":
        os.kill(os.getpid(), signal.SIGKILL)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _arm(point: str, target: str, when: str) -> None:
    module, _, path = target.partition(":")
    owner_path, _, name = path.rpartition(".")
    owner = resolve_name(f"{module}:{owner_path}") if owner_path else resolve_name(module)
    real: Callable[..., Any] = getattr(owner, name)

    def faulty(*given: Any, **named: Any) -> Any:
        if when == "before":
            _fault(point)
        result = real(*given, **named)
        if when == "after":
            _fault(point)
        return result

    setattr(owner, name, faulty)


def main() -> None:
    django.setup()

    from celery.exceptions import SecurityWarning  # noqa: PLC0415 - after the set-up

    from config.celery import app  # noqa: PLC0415
    from knowledge import tasks  # noqa: PLC0415
    from knowledge.adapters import leases  # noqa: PLC0415
    from knowledge.ingest import batches, commit, jobs  # noqa: PLC0415
    from knowledge.wiring import store  # noqa: PLC0415

    for point, (target, when) in POINTS.items():
        _arm(point, target, when)
    for module, name in (
        (jobs, "LEASE"),
        (jobs, "HINT_AGAIN"),
        (batches, "LEASE"),
        (commit, "LEASE"),
    ):
        setattr(module, name, SHORT)
    vars(leases)["BEAT_SECONDS"] = 0.5
    # Loaded once, and there in every child that takes a dead one's place.
    store().ingestor.secret_scanner.scan("ready")
    store().ingestor.language_detector.detect("All is ready, so the work can begin right now.")
    queue = os.environ["FAULT_QUEUE"]
    app.conf.task_default_queue = queue
    assert tasks.run_ingest_job.name in app.tasks
    warnings.filterwarnings("ignore", category=SecurityWarning)
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["--quiet", "worker", "--concurrency=2", f"--queues={queue}", *alone])


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    main()
