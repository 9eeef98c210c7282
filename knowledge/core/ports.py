"""What the core asks of the outside, each a small synchronous protocol with a fake in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable
from uuid import UUID

from access.principal import Principal
from knowledge.core.profiles import ChunkingProfile
from knowledge.core.types import (
    ChunkDraft,
    EmbedReport,
    ExtractedDocument,
    InstructionMatch,
    KeptVector,
    PassageVector,
    SecretFinding,
    Structure,
    Verdict,
)


class Extractor(Protocol):
    """Bytes to text. `version` names the rules (`text-1`, `markdown-1`)."""

    version: str

    def supports(self, media_type: str) -> bool: ...

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:
        """Raises a subclass of `Refused` when there is no text to be had."""
        ...


@runtime_checkable
class Inspector(Protocol):
    """An extractor that can tell quickly, without the text, whether there is any to be had."""

    def inspect(self, content: bytes) -> object:
        """Raises a subclass of `Refused` when `extract` would for the same reason."""
        ...


class TokenCounter(Protocol):
    """Counts tokens in linear time; special tokens are plain text."""

    def count(self, text: str) -> int: ...

    def counts(self, texts: Sequence[str]) -> list[int]: ...


class Chunker(Protocol):
    """Normalised text to chunks: pure, deterministic under `version` and the profile's label."""

    version: str

    def chunk(
        self,
        text: str,
        *,
        title: str,
        media_type: str,
        structure: Structure,
        profile: ChunkingProfile,
    ) -> list[ChunkDraft]: ...


class SecretScanner(Protocol):
    version: str

    def scan(self, text: str) -> list[SecretFinding]:
        """All findings of a whole text, ordered by line and column, each value once."""
        ...


class SecretRule(Protocol):
    """A rule of an installation's own beside those of the scanner. `version` names it in findings
    and changes with it."""

    version: str

    def find(self, text: str) -> Iterable[tuple[int, int]]:
        """Where values stand in one form of a text, as offsets; in linear time."""
        ...


class InstructionScanner(Protocol):
    version: str

    def scan(self, text: str) -> list[InstructionMatch]:
        """Matches when the text reads like instructions to a model; empty when it does not."""
        ...


class AdmissionPolicy(Protocol):
    version: str

    def classify(self, chunk: ChunkDraft) -> Verdict: ...


class Embedder(Protocol):
    """Texts to vectors of one model. What it raises, a time-out included, ends one call of ingest
    as a partial outcome; what it returns is checked."""

    model: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector of `dimensions` finite numbers for each text, in order."""
        ...

    def embed_question(self, text: str) -> Sequence[float]:
        """The same of a question, for which somebody waits."""
        ...


class VectorSink(Protocol):
    """Where vectors go. Every method runs in the transaction that changes the chunks themselves,
    so that vectors are seen, hidden and deleted with them."""

    def write(
        self,
        vectors: Mapping[int, PassageVector],
        *,
        model: str,
        space: int | None = None,
        live: bool = False,
    ) -> None:
        """Keeps the vectors of chunks, by number; without a space where no search can see them."""
        ...

    def known(self, digests: Sequence[bytes], *, model: str) -> Mapping[bytes, Sequence[float]]:
        """The vectors that passages of the bound tenant have already, by what they are of."""
        ...

    def publish(self, chunk_set: UUID, *, space: int) -> None:
        """Lets searches of a space see the vectors of a chunk set."""
        ...

    def retire(self, chunk_set: UUID) -> None:
        """Takes the vectors of a chunk set out of the present."""
        ...

    def outdate(self, chunk_sets: Sequence[UUID]) -> None:
        """Says that the passages of chunk sets read otherwise now, so that they are embedded anew
        in time; until then their vectors are what they were."""
        ...

    def move(self, chunk_sets: Sequence[UUID], *, space: int) -> None:
        """Takes the vectors of chunk sets, retired ones too, from their space to another."""
        ...

    def discard(self, chunk_set: UUID) -> int:
        """Deletes the vectors of a chunk set in any state, before its chunks. Returns how many."""
        ...

    def held(self, numbers: Sequence[int]) -> int:
        """How many vectors there are of these chunks, by number, whether they still exist or not."""
        ...

    def kept(self, chunk_set: UUID) -> Sequence[KeptVector]:
        """What is kept beside the vectors of a chunk set, of every model."""
        ...


class VectorFiller(Protocol):
    """Embeds what was admitted without a vector, and makes another model the live one."""

    def fill(
        self, tenant_id: str, *, on_progress: Callable[[EmbedReport], None] = ...
    ) -> Sequence[EmbedReport]:
        """A report for each model that is being filled."""
        ...

    def fill_all(self, *, seconds: float) -> Mapping[str, Sequence[EmbedReport]]:
        """The same for every tenant that lacks something, for about so long."""
        ...

    def missing(self, tenant_id: str) -> int:
        """How many of a tenant's passages searches by meaning cannot find yet."""
        ...

    def switch(self, operator: Principal) -> str:
        """Lets searches read the next model, whose name it returns."""
        ...

    def drop_retired(self) -> Mapping[str, int]:
        """Deletes what was switched away from, by model: how many vectors went."""
        ...


class Stemmer(Protocol):
    """The database's own dictionaries: a folded word to its lexeme, `None` for a stop word."""

    def lexemes(self, words: Sequence[str], language: str) -> Mapping[str, str | None]: ...


class LanguageDetector(Protocol):
    def detect(self, text: str) -> str:
        """The name of a PostgreSQL text-search configuration; `simple` when unsure."""
        ...
