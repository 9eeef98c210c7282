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


def open_regular(path: Path) -> IO[bytes]:
    """A stream of the file; raises `UnsafePath`, or `FileNotFoundError` when there is none.

    The checks are made on the opened file, so nothing can be swapped in between; opening never
    waits for the other end of a pipe. A hard link is refused because its other name may lie
    where the caller could not read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafePath(f"{path.name} cannot be read as a regular file.") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise UnsafePath(f"{path.name} is not a regular file with a single name.")
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
