"""Bytes that are no longer what was stored are never given out as if they were."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.test import Client

from artifacts import store as artifacts
from artifacts.errors import BlobDamaged, RangeNotSatisfiable
from artifacts.models import Artifact
from knowledge.evaluation.http import served
from tests.factories import make_superuser
from tests.storages import Storage
from tests.support import admit, bearer, principal, upload

pytestmark = pytest.mark.django_db

DATA = random.Random(11).randbytes(300_001)
CONTENT = "/v1/artifacts/{}/content"
ATTACHMENT = "/v1/tools/knowledge.attachment"

DAMAGES: dict[str, Callable[[Storage, str], None]] = {
    "first byte": lambda storage, key: storage.flip(key, 0),
    "last byte": lambda storage, key: storage.flip(key, -1),
    "cut": lambda storage, key: storage.write(key, DATA[:-1]),
    "emptied": lambda storage, key: storage.write(key, b""),
    "longer": lambda storage, key: storage.write(key, DATA + b"!"),
}
damaged = pytest.mark.parametrize("how", DAMAGES)


def damage(storage: Storage, how: str) -> Artifact:
    artifact = upload(principal(), DATA, "data.bin")
    assert artifacts.read_bytes(artifact) == DATA
    DAMAGES[how](storage, artifact.storage_key)
    return artifact


@damaged
def test_a_whole_read_says_so(storage: Storage, how: str, caplog: pytest.LogCaptureFixture) -> None:
    artifact = damage(storage, how)
    with pytest.raises(BlobDamaged):
        artifacts.read_bytes(artifact)
    [record] = [record for record in caplog.records if record.msg == "blob_damaged"]
    assert record.__dict__["artifact_id"] == str(artifact.pk)
    for size in (1_000, 64 * 1024, len(DATA)):
        given: list[bytes] = []
        with artifacts.open_bytes(artifact) as stream, pytest.raises(BlobDamaged):
            given.extend(iter(partial(stream.read, size), b""))
        assert sum(map(len, given)) < len(DATA)


@pytest.mark.parametrize("size", [1, 997, 64 * 1024, -1])
def test_what_is_whole_is_read_in_any_steps(storage: Storage, size: int) -> None:
    data = DATA[:5_000] if size == 1 else DATA
    artifact = upload(principal(), data, "data.bin")
    with artifacts.open_bytes(artifact) as stream:
        for _ in range(2):
            assert stream.seek(0) == 0
            read = b""
            while block := stream.read(size):
                read += block
            assert read == data
        buffer = bytearray(10)
        assert stream.seek(-10, 2) == len(data) - 10
        assert stream.readinto(buffer) == 10  # type: ignore[attr-defined]
        assert bytes(buffer) == data[-10:]
        stream.seek(len(data) + 1)
        assert stream.read() == b""


@damaged
def test_a_download_breaks_off_before_its_end(storage: Storage, client: Client, how: str) -> None:
    artifact = damage(storage, how)
    answer = client.get(CONTENT.format(artifact.pk), headers=bearer())
    assert answer.status_code == 200
    given: list[bytes] = []
    with pytest.raises(BlobDamaged):
        given.extend(iter(answer))
    assert sum(map(len, given)) < int(answer.headers["Content-Length"])
    # The same of a range that is all of it.
    answer = client.get(CONTENT.format(artifact.pk), headers={**bearer(), "Range": "bytes=0-"})
    assert answer.status_code == 206
    with pytest.raises(BlobDamaged):
        b"".join(iter(answer))


def test_a_range_is_compared_by_length_alone(storage: Storage, client: Client) -> None:
    """What it says of itself, its ETag, is the hash of the whole, for whoever puts parts together."""
    artifact = damage(storage, "first byte")
    headers = {**bearer(), "Range": "bytes=0-9"}
    answer = client.get(CONTENT.format(artifact.pk), headers=headers)
    assert b"".join(iter(answer))[1:] == DATA[1:10]
    assert answer.headers["ETag"] == f'"{artifact.sha256}"'
    storage.write(artifact.storage_key, DATA[:5])
    answer = client.get(CONTENT.format(artifact.pk), headers=headers)
    with pytest.raises(BlobDamaged):
        b"".join(iter(answer))


def test_a_part_of_a_shorter_blob_is_a_problem(storage: Storage, client: Client) -> None:
    artifact = damage(storage, "cut")
    asked = {
        "artifact": str(artifact.pk),
        "sha256": artifact.sha256,
        "offset": len(DATA) - 10,
    }
    answer = client.post(ATTACHMENT, asked, content_type="application/json", headers=bearer())
    assert (answer.status_code, answer.json()["code"]) == (500, "blob_damaged")
    with pytest.raises(RangeNotSatisfiable):
        artifacts.read_part(principal(), artifact.pk, artifact.sha256, offset=len(DATA) + 1)


def test_nothing_is_admitted_from_what_is_damaged(storage: Storage, client: Client) -> None:
    artifact = upload(principal(), "# Pumps\n\nThe zebra pump.\n", "pumps.md")
    storage.flip(artifact.storage_key)
    asked = {
        "artifact": str(artifact.pk),
        "title": "Pumps",
        "visibility": "tenant",
        "origin_trust": "USER",
    }
    answer = client.post(
        "/v1/tools/knowledge.ingest", asked, content_type="application/json", headers=bearer()
    )
    assert (answer.status_code, answer.json()["code"]) == (500, "blob_damaged")


def test_the_admin_hands_out_no_damaged_whole_either(storage: Storage, client: Client) -> None:
    admit("# Pumps\n\nThe zebra pump.\n")
    artifact = damage(storage, "last byte")
    client.force_login(make_superuser())
    answer: Any = client.get(f"/admin/artifacts/artifact/{artifact.pk}/download/")
    with pytest.raises(BlobDamaged):
        b"".join(iter(answer))


@pytest.mark.parametrize(
    "act",
    [
        lambda client, artifact: client.get(CONTENT.format(artifact.pk), headers=bearer()),
        lambda client, artifact: client.post(
            ATTACHMENT,
            {"artifact": str(artifact.pk), "sha256": artifact.sha256},
            content_type="application/json",
            headers=bearer(),
        ),
        lambda client, artifact: client.post("/v1/artifacts", {"file": _file()}, headers=bearer()),
    ],
    ids=["content", "attachment", "upload"],
)
def test_a_storage_that_is_away_is_a_503_that_says_when_to_come_again(
    storage: Storage, client: Client, act: Callable[[Client, Artifact], Any]
) -> None:
    artifact = upload(principal(), b"0123456789", "digits.txt")
    storage.take_away()
    answer = act(client, artifact)
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert int(answer.headers["Retry-After"]) > 0


def _file() -> Any:
    from django.core.files.uploadedfile import SimpleUploadedFile  # noqa: PLC0415

    return SimpleUploadedFile("digits.txt", b"0123456789")


@pytest.mark.django_db(transaction=True)
def test_who_downloads_from_a_server_sees_that_the_end_is_missing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = upload(principal(), DATA, "data.bin"), damage(storage, "last byte")
    for name, value in storage.environment.items():
        monkeypatch.setenv(name, value)
    key = bearer()["Authorization"]
    with served() as server:
        assert _download(server.port, CONTENT.format(whole.pk), key) == (len(DATA), DATA)
        promised, given = _download(server.port, CONTENT.format(broken.pk), key)
        assert promised == len(DATA)
        assert 0 < len(given) < len(DATA)
        # And the server goes on.
        assert _download(server.port, CONTENT.format(whole.pk), key)[1] == DATA


def _download(port: int, address: str, key: str) -> tuple[int, bytes]:
    """How much was promised, and what came until the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(
            f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: {key}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        answer = b""
        while block := connection.recv(65536):
            answer += block
    head, _, given = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    [length] = [
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ]
    return length, given
