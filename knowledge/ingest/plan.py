"""Everything about a document that is decided before the write transaction opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from knowledge.core.bm25 import IndexRow
from knowledge.core.types import ChunkDraft, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChunk:
    """A chunk with its verdict and flags; `row` is what the index will hold, when admitted.

    `key` depends on bytes alone; the chunk's id is made of it once the version is known.
    """

    draft: ChunkDraft
    key: str
    content_sha256: str
    boilerplate: float
    sketch: tuple[int, ...]
    verdict: Verdict
    reasons: list[Mapping[str, Any]]
    matches: list[dict[str, Any]]
    row: IndexRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """A frozen value: the commit adds a version number and instants, and nothing else.

    `chunks` holds the admitted and the quarantined; rejected ones are only counted.
    """

    document_id: UUID
    media_type: str
    language: str
    doc_date: date | None
    page_count: int | None
    truncated: bool
    warnings: tuple[str, ...]
    chunker_version: str
    analyzer_version: str
    secret_scanner_version: str
    instruction_scanner_version: str
    admission_version: str
    fingerprint: str
    chunks: tuple[PlannedChunk, ...]
    rejected: int

    @property
    def admitted(self) -> int:
        return len(self.chunks) - self.quarantined

    @property
    def quarantined(self) -> int:
        return sum(chunk.verdict is Verdict.QUARANTINE for chunk in self.chunks)

    @property
    def total(self) -> int:
        return len(self.chunks) + self.rejected
