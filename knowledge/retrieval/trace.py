"""Recording what a search showed the model."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from access.principal import Principal
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.types import KnowledgeQuery, SearchResult
from knowledge.models import RecallTrace, TracedPassage


def record_trace(
    query: KnowledgeQuery,
    principal: Principal,
    result: SearchResult,
    *,
    created_at: datetime,
    duration_ms: float,
) -> None:
    """Writes the one record of a search: beliefs as they were handed in, passages as rendered.

    Title, path, date and flag are kept as they were shown, so that the block can be made again
    after a retitle; the text stays the chunk's own, so that a deletion takes it away here too.
    """
    trace = RecallTrace.objects.create(
        id=result.trace_id,
        tenant_id=principal.tenant_id,
        principal_id=principal.principal_id,
        surface=principal.surface,
        current_scope=query.current_scope,
        sensitivity_ceiling=principal.sensitivity_ceiling,
        query_text=query.text,
        as_of=result.as_of,
        live=query.as_of is None,
        policy=result.policy,
        analyzer_version=ANALYZER_VERSION,
        beliefs=list(query.beliefs),
        notes=list(result.notes),
        omitted=[
            {
                "chunk_id": omitted.chunk_id,
                "document_id": str(omitted.document_id),
                "reason": omitted.reason,
                "tokens": omitted.tokens,
                "score": omitted.score,
            }
            for omitted in result.omitted
        ],
        block_sha256=result.block.sha256,
        block_tokens=result.block.tokens,
        duration_ms=duration_ms,
        created_at=created_at,
    )
    TracedPassage.objects.bulk_create(
        TracedPassage(
            trace=trace,
            tenant_id=principal.tenant_id,
            position=position,
            chunk_id=passage.candidate.chunk_id,
            document_id=passage.candidate.document_id,
            content_sha256=passage.candidate.content_sha256,
            title=passage.candidate.title,
            heading_path=list(passage.candidate.heading_path),
            doc_date=passage.candidate.doc_date,
            instruction_like=passage.candidate.instruction_like,
            tokens=passage.candidate.tokens,
            score=passage.score,
            terms=asdict(passage.terms),
            arms=dict(passage.candidate.arms),
        )
        for position, passage in enumerate(result.passages)
    )
