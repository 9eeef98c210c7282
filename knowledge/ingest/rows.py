"""Planned chunks as rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from knowledge.core import fingerprint
from knowledge.core.types import ChunkSetState
from knowledge.ingest.plan import IngestPlan, PlannedChunk
from knowledge.models import ChunkSet


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


# One parameter for all rows, so that the statement is the same whatever their number. (COPY is
# not to be had: the table is under row-level security.)
_INSERT = """
    INSERT INTO knowledge_chunk (
        tenant_id, chunk_set_id, chunk_id, ordinal, heading_path, text, start, "end", line_start,
        line_end, page_start, page_end, tokens, content_sha256, boilerplate, sketch, verdict,
        verdict_reasons, instruction_matches, contains_instruction_like_text
    )
    SELECT %(tenant)s, %(chunk_set)s, r.*, r.instruction_matches <> '[]'::jsonb
    FROM json_to_recordset(%(rows)s::json) AS r (
        chunk_id text, ordinal int, heading_path text[], text text, start int, "end" int,
        line_start int, line_end int, page_start int, page_end int, tokens int,
        content_sha256 text, boilerplate float8, sketch bigint[], verdict text,
        verdict_reasons jsonb, instruction_matches jsonb
    )
    RETURNING ordinal, id
"""


def write_chunks(
    chunk_set: ChunkSet, planned: Sequence[PlannedChunk], *, document_id: UUID, version: int
) -> dict[int, int]:
    """Inserts chunks of a set. Returns the number of each by its ordinal."""
    rows = [
        {
            "chunk_id": fingerprint.chunk_id(document_id, version, chunk.key),
            "ordinal": chunk.draft.ordinal,
            "heading_path": chunk.draft.heading_path,
            "text": chunk.draft.text,
            "start": chunk.draft.start,
            "end": chunk.draft.end,
            "line_start": chunk.draft.line_start,
            "line_end": chunk.draft.line_end,
            "page_start": chunk.draft.page_start,
            "page_end": chunk.draft.page_end,
            "tokens": chunk.draft.tokens,
            "content_sha256": chunk.content_sha256,
            "boilerplate": chunk.boilerplate,
            "sketch": chunk.sketch,
            "verdict": chunk.verdict,
            "verdict_reasons": chunk.reasons,
            "instruction_matches": chunk.matches,
        }
        for chunk in planned
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            {
                "tenant": chunk_set.tenant_id,
                "chunk_set": chunk_set.pk,
                "rows": json.dumps(rows, ensure_ascii=False),
            },
        )
        return dict(cursor.fetchall())


def numbers_of(chunk_set: ChunkSet) -> dict[int, int]:
    """The number of each stored chunk of a set by its ordinal."""
    return dict(chunk_set.chunks.values_list("ordinal", "pk"))
