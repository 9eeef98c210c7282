"""Background work on the corpus: ids in, one call, transient errors retried."""

from __future__ import annotations

from celery import shared_task
from django.db import OperationalError

from access.tenancy import operations_session
from knowledge.adapters import term_index


@shared_task(
    name="knowledge.merge_term_statistics", autoretry_for=(OperationalError,), max_retries=3
)
def merge_term_statistics() -> int:
    with operations_session():
        return term_index.merge_statistics()
