"""System checks of what the index needs from PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

_NEEDED = {"vector": (0, 7), "btree_gin": (1, 0)}
_POSTGRESQL = 150_000


@register(Tags.database)
def database_extensions(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """PostgreSQL 15 or newer with the extensions that the index is built on."""
    return [found for using in databases or () for found in _extensions_of(using)]


def _extensions_of(using: str) -> list[CheckMessage]:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int")
        version = cursor.fetchone()[0]
        cursor.execute("SELECT extname, extversion FROM pg_extension")
        installed = dict(cursor.fetchall())
    found: list[CheckMessage] = []
    if version < _POSTGRESQL:
        found.append(Error("PostgreSQL is older than 15.", hint="Upgrade it.", id="knowledge.E001"))
    for name, needed in _NEEDED.items():
        have = installed.get(name)
        if have is None:
            found.append(
                Error(
                    f"The PostgreSQL extension {name} is missing.",
                    hint=f"As a superuser, in this database: CREATE EXTENSION {name};",
                    id="knowledge.E002",
                )
            )
        elif tuple(int(part) for part in have.split(".")[:2]) < needed:
            wanted = ".".join(str(part) for part in needed)
            found.append(
                Error(
                    f"The PostgreSQL extension {name} is {have}, and {wanted} is needed.",
                    hint=f"Upgrade it, then: ALTER EXTENSION {name} UPDATE;",
                    id="knowledge.E003",
                )
            )
    return found
