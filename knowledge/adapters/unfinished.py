"""Giving up a version that was never finished: its rows go now, its bytes with the next sweep."""

from __future__ import annotations

from artifacts import store as artifacts
from knowledge.adapters.database import now
from knowledge.core.ports import VectorSink
from knowledge.models import Chunk, ChunkSet, UnfinishedVersion


def discard(unfinished: UnfinishedVersion, vectors: VectorSink | None) -> int:
    """Deletes what was committed of it, under the document's lock. Returns how many chunks went."""
    if vectors is not None:
        vectors.discard(unfinished.chunk_set_id)
    chunks, _ = Chunk.objects.filter(chunk_set=unfinished.chunk_set_id).delete()
    unfinished.delete()
    ChunkSet.objects.filter(pk=unfinished.chunk_set_id).delete()
    artifacts.expire([unfinished.original_id], now())
    return chunks
