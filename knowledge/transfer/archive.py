"""The files of an archive: where each is, how they are written, and how they are read warily."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self

from artifacts.files import UnsafePath, open_regular
from knowledge.transfer.errors import (
    ArchiveDamaged,
    ArchiveMalformed,
    ArchiveUnsafe,
    ArchiveVersionUnknown,
)
from knowledge.transfer.tables import TABLES, names_of, schema

FORMAT: Final = "verbatim-corpus-1"
MANIFEST: Final = "manifest.json"
ORIGINALS: Final = "originals.jsonl"
UNFINISHED: Final = "unfinished.json"
PART: Final = ".part"
BLOCK: Final = 1 << 20
_LARGEST_MANIFEST: Final = 1 << 20
_NAME: Final = re.compile(
    r"manifest\.json|originals\.jsonl|rows/[a-z_]{1,40}\.jsonl|originals/[0-9a-f]{2}/[0-9a-f]{64}"
)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def rows_file(table: str) -> str:
    return f"rows/{table}.jsonl"


def original_file(sha256: str) -> str:
    """Named by its hash: artifacts of equal bytes share it here, and nowhere else."""
    return f"originals/{sha256[:2]}/{sha256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file of lines: how many there are, in how many bytes of which hash."""

    lines: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an archive is and holds. `originals` is empty until all of them are there."""

    tenants: tuple[str, ...]
    traces: bool
    snapshot_at: str
    rows: Mapping[str, Listed]
    originals: Listed | None = None
    original_bytes: int = 0

    def as_json(self) -> bytes:
        told = {
            "format": FORMAT,
            "schema": schema(),
            **asdict(self),
            "rows": {
                name: {**asdict(listed), "columns": TABLES[name].names}
                for name, listed in self.rows.items()
            },
        }
        return (json.dumps(told, ensure_ascii=False, indent=2) + "\n").encode()

    @classmethod
    def of(cls, content: bytes) -> Manifest:
        """Raises `ArchiveMalformed` and `ArchiveVersionUnknown`."""
        try:
            told = json.loads(content)
            known = told["format"], told["schema"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ArchiveMalformed("The manifest is no manifest of a corpus.") from None
        if known != (FORMAT, schema()):
            raise ArchiveVersionUnknown(
                f"This is format {str(known[0])[:40]!r}, schema {str(known[1])[:40]!r}, and what is"
                f" read here is {FORMAT!r}, {schema()!r}. Import it with the version that wrote it."
            )
        try:
            manifest = cls(
                tenants=tuple(_texts(told["tenants"])),
                traces=_exactly(bool, told["traces"]),
                snapshot_at=_exactly(str, told["snapshot_at"]),
                rows={
                    name: _listed(told["rows"][name]) for name in names_of(traces=told["traces"])
                },
                originals=_listed(told["originals"]) if told["originals"] is not None else None,
                original_bytes=_exactly(int, told["original_bytes"]),
            )
            _require_same(set(told["rows"]), set(manifest.rows))
        except (ValueError, KeyError, TypeError):
            raise ArchiveMalformed("The manifest does not say what it should.") from None
        return manifest


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(kind)
    return value


def _require_same(one: object, other: object) -> None:
    if one != other:
        raise ValueError


def _texts(values: Any) -> list[str]:
    return [_exactly(str, value) for value in _exactly(list, values)]


def _listed(told: Mapping[str, Any]) -> Listed:
    listed = Listed(
        lines=_exactly(int, told["lines"]),
        bytes=_exactly(int, told["bytes"]),
        sha256=_exactly(str, told["sha256"]),
    )
    if listed.lines < 0 or listed.bytes < 0 or not _SHA256.fullmatch(listed.sha256):
        raise ValueError(listed)
    return listed


# --- writing -----------------------------------------------------------------------------------


class Lines(AbstractContextManager["Lines"]):
    """A file of lines that is there under its name only when it is whole and on the disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._part = path.with_name(path.name + PART)
        self._file = self._part.open("wb")
        self._hash = hashlib.sha256()
        self._lines = self._bytes = 0

    def write(self, line: bytes) -> None:
        self._file.write(line)
        self._hash.update(line)
        self._lines += 1
        self._bytes += len(line)

    @property
    def listed(self) -> Listed:
        return Listed(lines=self._lines, bytes=self._bytes, sha256=self._hash.hexdigest())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            settle(self._file, self._part, self._path)
        else:
            self._file.close()


def settle(file: IO[bytes], part: Path, path: Path) -> None:
    """Closes a written file, makes sure of its bytes, and gives it its name."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    part.replace(path)


def write_whole(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + PART)
    with part.open("wb") as file:
        file.write(content)
        settle(file, part, path)


def sha256_of(stream: IO[bytes]) -> tuple[str, int]:
    """Hash and size of the rest of a stream."""
    hashed, size = hashlib.sha256(), 0
    while block := stream.read(BLOCK):
        hashed.update(block)
        size += len(block)
    return hashed.hexdigest(), size


# --- reading -----------------------------------------------------------------------------------


class Archive(Protocol):
    """Files by the names of this format, and nothing else."""

    def names(self) -> Iterator[str]:
        """Every file that is there; raises `ArchiveUnsafe` for what does not belong there."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Raises `ArchiveDamaged` when there is none, `ArchiveUnsafe` when it is no plain file."""
        ...

    def close(self) -> None: ...


def opened(path: Path) -> Folder | Tar:
    """The archive in a folder or a tar; raises `ArchiveMalformed`."""
    if path.is_dir():
        return Folder(path)
    try:
        return Tar(open_regular(path))
    except FileNotFoundError:
        raise ArchiveMalformed(f"There is no archive at {path}.") from None
    except UnsafePath as unsafe:
        raise ArchiveUnsafe(unsafe.detail) from None


def manifest_of(archive: Archive) -> Manifest:
    try:
        with archive.open(MANIFEST) as stream:
            content = stream.read(_LARGEST_MANIFEST + 1)
    except ArchiveDamaged:
        raise ArchiveMalformed("There is no manifest: the export has not ended.") from None
    if len(content) > _LARGEST_MANIFEST:
        raise ArchiveMalformed("The manifest is too large to be one.")
    manifest = Manifest.of(content)
    if manifest.originals is None:
        raise ArchiveMalformed("The manifest is of an export that has not ended.")
    return manifest


class Folder:
    """An archive that lies there as files. No link is followed, not even to a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def names(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self._root):
            here = Path(folder)
            for name in (*folders, *files):
                path = here / name
                told = path.relative_to(self._root).as_posix()
                if path.is_symlink():
                    raise ArchiveUnsafe(f"{told[:100]} is a link.")
                if name in files:
                    yield _belonging(told)

    def open(self, name: str) -> IO[bytes]:
        path = self._root / _belonging(name)
        if path.parent.resolve() != path.parent:
            raise ArchiveUnsafe(f"{name} lies behind a link.")
        try:
            return open_regular(path)
        except FileNotFoundError:
            raise ArchiveDamaged(f"{name} is missing.") from None
        except UnsafePath as unsafe:
            raise ArchiveUnsafe(unsafe.detail) from None

    def close(self) -> None:
        """There is nothing to close."""


class Tar:
    """An archive in one uncompressed tar, read header by header.

    By our own few lines, for a general reader obeys what a tar may say: links, devices, sparse
    files, and names of any length. Here a member is a plain file of this format or a refusal. Where
    each begins costs some 200 bytes of memory a file.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._end = os.fstat(stream.fileno()).st_size
        try:
            self._members = dict(self._read_headers())
        except BaseException:
            stream.close()
            raise

    def names(self) -> Iterator[str]:
        yield from self._members

    def open(self, name: str) -> IO[bytes]:
        place = self._members.get(name)
        if place is None:
            raise ArchiveDamaged(f"{name} is missing.")
        return _Member(self._stream, *place)  # type: ignore[return-value]

    def close(self) -> None:
        self._stream.close()

    def _read_headers(self) -> Iterator[tuple[str, tuple[int, int]]]:
        seen: set[str] = set()
        at = 0
        while True:
            self._stream.seek(at)
            header = self._stream.read(tarfile.BLOCKSIZE)
            if header == tarfile.NUL * tarfile.BLOCKSIZE and seen:
                return
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            except (tarfile.HeaderError, UnicodeDecodeError):
                detail = "The tar breaks off." if seen else "This is neither a folder nor a tar."
                raise ArchiveMalformed(detail) from None
            if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise ArchiveUnsafe(f"{info.name[:100]!r} is no plain file.")
            name = _belonging(info.name)
            start = at + tarfile.BLOCKSIZE
            if info.size < 0 or start + info.size > self._end:
                raise ArchiveMalformed("The tar breaks off.")
            if name in seen:
                raise ArchiveUnsafe(f"{name} is there twice.")
            seen.add(name)
            yield name, (start, info.size)
            at = start + -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


class _Member:
    """The bytes of one member; several can be read by turns."""

    def __init__(self, stream: IO[bytes], start: int, size: int) -> None:
        self._stream = stream
        self._at = start
        self._end = start + size
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The stream stays open for the others."""

    def close(self) -> None:
        """The stream stays open for the others."""

    def read(self, size: int = -1) -> bytes:
        if self._buffer:
            cut = len(self._buffer) if size < 0 else size
            taken, self._buffer = self._buffer[:cut], self._buffer[cut:]
            if size >= 0:
                return taken
            return taken + self._read(self._end - self._at)
        return self._read(self._end - self._at if size < 0 else size)

    def readline(self, limit: int) -> bytes:
        parts: list[bytes] = []
        length = 0
        while length < limit:
            if not self._buffer:
                self._buffer = self._read(BLOCK)
                if not self._buffer:
                    break
            end = self._buffer.find(b"\n") + 1
            cut = min(end or len(self._buffer), limit - length)
            parts.append(self._buffer[:cut])
            self._buffer = self._buffer[cut:]
            length += cut
            if end and cut == end:
                break
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        self._stream.seek(self._at)
        block = self._stream.read(min(size, self._end - self._at))
        self._at += len(block)
        return block


def _belonging(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ArchiveUnsafe(f"{name[:100]!r} does not belong into an archive.")
    return name


class TarWriter(AbstractContextManager["TarWriter"]):
    """Writes a tar from front to end, member by member; nothing of it is kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + PART)
        self._file = self._part.open("wb")

    def add(self, name: str, content: IO[bytes], size: int) -> None:
        """Raises `ValueError` when the content has another size."""
        info = tarfile.TarInfo(name)
        info.size = size
        info.mode = 0o600
        self._file.write(info.tobuf(tarfile.GNU_FORMAT))
        left = size
        while block := content.read(BLOCK):
            left -= len(block)
            if left < 0:
                break
            self._file.write(block)
        if left:
            raise ValueError("the content has another size")
        self._file.write(tarfile.NUL * (-size % tarfile.BLOCKSIZE))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._file.write(tarfile.NUL * 2 * tarfile.BLOCKSIZE)
            settle(self._file, self._part, self._path)
        else:
            self._file.close()
            with suppress(FileNotFoundError):
                self._part.unlink()
