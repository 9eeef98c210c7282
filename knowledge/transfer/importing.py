"""Taking an archive in: document by document, each whole in one transaction, then all the rest.

Whoever is interrupted starts again: what is here and the same is left alone. Nothing of a document
is to be found before all of it is; its index, statistics and vectors are made by what ingests use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction

from access.tenancy import operations_session
from artifacts import store as artifact_store
from artifacts.models import Artifact, SourceDescriptor
from knowledge.adapters import term_index
from knowledge.adapters.database import lock_document, now
from knowledge.adapters.indexing import index_rows
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.ports import Stemmer
from knowledge.core.types import ChunkSetState, Verdict
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    UnfinishedVersion,
    VisibilitySpace,
)
from knowledge.transfer.archive import (
    Archive,
    Manifest,
    opened,
    original_file,
    rows_file,
)
from knowledge.transfer.checking import (
    HERE,
    Bundle,
    Findings,
    absent,
    bundles,
    check,
    instance,
    refusal,
    verify,
)
from knowledge.transfer.errors import ArchiveInconsistent, ImportConflict
from knowledge.transfer.exporting import OnProgress, untold
from knowledge.transfer.rows import AT_ONCE, Ledger, Read, Rows, batches, read_rows
from knowledge.transfer.tables import TABLES, WITH_DOCUMENTS, Column

logger = logging.getLogger(__name__)

_SPACE: Final = next(one for one in TABLES["documents"].columns if one.name == "space")
_ONE_AT_A_TIME: Final = 0x5645_5243  # any constant of our own
_SOON: Final = timedelta(days=1)
# Numbers that others may take between two calls of one statement.
_ROOM: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an archive came to: rows that are new here and rows that were here, table by table.

    `without_vector` says of each tenant how many passages have none here, where there is an embedder.
    """

    tenants: tuple[str, ...]
    new: Mapping[str, int]
    kept: Mapping[str, int]
    original_bytes: int
    dry_run: bool
    without_vector: Mapping[str, int] = field(default_factory=dict)


def import_corpus(
    source: Path,
    stemmer: Stemmer,
    *,
    dry_run: bool = False,
    actor: str,
    on_progress: OnProgress = untold,
) -> Imported:
    """Takes in the archive in a folder or a tar.

    Every file and every row is looked at before the first is written. Raises `ArchiveRefused` for
    what is wrong with the archive and `ImportConflict` for what is not the same here; neither
    changes anything. When somebody changes the very same things while it is being taken in, that
    ends it, and documents that were taken in before stay.
    """
    with closing(opened(source)) as archive, Ledger() as ledger:
        manifest = verify(archive, ledger, on_progress)
        findings = check(archive, manifest, ledger, on_progress)
        findings.require_no_conflict()
        if not dry_run:
            work = _Import(
                archive=archive,
                manifest=manifest,
                ledger=ledger,
                findings=findings,
                stemmer=stemmer,
                actor=actor,
                on_progress=on_progress,
            )
            try:
                work.run()
            except IntegrityError as refused:
                # Its message quotes data.
                raise ArchiveInconsistent(refusal(refused)) from None
    return Imported(
        tenants=manifest.tenants,
        new={name: findings.new[name] for name in manifest.rows},
        kept={name: findings.kept[name] for name in manifest.rows},
        original_bytes=manifest.original_bytes,
        dry_run=dry_run,
    )


@dataclass(kw_only=True)
class _Import:
    archive: Archive
    manifest: Manifest
    ledger: Ledger
    findings: Findings
    stemmer: Stemmer
    actor: str
    on_progress: OnProgress
    spaces: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def run(self) -> None:
        if not sum(self.findings.new.values()):
            return
        with operations_session():
            soon = now() + _SOON
        self._write_spaces()
        self._write_documents()
        for batch in self._other_artifacts():
            lasting = [read for read in batch if _lasts(read, soon)]
            keys = self._put(lasting)
            with _keeping(keys), operations_session():
                self._write_artifacts(lasting, keys)
        with ExitStack() as stack:
            # What is kept only because something names it comes with what names it.
            fleeting = [
                read
                for batch in self._other_artifacts()
                for read in batch
                if not _lasts(read, soon)
            ]
            keys = self._put(fleeting)
            stack.enter_context(_keeping(keys))
            stack.enter_context(operations_session())
            self._write_artifacts(fleeting, keys)
            for name in self.manifest.rows:
                if name not in WITH_DOCUMENTS or name == "descriptors":
                    self._write_others(name)
            self._record()
        with operations_session():
            term_index.merge_statistics()
        with connection.cursor() as cursor:
            # A plan made for empty tables takes minutes over many rows.
            for model in (Chunk, ChunkSet, DocumentVersion, Document):
                cursor.execute(f"ANALYZE {model._meta.db_table}")  # noqa: SLF001
            cursor.execute("ANALYZE knowledge_chunk_index")
        logger.info("corpus_imported", extra={"tenants": len(self.manifest.tenants)})

    def _read(self, name: str) -> Iterator[list[Read]]:
        with self.archive.open(rows_file(name)) as stream:
            yield from batches(read_rows(stream, name))

    def _record(self) -> None:
        new = {name: count for name, count in self.findings.new.items() if count}
        KnowledgeEvent.objects.bulk_create(
            KnowledgeEvent(
                tenant_id=tenant_id,
                name=KnowledgeEvent.CORPUS_IMPORTED,
                actor=self.actor,
                surface="command",
                data={"snapshot_at": self.manifest.snapshot_at, "new": new},
            )
            for tenant_id in self.manifest.tenants
        )

    # --- what documents stand on

    def _write_spaces(self) -> None:
        for batch in self._read("spaces"):
            with operations_session():
                new = absent("spaces", batch, self.findings)
                VisibilitySpace.objects.bulk_create(
                    cast("VisibilitySpace", instance(read, {})) for read in new
                )
                for pk, row in Rows(None).like("spaces", [read.row for read in batch]):
                    self.spaces[TABLES["spaces"].key_of(row)] = pk
                for read in batch:
                    for language in read.values["languages"]:
                        VisibilitySpace.objects.note(
                            self.spaces[read.key], language=language, analyzer=ANALYZER_VERSION
                        )

    def _put(self, artifacts: Iterable[Read]) -> dict[UUID, str]:
        """Writes originals ahead of the transaction that names them. Returns where, by artifact."""
        keys: dict[UUID, str] = {}
        try:
            for read in artifacts:
                sha256 = read.row["sha256"]
                with self.archive.open(original_file(sha256)) as original:
                    keys[read.values["id"]] = artifact_store.store_checked(original, sha256=sha256)
        except BaseException:
            _discard(keys)
            raise
        return keys

    def _write_artifacts(self, artifacts: Sequence[Read], keys: Mapping[UUID, str]) -> None:
        """Rows of artifacts with their descriptors."""
        Artifact.objects.bulk_create(
            cast("Artifact", instance(read, {}, storage_key=keys[read.values["id"]]))
            for read in artifacts
        )
        described = [
            Read("descriptors", 0, line)
            for read in artifacts
            if (line := self.ledger.get("descriptor of", read.row["id"])) is not None
        ]
        SourceDescriptor.objects.bulk_create(
            cast("SourceDescriptor", instance(read, {})) for read in described
        )

    def _other_artifacts(self) -> Iterator[list[Read]]:
        """Uploads, attachments, snapshots: whatever is no source of a document and is not here."""
        for batch in self._read("artifacts"):
            new = absent("artifacts", batch, self.findings)
            self.findings.require_no_conflict()
            if new:
                yield new

    # --- documents

    def _write_documents(self) -> None:
        total = self.manifest.rows["chunks"].lines
        offset = self.findings.offset(total)
        if offset is None:
            offset = _reserved(total)
        done = 0
        for bundle in bundles(self.archive):
            if self.ledger.get(HERE, str(bundle.document_id)) is None:
                for chunks in self._write_document(bundle, offset):
                    done += chunks
                    self.on_progress("Importing", done, self.findings.new["chunks"])

    def _write_document(self, bundle: Bundle, offset: int) -> Iterator[int]:
        """One transaction. Yields how many chunks were written, some at a time."""
        sources = self._sources(bundle)
        keys = self._put(sources)
        with _keeping(keys), operations_session():
            lock_document(bundle.document_id)
            self._require_still_absent(bundle.document_id)
            self._write_artifacts(sources, keys)
            space = self.spaces[_SPACE.reference(bundle.document.row) or ()]
            document = cast("Document", instance(bundle.document, {"space": space}))
            document.save(force_insert=True)
            versions = {
                version.version: version
                for version in DocumentVersion.objects.bulk_create(
                    cast("DocumentVersion", instance(read, {})) for read in bundle.versions
                )
            }
            sets: dict[str, tuple[ChunkSet, DocumentVersion]] = {}
            for read in bundle.chunk_sets:
                version = versions[read.row["version"][1]]
                chunk_set = cast("ChunkSet", instance(read, {"version": version.pk}))
                chunk_set.analyzer_version = ANALYZER_VERSION
                chunk_set.save(force_insert=True)
                sets[read.row["id"]] = chunk_set, version
            for version in versions.values():
                VisibilitySpace.objects.note(
                    space, language=version.language, analyzer=ANALYZER_VERSION
                )
            for some in _of_one_set(bundle.chunks):
                chunk_set, version = sets[some[0].row["chunk_set"]]
                chunks = [
                    cast("Chunk", instance(read, {}, id=offset + read.row["number"]))
                    for read in some
                ]
                Chunk.objects.bulk_create(chunks)
                live = chunk_set.state == ChunkSetState.LIVE and version.superseded_at is None
                self._index(document, version, chunks, space=space, live=live)
                yield len(chunks)

    def _sources(self, bundle: Bundle) -> list[Read]:
        """The artifacts of its versions that are not here."""
        lines = [self.ledger.get("artifact", read.row["source"]) or b"" for read in bundle.versions]
        return absent("artifacts", [Read("artifacts", 0, line) for line in lines], self.findings)

    def _require_still_absent(self, document_id: UUID) -> None:
        here = Document.objects.filter(pk=document_id).exists()
        if here or UnfinishedVersion.objects.filter(document_id=document_id).exists():
            self.findings.conflict("documents", document_id, "it came here in the meantime")
            raise ImportConflict(
                "Somebody admitted one of these documents in the meantime. Documents that were"
                " taken in before are here, each of them whole.",
                conflicts=self.findings.conflicts,
                conflicting=self.findings.conflicting,
            )

    def _index(
        self,
        document: Document,
        version: DocumentVersion,
        chunks: Sequence[Chunk],
        *,
        space: int,
        live: bool,
    ) -> None:
        admitted = {
            chunk.pk: (chunk.heading_path, chunk.text)
            for chunk in chunks
            if chunk.verdict == Verdict.ADMIT
        }
        rows = index_rows(self.stemmer, document.title, admitted, version.language)
        term_index.publish(list(rows.items()), space=space, live=live)

    # --- the rest

    def _write_others(self, name: str) -> None:
        table = TABLES[name]
        natural = [column for column in table.columns if column.natural]
        for batch in self._read(name):
            conflicts = self.findings.conflicting
            new = absent(name, batch, self.findings)
            if self.findings.conflicting > conflicts:
                self.findings.require_no_conflict()
            named = {column.name: self._numbers(column, new) for column in natural}
            further = self._numbers_of_deleted(len(new)) if name == "deleted_chunks" else None
            rows = [
                instance(
                    read,
                    {
                        column.name: named[column.name][reference]
                        for column in natural
                        if (reference := column.reference(read.row)) is not None
                    },
                    **({"number": next(further)} if further else {}),
                )
                for read in new
            ]
            table.model._default_manager.bulk_create(rows)  # noqa: SLF001
            told = name.replace("_", " ").capitalize()
            self.on_progress(told, batch[-1].number, self.manifest.rows[name].lines)

    def _numbers(self, column: Column, reads: Sequence[Read]) -> Mapping[tuple[Any, ...], int]:
        """The primary keys of the rows that some rows name, by their keys."""
        if column.target == "spaces":
            return self.spaces
        target = TABLES[column.target]
        wanted = {column.reference(read.row) for read in reads} - {None}
        asked = [dict(zip(target.key, key, strict=True)) for key in wanted if key is not None]
        if not asked:
            return {}
        return {target.key_of(row): pk for pk, row in Rows(None).like(column.target, asked)}

    def _numbers_of_deleted(self, count: int) -> Iterator[int]:
        """Numbers that no chunk has, had or will have."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT nextval(pg_get_serial_sequence('knowledge_chunk', 'id'))"
                " FROM generate_series(1, %s)",
                [count],
            )
            return iter([number for (number,) in cursor.fetchall()])


class _keeping:  # noqa: N801 - a context manager that reads like a word
    """Takes blobs back when the transaction that names them failed for certain."""

    def __init__(self, keys: Mapping[UUID, str]) -> None:
        self._keys = keys

    def __enter__(self) -> None:
        """They are there already."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Whether it was committed is unknown when the connection broke; if not, the sweeper comes.
        if kind is not None and not issubclass(kind, OperationalError | InterfaceError):
            _discard(self._keys)


def _lasts(artifact: Read, soon: datetime) -> bool:
    """Whether no sweep comes for it while nothing names it yet."""
    expires_at = artifact.values["expires_at"]
    return expires_at is None or bool(expires_at > soon)


def _discard(keys: Mapping[UUID, str]) -> None:
    for key in keys.values():
        artifact_store.discard_blob(key)


def _of_one_set(chunks: Iterator[Read]) -> Iterator[list[Read]]:
    batch: list[Read] = []
    for read in chunks:
        if batch and (len(batch) == AT_ONCE or read.row["chunk_set"] != batch[0].row["chunk_set"]):
            yield batch
            batch = []
        batch.append(read)
    if batch:
        yield batch


def _reserved(count: int) -> int:
    """What `count` numbers follow that no chunk will ever be given otherwise.

    Chunks are numbered in the order in which they were made: equal scores are ranked by it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ONE_AT_A_TIME])
        cursor.execute("SELECT pg_get_serial_sequence('knowledge_chunk', 'id')")
        sequence = cursor.fetchone()[0]
        cursor.execute("SELECT nextval(%s)", [sequence])
        offset: int = cursor.fetchone()[0] + _ROOM
        cursor.execute("SELECT setval(%s, %s)", [sequence, offset + count])
    return offset
