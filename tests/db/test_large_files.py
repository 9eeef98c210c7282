"""Files of gigabytes take no more memory than small ones, whichever way they go."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings as django_settings
from pytest_django import Settings

from artifacts import store as artifacts
from artifacts.models import Artifact
from knowledge.evaluation.http import served
from tests.storages import Storage
from tests.support import bearer, other_process, principal

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

MIB = 1024**2
GROWTH = 64 * MIB

# Does one thing with a small file, for all that is loaded once, and then with a large one.
_CHILD = """
import json, sys
import django
django.setup()
from functools import partial
from pathlib import Path
from uuid import uuid4
from artifacts import store, uploads
from artifacts.workspace import attach_file
from tests.support import principal
from tests.uploading import piece

SIZE = uploads.LARGEST_PIECE
alice = principal()

def peak():
    status = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

def put(path, sha256):
    with open(path, "rb") as file:
        return store.put(alice, file, filename="file.bin").pk

def attach(path, sha256):
    return attach_file(alice, uuid4(), path, sha256, filename="file.bin").artifact_id

def send(path, sha256):
    request_id, left, offset = uuid4(), Path(path).stat().st_size, 0
    with open(path, "rb") as file:
        while True:
            content = file.read(SIZE)
            left -= len(content)
            one = piece(offset, content, final=not left)
            receipt = uploads.attach(alice, request_id, one, filename="file.bin")
            offset += len(content)
            if not left:
                return receipt.artifact_id

def read(artifact_id):
    with store.open_bytes(store.get(alice, artifact_id)) as stream:
        for _ in iter(partial(stream.read, 1 << 20), b""):
            pass

way = {"put": put, "attach_file": attach, "pieces": send}[sys.argv[1]]
read(way(sys.argv[2], sys.argv[3]))
before = peak()
made = way(sys.argv[4], sys.argv[5])
written = peak()
read(made)
print(json.dumps({"id": str(made), "write": written - before, "read": peak() - before}))
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    """Where large files are made, and gone afterwards: they are not kept with failed tests."""
    folder = tmp_path / "files"
    folder.mkdir()
    yield folder
    for path in folder.iterdir():
        path.unlink()


def a_file(folder: Path, size: int) -> tuple[str, str]:
    """A file that takes no room on the disk, and its SHA-256."""
    path = folder / f"{size}.bin"
    with path.open("wb") as file:
        file.truncate(size - 3)
        file.seek(size - 3)
        file.write(b"end")
    with path.open("rb") as file:
        return str(path), hashlib.file_digest(file, "sha256").hexdigest()


def measured(way: str, files: Path, size: int, **environment: str) -> tuple[Artifact, str]:
    """Has it done in a process of its own, and returns what it made and its hash."""
    # One that is small and yet goes in several blocks and parts.
    small, large = a_file(files, 17 * MIB), a_file(files, size)
    given = {
        "MAX_UPLOAD_BYTES": str(size),
        "WORKSPACE_ROOT": str(files),
        "PYTHONPATH": str(django_settings.BASE_DIR),
        **environment,
    }
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, way, *small, *large],
        env=other_process(Path(os.devnull), **given),
        stdout=subprocess.PIPE,
        check=True,
        timeout=1_500,
    )
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    print(f"{way}, {size // MIB} MiB: {told['write'] / MIB:.1f} MiB, {told['read'] / MIB:.1f} MiB")
    assert told["write"] < GROWTH
    assert told["read"] < GROWTH
    artifact = artifacts.get(principal(), told["id"])
    assert (artifact.byte_size, artifact.sha256) == (size, large[1])
    return artifact, large[1]


@pytest.mark.parametrize("way", ["put", "attach_file"])
def test_two_gigabytes_written_and_read(way: str, blob_root: Path, files: Path) -> None:
    artifact, _ = measured(way, files, 2_048 * MIB, ARTIFACT_ROOT=str(blob_root))
    (blob_root / artifact.storage_key).unlink()


@pytest.mark.parametrize("way", ["put", "attach_file", "pieces"])
def test_a_quarter_of_a_gigabyte_in_any_storage(way: str, storage: Storage, files: Path) -> None:
    """In pieces no more than that: each is a call, and a piece in the database."""
    artifact, _ = measured(way, files, 256 * MIB, **storage.environment)
    storage.blobs.delete(artifact.storage_key)


def test_two_gigabytes_downloaded_from_a_server(
    blob_root: Path, files: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sha256 = a_file(files, 2_048 * MIB)
    settings.MAX_UPLOAD_BYTES = 2_048 * MIB
    made = []
    for name in (a_file(files, 17 * MIB)[0], path):
        with Path(name).open("rb") as file:
            made.append(artifacts.put(principal(), file, filename="file.bin"))
    monkeypatch.setenv("ARTIFACT_ROOT", str(blob_root))
    key = bearer()["Authorization"]
    with served() as server:
        [process] = [
            child for child in psutil.Process().children() if "config.process" in child.cmdline()
        ]
        assert _downloaded(server.port, made[0], key) == made[0].sha256
        before = _peak(process.pid)
        assert _downloaded(server.port, made[1], key) == sha256
        growth = _peak(process.pid) - before
    print(f"download, 2048 MiB: {growth / MIB:.1f} MiB")
    assert growth < GROWTH
    (blob_root / made[1].storage_key).unlink()


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _downloaded(port: int, artifact: Artifact, key: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(
        "GET", f"/v1/artifacts/{artifact.pk}/content", headers={"Authorization": key}
    )
    answer = connection.getresponse()
    assert answer.status == 200
    digest = hashlib.sha256()
    while block := answer.read(MIB):
        digest.update(block)
    connection.close()
    return digest.hexdigest()
