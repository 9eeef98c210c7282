"""Bytes by a key of our own making, over Django's storages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Protocol, cast

from django.core.files.base import File
from django.core.files.storage import Storage, storages

from artifacts.errors import BlobMissing

STORAGE_ALIAS = "artifacts"


class BlobStore(Protocol):
    """Keys are made here, never by a caller: no file name ever reaches the storage."""

    def put(self, content: IO[bytes]) -> str:
        """Stores the rest of a stream under a new key and returns the key."""
        ...

    def open(self, key: str) -> IO[bytes]:
        """A seekable stream; raises `BlobMissing`."""
        ...

    def delete(self, key: str) -> None:
        """Removes the bytes; silent when they are gone already."""
        ...

    def listing(self) -> Iterator[tuple[str, datetime]]:
        """Every key with the instant at which its bytes were last written."""
        ...


class StorageBlobStore:
    """`BlobStore` over a Django storage: the file system, S3 or memory."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._given = storage

    @property
    def _storage(self) -> Storage:
        return self._given or storages[STORAGE_ALIAS]

    def put(self, content: IO[bytes]) -> str:
        name = uuid.uuid4().hex
        # Two levels of folders keep any one of them small on a file system.
        return self._storage.save(f"{name[:2]}/{name[2:4]}/{name}", File(content))

    def open(self, key: str) -> IO[bytes]:
        try:
            return cast("IO[bytes]", self._storage.open(key, "rb"))
        except FileNotFoundError as gone:
            raise BlobMissing from gone

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def listing(self) -> Iterator[tuple[str, datetime]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                inner, files = self._storage.listdir(folder)
            except FileNotFoundError:
                continue
            prefix = f"{folder}/" if folder else ""
            folders += [f"{prefix}{name}" for name in inner]
            for name in files:
                key = f"{prefix}{name}"
                try:
                    yield key, self._storage.get_modified_time(key)
                except FileNotFoundError:
                    continue


def blob_store() -> BlobStore:
    """The blob store of this installation."""
    return StorageBlobStore()
