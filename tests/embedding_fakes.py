"""An embedder and a place for vectors that fail when they are told to."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from knowledge.core.types import KeptVector, PassageVector
from knowledge.models import Chunk

Vectors = list[list[float]]


class FakeEmbedder:
    """The same text always has the same vector; `failing` says what goes wrong with which call."""

    model = "fake-1"

    def __init__(
        self, dimensions: int = 4, failing: Callable[[int], str | None] = lambda call: None
    ) -> None:
        self.dimensions = dimensions
        self.failing = failing
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.calls.append(list(texts))
        vectors = [self.vector(text) for text in texts]
        how = self.failing(len(self.calls))
        if how == "timeout":
            raise TimeoutError("the embedder did not answer")
        if how == "error":
            raise ConnectionResetError("by peer")
        garbage: dict[str | None, Any] = {
            None: vectors,
            "too few": vectors[:-1],
            "too many": [*vectors, vectors[0]],
            "short": [vector[:-1] for vector in vectors],
            "nan": [*vectors[:-1], [math.nan] * self.dimensions],
            "nothing": None,
            "strings": ["none"] * len(texts),
        }
        return cast("Sequence[Sequence[float]]", garbage[how])

    def embed_question(self, text: str) -> Sequence[float]:
        (vector,) = self.embed([text])
        return vector

    def vector(self, text: str) -> list[float]:
        digest = hashlib.sha256(text.encode()).digest()
        return [byte / 255 for byte in digest[: self.dimensions]]


FAILURES = ("timeout", "error", "too few", "too many", "short", "nan", "nothing", "strings")


@dataclass
class FakeVectors:
    """Vectors by chunk number, and which chunk sets were published or retired.

    Not in the database: what a rolled-back transaction wrote is still here, which is why tests
    look at the chunks first.
    """

    vectors: dict[int, PassageVector] = field(default_factory=dict)
    published: dict[UUID, int] = field(default_factory=dict)
    retired: list[UUID] = field(default_factory=list)
    outdated: list[UUID] = field(default_factory=list)

    def write(
        self,
        vectors: Mapping[int, PassageVector],
        *,
        model: str,
        space: int | None = None,
        live: bool = False,
    ) -> None:
        assert model == FakeEmbedder.model
        assert not set(vectors) & set(self.vectors), "a chunk is embedded once"
        self.vectors.update(vectors)

    def known(self, digests: Sequence[bytes], *, model: str) -> Mapping[bytes, Sequence[float]]:
        """None: what was rolled back is still here, and would be known."""
        return {}

    def publish(self, chunk_set: UUID, *, space: int) -> None:
        self.published[chunk_set] = space

    def retire(self, chunk_set: UUID) -> None:
        self.retired.append(chunk_set)

    def outdate(self, chunk_sets: Sequence[UUID]) -> None:
        self.outdated.extend(chunk_sets)

    def move(self, chunk_sets: Sequence[UUID], *, space: int) -> None:
        self.published.update(dict.fromkeys(chunk_sets, space))

    def discard(self, chunk_set: UUID) -> int:
        numbers = Chunk.objects.filter(chunk_set=chunk_set).values_list("pk", flat=True)
        return sum(self.vectors.pop(number, None) is not None for number in numbers)

    def held(self, numbers: Sequence[int]) -> int:
        return sum(number in self.vectors for number in numbers)

    def kept(self, chunk_set: UUID) -> list[KeptVector]:
        numbers = Chunk.objects.filter(chunk_set=chunk_set).values_list("pk", flat=True)
        return [
            KeptVector(
                chunk=number,
                digest=b"" if chunk_set in self.outdated else self.vectors[number].digest,
                space=self.published.get(chunk_set),
                live=chunk_set in self.published and chunk_set not in self.retired,
            )
            for number in sorted(numbers)
            if number in self.vectors
        ]
