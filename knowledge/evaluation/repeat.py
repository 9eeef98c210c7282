"""Copies of a generated corpus, made by the database: many chunks in minutes instead of hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.db import connection

from access.tenancy import tenant_session
from knowledge.models import Chunk, DocumentVersion

Tables = Mapping[str, tuple[type[Any], Sequence[str]]]

_OTHER_ID: Final = "md5(%(copy)s || {column}::text)::uuid"
_HIGHER_CHUNK: Final = "{column} + %(chunks)s"
_HIGHER_VERSION: Final = "{column} + %(versions)s"
_VERSIONS: Final = "BETWEEN %(first_version)s AND %(last_version)s"
_OF_VERSIONS: Final = f"IN (SELECT {{column}} FROM knowledge_documentversion WHERE id {_VERSIONS})"  # noqa: S608 - names of ours
# Which rows are copied, and which of their columns say something else in a copy.
_RULES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "artifact": (
        f"id {_OF_VERSIONS.format(column='source_id')}",
        {"id": _OTHER_ID, "storage_key": "{column} || %(copy)s"},
    ),
    "document": (
        f"document_id {_OF_VERSIONS.format(column='document_id')}",
        {"document_id": _OTHER_ID},
    ),
    "version": (
        f"id {_VERSIONS}",
        {"id": _HIGHER_VERSION, "document_id": _OTHER_ID, "source_id": _OTHER_ID},
    ),
    "set": (
        f"version_id {_VERSIONS}",
        {"id": _OTHER_ID, "version_id": _HIGHER_VERSION},
    ),
    "chunk": (
        "id BETWEEN %(first)s AND %(last)s",
        {
            "id": _HIGHER_CHUNK,
            "chunk_id": "'kc_' || left(md5(%(copy)s || {column}), 16)",
            "chunk_set_id": _OTHER_ID,
        },
    ),
    "index": ("chunk BETWEEN %(first)s AND %(last)s", {"chunk": _HIGHER_CHUNK}),
}
_RANGES: Final = """
    SELECT min(c.id) AS first, max(c.id) AS last, min(v.id) AS first_version,
           max(v.id) AS last_version
    FROM knowledge_documentversion v
    JOIN knowledge_chunkset s ON s.version_id = v.id JOIN knowledge_chunk c ON c.chunk_set_id = s.id
    WHERE v.tenant_id = %s
"""


def repeat(tenant_id: str, tables: Tables, copies: int) -> Iterator[int]:
    """Copies all that a fresh tenant holds until there are `copies` of it; yields each one's number.

    `tables` names the columns of each table. Texts and index rows are the same in every copy, ids
    are others.
    """
    with tenant_session(tenant_id), connection.cursor() as cursor:
        cursor.execute(_RANGES, [tenant_id])
        first, last, first_version, last_version = cursor.fetchone()
    for number in range(1, copies):
        values = {
            "copy": f"copy {number}",
            "chunks": (last - first + 1) * number,
            "versions": (last_version - first_version + 1) * number,
            "first": first,
            "last": last,
            "first_version": first_version,
            "last_version": last_version,
        }
        with tenant_session(tenant_id), connection.cursor() as cursor:
            for name, (model, columns) in tables.items():
                cursor.execute(_statement(name, model, columns), values)
            for model in (Chunk, DocumentVersion):
                table = model._meta.db_table  # noqa: SLF001 - Django's documented interface
                cursor.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id))"  # noqa: S608
                    f" FROM {table}"
                )
        yield number


def _statement(name: str, model: type[Any], columns: Sequence[str]) -> str:
    table = model._meta.db_table  # noqa: SLF001 - Django's documented interface
    which, changed = _RULES[name]
    quoted = [f'"{column}"' for column in columns]
    values = [
        changed.get(column, "{column}").format(column=own)
        for column, own in zip(columns, quoted, strict=True)
    ]
    return (
        f"INSERT INTO {table} ({', '.join(quoted)})"  # noqa: S608 - names of ours
        f" SELECT {', '.join(values)} FROM {table} WHERE {which}"
    )
