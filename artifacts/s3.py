"""Blobs in a bucket: written in parts, read by ranges, listed flat.

Needs the extra `s3`. Names, writing and the connection are django-storages'; what it would do by
holding a whole file in memory, or a whole listing, is done here.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import IO, Any, Final, cast

from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from storages.backends.s3 import S3Storage

from artifacts.blobs import StorageBlobStore, unavailable
from artifacts.errors import BlobDamaged, BlobMissing

_MIB: Final = 1024**2
# A bucket takes 10,000 parts, so this is what makes 78 GiB the largest file.
_PART: Final = 8 * _MIB
_FIRST_WINDOW: Final = 64 * 1024
_LARGEST_WINDOW: Final = 8 * _MIB
_TRIES: Final = 4
_CONNECTIONS: Final = 50
_ENTRIES_AT_ONCE: Final = 1_000


class BlobStorage(S3Storage):  # type: ignore[misc] # it has no types
    """A bucket as a Django storage, with patience and memory that are bounded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            # Another's bytes are never written over: a name that is taken gets a suffix.
            file_overwrite=False,
            # Without threads: what is put may be read from the database session of this one, and
            # one part at a time is in memory.
            transfer_config=TransferConfig(
                multipart_threshold=_PART, multipart_chunksize=_PART, use_threads=False
            ),
            client_config=Config(
                connect_timeout=3,
                read_timeout=20,
                retries={"mode": "standard", "total_max_attempts": _TRIES},
                max_pool_connections=_CONNECTIONS,
            ),
        )
        self._making = threading.Lock()
        self._made: tuple[int, Any] = (0, None)

    @property
    def connection(self) -> Any:
        """One for the process, not one for each thread: a web request has a thread of its own."""
        with self._making:
            if self._made[0] != os.getpid():
                self._made = (os.getpid(), super().connection)
            return self._made[1]


class S3BlobStore(StorageBlobStore):
    """`BlobStore` over a bucket."""

    def put(self, content: IO[bytes]) -> str:
        with _reachable():
            return super().put(content)

    def open(self, key: str) -> IO[bytes]:
        with _reachable():
            try:
                head = self._client.head_object(**self._named(key))
            except ClientError as error:
                if _status_of(error) != HTTPStatus.NOT_FOUND:
                    raise
                # The answer is the same when the whole bucket is away.
                self._client.head_bucket(Bucket=self._bucket)
                raise BlobMissing from error
        stream = _Object(self._client, self._named(key), head["ContentLength"], head["ETag"])
        return cast("IO[bytes]", io.BufferedReader(stream, _FIRST_WINDOW))

    def delete(self, key: str) -> None:
        with _reachable():
            self._client.delete_object(**self._named(key))

    def listing(self) -> Iterator[tuple[str, datetime]]:
        pages = self._client.get_paginator("list_objects_v2")
        with _reachable():
            for page in pages.paginate(
                Bucket=self._bucket, Prefix=self._prefix, MaxKeys=_ENTRIES_AT_ONCE
            ):
                for entry in page.get("Contents", ()):
                    yield entry["Key"].removeprefix(self._prefix), entry["LastModified"]

    def unfinished(self) -> Iterator[tuple[str, datetime]]:
        with _reachable():
            for upload in self._uploads(self._prefix):
                yield upload["Key"].removeprefix(self._prefix), upload["Initiated"]

    def give_up(self, key: str) -> None:
        named = self._named(key)
        with _reachable():
            for upload in self._uploads(named["Key"]):
                if upload["Key"] == named["Key"]:
                    self._client.abort_multipart_upload(**named, UploadId=upload["UploadId"])

    def keeps_deleted(self) -> bool:
        """Whether the bucket keeps versions, so that what is deleted is not gone."""
        with _reachable():
            answer = self._client.get_bucket_versioning(Bucket=self._bucket)
            # Suspended, it still has those of before; enabled, all.
            return bool(answer.get("Status"))

    @property
    def _client(self) -> Any:
        return cast("Any", self._storage).connection.meta.client

    @property
    def _bucket(self) -> str:
        return str(cast("Any", self._storage).bucket_name)

    @property
    def _prefix(self) -> str:
        location = str(cast("Any", self._storage).location).strip("/")
        return f"{location}/" if location else ""

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{key}"}

    def _uploads(self, prefix: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
            yield from page.get("Uploads", ())


class _Object(io.RawIOBase):
    """The bytes of an object in one request for each window of them.

    Windows grow while what is read follows on, so that a part costs a small request and a file few.
    One that breaks off is asked for again from where it did.
    """

    def __init__(self, client: Any, named: dict[str, str], size: int, etag: str) -> None:
        self._client = client
        self._named = named
        self._size = size
        self._etag = etag
        self._position = 0
        self._window = _FIRST_WINDOW
        self._body: Any = None
        self._left = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("a position is not negative")
        if start + offset != self._position:
            self._drop()
            self._window = _FIRST_WINDOW
            self._position = start + offset
        return self._position

    def readinto(self, buffer: object, /) -> int:
        into = memoryview(cast("bytearray", buffer))
        if not into or self._position >= self._size:
            return 0
        with _reachable():
            block = self._next(len(into))
        into[: len(block)] = block
        self._position += len(block)
        return len(block)

    def close(self) -> None:
        self._drop()
        super().close()

    def _next(self, most: int) -> bytes:
        for tries_left in reversed(range(_TRIES)):
            try:
                if not self._left:
                    self._begin(most)
                block = bytes(self._body.read(min(most, self._left)))
            except (BotoCoreError, OSError):
                self._drop()
                if not tries_left:
                    raise
                continue
            if block:
                self._left -= len(block)
                return block
            self._drop()
        raise unavailable("EndOfBody")

    def _begin(self, most: int) -> None:
        self._drop()
        length = min(max(self._window, most), _LARGEST_WINDOW, self._size - self._position)
        self._window = min(self._window * 2, _LARGEST_WINDOW)
        end = self._position + length - 1
        try:
            answer = self._client.get_object(
                **self._named, Range=f"bytes={self._position}-{end}", IfMatch=self._etag
            )
        except ClientError as error:
            if _status_of(error) == HTTPStatus.NOT_FOUND:
                raise BlobMissing from error
            if _status_of(error) == HTTPStatus.PRECONDITION_FAILED:
                raise BlobDamaged from error
            raise
        self._body, self._left = answer["Body"], length

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body, self._left = None, 0


@contextmanager
def _reachable() -> Iterator[None]:
    """Turns what a bucket says of itself into `StorageUnavailable`."""
    try:
        yield
    except ClientError as error:
        raise unavailable(str(error.response["Error"].get("Code", "ClientError"))) from error
    except (BotoCoreError, OSError) as error:
        raise unavailable(type(error).__name__) from error


def _status_of(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
