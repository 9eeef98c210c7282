"""How many passages have a vector of a model: those that the session of the database lets be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from django.db import connection

MOST_COUNTED: Final = 200_000
"""Passages. A page that counts more of them makes somebody wait."""

# Whatever searches could find, now or as of an earlier instant, has a vector. A passage that reads
# otherwise by now has one of no digest.
EMBEDDABLE: Final = """
    FROM knowledge_chunk c
    JOIN knowledge_chunkset s ON s.id = c.chunk_set_id AND s.state <> 'ingesting'
    LEFT JOIN semantic_chunk_vector v ON v.chunk = c.id AND v.embedding = %(embedding)s
    WHERE c.admitted_id IS NOT NULL
"""
_COUNTED: Final = f"""
    SELECT count(*), count(chunk), count(chunk) FILTER (WHERE digest = '')
    FROM (SELECT v.chunk, v.digest {EMBEDDABLE} LIMIT %(most)s) m
"""  # noqa: S608 - constants of ours
_OF_SET: Final = f"""
    SELECT count(*), count(v.chunk), count(v.chunk) FILTER (WHERE v.digest = '')
    {EMBEDDABLE} AND c.chunk_set_id = %(chunk_set)s
"""
_STATES: Final = f"""
    SELECT c.id, CASE WHEN v.chunk IS NULL THEN 'missing' WHEN v.digest = '' THEN 'outdated'
        ELSE 'made' END
    {EMBEDDABLE} AND c.id = ANY (%(numbers)s::bigint[])
"""


class VectorState(StrEnum):
    """`outdated`: of the passage as it read under its former title."""

    MADE = "made"
    OUTDATED = "outdated"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of so many passages so many have a vector, some of which are outdated."""

    passages: int
    vectors: int
    outdated: int

    @property
    def missing(self) -> int:
        return self.passages - self.vectors


def of_space(embedding: int, *, most: int = MOST_COUNTED) -> Coverage:
    """Of all passages, but of no more than `most`."""
    return _counted(_COUNTED, {"embedding": embedding, "most": most})


def of_chunk_set(chunk_set: UUID, embedding: int) -> Coverage:
    return _counted(_OF_SET, {"embedding": embedding, "chunk_set": chunk_set})


def of_passages(numbers: Sequence[int], embedding: int) -> dict[int, VectorState]:
    """Those of the passages, by number, that ought to have a vector."""
    with connection.cursor() as cursor:
        cursor.execute(_STATES, {"embedding": embedding, "numbers": list(numbers)})
        return {number: VectorState(state) for number, state in cursor.fetchall()}


def _counted(statement: str, values: dict[str, Any]) -> Coverage:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        passages, vectors, outdated = cursor.fetchone()
    return Coverage(passages=passages, vectors=vectors, outdated=outdated)
