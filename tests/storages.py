"""Storages under test: what a blob store is, with ways around it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_django import Settings

from artifacts.blobs import BlobStore, blob_store
from tests.buckets import Bucket


@dataclass(frozen=True)
class Storage:
    """The blob store of this test; reading, damaging and taking away behind its back.

    `environment` has a process of its own use the same.
    """

    blobs: BlobStore
    read: Callable[[str], bytes | None]
    write: Callable[[str, bytes], None]
    take_away: Callable[[], None]
    environment: dict[str, str]

    def flip(self, key: str, at: int = -1) -> None:
        """Changes one byte."""
        content = bytearray(self.read(key) or b"")
        content[at] ^= 1
        self.write(key, bytes(content))


def in_files(root: Path) -> Storage:
    def read(key: str) -> bytes | None:
        return (root / key).read_bytes() if (root / key).exists() else None

    def write(key: str, content: bytes) -> None:
        (root / key).write_bytes(content)

    def take_away() -> None:
        root.rename(root.with_name("elsewhere"))
        root.write_text("a file where the folder should be")

    root.mkdir(exist_ok=True)
    return Storage(blob_store(), read, write, take_away, {"ARTIFACT_ROOT": str(root)})


def in_bucket(bucket: Bucket, settings: Settings) -> Storage:
    return Storage(
        blob_store(),
        lambda key: bucket.keys().get(f"{bucket.prefix}/{key}"),
        lambda key, content: bucket.write(f"{bucket.prefix}/{key}", content),
        lambda: redirect(settings, endpoint_url=nowhere()),
        bucket.environment(),
    )


def redirect(settings: Settings, **options: Any) -> None:
    """Has the bucket's options be others from now on."""
    artifacts = settings.STORAGES["artifacts"]
    settings.STORAGES = {
        **settings.STORAGES,
        "artifacts": {**artifacts, "OPTIONS": {**artifacts["OPTIONS"], **options}},
    }


def nowhere() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
