"""Every column of the database that could hold an id or a word, asked by way of the catalogue.

So that what is looked for is looked for everywhere: in tables of ours, of Django's, and in those
that somebody adds later. Each table is read once, and nothing of it comes here but counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db import connection

_COLUMNS = """
    SELECT c.oid::regclass::text, a.attname, t.typname, coalesce(e.typname, ''),
        t.typcategory = 'S' OR e.typcategory = 'S',
        EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = c.oid
            AND f.conkey = ARRAY[a.attnum] AND f.confrelid = 'knowledge_chunk'::regclass)
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem
    WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema'
        AND n.nspname !~ '^pg_' AND has_table_privilege(c.oid, 'SELECT')
    ORDER BY 1, a.attnum
"""
# A citation, a UUID with its dashes or without: a storage key ends on one without.
_NAMES: Final = (
    "kc_[0-9a-z]{16}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}"
)
_IDS = "SELECT chunk_id FROM knowledge_deletedchunk WHERE deletion_id = ANY (%(deletions)s)"
_NUMBERS = "SELECT number FROM knowledge_deletedchunk WHERE deletion_id = ANY (%(deletions)s)"
_JSON: Final = {"json", "jsonb", "xml", "hstore"}


class Kind(StrEnum):
    """How a column is looked into."""

    UUID = "uuid"
    UUIDS = "uuids"
    TEXT = "text"
    NUMBER = "number"
    WORDS = "words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    table: str
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How many rows of a column hold what was looked for, those that may and those that may not."""

    table: str
    column: str
    kept: int
    left: int


def tables() -> Iterator[tuple[str, list[Column], bool]]:
    """Each table that can be read, with its columns worth a look, and whether it has tenants."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        rows = cursor.fetchall()
    by_table: dict[str, list[Column]] = {}
    tenants = set()
    for table, name, kind, element, textual, of_chunk in rows:
        columns = by_table.setdefault(table, [])
        if name == "tenant_id":
            tenants.add(table)
        if of_chunk:
            columns.append(Column(table=table, name=name, kind=Kind.NUMBER))
        elif kind == "uuid":
            columns.append(Column(table=table, name=name, kind=Kind.UUID))
        elif element == "uuid":
            columns.append(Column(table=table, name=name, kind=Kind.UUIDS))
        elif textual or kind in _JSON or element in _JSON:
            columns.append(Column(table=table, name=name, kind=Kind.TEXT))
        elif kind == "tsvector":
            columns.append(Column(table=table, name=name, kind=Kind.WORDS))
    for table, columns in by_table.items():
        yield table, columns, table in tenants


def holding_ids(
    table: str, columns: Sequence[Column], kept: str, values: Mapping[str, Any]
) -> list[Found]:
    """Where ids are held: `uuids` and `tokens` of the values, and the chunks of `deletions`.

    `kept` is the condition on a row `t` under which it may.
    """
    conditions = {
        Kind.UUID: "t.{} = ANY (%(uuids)s::uuid[])",
        Kind.UUIDS: "t.{} && %(uuids)s::uuid[]",
        Kind.NUMBER: f"t.{{}} IN ({_NUMBERS})",
        Kind.TEXT: "EXISTS (SELECT FROM regexp_matches(t.{}::text, %(pattern)s, 'g') AS m(found)"
        " WHERE replace(m.found[1], '-', '') = ANY (%(tokens)s::text[])"
        f" OR m.found[1] IN ({_IDS}))",
    }
    return _counted(table, columns, conditions, kept, {**values, "pattern": _NAMES})


def holding_words(
    table: str, columns: Sequence[Column], kept: str, values: Mapping[str, Any], *, where: str
) -> list[Found]:
    """Where words are held: any of the `lines` in a text, any of the `lexemes` in a tsvector.

    `where` says which rows are looked at.
    """
    conditions = {
        Kind.TEXT: "t.{}::text LIKE ANY (%(lines)s::text[])",
        Kind.WORDS: "tsvector_to_array(t.{}) && %(lexemes)s::text[]",
    }
    return _counted(table, columns, conditions, kept, values, where=where)


def _counted(
    table: str,
    columns: Sequence[Column],
    conditions: Mapping[Kind, str],
    kept: str,
    values: Mapping[str, Any],
    *,
    where: str = "true",
) -> list[Found]:
    searched = [column for column in columns if column.kind in conditions]
    if not searched:
        return []
    counts = []
    with connection.cursor() as cursor:
        for column in searched:
            holds = conditions[column.kind].format(quoted(column.name))
            counts += [
                f"count(*) FILTER (WHERE {holds} AND {kept})",
                f"count(*) FILTER (WHERE {holds} AND ({kept}) IS NOT TRUE)",
            ]
        # Names are the catalogue's own, conditions are constants of ours.
        cursor.execute(f"SELECT {', '.join(counts)} FROM {table} t WHERE {where}", values)  # noqa: S608
        found = cursor.fetchone()
    return [
        Found(table=table, column=column.name, kept=found[2 * n], left=found[2 * n + 1])
        for n, column in enumerate(searched)
        if found[2 * n] or found[2 * n + 1]
    ]


def quoted(name: str) -> str:
    quoted_name: str = connection.ops.quote_name(name)
    return quoted_name.replace("%", "%%")
