"""kill -9 of a rechunking at any point: searches stay right, and the next run finishes it."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from access.principal import Principal
from access.tenancy import operations_session
from knowledge.models import Chunk, ChunkSet
from tests.db.test_rechunk import everything, long_note
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.rechunk_fakes import later
from tests.support import admit

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

_RUN = """
import sys, time
import django
django.setup()
from uuid import UUID
from access.principal import Principal
from knowledge.core.types import RechunkRequest
from tests.rechunk_fakes import later
by = later()
by.ingestor.secret_scanner.scan("warm up")
print("ready", flush=True)
by.rechunk(
    UUID(sys.argv[1]),
    Principal.for_operator("acme", "olga"),
    RechunkRequest(batch_size=1),
    lambda told: time.sleep(0.02),
)
"""
_KILLS = 8


def test_a_rechunking_killed_again_and_again_is_finished_by_the_next_run(blob_root: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    old = admit(long_note(8))
    before = everything()
    assert before == sorted(old.chunk_ids)
    committed = 0
    for _ in range(_KILLS):
        done = _run_until_killed(old.document_id, blob_root, after=chance.uniform(0, 0.6))
        assert_statistics_are_those_of_the_live_rows()
        with operations_session():
            states = sorted(ChunkSet.objects.values_list("state", flat=True))
            there = Chunk.objects.exclude(chunk_set__state="retired").count() - len(before)
        if done or "retired" in states:
            break
        assert everything() == before
        assert states in (["live"], ["ingesting", "live"])
        assert there >= committed, "what was committed is kept"
        committed = there
    _run_until_killed(old.document_id, blob_root, after=None)
    with operations_session():
        assert sorted(ChunkSet.objects.values_list("state", flat=True)) == ["live", "retired"]
        new = sorted(
            Chunk.objects.filter(chunk_set__state="live").values_list("chunk_id", flat=True)
        )
    assert everything() == new
    assert not set(new) & set(before)
    assert_statistics_are_those_of_the_live_rows()
    again = later().rechunk(old.document_id, Principal.for_operator("acme", "olga"))
    assert again.outcome == "unchanged"


def _run_until_killed(document_id: object, blob_root: Path, *, after: float | None) -> bool:
    """Whether it came to its end before it was killed, so long after it began."""
    name = connection.settings_dict["NAME"]
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(document_id)],
        cwd=settings.BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": re.sub(
                r"(://[^/]*/)[^?]*", rf"\g<1>{name}", os.environ["DATABASE_URL"]
            ),
            "ARTIFACT_ROOT": str(blob_root),
        },
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        if after is None:
            assert process.wait(timeout=120) == 0
            return True
        time.sleep(after)
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
    return ended
