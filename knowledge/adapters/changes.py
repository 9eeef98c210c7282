"""Marks of what changed for searches: whether a replica has all of it is a look at rows.

A transaction that changes what a tenant's searches may find leaves a mark in it. A replica shows
the transactions of the primary in the order in which they were committed, whole or not at all, so
whoever has the mark has the change. No position in a log is asked for and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, connections

from access.tenancy import tenant_session

_OF_SPACE = """
    INSERT INTO knowledge_search_change (tenant_id)
    SELECT tenant_id FROM knowledge_visibilityspace WHERE id = %s
"""
# The new mark is committed after those that it stands for, so whoever has it has had them.
_MERGE = """
    WITH several AS (
        SELECT tenant_id FROM knowledge_search_change GROUP BY tenant_id HAVING count(*) > 1
    ), gone AS (
        DELETE FROM knowledge_search_change c USING several s WHERE c.tenant_id = s.tenant_id
        RETURNING c.tenant_id
    )
    INSERT INTO knowledge_search_change (tenant_id) SELECT DISTINCT tenant_id FROM gone
"""


def mark(tenant_id: str) -> None:
    """In the transaction of a change."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO knowledge_search_change (tenant_id) VALUES (%s)", [tenant_id])


def mark_space(space: int) -> None:
    """The same, for the tenant of a visibility space."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_SPACE, [space])


def marks_of(tenant_id: str) -> list[int]:
    """What the primary has of a tenant at this moment."""
    with tenant_session(tenant_id), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM knowledge_search_change WHERE tenant_id = %s", [tenant_id])
        return [mark for (mark,) in cursor.fetchall()]


def has_all(marks: Sequence[int], *, using: str) -> bool:
    """Whether another server has them, in its session of their tenant."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM knowledge_search_change WHERE id = ANY (%s)", [list(marks)]
        )
        return int(cursor.fetchone()[0]) == len(marks)


def merge() -> None:
    """One mark of a tenant for all that it has; in an operations session, one merger at a time."""
    with connection.cursor() as cursor:
        cursor.execute(_MERGE)
