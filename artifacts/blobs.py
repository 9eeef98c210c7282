"""Bytes by a key of our own making, over Django's storages."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Protocol, cast

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import Storage, storages

from artifacts.errors import BlobMissing, StorageUnavailable

logger = logging.getLogger(__name__)
STORAGE_ALIAS = "artifacts"


class BlobStore(Protocol):
    """Keys are made here, never by a caller: no file name ever reaches the storage.

    Whatever goes wrong with the storage itself is `StorageUnavailable`.
    """

    def put(self, content: IO[bytes]) -> str:
        """Stores the rest of a stream under a new key and returns the key; overwrites nothing."""
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

    def unfinished(self) -> Iterator[tuple[str, datetime]]:
        """The key of each write that never ended and that no listing shows, and when it began."""
        ...

    def give_up(self, key: str) -> None:
        """Removes what there is of an unfinished write."""
        ...


class StorageBlobStore:
    """`BlobStore` over a Django storage that is the file system, or memory."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._given = storage

    @property
    def _storage(self) -> Storage:
        return self._given or storages[STORAGE_ALIAS]

    def put(self, content: IO[bytes]) -> str:
        name = uuid.uuid4().hex
        with reachable():
            # Two levels of folders keep any one of them small on a file system.
            key = self._storage.get_available_name(f"{name[:2]}/{name[2:4]}/{name}")
            try:
                return self._storage.save(key, File(content))
            except BaseException:
                # Half a file is nobody's; what cannot go now, the sweeper finds.
                with contextlib.suppress(Exception):
                    self._storage.delete(key)
                raise

    def open(self, key: str) -> IO[bytes]:
        with reachable():
            try:
                return cast("IO[bytes]", self._storage.open(key, "rb"))
            except FileNotFoundError as gone:
                raise BlobMissing from gone

    def delete(self, key: str) -> None:
        with reachable():
            self._storage.delete(key)

    def listing(self) -> Iterator[tuple[str, datetime]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            with reachable():
                try:
                    inner, files = self._storage.listdir(folder)
                except FileNotFoundError:
                    continue
            prefix = f"{folder}/" if folder else ""
            folders += [f"{prefix}{name}" for name in inner]
            for name in files:
                key = f"{prefix}{name}"
                with reachable():
                    try:
                        written = self._storage.get_modified_time(key)
                    except FileNotFoundError:
                        continue
                yield key, written

    def unfinished(self) -> Iterator[tuple[str, datetime]]:
        """None: what was written of a file is in its place, and in the listing."""
        yield from ()

    def give_up(self, key: str) -> None:
        self.delete(key)


@contextmanager
def reachable() -> Iterator[None]:
    """Turns what the system says of a storage into `StorageUnavailable`."""
    try:
        yield
    except OSError as error:
        raise unavailable(type(error).__name__) from error


def unavailable(reason: str) -> StorageUnavailable:
    """The error, on record with what the storage said; which is never in what a caller is told."""
    logger.warning("storage_unavailable", extra={"error": reason})
    return StorageUnavailable(reason)


def blob_store() -> BlobStore:
    """The blob store of this installation."""
    if settings.ARTIFACT_STORAGE == "s3":
        # Here, because only an installation with a bucket has what this needs.
        from artifacts.s3 import S3BlobStore  # noqa: PLC0415

        return S3BlobStore()
    return StorageBlobStore()
