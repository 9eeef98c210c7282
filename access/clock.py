"""The one clock that counts: the database's. Hosts disagree, and some are wrong."""

from __future__ import annotations

from datetime import datetime

from django.db import connection


def now() -> datetime:
    """The database's own clock, which moves within a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        instant: datetime = cursor.fetchone()[0]
    return instant
