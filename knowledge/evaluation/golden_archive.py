"""A golden set as one file, for a browser: the folder that `evaluate` reads, as a zip."""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import IO, Final

from access.principal import Principal
from knowledge.evaluation.collections import (
    CORPUS,
    JUDGEMENTS,
    QUERIES,
    REFERENCES,
    InvalidCollection,
)
from knowledge.evaluation.golden import export_set

MOST_PASSAGES: Final = 20_000
"""In a file for a browser, which waits for it: what is larger is for the command."""
MOST_QUESTIONS: Final = 200
_LARGEST: Final = 16 * 1024**2
_IN_MEMORY: Final = 4 * 1024**2
# Whatever somebody says is a zip may fail in the ways of every packing that a zip may have.
_BROKEN: Final = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError),
    *(RuntimeError, ValueError),
)


def packed(name: str, operator: Principal) -> IO[bytes]:
    """A set with its documents, as `export_set` writes them; raises what that does."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_set(name, operator, folder, most_passages=MOST_PASSAGES)
        # What does not fit in memory goes to a file that nobody else can open, and closing removes.
        archived = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        with zipfile.ZipFile(archived, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in (CORPUS, QUERIES, JUDGEMENTS, REFERENCES):
                archive.write(folder / part, part)
    return archived


@contextmanager
def unpacked(file: IO[bytes]) -> Iterator[Path]:
    """The questions of such a zip as a folder; the documents are left in it.

    Raises `InvalidCollection` for what is no zip, lacks a part or has one that is too large.
    """
    with tempfile.TemporaryDirectory() as temporary:
        # What is wrong with a folder is told by its name.
        folder = Path(temporary) / "this file"
        try:
            with zipfile.ZipFile(file) as archive:
                for part in (QUERIES, JUDGEMENTS, REFERENCES):
                    _unpack(archive, part, folder / part)
        except _BROKEN as broken:
            raise InvalidCollection("This file is no zip that can be read.") from broken
        yield folder


def _unpack(archive: zipfile.ZipFile, part: str, into: Path) -> None:
    """Writes one part, wherever in the zip it is; one that is not there is missed by others."""
    # Somebody who packs a folder has the folder's name before it.
    named = [one for one in archive.infolist() if f"/{one.filename}".endswith(f"/{part}")]
    if len(named) > 1:
        raise InvalidCollection(f"There are {len(named)} files called {part} in this one.")
    for one in named:
        with archive.open(one) as member:
            content = member.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InvalidCollection(f"{part} is larger than {_LARGEST // 1024**2} MiB.")
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(content)
