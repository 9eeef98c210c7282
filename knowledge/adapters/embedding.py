"""Vectors of a batch, from an embedder that may be slow, broken or wrong."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from knowledge.core.ports import Embedder, VectorSink

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """The embedder of an installation that has one, and where its vectors go."""

    embedder: Embedder
    vectors: VectorSink

    def named(self) -> tuple[str, str]:
        return self.embedder.model, str(self.embedder.dimensions)


class EmbedderFailed(Exception):  # an ingest becomes a partial outcome, a release is refused
    """The embedder raised, or returned what cannot be vectors; `reason` names no content."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Passage(Protocol):
    """A chunk, or the draft of one."""

    heading_path: Any
    text: Any


def embedded_text(passage: Passage) -> str:
    """What a chunk's vector is of: its text under the headings that it stands under."""
    return "\n".join((*passage.heading_path, passage.text))


def embed(embedder: Embedder, passages: Sequence[Any]) -> list[Sequence[float]]:
    """A checked vector for each `Passage`, in order; raises `EmbedderFailed`."""
    if not passages:
        return []
    try:
        vectors = list(embedder.embed([embedded_text(passage) for passage in passages]))
        problem = _problem(vectors, count=len(passages), dimensions=embedder.dimensions)
    except Exception as error:  # noqa: BLE001 - somebody else's code, and theirs not to lose ours
        problem = type(error).__name__
    if problem:
        logger.warning("embedder_failed", extra={"model": embedder.model, "reason": problem})
        raise EmbedderFailed(problem)
    return vectors


def _problem(vectors: Sequence[Sequence[float]], *, count: int, dimensions: int) -> str:
    if len(vectors) != count:
        return f"{len(vectors)} vectors for {count} chunks"
    if any(len(vector) != dimensions for vector in vectors):
        return f"a vector without {dimensions} dimensions"
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        return "a vector with a value that is no number"
    return ""
