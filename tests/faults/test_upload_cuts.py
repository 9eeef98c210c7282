"""Uploads that are cut, by SIGKILL and by whatever else: what was acknowledged is there for good."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.conf import settings

from access.tenancy import operations_session
from artifacts.errors import ChecksumMismatch, UploadConflict, UploadOutOfOrder
from artifacts.models import UploadPiece
from artifacts.uploads import LARGEST_PIECE, Piece
from tests.support import other_process, principal
from tests.uploading import journal, piece, pieces, send, sha, stored

pytestmark = pytest.mark.django_db(transaction=True)

CUTS = 200
REFUSALS = 50

# Sends a file from where the journal is, says what was acknowledged, and dies at a point.
_CLIENT = """
import json, os, signal, sys
from pathlib import Path
from pkgutil import resolve_name
from uuid import UUID
import django
django.setup()
from tests.support import principal
from tests.uploading import pieces, send
request_id, path, start, owner_path, name, when, times = sys.argv[1:]
owner = resolve_name(owner_path)
real, left = getattr(owner, name), [int(times)]

def die():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(*given, **named):
    if when == "before":
        die()
    result = real(*given, **named)
    if when == "after":
        die()
    return result

setattr(owner, name, dying)
for one in pieces(Path(path).read_bytes(), start=int(start)):
    receipt = send(principal(), UUID(request_id), one)
    print(json.dumps({"offset": one.offset, "size": len(one.content)}), flush=True)
"""
# Where it dies, before or after, and which time it comes there.
POINTS = {
    "journal locked": ("artifacts.uploads", "_journal", "after", 3),
    "piece written, not committed": ("artifacts.uploads", "_accept", "after", 4),
    "final piece committed": ("artifacts.uploads", "_completed", "before", 1),
    "bytes about to be joined": ("artifacts.blobs:StorageBlobStore", "put", "before", 1),
    "bytes joined": ("artifacts.blobs:StorageBlobStore", "put", "after", 1),
    "file made, not told": ("artifacts.uploads", "_completed", "after", 1),
}


def killed_at(point: str, request_id: UUID, path: Path, blob_root: Path) -> list[dict[str, int]]:
    target = [str(one) for one in POINTS[point]]
    dead = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(request_id), str(path), "0", *target],
        cwd=settings.BASE_DIR,
        env=other_process(blob_root),
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    return [json.loads(line) for line in dead.stdout.decode().splitlines()]


def check(point: str, blob_root: Path, folder: Path) -> None:
    content = random.Random(point).randbytes(5 * LARGEST_PIECE + 17)
    path, request_id, alice = folder / "original", uuid4(), principal()
    path.write_bytes(content)
    acknowledged = killed_at(point, request_id, path, blob_root)
    before = journal()
    held = {row["offset"]: row["size"] for row in before[1]}
    assert all(held[one["offset"]] == one["size"] for one in acknowledged)
    # What was acknowledged is told again without a change.
    for one in pieces(content)[: len(acknowledged)]:
        send(alice, request_id, one)
    assert journal() == before
    for one in pieces(content)[len(acknowledged) :]:
        receipt = send(alice, request_id, one)
    assert (receipt.sha256, len(journal()[2])) == (sha(content), 1)
    assert stored(alice, receipt.artifact_id) == content


def test_a_client_killed_before_its_final_piece_is_acknowledged(
    blob_root: Path, tmp_path: Path
) -> None:
    check("bytes joined", blob_root, tmp_path)


@pytest.mark.faults
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere(blob_root: Path, tmp_path: Path, point: str) -> None:
    check(point, blob_root, tmp_path)


@pytest.mark.long
def test_cut_anywhere_and_resumed_it_is_the_same_file(blob_root: Path) -> None:
    chance = random.Random(int(os.environ.get("UPLOAD_SEED", "42")))
    alice, same = principal(), 0
    for _ in range(CUTS):
        content = chance.randbytes(chance.randint(1, 6 * LARGEST_PIECE))
        cut, request_id = chance.randrange(len(content)), uuid4()
        for one in pieces(content, chance):
            if one.offset + len(one.content) > cut:
                if chance.random() < 0.5:  # it arrived and the answer did not
                    send(alice, request_id, one)
                break
            send(alice, request_id, one)
        same += resumed(content, request_id, chance) == sha(content)
    assert same == CUTS


def resumed(content: bytes, request_id: UUID, chance: random.Random) -> str:
    """Goes on from where the store says, with pieces of other sizes. The hash of what is stored."""
    start = next_offset(request_id, content)
    if start is None:
        with operations_session():
            final = UploadPiece.objects.get(upload__request_id=request_id, final=True)
        rest = [piece(final.offset, content[final.offset :], final=True)]
    else:
        rest = pieces(content, chance, start=start)
    for one in rest:
        receipt = send(principal(), request_id, one)
    found = stored(principal(), receipt.artifact_id)
    assert sha(found) == receipt.sha256
    return sha(found)


def next_offset(request_id: UUID, content: bytes) -> int | None:
    """What the refusal of a piece far beyond says; `None` when the file is whole."""
    with pytest.raises((UploadOutOfOrder, UploadConflict)) as refused:
        send(principal(), request_id, piece(len(content) + 1, b"?"))
    return refused.value.members.get("next_offset")


@pytest.mark.long
def test_wrong_offsets_and_checksums_change_nothing(blob_root: Path) -> None:
    chance = random.Random(43)
    alice, request_id = principal(), uuid4()
    start = piece(0, chance.randbytes(10_000))
    send(alice, request_id, start)
    before = journal()
    wrong = [offset for offset in chance.sample(range(1, 20_000), REFUSALS + 1) if offset != 10_000]
    for offset in wrong[:REFUSALS]:
        with pytest.raises(UploadOutOfOrder) as refused:
            send(
                alice, request_id, piece(offset, chance.randbytes(50), final=chance.random() < 0.5)
            )
        assert refused.value.members == {"next_offset": 10_000}
        assert journal() == before
    for _ in range(REFUSALS):
        content = bytearray(chance.randbytes(chance.randint(1, 5_000)))
        told = sha(bytes(content))
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        bad = Piece(offset=10_000, content=bytes(content), sha256=told, final=chance.random() < 0.5)
        with pytest.raises(ChecksumMismatch):
            send(alice, request_id, bad)
        assert journal() == before
