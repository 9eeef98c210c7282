"""Everything about a document that is decided before the write transaction opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from knowledge.core.bm25 import IndexRow
from knowledge.core.types import ChunkDraft, IngestReport, Verdict


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

    `chunks` holds the admitted and the quarantined; rejected ones are only counted. `source_type`
    is the media type with the charset that was stated, if it was: what the bytes are read by again.
    """

    document_id: UUID
    media_type: str
    source_type: str
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

    def report(
        self, *, embedded: int, stored: int, deleted: int = 0, warnings: tuple[str, ...] = ()
    ) -> IngestReport:
        """The numbers while the chunk set is not live: of the admitted chunks, `stored` are
        committed, of which this call did `embedded`."""
        return IngestReport(
            chunks=self.total,
            embedded=embedded,
            skipped=stored - embedded,
            quarantined=self.quarantined,
            rejected=self.rejected,
            pending=self.admitted - stored,
            truncated=self.truncated,
            warnings=(*self.warnings, *warnings),
            deleted=deleted,
        )

    @property
    def admitted(self) -> int:
        return len(self.chunks) - self.quarantined

    @property
    def quarantined(self) -> int:
        return sum(chunk.verdict is Verdict.QUARANTINE for chunk in self.chunks)

    @property
    def total(self) -> int:
        return len(self.chunks) + self.rejected
