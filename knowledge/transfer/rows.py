"""Rows of the database as an archive has them, and what an archive holds as it is gone through."""

from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import IO, Any, Final

from django.db.models import Q, QuerySet
from django.db.models.functions import Collate

from knowledge.transfer.errors import ArchiveRowInvalid
from knowledge.transfer.tables import TABLES, Key, Row, Table
from knowledge.transfer.values import LONGEST_ROW, line_of, row_of

AT_ONCE: Final = 500


class Rows:
    """Reads tables in the caller's session, of some tenants or of all."""

    def __init__(self, tenants: Sequence[str] | None) -> None:
        self._tenants = tenants
        self._places: dict[str, dict[int, int]] = {}
        self._ranked = array("q")

    def rank(self, name: str) -> None:
        """Counts the rows of a table that travel, in the order in which they were made."""
        pks = self._chosen(name).order_by("pk").values_list("pk", flat=True)
        self._ranked = array("q", pks.iterator(chunk_size=10_000))

    def of(self, name: str, **chosen: Any) -> Iterator[tuple[Any, Row]]:
        """Primary keys and rows, in the order of the table's file."""
        table = TABLES[name]
        columns = table.columns
        lookups = [lookup for column in columns for lookup in column.lookups]
        ordered = self._chosen(name, **chosen).order_by(*map(_in_bytes, table.order))
        rows = ordered.values_list("pk", *lookups)
        group: Any = None
        place = 0
        for pk, *values in rows.iterator(chunk_size=AT_ONCE):
            row: Row = {}
            at = 0
            for column in columns:
                parts = values[at : at + len(column.lookups)]
                at += len(column.lookups)
                if column.numbered and parts[-1] is not None:
                    parts[-1] = self._places[column.target][parts[-1]]
                row[column.name] = column.write(parts)
            match table.number:
                case "place":
                    if row[table.key[0]] != group:
                        group, place = row[table.key[0]], 0
                    place += 1
                    row["number"] = self._places.setdefault(name, {})[pk] = place
                case "rank":
                    row["number"] = bisect_left(self._ranked, pk) + 1
            yield pk, table.settled(row)

    def like(self, name: str, rows: Sequence[Row]) -> Iterator[tuple[Any, Row]]:
        """What is stored that may be the same as one of these."""
        table = TABLES[name]
        near = {table.near_of(row) for row in rows}
        for column in table.columns:
            if column.numbered:
                _, lookup = TABLES[column.target].near
                list(self.of(column.target, **{f"{lookup}__in": near}))
        return self.of(name, **{f"{table.near[1]}__in": near})

    def _chosen(self, name: str, **chosen: Any) -> QuerySet[Any]:
        table = TABLES[name]
        of_tenants = Q() if self._tenants is None else Q(tenant_id__in=self._tenants)
        return table.model._default_manager.filter(of_tenants, table.only(), **chosen)  # noqa: SLF001


_TEXTS: Final = frozenset(
    {"tenant_id", "visibility", "project_scope", "principal_id", "sensitivity", "descriptor_id"}
    | {"conversation_id", "chunk_id", "answer_id"}
)


def _in_bytes(order: str) -> Any:
    """Text in the order of its bytes, so that a file is the same whatever a database collates by."""
    name = order.rsplit("__", 1)[-1]
    return Collate(order, "C") if name in _TEXTS else order


class Read:
    """A row of an archive: where it stands, as it stands there, and what its values are."""

    __slots__ = ("line", "name", "number", "row", "values")

    def __init__(self, name: str, number: int, line: bytes) -> None:
        self.name = name
        self.number = number
        self.line = line
        table = TABLES[name]
        try:
            self.row = row_of(line)
        except ValueError as wrong:
            raise self.invalid(wrong) from None
        if tuple(sorted(self.row)) != table.names:
            raise self.invalid(ValueError("it has other columns"))
        if table.number and (type(self.row["number"]) is not int or self.row["number"] < 1):
            raise self.invalid(ValueError("it is not numbered"))
        self.values: dict[str, Any] = {}
        for column in table.columns:
            try:
                self.values[column.name] = column.read(self.row[column.name])
            except (ValueError, OverflowError) as wrong:
                raise self.invalid(wrong, column.name) from None

    @property
    def table(self) -> Table:
        return TABLES[self.name]

    @property
    def key(self) -> Key:
        return self.table.key_of(self.row)

    def invalid(self, why: object, column: str = "") -> ArchiveRowInvalid:
        """What to raise; it names the place and never the content."""
        what = f", {column}" if column else ""
        told = str(why) if type(why) is ValueError else "it cannot be read"
        detail = f"Line {self.number} of {self.name}{what}: {told}."
        return ArchiveRowInvalid(detail, table=self.name, line=self.number)


def lines_of(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Numbers and lines of a file, none longer than a row may be."""
    number = 0
    while line := stream.readline(LONGEST_ROW):
        number += 1
        if not line.endswith(b"\n"):
            raise ArchiveRowInvalid(
                f"Line {number} of {name} is too long or breaks off.", table=name, line=number
            )
        yield number, line


def read_rows(stream: IO[bytes], name: str) -> Iterator[Read]:
    for number, line in lines_of(stream, name):
        yield Read(name, number, line)


def batches(rows: Iterable[Read], size: int = AT_ONCE) -> Iterator[list[Read]]:
    """Some at a time; facts without a name that are of one instant stay together."""
    batch: list[Read] = []
    for read in rows:
        full = len(batch) >= size
        if full and (
            read.table.key or read.table.near_of(read.row) != read.table.near_of(batch[-1].row)
        ):
            yield batch
            batch = []
        batch.append(read)
    if batch:
        yield batch


class Ledger(closing["Ledger"]):
    """What was seen of an archive, in a scratch file: memory stays the same, however much it is."""

    def __init__(self) -> None:
        super().__init__(self)
        # Without a name: a file that nobody else can open and that goes with the connection.
        self._scratch = sqlite3.connect("", isolation_level=None)
        self._scratch.execute("PRAGMA journal_mode = OFF")
        self._scratch.execute("PRAGMA synchronous = OFF")
        self._scratch.execute(
            "CREATE TABLE seen (kind TEXT, key TEXT, value BLOB, PRIMARY KEY (kind, key))"
            " WITHOUT ROWID"
        )

    def close(self) -> None:
        self._scratch.close()

    def add(self, kind: str, *key: Any, value: bytes = b"") -> bool:
        """Whether it was new."""
        added = self._scratch.execute(
            "INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (kind, json.dumps(key), value)
        )
        return added.rowcount == 1

    def get(self, kind: str, *key: Any) -> bytes | None:
        found = self._scratch.execute(
            "SELECT value FROM seen WHERE kind = ? AND key = ?", (kind, json.dumps(key))
        ).fetchone()
        return None if found is None else found[0]


def comparable_line(table: Table, row: Row) -> bytes:
    return line_of(table.comparable(row))
