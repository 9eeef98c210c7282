"""Whether bytes are still those that a row tells of, seen while they are read."""

from __future__ import annotations

import hashlib
import io
import logging
from typing import IO, cast

from artifacts.blobs import reachable
from artifacts.errors import BlobDamaged
from artifacts.models import Artifact

logger = logging.getLogger(__name__)


class CheckedStream(io.RawIOBase):
    """The bytes of an artifact, of which the last are given out only when all are right.

    Read from the start to the end they are compared with the row's SHA-256. What is read from
    anywhere else, a range, can only be compared by length. Raises `BlobDamaged`: whoever passes on
    what is read has then passed on less than was promised, and never a whole that is wrong.
    """

    def __init__(self, stream: IO[bytes], artifact: Artifact) -> None:
        self._stream = stream
        self._artifact = artifact
        self._position = 0
        self._hash = hashlib.sha256()
        # Up to where all has been hashed from the start on.
        self._hashed = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        size = self._artifact.byte_size
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: size}[whence]
        self._position = self._stream.seek(start + offset)
        if self._position == 0:
            self._hash, self._hashed = hashlib.sha256(), 0
        return self._position

    def readinto(self, buffer: object, /) -> int:
        into = memoryview(cast("bytearray", buffer))
        block = self.read(len(into))
        into[: len(block)] = block
        return len(block)

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self._artifact.byte_size - self._position)
        wanted = left if size < 0 else min(size, left)
        with reachable():
            block = self._stream.read(wanted)
            if self._hashed == self._position:
                self._hash.update(block)
                self._hashed += len(block)
            self._position += len(block)
            if len(block) < wanted:
                raise self._damaged("short")
            if len(block) == left and self._stream.read(1):
                raise self._damaged("long")
        if self._hashed == self._artifact.byte_size and not self._right():
            raise self._damaged("hash")
        return block

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _right(self) -> bool:
        return self._hash.hexdigest() == self._artifact.sha256

    def _damaged(self, how: str) -> BlobDamaged:
        told = {"artifact_id": str(self._artifact.pk), "how": how}
        logger.error("blob_damaged", extra=told)
        return BlobDamaged()
