"""An archive before a row of it is taken in: whole, safe, of one mind, and at one with what is here.

Nothing is written. What is wrong with the archive itself raises at once; what differs from the rows
that are here is gathered, so that a report can name it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, connection, models, transaction

from access.tenancy import operations_session
from artifacts import descriptors
from knowledge.core import fingerprint
from knowledge.core.records import Revision
from knowledge.core.types import ChunkSetState
from knowledge.models import (
    Chunk,
    DeletedChunk,
    Deletion,
    Document,
    KnowledgeEvent,
    UnfinishedVersion,
)
from knowledge.transfer.archive import (
    MANIFEST,
    ORIGINALS,
    Archive,
    Manifest,
    manifest_of,
    original_file,
    rows_file,
    sha256_of,
)
from knowledge.transfer.errors import (
    ArchiveDamaged,
    ArchiveInconsistent,
    ArchiveUnsafe,
    ImportConflict,
)
from knowledge.transfer.exporting import OnProgress, original_listed, parts_of
from knowledge.transfer.rows import (
    AT_ONCE,
    Ledger,
    Read,
    Rows,
    batches,
    comparable_line,
    lines_of,
    read_rows,
)
from knowledge.transfer.tables import OF_DOCUMENTS, TABLES, Table
from knowledge.transfer.values import line_of, row_of

HERE: Final = "here"
"""What the ledger calls documents that are here already."""
_TOLD_CONFLICTS: Final = 100


@dataclass(kw_only=True)
class Findings:
    """What taking an archive in comes to: what of it is new here, is here already, or conflicts."""

    new: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    conflicts: list[dict[str, str]] = field(default_factory=list)
    conflicting: int = 0
    offsets: Counter[int] = field(default_factory=Counter)

    def conflict(self, table: str, what: object, why: str) -> None:
        self.conflicting += 1
        if len(self.conflicts) < _TOLD_CONFLICTS:
            self.conflicts.append({"table": table, "id": str(what), "why": why})

    def require_no_conflict(self) -> None:
        if self.conflicting:
            raise ImportConflict(
                f"{self.conflicting} rows of the archive conflict with what is here; nothing was"
                " changed.",
                conflicts=self.conflicts,
                conflicting=self.conflicting,
            )

    def offset(self, chunks: int) -> int | None:
        """Where an interrupted import counted from, if all that is here was counted from there."""
        if len(self.offsets) != 1:
            return None
        ((offset, here),) = self.offsets.items()
        among = {"gt": offset, "lte": offset + chunks}
        with operations_session():
            chunks_there = Chunk.objects.filter(**{f"pk__{how}": at for how, at in among.items()})
            gone = DeletedChunk.objects.filter(
                **{f"number__{how}": at for how, at in among.items()}
            )
            free = offset >= 0 and chunks_there.count() == here and not gone.exists()
        return offset if free else None


# --- files -------------------------------------------------------------------------------------


def verify(archive: Archive, ledger: Ledger, on_progress: OnProgress) -> Manifest:
    """The manifest, when every file is there, as it tells, and no other; fills in the originals."""
    manifest = manifest_of(archive)
    if manifest.originals is None:
        raise ArchiveDamaged("The manifest lists no originals.")
    listed = {rows_file(name): one for name, one in manifest.rows.items()}
    listed[ORIGINALS] = manifest.originals
    for name, one in listed.items():
        with archive.open(name) as stream:
            if sha256_of(stream) != (one.sha256, one.bytes):
                raise ArchiveDamaged(f"{name} is not the one that the manifest lists.")
    total = read = 0
    with archive.open(ORIGINALS) as stream:
        for number, line in lines_of(stream, ORIGINALS):
            sha256, size = _original(line, number)
            with archive.open(original_file(sha256)) as original:
                if sha256_of(original) != (sha256, size):
                    raise ArchiveDamaged(f"{original_file(sha256)} is damaged.")
            if not ledger.add("original", sha256, value=str(size).encode()):
                raise ArchiveInconsistent(f"{original_file(sha256)} is listed twice.")
            read += size
            total += 1
            on_progress("Verifying", read, manifest.original_bytes)
    if (total, read) != (manifest.originals.lines, manifest.original_bytes):
        raise ArchiveDamaged("The originals are not as many as the manifest says.")
    known = {MANIFEST, *listed}
    for name in archive.names():
        if name not in known and ledger.get("original", name.rsplit("/", 1)[-1]) is None:
            raise ArchiveUnsafe(f"{name} is in no list.")
    return manifest


def _original(line: bytes, number: int) -> tuple[str, int]:
    try:
        row = row_of(line)
        sha256, size = row["sha256"], row["bytes"]
        fits = type(size) is int and type(sha256) is str and row == original_listed(sha256, size)
    except (ValueError, KeyError):
        fits = False
    if not fits:
        raise ArchiveDamaged(f"Line {number} of {ORIGINALS} lists no original.")
    return sha256, size


# --- rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """A document and all that it is made of; `chunks` can be gone through once."""

    document: Read
    versions: list[Read]
    chunk_sets: list[Read]
    chunks: Iterator[Read]

    @property
    def document_id(self) -> UUID:
        found: UUID = self.document.values["document_id"]
        return found


def bundles(archive: Archive) -> Iterator[Bundle]:
    """Document by document, out of files that are read side by side."""
    with ExitStack() as stack:

        def reading(name: str) -> Iterator[Read]:
            return read_rows(stack.enter_context(archive.open(rows_file(name))), name)

        documents = reading("documents")
        versions, chunk_sets, chunks = (_Ahead(reading(name)) for name in OF_DOCUMENTS[1:])
        for document in documents:
            own = document.row["document_id"]
            of_document = list(versions.of(_document_of_version, {own}))
            sets = list(chunk_sets.of(_document_of_set, {own}))
            rest = chunks.of(_set_of_chunk, {read.row["id"] for read in sets})
            yield Bundle(document, of_document, sets, rest)
            for _ in rest:  # whoever was not interested in them
                pass
        for ahead in (versions, chunk_sets, chunks):
            for read in ahead:
                raise _inconsistent(read, "belongs to no document that stands there")


class _Ahead:
    """Rows of a file with a look at the next one."""

    def __init__(self, rows: Iterator[Read]) -> None:
        self._rows = rows
        self._next: Read | None = None

    def __iter__(self) -> Iterator[Read]:
        while (read := self._look()) is not None:
            self._next = None
            yield read

    def of(self, parent: Callable[[Read], str], those: Container[str]) -> Iterator[Read]:
        """Those that come next, as long as they belong to one of some."""
        while (read := self._look()) is not None and parent(read) in those:
            self._next = None
            yield read

    def _look(self) -> Read | None:
        if self._next is None:
            self._next = next(self._rows, None)
        return self._next


def _document_of_version(read: Read) -> str:
    return str(read.row["document"])


def _document_of_set(read: Read) -> str:
    return str(read.row["version"][0])


def _set_of_chunk(read: Read) -> str:
    return str(read.row["chunk_set"])


def check(
    archive: Archive, manifest: Manifest, ledger: Ledger, on_progress: OnProgress
) -> Findings:
    """Goes through every row. Raises for a bad archive; conflicts are in what it returns."""
    return _Check(archive, manifest, ledger, on_progress).run()


class _Check:
    def __init__(
        self, archive: Archive, manifest: Manifest, ledger: Ledger, on_progress: OnProgress
    ) -> None:
        self._archive = archive
        self._manifest = manifest
        self._ledger = ledger
        self._on_progress = on_progress
        self._tenants = set(manifest.tenants)
        self._findings = Findings()
        self._lines: Counter[str] = Counter()
        self._total = sum(listed.lines for listed in manifest.rows.values())
        self._done = 0
        self._latest = 0
        self._numbered = bytearray(manifest.rows["chunks"].lines // 8 + 1)
        self._to_try: dict[str, list[Read]] = {}
        self._new_chunks: list[Read] = []
        self._deleted_here: list[Deletion] = []

    def run(self) -> Findings:
        for name in self._manifest.rows:
            if name == OF_DOCUMENTS[0]:
                self._documents()
            elif name not in OF_DOCUMENTS:
                with self._archive.open(rows_file(name)) as stream:
                    for batch in batches(read_rows(stream, name)):
                        for read in batch:
                            self._look_at(read)
                        self._compare(name, batch)
        for name in list(self._to_try):
            self._try(name)
        for name, listed in self._manifest.rows.items():
            if self._lines[name] != listed.lines:
                raise ArchiveDamaged(f"{rows_file(name)} has not as many rows as are listed.")
        if self._latest != self._lines["records"]:
            raise ArchiveInconsistent("A record lacks its latest revision.")
        for deletion in self._deleted_here:
            if self._ledger.get("deletions", str(deletion.pk)) is None:
                self._findings.conflict(
                    "documents", deletion.document_id, "it has been deleted here"
                )
        return self._findings

    # --- each row for itself

    def _look_at(self, read: Read) -> None:
        name, row = read.name, read.row
        self._lines[name] += 1
        self._done += 1
        if self._done % AT_ONCE == 0:
            self._on_progress("Checking", self._done, self._total)
        if row["tenant_id"] not in self._tenants:
            raise _inconsistent(read, "is of a tenant that the manifest does not name")
        tenant = row["tenant_id"].encode()
        if read.table.key and not self._ledger.add(name, *read.key, value=tenant):
            raise _inconsistent(read, "is there twice")
        for unique in read.table.uniques:
            values = [row[column] for column in unique]
            if None not in values and not self._ledger.add(f"{name} {unique}", *values):
                raise _inconsistent(read, f"has the {unique[-1]} of another row")
        for column in read.table.columns:
            named = column.reference(row) if column.target else None
            if named is not None and self._ledger.get(column.target, *named) != tenant:
                raise _inconsistent(read, f"names a row by its {column.name} that is not there")
        self._own_rules(read)
        waiting = self._to_try.setdefault(name, [])
        waiting.append(read)
        if len(waiting) == AT_ONCE:
            self._try(name)

    def _own_rules(self, read: Read) -> None:
        row = read.row
        match read.name:
            case "artifacts":
                size = self._ledger.get("original", row["sha256"])
                if size is None or int(size) != row["byte_size"]:
                    raise _inconsistent(read, "has no original of its hash and size")
                self._ledger.add("artifact", row["id"], value=read.line)
            case "descriptors":
                self._descriptor(read)
            case "records":
                latest = f"{row['revision']} {row['sha256']}"
                self._ledger.add("latest", row["record_id"], value=latest.encode())
            case "record_revisions":
                self._revision(read)
        if read.table.number == "place" and row["number"] > 1:
            group, number = read.key
            if self._ledger.get(read.name, group, number - 1) is None:
                raise _inconsistent(read, "has a number that does not follow")

    def _descriptor(self, read: Read) -> None:
        artifact = row_of(self._ledger.get("artifact", read.row["artifact"]) or b"{}\n")
        described = descriptors.canonical(
            path=f"artifacts/{artifact['id']}",
            sha256=artifact["sha256"],
            attribution=artifact["attribution"],
            filename=artifact["filename"],
            media_type=artifact["media_type"],
            size=artifact["byte_size"],
        )
        told = (read.row["descriptor_id"], read.row["canonical"].encode())
        if told != (descriptors.descriptor_id(described), described):
            raise _inconsistent(read, "does not describe its artifact")
        self._ledger.add("descriptor of", artifact["id"], value=read.line)

    def _revision(self, read: Read) -> None:
        """A revision says what its columns say, and follows the one before it."""
        row = read.row
        canonical = row["canonical"].encode()
        try:
            said = Revision.read(row["canonical"])
            fits = said.canonical() == canonical
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise read.invalid(ValueError("it is no revision"), "canonical") from None
        told = (
            str(said.record),
            said.revision,
            said.previous,
            hashlib.sha256(canonical).hexdigest(),
        )
        if not fits or told != (
            *(row["record"], row["revision"], row["previous_sha256"]),
            row["sha256"],
        ):
            raise _inconsistent(read, "says something else than its canonical form")
        number = row["revision"]
        if number > 1:
            before = self._ledger.get("revision", row["record"], number - 1)
            if before != row["previous_sha256"].encode():
                raise _inconsistent(read, "does not follow the revision before it")
        self._ledger.add("revision", row["record"], number, value=row["sha256"].encode())
        latest = self._ledger.get("latest", row["record"]) or b""
        if latest == f"{number} {row['sha256']}".encode():
            self._latest += 1
        elif number >= int(latest.split()[0]):
            raise _inconsistent(read, "is later than the latest of its record")

    def _try(self, name: str) -> None:
        """Lets the database look at rows by themselves: types, lengths, CHECKs."""
        waiting = self._to_try.pop(name)
        try:
            _rehearse(TABLES[name], waiting)
        except DatabaseError:
            for read in waiting:
                try:
                    _rehearse(TABLES[name], [read])
                except DatabaseError as refused:
                    raise read.invalid(ValueError(refusal(refused))) from None
            raise

    # --- documents

    def _documents(self) -> None:
        with self._archive.open(rows_file("documents")) as stream:
            for batch in batches(read_rows(stream, "documents")):
                for one in self._here([read.values["document_id"] for read in batch]):
                    self._ledger.add(HERE, str(one))
        for bundle in bundles(self._archive):
            self._bundle(bundle)
            if self._ledger.get(HERE, str(bundle.document_id)) is not None:
                self._same_here(bundle)
            else:
                for read in (bundle.document, *bundle.versions, *bundle.chunk_sets):
                    self._findings.new[read.name] += 1
                self._unique_here("versions", bundle.versions)
                for read in self._chunks(bundle):
                    self._findings.new["chunks"] += 1
                    self._new_chunks.append(read)
                    if len(self._new_chunks) == AT_ONCE:
                        self._compare_new_chunks()
        self._compare_new_chunks()

    def _here(self, ids: Sequence[UUID]) -> set[UUID]:
        """Which documents are here; what else is known here of the others is a conflict."""
        with operations_session():
            here = set(Document.objects.filter(pk__in=ids).values_list("pk", flat=True))
            others = [one for one in ids if one not in here]
            self._deleted_here += Deletion.objects.filter(document_id__in=others)
            unfinished = UnfinishedVersion.objects.filter(document_id__in=others)
            for one in unfinished.values_list("document_id", flat=True):
                self._findings.conflict("documents", one, "it is being ingested here")
        return here

    def _bundle(self, bundle: Bundle) -> None:
        document = bundle.document
        self._look_at(document)
        numbers = [read.row["version"] for read in bundle.versions]
        current = [read for read in bundle.versions if read.row["superseded_at"] is None]
        if not numbers or numbers != sorted(set(numbers)) or current != bundle.versions[-1:]:
            raise _inconsistent(document, "has not one current version after all others")
        live: Counter[int] = Counter()
        for read in (*bundle.versions, *bundle.chunk_sets):
            self._look_at(read)
        for read in bundle.chunk_sets:
            if read.row["state"] == ChunkSetState.INGESTING or read.row["published_at"] is None:
                raise _inconsistent(read, "was never published")
            live[read.row["version"][1]] += read.row["state"] == ChunkSetState.LIVE
        if set(live) != set(numbers) or set(live.values()) != {1}:
            raise _inconsistent(document, "has a version without one chunk set that is live")

    def _chunks(self, bundle: Bundle) -> Iterator[Read]:
        """The chunks, each looked at; by nobody else are they read."""
        sets = {read.row["id"]: read for read in bundle.chunk_sets}
        at: tuple[Any, ...] = ()
        for read in bundle.chunks:
            self._look_at(read)
            row = read.row
            chunk_set = sets[row["chunk_set"]].row
            place = (chunk_set["version"][1], row["chunk_set"], row["ordinal"])
            if place <= at:
                raise _inconsistent(read, "stands out of order")
            at = place
            self._number(read)
            path, text = tuple(row["heading_path"]), row["text"]
            key = fingerprint.chunk_key(chunk_set["chunker_version"], row["ordinal"], path, text)
            named = fingerprint.chunk_id(bundle.document_id, place[0], key)
            if (named, fingerprint.content_sha256(text)) != (
                row["chunk_id"],
                row["content_sha256"],
            ):
                raise _inconsistent(read, "has an id or a hash that is not of its text")
            yield read

    def _number(self, read: Read) -> None:
        place, bit = divmod(read.row["number"] - 1, 8)
        if place >= len(self._numbered) or self._numbered[place] & 1 << bit:
            raise _inconsistent(read, "has the number of another row, or none of the archive's")
        self._numbered[place] |= 1 << bit

    def _same_here(self, bundle: Bundle) -> None:
        """A document that is here is the very same in all its parts, or a conflict."""

        def told() -> Iterator[tuple[Read, bytes]]:
            for read in (*bundle.versions, *bundle.chunk_sets, *self._chunks(bundle)):
                yield read, comparable_line(read.table, read.row)

        differs = ""
        with operations_session():
            rows = Rows(None)
            own = [bundle.document_id]
            stored = [row for _, row in rows.of("documents", pk__in=own)]
            if stored != [bundle.document.row]:
                differs = "the document"
            here = parts_of(rows, own)
            for read_and_line, named in zip_longest(told(), here):
                if read_and_line is None or named is None:
                    differs = differs or "what it is made of"
                    continue
                (read, line), (_, pk, row) = read_and_line, named
                if comparable_line(read.table, row) != line:
                    differs = differs or f"its {read.name.replace('_', ' ')}"
                elif read.name == "chunks":
                    self._findings.offsets[pk - read.row["number"]] += 1
                self._findings.kept[read.name] += 1
        self._findings.kept["documents"] += 1
        if differs:
            self._findings.conflict(
                "documents", bundle.document_id, f"it is here and not the same: {differs}"
            )

    def _compare_new_chunks(self) -> None:
        """Chunks of documents that are not here must not be here either."""
        ids = [read.row["chunk_id"] for read in self._new_chunks]
        self._new_chunks = []
        with operations_session():
            taken = Chunk.objects.filter(chunk_id__in=ids)
            for chunk_id in taken.values_list("chunk_id", flat=True):
                self._findings.conflict("chunks", chunk_id, "another document has this id here")

    # --- other rows

    def _compare(self, name: str, batch: Sequence[Read]) -> None:
        new = absent(name, batch, self._findings)
        self._findings.new[name] += len(new)
        self._findings.kept[name] += len(batch) - len(new)
        self._unique_here(name, new)
        if name == "records":
            self._require_not_removed(new)
        if name == "deletions":
            gone = {read.values["document_id"] for read in new}
            with operations_session():
                here = Document.objects.filter(pk__in=gone).values_list("pk", flat=True)
                for one in here:
                    if self._ledger.get("documents", str(one)) is None:
                        self._findings.conflict(
                            "deletions", one, "the document is here, and the archive deleted it"
                        )

    def _require_not_removed(self, records: Sequence[Read]) -> None:
        """A record that was removed leaves an event and no row: it does not come back unasked."""
        ids = [read.row["record_id"] for read in records]
        with operations_session():
            removed = KnowledgeEvent.objects.filter(
                name=KnowledgeEvent.RECORD_DELETED, data__record_id__in=ids
            )
            for record_id in removed.values_list("data__record_id", flat=True):
                self._findings.conflict("records", record_id, "it has been removed here")

    def _unique_here(self, name: str, new: Sequence[Read]) -> None:
        table = TABLES[name]
        columns = {column.name: column for column in table.columns}
        for unique in table.uniques:
            if not new or any(columns[one].natural for one in unique if one in columns):
                continue  # of rows that are not here either
            last = columns[unique[-1]].field.attname
            wanted = {
                tuple(read.values[one] for one in unique): read
                for read in new
                if read.row[unique[-1]] is not None
            }
            names = [columns[one].field.attname for one in unique]
            with operations_session():
                taken = table.model._default_manager.filter(  # noqa: SLF001
                    **{f"{last}__in": {values[-1] for values in wanted}}
                ).values_list(*names)
                for values in taken:
                    if values in wanted:
                        read = wanted[values]
                        self._findings.conflict(
                            name, "/".join(map(str, read.key)), f"another has its {unique[-1]} here"
                        )


def absent(name: str, batch: Sequence[Read], findings: Findings) -> list[Read]:
    """Those rows that are not here; one of the same key that is not the same is a conflict."""
    table = TABLES[name]
    with operations_session():
        stored = [row for _, row in Rows(None).like(name, [read.row for read in batch])]
    if not table.key:
        lines = Counter(line_of(row) for row in stored)
        new = []
        for read in batch:
            if lines[read.line]:
                lines[read.line] -= 1
            else:
                new.append(read)
        return new
    by_key = {table.key_of(row): comparable_line(table, row) for row in stored}
    for read in batch:
        line = by_key.get(read.key)
        if line is not None and line != comparable_line(table, read.row):
            findings.conflict(name, "/".join(map(str, read.key)), "it is here and not the same")
    return [read for read in batch if read.key not in by_key]


# --- what the database says of a row -----------------------------------------------------------


def instance(read: Read, named: Mapping[str, int], **further: Any) -> models.Model:
    """A row for the database; `named` are the numbers of the rows that it names by their keys."""
    values: dict[str, Any] = {}
    for column in read.table.columns:
        if not column.natural:
            values[column.field.attname] = read.values[column.name]
        elif read.row[column.name] is not None:
            values[column.field.attname] = named[column.name]
    return read.table.model(**{**values, **further})


def _rehearse(table: Table, reads: Iterable[Read]) -> None:
    """Inserts rows into a table of the same name and columns that is gone again at once.

    A temporary one, which PostgreSQL finds before the real one: with its CHECKs, but without keys,
    so that every row stands for itself.
    """
    name = table.model._meta.db_table  # noqa: SLF001 - Django's documented interface
    placeholders = dict.fromkeys(_natural(table), 1)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                f'CREATE TEMPORARY TABLE "{name}"'
                f' (LIKE public."{name}" INCLUDING CONSTRAINTS) ON COMMIT DROP'
            )
        rows = [
            instance(read, placeholders, **stand_ins(read, number))
            for number, read in enumerate(reads, start=1)
        ]
        table.model._default_manager.bulk_create(rows)  # noqa: SLF001
        transaction.set_rollback(True)


def _natural(table: Table) -> list[str]:
    return [column.name for column in table.columns if column.natural]


def stand_ins(read: Read, number: int) -> dict[str, Any]:
    """For the columns that do not travel."""
    pk = read.table.model._meta.pk  # noqa: SLF001
    further: dict[str, Any] = {}
    if isinstance(pk, models.AutoField):
        further[pk.attname] = number
    if read.name == "deleted_chunks":
        further["number"] = number
    return further


def refusal(refused: DatabaseError) -> str:
    """The name of the constraint at most: messages quote data."""
    diagnosis = getattr(refused.__cause__, "diag", None)
    constraint = getattr(diagnosis, "constraint_name", None)
    return f"The database refuses it ({constraint or type(refused).__name__})"


def _inconsistent(read: Read, why: str) -> ArchiveInconsistent:
    return ArchiveInconsistent(
        f"Line {read.number} of {read.name} {why}.", table=read.name, line=read.number
    )
