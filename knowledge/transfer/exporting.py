"""A corpus to files: all rows as of one instant first, then the originals that they name.

Rows can be of one instant, bytes cannot; but an original never changes, so it may be read later. One
that was deleted in between is what makes the rows stale: then they are written anew.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from access.clock import now
from access.tenancy import operations_session, snapshot_session
from artifacts import store as artifacts
from artifacts.errors import BlobDamaged, BlobMissing
from artifacts.models import Artifact
from knowledge.models import KnowledgeEvent
from knowledge.transfer.archive import (
    BLOCK,
    MANIFEST,
    ORIGINALS,
    PART,
    UNFINISHED,
    Lines,
    Listed,
    Manifest,
    TarWriter,
    original_file,
    rows_file,
    settle,
    sha256_of,
    write_whole,
)
from knowledge.transfer.errors import (
    ArchiveInTheWay,
    ArchiveMalformed,
    ArchiveVersionUnknown,
    NothingToExport,
    OriginalsMissing,
)
from knowledge.transfer.rows import AT_ONCE, Ledger, Rows
from knowledge.transfer.tables import OF_DOCUMENTS, TABLES, Row, names_of
from knowledge.transfer.values import line_of

logger = logging.getLogger(__name__)

OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much (0: not known)."""
_TRIES: Final = 3
_TOLD_MISSING: Final = 100
_DOCUMENTS_AT_ONCE: Final = 200
_OURS: Final = ("rows", "originals", UNFINISHED, ORIGINALS)


def untold(_what: str, _done: int, _total: int) -> None:
    """For whoever does not look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an archive holds. `kept` originals were there from an export that was interrupted."""

    tenants: tuple[str, ...]
    rows: Mapping[str, int]
    originals: int
    kept: int
    original_bytes: int
    snapshot_at: str


def export_corpus(
    destination: Path,
    *,
    tenant_id: str | None = None,
    traces: bool = False,
    tar: bool = False,
    actor: str,
    on_progress: OnProgress = untold,
) -> Exported:
    """Writes the corpus of a tenant, or of all, to a folder or a tar.

    A folder in which an export was interrupted is gone on with: its rows stay those of their
    instant, and originals that are there already are looked over and kept. A tar is one stream and
    begins again.

    Raises `ArchiveInTheWay`, `NothingToExport`, `OriginalsMissing`.
    """
    if tar:
        done = _to_tar(destination, tenant_id, traces=traces, on_progress=on_progress)
    else:
        done = _to_folder(destination, tenant_id, traces=traces, on_progress=on_progress)
    _record(done, actor)
    return done


def _record(done: Exported, actor: str) -> None:
    """That a corpus was taken along is on record with each tenant; after its rows were read."""
    with operations_session():
        KnowledgeEvent.objects.bulk_create(
            KnowledgeEvent(
                tenant_id=tenant_id,
                name=KnowledgeEvent.CORPUS_EXPORTED,
                actor=actor,
                surface="command",
                data={"snapshot_at": done.snapshot_at, "traces": "traces" in done.rows},
            )
            for tenant_id in done.tenants
        )
    logger.info("corpus_exported", extra={"tenants": len(done.tenants)})


# --- to a folder -------------------------------------------------------------------------------


def _to_folder(
    folder: Path, tenant_id: str | None, *, traces: bool, on_progress: OnProgress
) -> Exported:
    begun = _begun(folder, tenant_id, traces=traces)
    for last in (False,) * (_TRIES - 1) + (True,):
        manifest = begun or _write_rows(folder, tenant_id, traces=traces, on_progress=on_progress)
        if begun is None:
            write_whole(folder / UNFINISHED, manifest.as_json())
        kept = Counter[str]()
        writer = _FolderOriginals(folder, kept)
        missing = _Missing()
        listed, size = _write_originals(folder, manifest, writer, missing, on_progress)
        begun = None
        if not missing.deleted or last:
            break
    missing.require_none()
    _remove_unlisted(folder)
    manifest = replace(manifest, originals=listed, original_bytes=size)
    part = folder / (MANIFEST + PART)
    with part.open("wb") as file:
        file.write(manifest.as_json())
        # Whoever finds the manifest finds an archive, and nothing of how it came about.
        (folder / UNFINISHED).unlink()
        settle(file, part, folder / MANIFEST)
    return _exported(manifest, kept["kept"])


def _begun(folder: Path, tenant_id: str | None, *, traces: bool) -> Manifest | None:
    """The rows that an interrupted export left, if they are whole and what is asked for now."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / MANIFEST).exists():
        raise ArchiveInTheWay(f"{folder} holds a complete archive already.")
    foreign = [
        path.name
        for path in folder.iterdir()
        if path.name.removesuffix(PART) not in (*_OURS, MANIFEST)
    ]
    if foreign:
        raise ArchiveInTheWay(f"{folder} holds something else: {min(foreign)!r}.")
    try:
        manifest = Manifest.of((folder / UNFINISHED).read_bytes())
    except (FileNotFoundError, ArchiveMalformed, ArchiveVersionUnknown):
        return None
    asked = None if tenant_id is None else (tenant_id,)
    if manifest.traces != traces or (asked and manifest.tenants != asked):
        raise ArchiveInTheWay(
            f"In {folder} an export of something else was begun. Go on with that, or take another."
        )
    for name, listed in manifest.rows.items():
        try:
            with (folder / rows_file(name)).open("rb") as stream:
                if sha256_of(stream) != (listed.sha256, listed.bytes):
                    return None
        except FileNotFoundError:
            return None
    return manifest


def _remove_unlisted(folder: Path) -> None:
    """Originals of documents that were deleted while an earlier attempt was at it, and its parts."""
    with Ledger() as listed, (folder / ORIGINALS).open("rb") as lines:
        for line in lines:
            listed.add("file", json.loads(line)["file"])
        for path in (folder / "originals").rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and listed.get("file", name) is None:
                path.unlink()


class _FolderOriginals:
    """Puts originals into a folder; one that is there already is looked over and kept."""

    def __init__(self, folder: Path, counted: Counter[str]) -> None:
        self._folder = folder
        self._counted = counted

    def is_there(self, sha256: str, size: int) -> bool:
        with suppress(FileNotFoundError), (self._folder / original_file(sha256)).open("rb") as file:
            if sha256_of(file) == (sha256, size):
                self._counted["kept"] += 1
                return True
        return False

    def put(self, artifact: Artifact) -> None:
        """Raises `BlobMissing` and `BlobDamaged`."""
        path = self._folder / original_file(artifact.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + PART)
        with artifacts.open_bytes(artifact) as original, part.open("wb") as file:
            shutil.copyfileobj(original, file, BLOCK)
            settle(file, part, path)


# --- to a tar ----------------------------------------------------------------------------------


def _to_tar(
    path: Path, tenant_id: str | None, *, traces: bool, on_progress: OnProgress
) -> Exported:
    """Rows are gathered beside the tar, for a tar says how long a file is before it begins."""
    if path.exists():
        raise ArchiveInTheWay(f"{path} is there already.")
    path.parent.mkdir(parents=True, exist_ok=True)
    for last in (False,) * (_TRIES - 1) + (True,):
        missing = _Missing()
        with (
            tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as scratch,
            suppress(_Stale),
            TarWriter(path) as writer,
        ):
            rows = Path(scratch)
            manifest = _write_rows(rows, tenant_id, traces=traces, on_progress=on_progress)
            for name, listed in manifest.rows.items():
                with (rows / rows_file(name)).open("rb") as stream:
                    writer.add(rows_file(name), stream, listed.bytes)
            originals = _TarOriginals(writer)
            listed, size = _write_originals(rows, manifest, originals, missing, on_progress)
            if missing.deleted and not last:
                raise _Stale
            missing.require_none()
            with (rows / ORIGINALS).open("rb") as stream:
                writer.add(ORIGINALS, stream, listed.bytes)
            manifest = replace(manifest, originals=listed, original_bytes=size)
            content = manifest.as_json()
            (rows / MANIFEST).write_bytes(content)
            with (rows / MANIFEST).open("rb") as stream:
                writer.add(MANIFEST, stream, len(content))
            done = _exported(manifest, 0)
        if not missing.deleted:
            break
    return done


class _Stale(Exception):
    """What the rows tell of is gone by now."""


class _TarOriginals:
    def __init__(self, writer: TarWriter) -> None:
        self._writer = writer

    def is_there(self, _sha256: str, _size: int) -> bool:
        return False

    def put(self, artifact: Artifact) -> None:
        with artifacts.open_bytes(artifact) as original:
            # Read to its checked end first: what stands in a tar stands there for good.
            sha256_of(original)
        with artifacts.open_bytes(artifact) as original:
            self._writer.add(original_file(artifact.sha256), original, artifact.byte_size)


# --- rows --------------------------------------------------------------------------------------


def _write_rows(
    folder: Path, tenant_id: str | None, *, traces: bool, on_progress: OnProgress
) -> Manifest:
    tenants: set[str] = set()
    listed: dict[str, Listed] = {}
    with snapshot_session():
        at = now()
        rows = Rows(None if tenant_id is None else [tenant_id])
        rows.rank("chunks")
        done = 0
        for name in names_of(traces=traces):
            if name in OF_DOCUMENTS[1:]:
                continue  # beside the documents
            names = OF_DOCUMENTS if name == OF_DOCUMENTS[0] else (name,)
            with ExitStack() as stack:
                files = {one: stack.enter_context(Lines(folder / rows_file(one))) for one in names}
                for one, row in _of_documents(rows) if len(names) > 1 else _of(rows, name):
                    files[one].write(line_of(row))
                    tenants.add(row["tenant_id"])
                    done += 1
                    if done % AT_ONCE == 0:
                        on_progress("Rows", done, 0)
                listed.update({one: file.listed for one, file in files.items()})
    if not tenants and tenant_id is not None:
        raise NothingToExport(f"There is nothing of a tenant {tenant_id!r}.")
    return Manifest(
        tenants=tuple(sorted(tenants)),
        traces=traces,
        snapshot_at=at.isoformat(),
        rows={name: listed[name] for name in names_of(traces=traces)},
    )


def _of(rows: Rows, name: str) -> Iterator[tuple[str, Row]]:
    for _, row in rows.of(name):
        yield name, row


def _of_documents(rows: Rows) -> Iterator[tuple[str, Row]]:
    """Documents and all of them, some at a time: no table of passages is ever sorted as a whole."""
    batch: list[Row] = []
    for _, row in rows.of("documents"):
        batch.append(row)
        if len(batch) == _DOCUMENTS_AT_ONCE:
            yield from _whole(rows, batch)
            batch = []
    yield from _whole(rows, batch)


def _whole(rows: Rows, documents: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    ids = [document["document_id"] for document in documents]
    for document in documents:
        yield "documents", document
    for name, _, row in parts_of(rows, ids):
        yield name, row


def parts_of(rows: Rows, documents: Sequence[Any]) -> Iterator[tuple[str, Any, Row]]:
    """The versions of some documents, then their chunk sets, then their chunks: name, key, row."""
    for name, lookup in (
        ("versions", "document_id__in"),
        ("chunk_sets", "version__document_id__in"),
        ("chunks", "chunk_set__version__document_id__in"),
    ):
        for pk, row in rows.of(name, **{lookup: documents}):
            yield name, pk, row


# --- originals ---------------------------------------------------------------------------------


class _Missing:
    """Originals that could not be had: because they were deleted since, or for no good reason."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self._lost: list[str] = []
        self._of: list[tuple[str, str]] = []

    def add(self, artifact_id: str, sha256: str) -> None:
        self._of.append((artifact_id, sha256))

    def settle(self, seen: Ledger) -> None:
        """Looks again once all are written: another artifact may have had the same bytes."""
        gone = {one: sha256 for one, sha256 in self._of if seen.get("original", sha256) is None}
        stored = _stored([UUID(one) for one in gone])
        self._lost = [one for one in gone if UUID(one) in stored]
        self.deleted = [one for one in gone if UUID(one) not in stored]

    def require_none(self) -> None:
        if not (self.deleted or self._lost):
            return
        found = self._lost or self.deleted
        raise OriginalsMissing(
            f"The bytes of {len(found)} originals are gone or are not those that were admitted."
            if self._lost
            else "Documents are being deleted faster than they can be written. Try again.",
            artifacts=sorted(found)[:_TOLD_MISSING],
        )


def _write_originals(
    folder: Path,
    manifest: Manifest,
    writer: _FolderOriginals | _TarOriginals,
    missing: _Missing,
    on_progress: OnProgress,
) -> tuple[Listed, int]:
    """Each original once, whichever artifacts share its bytes. Returns their list and their size."""
    total = manifest.rows["artifacts"].lines
    size = done = 0
    with (
        Ledger() as seen,
        Lines(folder / ORIGINALS) as list_of_them,
        (folder / rows_file("artifacts")).open("rb") as lines,
    ):
        for batch in _some(lines):
            keys = _stored([UUID(row["id"]) for row in batch])
            for row in batch:
                done += 1
                told = (row["sha256"], row["byte_size"])
                if not seen.get("original", row["sha256"]):
                    if not writer.is_there(*told) and not _put(writer, keys.get(UUID(row["id"]))):
                        missing.add(row["id"], row["sha256"])
                        continue
                    seen.add("original", row["sha256"], value=b"1")
                    size += row["byte_size"]
                    list_of_them.write(line_of(original_listed(*told)))
            on_progress("Originals", done, total)
        missing.settle(seen)
    return list_of_them.listed, size


def original_listed(sha256: str, size: int) -> Row:
    return {"file": original_file(sha256), "sha256": sha256, "bytes": size}


def _put(writer: _FolderOriginals | _TarOriginals, artifact: Artifact | None) -> bool:
    if artifact is None:
        return False
    try:
        writer.put(artifact)
    except (BlobMissing, BlobDamaged):
        return False
    return True


def _some(lines: Any) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for line in lines:
        batch.append(json.loads(line))
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _stored(ids: Sequence[UUID]) -> dict[UUID, Artifact]:
    """Those that are there still and whose bytes are not about to die."""
    with operations_session():
        kept = Artifact.objects.filter(TABLES["artifacts"].only(), pk__in=ids)
        return {artifact.pk: artifact for artifact in kept}


def _exported(manifest: Manifest, kept: int) -> Exported:
    return Exported(
        tenants=manifest.tenants,
        rows={name: listed.lines for name, listed in manifest.rows.items()},
        originals=manifest.originals.lines if manifest.originals else 0,
        kept=kept,
        original_bytes=manifest.original_bytes,
        snapshot_at=manifest.snapshot_at,
    )
