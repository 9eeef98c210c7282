"""Recording what a search showed the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import connection
from psycopg.types.json import Jsonb

from access.principal import Principal
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.types import (
    KnowledgeQuery,
    Omitted,
    OmittedReason,
    RankedPassage,
    SearchResult,
)

# One statement for a trace and its passages: every search waits for it.
_RECORD = """
    WITH trace AS (
        INSERT INTO knowledge_recalltrace (
            id, tenant_id, principal_id, surface, kind, current_scope, sensitivity_ceiling,
            query_text, as_of, live, policy, analyzer_version, beliefs, notes, omitted, shown,
            pressed, block_sha256, block_tokens, duration_ms, created_at,
            acting_operator, asked, words
        ) VALUES (
            %(id)s, %(tenant)s, %(principal)s, %(surface)s, %(kind)s, %(current_scope)s,
            %(ceiling)s, %(text)s, %(as_of)s, %(live)s, %(policy)s, %(analyzer)s, %(beliefs)s,
            %(notes)s, %(omitted)s, %(shown)s, %(pressed)s, %(block_sha256)s, %(block_tokens)s,
            %(duration_ms)s, %(created_at)s, %(acting_operator)s, %(asked)s, %(words)s
        ) RETURNING id, tenant_id
    )
    INSERT INTO knowledge_tracedpassage (
        trace_id, tenant_id, position, chunk_id, document_id, content_sha256, title, heading_path,
        doc_date, instruction_like, tokens, score, terms, arms
    )
    SELECT trace.id, trace.tenant_id, p.*
    FROM trace, jsonb_to_recordset(%(passages)s) AS p (
        position int, chunk_id text, document_id uuid, content_sha256 text, title text,
        heading_path text[], doc_date date, instruction_like bool, tokens int, score float8,
        terms jsonb, arms jsonb
    )
"""


def record_trace(
    query: KnowledgeQuery,
    principal: Principal,
    result: SearchResult,
    *,
    created_at: datetime,
    duration_ms: float,
    ranking: Mapping[str, Any],
    yielded: bool = False,
) -> None:
    """Writes the one record of a search: beliefs as they were handed in, passages as rendered.

    Title, path, date and flag are kept as they were shown, so that the block can be made again
    after a retitle; the text stays the chunk's own, so that a deletion takes it away here too.
    `yielded`: knowledge gave way to the rest of the turn before anything was looked for.
    """
    values: dict[str, Any] = {
        "id": result.trace_id,
        "tenant": principal.tenant_id,
        "principal": principal.principal_id,
        "surface": principal.surface,
        "kind": query.kind,
        "current_scope": query.current_scope,
        "ceiling": principal.sensitivity_ceiling,
        "text": query.text,
        "as_of": result.as_of,
        "live": query.as_of is None,
        "policy": result.policy,
        "analyzer": ANALYZER_VERSION,
        "beliefs": Jsonb(list(query.beliefs)),
        "notes": list(result.notes),
        "omitted": Jsonb([_left_out(omitted) for omitted in result.omitted]),
        "shown": len(result.passages),
        "pressed": yielded or any(one.reason is OmittedReason.BUDGET for one in result.omitted),
        "block_sha256": result.block.sha256,
        "block_tokens": result.block.tokens,
        "duration_ms": duration_ms,
        "created_at": created_at,
        "acting_operator": principal.acting_operator,
        "asked": Jsonb({**_asked(query), **ranking}),
        "words": Jsonb([asdict(word) for word in result.words]),
        "passages": Jsonb(
            [_shown(place, passage) for place, passage in enumerate(result.passages)]
        ),
    }
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, values)


def _asked(query: KnowledgeQuery) -> dict[str, Any]:
    """What stood beside the text, and the limits."""
    return {
        "objective": query.objective,
        "entities": list(query.entities),
        "aliases": {entity: list(names) for entity, names in query.aliases.items()},
        "budget_tokens": query.budget_tokens,
        "max_passages": query.max_passages,
        "max_per_document": query.max_per_document,
    }


def _left_out(omitted: Omitted) -> dict[str, Any]:
    return {
        "chunk_id": omitted.chunk_id,
        "document_id": str(omitted.document_id),
        "reason": omitted.reason,
        "tokens": omitted.tokens,
        "score": omitted.score,
        # Dozens of them: the digits that tell them apart, and no more.
        "terms": {name: round(term, 4) for name, term in asdict(omitted.terms).items()},
    }


def _shown(position: int, passage: RankedPassage) -> dict[str, Any]:
    candidate = passage.candidate
    return {
        "position": position,
        "chunk_id": candidate.chunk_id,
        "document_id": str(candidate.document_id),
        "content_sha256": candidate.content_sha256,
        "title": candidate.title,
        "heading_path": list(candidate.heading_path),
        "doc_date": candidate.doc_date and candidate.doc_date.isoformat(),
        "instruction_like": candidate.instruction_like,
        "tokens": candidate.tokens,
        "score": passage.score,
        "terms": asdict(passage.terms),
        "arms": dict(candidate.arms),
    }
