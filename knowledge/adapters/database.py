"""The database as a clock and as the one place where writers of a document take turns."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import connection


def now() -> datetime:
    """The database's own clock, which moves within a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        instant: datetime = cursor.fetchone()[0]
    return instant


def lock_document(document_id: UUID) -> None:
    """Waits for every other writer of the document, and makes others wait for this transaction.

    An advisory lock, for there may be no row yet; of the transaction, so that it works through a
    pooler that hands out connections by transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(document_id)])
