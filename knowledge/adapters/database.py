"""The database as a clock and as the one place where writers of a document take turns."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db import connection

from access.clock import now

__all__ = ["hold_against_deletion", "lock_document", "lock_for_deletion", "lock_request", "now"]

# Beside the lock of the writers (seed 0): readers must not wait for an ingest.
_DELETION = 1
_REQUEST = 2


def lock_document(document_id: UUID) -> None:
    """Waits for every other writer of the document, and makes others wait for this transaction.

    An advisory lock, for there may be no row yet; of the transaction, so that it works through a
    pooler that hands out connections by transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(document_id)])


def lock_for_deletion(document_id: UUID) -> None:
    """Waits for the searches that are about to record what they show of the document.

    What they recorded can be scrubbed afterwards; whoever comes later finds nothing to show.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", [str(document_id), _DELETION]
        )


def hold_against_deletion(document_ids: Iterable[UUID]) -> None:
    """Keeps documents from being deleted until this transaction ends; waits only for deletions.

    In the order in which deletions of several documents take theirs, so that none waits for the
    other.
    """
    ids = [str(document_id) for document_id in sorted(set(document_ids))]
    if ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock_shared(hashtextextended(one, %s))"
                " FROM unnest(%s::text[]) AS one",
                [_DELETION, ids],
            )


def lock_request(*named: str) -> None:
    """Makes two calls of one request take turns, before there is a row of it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", ["\n".join(named), _REQUEST]
        )
