"""Looking at everything that is stored: every row as text, and a recount of the statistics."""

from __future__ import annotations

import secrets
import string
from collections import Counter
from collections.abc import Iterable

from django.db import connection

from access.tenancy import operations_session

REFUSALS = "knowledge_refusalcount"

_RECOUNT = """
    SELECT i.space, word, count(*)
    FROM knowledge_chunk_index i
    CROSS JOIN LATERAL unnest(tsvector_to_array(i.tsv) || '{""}'::text[]) AS word
    WHERE i.live GROUP BY i.space, word
"""
_OF_ANOTHER_TIME = """
    SELECT k.chunk_id FROM knowledge_chunk_index i JOIN knowledge_chunk k ON k.id = i.chunk
    JOIN knowledge_chunkset s ON s.id = k.chunk_set_id
    JOIN knowledge_documentversion v ON v.id = s.version_id
    WHERE i.live <> (s.state = 'live' AND v.superseded_at IS NULL)
"""
_KEPT = """
    SELECT space, lexeme, sum(chunks) FROM (
        SELECT space, lexeme, chunks FROM knowledge_term_statistic
        UNION ALL SELECT space, lexeme, chunks FROM knowledge_term_delta
    ) AS both_tables GROUP BY space, lexeme HAVING sum(chunks) <> 0
"""


def every_row(*, without: Iterable[str] = ()) -> dict[str, list[str]]:
    """Each row of each table of the database as PostgreSQL writes it, all columns included."""
    left_out = set(without)
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
        )
        tables = [name for (name,) in cursor.fetchall() if name not in left_out]
        rows: dict[str, list[str]] = {}
        for table in tables:
            cursor.execute(f'SELECT t::text FROM "{table}" t')
            rows[table] = sorted(row for (row,) in cursor.fetchall())
    return rows


def refusals() -> dict[tuple[str, str], int]:
    """Tenant and reason to how often."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(f"SELECT tenant_id, reason, sum(count) FROM {REFUSALS} GROUP BY 1, 2")
        return {(tenant, reason): int(count) for tenant, reason, count in cursor.fetchall()}


def statistics_and_recount() -> tuple[Counter[tuple[int, str]], Counter[tuple[int, str]]]:
    """Live chunks per space and lexeme: as statistics and deltas say, and as the index has it."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(_KEPT)
        kept = Counter({(space, word): int(count) for space, word, count in cursor.fetchall()})
        cursor.execute(_RECOUNT)
        found = Counter({(space, word): int(count) for space, word, count in cursor.fetchall()})
    return kept, found


def assert_statistics_are_those_of_the_live_rows() -> None:
    """And those are the rows of the chunk sets that are live, which a search makes up for."""
    kept, found = statistics_and_recount()
    assert kept == found
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(_OF_ANOTHER_TIME)
        assert cursor.fetchall() == []


def forge_secret() -> str:
    """A token that was never issued, made when it is needed so that no file holds one."""
    alphabet = string.ascii_letters + string.digits
    return "gh" + "p_" + "".join(secrets.choice(alphabet) for _ in range(36))
