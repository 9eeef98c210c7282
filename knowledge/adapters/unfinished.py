"""Giving up what was never finished: its rows go now, the bytes of a version with a sweep."""

from __future__ import annotations

from uuid import UUID

from artifacts import store as artifacts
from knowledge.core.ports import VectorSink
from knowledge.core.types import ChunkSetState
from knowledge.models import Chunk, ChunkSet, DocumentVersion, UnfinishedVersion


def discard(unfinished: UnfinishedVersion, vectors: VectorSink | None) -> int:
    """Deletes what was committed of it, under the document's lock. Returns how many chunks went."""
    chunk_set = unfinished.chunk_set_id
    unfinished.delete()
    chunks = _discard(chunk_set, vectors)
    artifacts.expire([unfinished.original_id])
    return chunks


def discard_rechunking(version: DocumentVersion, vectors: VectorSink | None) -> None:
    """Deletes what was committed of a version's next chunk set, under the document's lock."""
    for chunk_set in version.chunk_sets.filter(state=ChunkSetState.INGESTING):
        _discard(chunk_set.pk, vectors)


def _discard(chunk_set: UUID, vectors: VectorSink | None) -> int:
    if vectors is not None:
        vectors.discard(chunk_set)
    chunks, _ = Chunk.objects.filter(chunk_set=chunk_set).delete()
    ChunkSet.objects.filter(pk=chunk_set).delete()
    return chunks
