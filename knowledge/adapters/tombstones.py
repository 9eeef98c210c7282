"""The ids of chunks that go, kept by one statement however many they are."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

_KEEP = """
    INSERT INTO knowledge_deletedchunk (chunk_id, deletion_id, tenant_id, number, readable)
    SELECT c.chunk_id, %(deletion)s, c.tenant_id, c.id,
        c.verdict = 'admit' AND s.state <> 'ingesting' AND s.version_id IS NOT NULL
    FROM knowledge_chunk c JOIN knowledge_chunkset s ON s.id = c.chunk_set_id
    WHERE c.chunk_set_id = ANY (%(sets)s::uuid[])
"""
_LEFT = """
    WITH gone AS MATERIALIZED (
        SELECT chunk_id, number FROM knowledge_deletedchunk WHERE deletion_id = %(deletion)s
    )
    SELECT
        (SELECT count(*) FROM gone g JOIN knowledge_chunk c ON c.chunk_id = g.chunk_id),
        (SELECT count(*) FROM gone g JOIN knowledge_chunk_index i ON i.chunk = g.number)
"""


def keep_ids(deletion_id: UUID, chunk_sets: Sequence[UUID]) -> int:
    """Keeps the ids of all chunks of these sets, before they are deleted. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, {"deletion": deletion_id, "sets": list(chunk_sets)})
        kept: int = cursor.rowcount
    return kept


def chunks_and_index_rows_left(deletion_id: UUID) -> tuple[int, int]:
    """How many of the kept ids are chunks still, and how many index rows know their numbers."""
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, {"deletion": deletion_id})
        chunks, index_rows = cursor.fetchone()
    return chunks, index_rows
