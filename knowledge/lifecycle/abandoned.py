"""Unfinished versions, and chunk sets that are to replace others, that nobody came back for."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models.functions import Now

from access.tenancy import operations_session
from knowledge.adapters import unfinished as leftovers
from knowledge.adapters.database import lock_document
from knowledge.core.ports import VectorSink
from knowledge.core.types import ChunkSetState
from knowledge.models import ChunkSet, UnfinishedVersion

logger = logging.getLogger(__name__)


def discard_abandoned(after: timedelta, vectors: VectorSink | None = None) -> int:
    """Discards what is left of an ingest or a rechunking that long ago; the sweeper takes the bytes.

    Returns how many. Each goes in a transaction of its own, under its document's lock.
    """
    return _discard_versions(after, vectors) + _discard_chunk_sets(after, vectors)


def _discard_versions(after: timedelta, vectors: VectorSink | None) -> int:
    with operations_session():
        candidates = list(
            UnfinishedVersion.objects.filter(lease_until__lt=Now() - after).values_list(
                "document_id", flat=True
            )
        )
    discarded = 0
    for document_id in candidates:
        with operations_session():
            lock_document(document_id)
            found = UnfinishedVersion.objects.filter(
                document_id=document_id, lease_until__lt=Now() - after
            ).first()
            if found is None:  # somebody came back
                continue
            leftovers.discard(found, vectors)
            discarded += 1
        logger.info("unfinished_version_discarded", extra={"document_id": str(document_id)})
    return discarded


def _discard_chunk_sets(after: timedelta, vectors: VectorSink | None) -> int:
    left = ChunkSet.objects.filter(
        state=ChunkSetState.INGESTING, version__isnull=False, begun_at__lt=Now() - after
    )
    with operations_session():
        candidates = list(left.values_list("pk", "version__document_id"))
    discarded = 0
    for chunk_set, document_id in candidates:
        with operations_session():
            lock_document(document_id)
            found = left.select_related("version").filter(pk=chunk_set).first()
            if found is None:
                continue
            leftovers.discard_rechunking(found.finalized_version, vectors)
            discarded += 1
        logger.info("unfinished_chunk_set_discarded", extra={"document_id": str(document_id)})
    return discarded
