"""A system check of what the semantic arm needs from PostgreSQL beyond the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

_ITERATIVE_SCAN = (0, 8)


@register(Tags.database)
def iterative_scan(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """pgvector 0.8 or newer: before it a search that filters an index found too few."""
    return [found for using in databases or () for found in _too_old(using)]


def _too_old(using: str) -> list[CheckMessage]:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        row = cursor.fetchone()
    if row is None or tuple(int(part) for part in row[0].split(".")[:2]) >= _ITERATIVE_SCAN:
        return []
    return [
        Error(
            f"The PostgreSQL extension vector is {row[0]}, and the semantic arm needs 0.8.",
            hint="Upgrade it, then: ALTER EXTENSION vector UPDATE; or leave EMBEDDER unset.",
            id="knowledge.E020",
        )
    ]
