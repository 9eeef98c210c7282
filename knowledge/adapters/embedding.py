"""Vectors of passages, from an embedder that may be slow, broken or wrong."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from access.tenancy import tenant_session
from knowledge.core.errors import EmbedderError
from knowledge.core.fingerprint import frame
from knowledge.core.ports import Embedder, VectorSink
from knowledge.core.types import PassageVector

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """The embedder of an installation that has one, and where its vectors go."""

    embedder: Embedder
    vectors: VectorSink

    def current(self) -> Embedder:
        """The embedder to use now: between two calls another model may take over."""
        return self.embedder

    def named(self) -> tuple[str, str]:
        now = self.current()
        return now.model, str(now.dimensions)


class EmbedderFailed(Exception):  # an ingest becomes a partial outcome, a release is refused
    """The embedder raised, or returned what cannot be vectors; `reason` names no content."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Passage(Protocol):
    """A chunk, or the draft of one."""

    @property
    def heading_path(self) -> Sequence[str]: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Vectors of one model, in the order of what was embedded."""

    model: str
    vectors: tuple[PassageVector, ...]


def embedded_text(title: str, passage: Passage) -> str:
    """What a chunk's vector is of: its text under the title and the headings it stands under."""
    return "\n".join((title, *passage.heading_path, passage.text))


def digest_of(tenant_id: str, text: str) -> bytes:
    """Says what a vector is of: of no two tenants' texts, though they be equal, the same."""
    return hashlib.sha256(frame(tenant_id, text)).digest()


def embed_passages(
    embedding: Embedding, tenant_id: str, title: str, passages: Sequence[Passage]
) -> Embedded:
    """A checked vector for each passage, in order; raises `EmbedderFailed`.

    What the tenant has embedded before by the same model is not embedded again. To be called
    while no transaction is open.
    """
    embedder = embedding.current()
    if not passages:
        return Embedded(model=embedder.model, vectors=())
    texts = [embedded_text(title, passage) for passage in passages]
    digests = [digest_of(tenant_id, text) for text in texts]
    with tenant_session(tenant_id):
        known = dict(embedding.vectors.known(digests, model=embedder.model))
    known |= _embedded(embedder, dict(zip(digests, texts, strict=True)), known)
    return Embedded(
        model=embedder.model,
        vectors=tuple(PassageVector(digest=one, vector=known[one]) for one in digests),
    )


def _embedded(
    embedder: Embedder, texts: Mapping[bytes, str], known: Iterable[bytes]
) -> dict[bytes, Sequence[float]]:
    had = set(known)
    wanted = {digest: text for digest, text in texts.items() if digest not in had}
    vectors = embed(embedder, list(wanted.values()))
    return dict(zip(wanted, vectors, strict=True))


def embed(embedder: Embedder, texts: Sequence[str]) -> list[Sequence[float]]:
    """A checked vector for each text, in order; raises `EmbedderFailed`."""
    return _checked(embedder, lambda: embedder.embed(texts), count=len(texts)) if texts else []


def embed_question(embedder: Embedder, text: str) -> Sequence[float]:
    """A checked vector of a question; raises `EmbedderFailed`."""
    (vector,) = _checked(embedder, lambda: [embedder.embed_question(text)], count=1)
    return vector


def _checked(
    embedder: Embedder, make: Callable[[], Sequence[Sequence[float]]], *, count: int
) -> list[Sequence[float]]:
    try:
        vectors = list(make())
        problem = _problem(vectors, count=count, dimensions=embedder.dimensions)
    except EmbedderError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - somebody else's code, and theirs not to lose ours
        problem = type(error).__name__
    if problem:
        logger.warning("embedder_failed", extra={"model": embedder.model, "reason": problem})
        raise EmbedderFailed(problem)
    return vectors


def _problem(vectors: Sequence[Sequence[float]], *, count: int, dimensions: int) -> str:
    if len(vectors) != count:
        return f"{len(vectors)} vectors for {count} texts"
    if any(len(vector) != dimensions for vector in vectors):
        return f"a vector without {dimensions} dimensions"
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        return "a vector with a value that is no number"
    if not all(any(vector) for vector in vectors):
        return "a vector of nothing but zeros"
    return ""
