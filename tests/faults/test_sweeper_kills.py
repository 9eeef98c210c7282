"""SIGKILL of a sweeper at each of its points: the next one finishes, and nothing living is harmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from access.principal import Principal
from access.tenancy import operations_session
from artifacts import store as artifacts
from artifacts.models import Artifact, SweepRun
from artifacts.sweeper import SweepReport, sweep
from knowledge.core.types import ConnectorIdentity
from knowledge.lifecycle.verify_deletion import Verification
from knowledge.wiring import store
from tests.support import admit, ask, other_process, principal, upload

pytestmark = pytest.mark.django_db(transaction=True)

SOURCE = ConnectorIdentity(type="wiki", id="pumps")
EXPIRED = 5

# A sweeper that dies at a point: what is called there, before or after it did its work, which time.
_SWEEPER = """
import os, signal, sys
from pkgutil import resolve_name
import django
django.setup()
from artifacts import sweeper
sweeper._BATCH = 2
owner_path, name, when, times = sys.argv[1:]
owner = resolve_name(owner_path)
real, left = getattr(owner, name), [int(times)]

def dying(*given, **named):
    if when == "before":
        die()
    result = real(*given, **named)
    if when == "after":
        die()
    return result

def die():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, dying)
sweeper.sweep(by="doomed")
"""
POINTS = {
    "run begun": ("artifacts.sweeper", "_begin", "after", 1),
    "expiries handed over": ("artifacts.sweeper", "_sweep_expired", "before", 1),
    "rows locked": ("artifacts.sweeper", "_still_due", "after", 1),
    "first bytes about to go": ("artifacts.blobs:StorageBlobStore", "delete", "before", 1),
    "first bytes gone": ("artifacts.blobs:StorageBlobStore", "delete", "after", 1),
    "second batch under way": ("artifacts.blobs:StorageBlobStore", "delete", "after", 3),
    "artifacts swept": ("artifacts.sweeper", "_sweep_expired", "after", 1),
    "orphans found": ("artifacts.sweeper", "_unknown", "after", 1),
    "an orphan gone": ("artifacts.blobs:StorageBlobStore", "delete", "after", 7),
    "about to say so": ("artifacts.sweeper", "_finish", "before", 1),
}


def killed_at(point: str, blob_root: Path) -> None:
    target = [str(one) for one in POINTS[point]]
    dead = subprocess.run(
        [sys.executable, "-c", _SWEEPER, *target],
        cwd=settings.BASE_DIR,
        env=other_process(blob_root),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()


def check(point: str, blob_root: Path) -> None:
    kept = admit("# Other\n\nThe wallaby stays.\n", filename="other.md")
    mine = upload(principal(), "mine")
    admit("# Pumps\n\nThe quokka runs.\n", source=SOURCE)
    gone = admit("# Pumps\n\nThe quokka runs on.\n", source=SOURCE)
    receipt = store().delete(gone.document_id, principal())
    others = [upload(principal(), str(number)) for number in range(EXPIRED - 2)]
    with operations_session():
        artifacts.expire([one.pk for one in others])
    orphans = [blob_root / artifacts.store_blob(b"nobody's") for _ in range(3)]
    for orphan in orphans:
        os.utime(orphan, (0, 0))

    killed_at(point, blob_root)
    assert not ask("quokka").passages
    assert artifacts.read_bytes(mine) == b"mine"
    with operations_session():
        # Bytes first and the row last: no blob is left that only a row that went knew of.
        named = set(Artifact.objects.values_list("storage_key", flat=True))
        unnamed = {str(path.relative_to(blob_root)) for path in files(blob_root)} - named
        assert unnamed <= {str(path.relative_to(blob_root)) for path in orphans}
        assert SweepRun.objects.get().finished_at is None

    rest = sweep(by="the next one")
    assert rest.failed == 0
    assert sweep() == SweepReport()
    with operations_session():
        named = set(Artifact.objects.values_list("storage_key", flat=True))
    assert {str(path.relative_to(blob_root)) for path in files(blob_root)} == named
    assert store().get_chunk(kept.chunk_ids[0], principal())
    assert artifacts.read_bytes(mine) == b"mine"
    assert store().get_deletion(receipt.pk, principal()).bytes_state == "swept"
    found: Verification = store().verify_deletion(
        gone.document_id, Principal.for_operator("acme", "olga")
    )
    assert found.clean, found


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_a_sweeper_killed_between_the_bytes_and_the_row(blob_root: Path) -> None:
    check("first bytes gone", blob_root)


@pytest.mark.faults
@pytest.mark.parametrize("point", POINTS)
def test_a_sweeper_killed_anywhere(blob_root: Path, point: str) -> None:
    check(point, blob_root)
