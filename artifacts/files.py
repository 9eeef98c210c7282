"""Reading files that somebody names by path: regular files only, and never through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from artifacts.errors import ArtifactError


class UnsafePath(ArtifactError):
    """Only regular files are read: no link, pipe or device, and no file with a second name."""

    code = "unsafe_path"


class FileMissing(ArtifactError):
    """There is no file of that name."""

    code = "file_not_found"
    status = 404


def open_regular(path: Path) -> IO[bytes]:
    """A stream of the file; raises `UnsafePath`, or `FileNotFoundError` when there is none.

    The checks are made on the opened file, so nothing can be swapped in between; opening never
    waits for the other end of a pipe. A hard link is refused because its other name may lie
    where the caller could not read.
    """
    return _opened(path.name, path)


def open_inside(root: Path, path: str) -> IO[bytes]:
    """A stream of a file below a folder, by a path that no link may be any part of.

    The path is relative to the root or begins with it. Each part of it is opened inside of the one
    before: nothing that is done to the tree meanwhile leads out of it. Raises `UnsafePath` and
    `FileMissing`.
    """
    *folders, name = _parts(root, path)
    try:
        inside = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                outer, inside = inside, _folder(folder, inside)
                os.close(outer)
            return _opened(name, name, inside)
        finally:
            os.close(inside)
    except FileNotFoundError as error:
        raise FileMissing(f"There is no file {name} at that path.") from error


def _parts(root: Path, path: str) -> list[str]:
    """Compared as text: what a path means is never asked of the file system."""
    inner = path.removeprefix(f"{root}/")
    parts = inner.split("/")
    if "\0" in inner or any(part in {"", ".", ".."} for part in parts):
        raise UnsafePath(
            "Name a file by its path within the workspace, without empty parts, '.' or '..'."
        )
    return parts


def _folder(name: str, inside: int) -> int:
    try:
        return os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafePath(f"{name} is not a folder that can be read, or is a link.") from error


def _opened(shown: str, path: Path | str, inside: int | None = None) -> IO[bytes]:
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafePath(f"{shown} cannot be read as a regular file.") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise UnsafePath(f"{shown} is not a regular file with a single name.")
    return os.fdopen(descriptor, "rb")


def files_below(path: Path) -> Iterator[Path]:
    """The file itself, or every entry below a folder in order, hidden ones left out.

    A link to a folder is handed out as an entry, to be refused by name, and never followed.
    """
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        here = Path(folder)
        linked = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(
            name for name in folders if name not in linked and not name.startswith(".")
        )
        for name in sorted(linked + files):
            if not name.startswith("."):
                yield here / name
