"""Files of the workspace: attached by name, and only what its caller was meant to reach."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.test import Client
from pytest_django import Settings

from access.errors import ScopeMissing
from access.tenancy import operations_session
from artifacts import store as artifacts
from artifacts.errors import (
    ChecksumMismatch,
    FileChanged,
    InvalidUpload,
    NoWorkspace,
    UploadConflict,
    UploadQuotaExceeded,
)
from artifacts.files import FileMissing, UnsafePath
from artifacts.models import Artifact, Upload
from artifacts.sweeper import SweepReport, sweep
from artifacts.uploads import Receipt
from artifacts.workspace import attach_file
from tests.support import bearer, footprint, principal
from tests.uploading import piece, send, sha, stored

pytestmark = pytest.mark.django_db

ATTACH_FILE = "/v1/tools/knowledge.attach_file"
DATA = random.Random(13).randbytes(700_001)
SECRET = b"what nobody in there may read"


@pytest.fixture
def workspace(settings: Settings, tmp_path: Path, blob_root: Path) -> Path:
    """A workspace with a file in a folder, and something outside of it."""
    root = tmp_path / "workspace"
    (root / "reports").mkdir(parents=True)
    (root / "reports" / "run.log").write_bytes(DATA)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "run.log").write_bytes(SECRET)
    settings.WORKSPACE_ROOT = root
    blob_root.mkdir()
    return root


def attach(path: str = "reports/run.log", **given: Any) -> Receipt:
    asked = {
        "request_id": uuid4(),
        "sha256": sha(DATA),
        "filename": "run.log",
        "attribution": "the night shift",
        **given,
    }
    by = asked.pop("by", None) or principal()
    return attach_file(by, asked.pop("request_id"), path, asked.pop("sha256"), **asked)


# --- what it gives -----------------------------------------------------------------------------


def test_a_file_becomes_an_artifact_of_the_caller(workspace: Path) -> None:
    request_id = uuid4()
    receipt = attach(request_id=request_id)
    assert receipt.artifact_id is not None
    assert receipt == Receipt(
        request_id=request_id,
        offset=0,
        received=len(DATA),
        state="complete",  # type: ignore[arg-type] # a word of it
        artifact_id=receipt.artifact_id,
        sha256=sha(DATA),
    )
    assert stored(principal(), receipt.artifact_id) == DATA
    artifact = artifacts.get(principal(), receipt.artifact_id)
    assert (artifact.filename, artifact.attribution) == ("run.log", "the night shift")
    assert artifact.media_type == artifacts.media_type_of("run.log")
    assert artifact.expires_at is not None
    assert (workspace / "reports" / "run.log").read_bytes() == DATA


def test_it_may_be_named_from_the_root_on_or_with_it(workspace: Path) -> None:
    (workspace / "top.md").write_bytes(b"# Top\n")
    for path in ("top.md", f"{workspace}/top.md"):
        assert attach(path, sha256=sha(b"# Top\n"), filename="top.md").received == 6


def test_an_empty_file_and_one_larger_than_an_upload(workspace: Path, settings: Settings) -> None:
    settings.MAX_UPLOAD_BYTES = 1_000
    (workspace / "empty").touch()
    assert attach("empty", sha256=sha(b"")).received == 0
    assert attach().received == len(DATA)


def test_the_call_and_the_command(workspace: Path, client: Client) -> None:
    asked = {
        "file_path": "reports/run.log",
        "sha256": sha(DATA),
        "request_id": str(uuid4()),
        "filename": "run.log",
        "attribution": "",
        "media_type": "text/plain",
    }
    answers = [
        client.post(ATTACH_FILE, asked, content_type="application/json", headers=bearer())
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    receipt = answers[0].json()
    assert (receipt["state"], receipt["received"]) == ("complete", len(DATA))
    assert artifacts.get(principal(), UUID(receipt["artifact_id"])).media_type == "text/plain"

    def run(*more: str) -> dict[str, Any]:
        out = io.StringIO()
        arguments = ("--tenant", "acme", "--principal", "alice", "--json", *more)
        call_command("attach_file", "reports/run.log", *arguments, stdout=out)
        told: dict[str, Any] = json.loads(out.getvalue())
        return told

    told = run("--sha256", sha(DATA).upper())
    assert stored(principal(), UUID(told["artifact_id"])) == DATA
    with pytest.raises(CommandError, match="checksum_mismatch"):
        run("--sha256", sha(b"another"))


# --- who may -----------------------------------------------------------------------------------


def test_only_where_there_is_a_workspace_and_for_whom_it_is(
    workspace: Path, settings: Settings, client: Client
) -> None:
    with pytest.raises(ScopeMissing):
        attach(by=principal(scopes=frozenset()))
    settings.WORKSPACE_TENANTS = ["globex"]
    with pytest.raises(NoWorkspace):
        attach()
    assert attach(by=principal(tenant="globex")).received == len(DATA)
    settings.WORKSPACE_TENANTS, settings.WORKSPACE_ROOT = [], None
    asked = {
        "file_path": "reports/run.log",
        "sha256": sha(DATA),
        "request_id": str(uuid4()),
        "filename": "run.log",
        "attribution": "",
    }
    answer = client.post(ATTACH_FILE, asked, content_type="application/json", headers=bearer())
    assert (answer.status_code, answer.json()["code"]) == (404, "no_workspace")


# --- asked again -------------------------------------------------------------------------------


def test_the_same_again_is_the_same_receipt_whatever_became_of_the_file(workspace: Path) -> None:
    request_id = uuid4()
    first = attach(request_id=request_id)
    file = workspace / "reports" / "run.log"
    file.write_bytes(b"something else")
    assert attach(request_id=request_id) == first
    file.unlink()
    assert attach(request_id=request_id) == first
    with operations_session():
        assert Artifact.objects.count() == Upload.objects.count() == 1


@pytest.mark.parametrize(
    "other",
    [
        {"path": "other"},
        {"sha256": sha(b"other")},
        {"filename": "other"},
        {"attribution": "other"},
        {"media_type": "text/plain"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_something_else_under_the_same_request_is_a_conflict(
    workspace: Path, blob_root: Path, other: dict[str, str]
) -> None:
    (workspace / "other").write_bytes(b"other")
    request_id = uuid4()
    attach(request_id=request_id)
    before = footprint(blob_root)
    with pytest.raises(UploadConflict):
        attach(**{"request_id": request_id, **other})  # type: ignore[arg-type]
    assert footprint(blob_root) == before


def test_requests_by_pieces_and_by_name_do_not_mix(workspace: Path) -> None:
    by_pieces, by_name = uuid4(), uuid4()
    told = {"filename": "run.log", "attribution": "the night shift"}
    send(principal(), by_pieces, piece(0, DATA[:10]), **told)
    with pytest.raises(UploadConflict):
        attach(request_id=by_pieces)
    attach(request_id=by_name)
    with pytest.raises(UploadConflict):
        send(principal(), by_name, piece(0, DATA[:10]), **told)


def test_a_request_is_its_principals_own(workspace: Path) -> None:
    request_id = uuid4()
    callers = [principal(), principal("bob"), principal(tenant="globex")]
    made = {attach(request_id=request_id, by=by).artifact_id for by in callers}
    assert len(made) == 3


@pytest.mark.django_db(transaction=True)
def test_two_at_once_make_one_artifact(workspace: Path, blob_root: Path) -> None:
    request_id = uuid4()
    barrier = threading.Barrier(4)

    def run(_: int) -> Receipt:
        try:
            barrier.wait()
            return attach(request_id=request_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(run, range(4)))
    assert len({receipt.artifact_id for receipt in receipts}) == 1
    assert len([path for path in blob_root.rglob("*") if path.is_file()]) == 1
    with operations_session():
        assert Artifact.objects.count() == Upload.objects.count() == 1


# --- what is refused ---------------------------------------------------------------------------


def _hardlink(root: Path) -> str:
    os.link(root.parent / "outside" / "run.log", root / "link")
    return "link"


def _symlink(root: Path) -> str:
    (root / "link").symlink_to(root.parent / "outside" / "run.log")
    return "link"


def _symlink_within(root: Path) -> str:
    (root / "link").symlink_to(root / "reports" / "run.log")
    return "link"


def _linked_folder(root: Path) -> str:
    (root / "linked").symlink_to(root.parent / "outside")
    return "linked/run.log"


def _linked_folder_within(root: Path) -> str:
    (root / "linked").symlink_to("reports")
    return "linked/run.log"


def _pipe(root: Path) -> str:
    os.mkfifo(root / "pipe")
    return "pipe"


def _socket(root: Path) -> str:
    here = Path.cwd()
    os.chdir(root)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
    finally:
        os.chdir(here)
    return "socket"


UNSAFE: dict[str, Callable[[Path], str]] = {
    "hard link": _hardlink,
    "symbolic link": _symlink,
    "symbolic link to what is inside": _symlink_within,
    "linked folder": _linked_folder,
    "linked folder inside": _linked_folder_within,
    "pipe": _pipe,
    "socket": _socket,
    "folder": lambda _: "reports",
    "outside": lambda root: f"{root.parent}/outside/run.log",
    "up": lambda _: "../outside/run.log",
    "up from below": lambda _: "reports/../../outside/run.log",
    "up, with the root": lambda root: f"{root}/../outside/run.log",
    "up and back": lambda _: "reports/../reports/run.log",
    "here": lambda _: "./reports/run.log",
    "beside the root": lambda root: f"{root}-of-another/run.log",
    "absolute": lambda _: "/etc/passwd",
    "empty part": lambda _: "reports//run.log",
    "slash at the end": lambda _: "reports/run.log/",
    "the root": str,
    "nothing": lambda _: "",
    "NUL": lambda _: "reports/run.log\0.md",
    "a file as a folder": lambda _: "reports/run.log/x",
}


@pytest.mark.parametrize("how", UNSAFE)
def test_what_is_no_regular_file_within_is_refused(
    workspace: Path, blob_root: Path, how: str
) -> None:
    path = UNSAFE[how](workspace)
    before = footprint(blob_root)
    with pytest.raises(UnsafePath) as told:
        attach(path, sha256=sha(SECRET))
    assert str(workspace.parent) not in str(told.value)
    assert footprint(blob_root) == before


def test_a_device_is_refused(workspace: Path) -> None:
    if os.geteuid() != 0:  # nobody else can make one
        return
    os.mknod(workspace / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    with pytest.raises(UnsafePath):
        attach("zero")


def test_other_refusals_keep_nothing(workspace: Path, blob_root: Path, settings: Settings) -> None:
    before = footprint(blob_root)
    with pytest.raises(FileMissing):
        attach("reports/nothing.log")
    with pytest.raises(FileMissing):
        attach("nowhere/run.log")
    with pytest.raises(ChecksumMismatch):
        attach(sha256=sha(b"another"))
    with pytest.raises(InvalidUpload):
        attach(filename="a\0b")
    settings.UPLOAD_QUOTA_BYTES = len(DATA) - 1
    with pytest.raises(UploadQuotaExceeded):
        attach()
    assert footprint(blob_root) == before


def test_over_its_quota_a_file_is_not_even_read(
    workspace: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.UPLOAD_QUOTA_BYTES = len(DATA) - 1
    monkeypatch.setattr("artifacts.blobs.StorageBlobStore.put", lambda *_: 1 / 0)
    with pytest.raises(UploadQuotaExceeded):
        attach()


# --- what changes meanwhile --------------------------------------------------------------------

# Each done by another process when half of the file has been read.
CHANGES = {
    "more at its end": "open(path, 'ab').write(b'more')",
    "cut": "os.truncate(path, 400_000)",
    "cut before what was read": "os.truncate(path, 10)",
    "written over in place": "f = open(path, 'r+b'); f.seek(600_000); f.write(b'other')",
    "written over with the same": "f = open(path, 'r+b'); f.write(open(path, 'rb').read(10))",
    "replaced": "open(path + '.new', 'wb').write(b'other'); os.replace(path + '.new', path)",
    "replaced with the same": (
        "open(path + '.new', 'wb').write(open(path, 'rb').read()); os.replace(path + '.new', path)"
    ),
    "removed": "os.unlink(path)",
    "a second name": "os.link(path, path + '.second')",
}


_GROWING = """
import sys, time
with open(sys.argv[1], "ab", 0) as file:
    print(flush=True)
    while True:
        file.write(b"x" * 65_536)
        time.sleep(0.0005)
"""


@pytest.fixture
def halfway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Has something done once, when some of a file has been read."""
    from artifacts.workspace import _Steady  # noqa: PLC0415 - its inside is what is interrupted

    read, left = _Steady.read, [2]
    pending: list[Callable[[], None]] = []

    def interrupted(self: Any, size: int = -1, /) -> bytes:
        left[0] -= 1
        if left[0] == 0:
            pending[0]()
        return read(self, size)

    monkeypatch.setattr(_Steady, "read", interrupted)
    yield pending.append
    assert left[0] <= 0


def in_another_process(code: str, path: Path) -> None:
    said = f"import os, sys; path = sys.argv[1]; {code}"
    subprocess.run([sys.executable, "-c", said, str(path)], check=True, timeout=60)


@pytest.mark.parametrize("how", CHANGES)
def test_a_file_that_another_process_changes_while_it_is_read(
    workspace: Path,
    blob_root: Path,
    halfway: Callable[[Callable[[], None]], None],
    how: str,
) -> None:
    file = workspace / "reports" / "run.log"
    before = footprint(blob_root)
    halfway(lambda: in_another_process(CHANGES[how], file))
    with pytest.raises(FileChanged):
        attach()
    assert footprint(blob_root) == before


def test_a_file_that_grows_for_ever_is_not_read_for_ever(workspace: Path, blob_root: Path) -> None:
    file = workspace / "growing.log"
    file.write_bytes(DATA)
    writer = subprocess.Popen([sys.executable, "-c", _GROWING, str(file)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(5):
            with pytest.raises((FileChanged, ChecksumMismatch)):
                attach("growing.log")
    finally:
        writer.kill()
        writer.communicate()
    with operations_session():
        assert Artifact.objects.count() == 0


def test_a_folder_that_is_swapped_for_a_link_never_leads_out(workspace: Path) -> None:
    """Whoever can write to the workspace races with whoever attaches from it."""
    ends = threading.Event()
    real, link = workspace / "reports", workspace / "linked"
    link.symlink_to(workspace.parent / "outside")
    spare = workspace / "spare"

    def swap() -> None:
        while not ends.is_set():
            real.rename(spare)
            link.rename(real)
            real.rename(link)
            spare.rename(real)

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes = set()
    try:
        for _ in range(300):
            try:
                attach(sha256=hashlib.sha256(SECRET).hexdigest())
                outcomes.add("read")
            except (UnsafePath, FileMissing, ChecksumMismatch, FileChanged) as refused:
                outcomes.add(refused.code)
    finally:
        ends.set()
        swapping.join()
    assert "read" not in outcomes
    # The race was one: both were met.
    assert {"unsafe_path", "checksum_mismatch"} <= outcomes


def test_what_an_interrupted_call_leaves_is_swept(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, blob_root: Path
) -> None:
    """The bytes are there, the process dies before the row: the same call again goes through."""
    request_id = uuid4()

    class Died(BaseException):
        pass

    with monkeypatch.context() as dying:
        dying.setattr("artifacts.blobs.StorageBlobStore.delete", lambda *_: None)
        dying.setattr("artifacts.workspace.now", _raising(Died))
        with pytest.raises(Died):
            attach(request_id=request_id)
    receipt = attach(request_id=request_id)
    assert stored(principal(), receipt.artifact_id) == DATA
    for path in blob_root.rglob("*"):
        os.utime(path, (0, 0))
    assert sweep() == SweepReport(orphans=1)
    assert stored(principal(), receipt.artifact_id) == DATA


def _raising(error: type[BaseException]) -> Callable[[], None]:
    def raising() -> None:
        raise error

    return raising
