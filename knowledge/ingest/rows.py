"""Planned chunks as rows."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from knowledge.core import fingerprint
from knowledge.core.types import ChunkSetState
from knowledge.ingest.plan import IngestPlan, PlannedChunk
from knowledge.models import Chunk, ChunkSet


def chunk_set_of(plan: IngestPlan, *, tenant_id: str) -> ChunkSet:
    """The manifest of a plan, not yet saved and without a version."""
    return ChunkSet(
        tenant_id=tenant_id,
        chunker_version=plan.chunker_version,
        analyzer_version=plan.analyzer_version,
        secret_scanner_version=plan.secret_scanner_version,
        instruction_scanner_version=plan.instruction_scanner_version,
        admission_version=plan.admission_version,
        plan_fingerprint=plan.fingerprint,
        state=ChunkSetState.INGESTING,
        chunk_count=plan.total,
        quarantined_count=plan.quarantined,
        rejected_count=plan.rejected,
        flagged_count=sum(bool(chunk.matches) for chunk in plan.chunks),
    )


def write_chunks(
    chunk_set: ChunkSet, planned: Sequence[PlannedChunk], *, document_id: UUID, version: int
) -> dict[int, int]:
    """Inserts chunks of a set. Returns the number of each by its ordinal."""
    written = Chunk.objects.bulk_create(
        Chunk(
            chunk_id=fingerprint.chunk_id(document_id, version, chunk.key),
            tenant_id=chunk_set.tenant_id,
            chunk_set=chunk_set,
            ordinal=chunk.draft.ordinal,
            heading_path=list(chunk.draft.heading_path),
            text=chunk.draft.text,
            start=chunk.draft.start,
            end=chunk.draft.end,
            line_start=chunk.draft.line_start,
            line_end=chunk.draft.line_end,
            page_start=chunk.draft.page_start,
            page_end=chunk.draft.page_end,
            tokens=chunk.draft.tokens,
            content_sha256=chunk.content_sha256,
            boilerplate=chunk.boilerplate,
            sketch=list(chunk.sketch),
            verdict=chunk.verdict,
            verdict_reasons=chunk.reasons,
            contains_instruction_like_text=bool(chunk.matches),
            instruction_matches=chunk.matches,
        )
        for chunk in planned
    )
    return {chunk.ordinal: chunk.pk for chunk in written}
