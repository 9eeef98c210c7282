"""A past for a generated corpus: events, searches, jobs and attachments, as years of use leave them.

Made of its documents by the database itself, in a statement a table.
"""

from __future__ import annotations

from typing import Final

from django.db import connection

from access.tenancy import tenant_session
from knowledge.evaluation.throwaway import checked, settle
from knowledge.lifecycle.figures import roll_up

_AGO: Final = "now() - interval '1 minute' * (n %% 40000)"
_NUMBERED: Final = """
    SELECT d.document_id, d.title, row_number() OVER (ORDER BY d.document_id) AS n
    FROM knowledge_document d WHERE d.tenant_id = %(tenant)s
"""
_EVENTS: Final = f"""
    INSERT INTO knowledge_knowledgeevent
        (tenant_id, name, document_id, version, actor, surface, data, at)
    SELECT %(tenant)s, 'knowledge.document.ingested', document_id, 1, 'person-' || n %% 50, 'api',
        '{{}}', {_AGO}
    FROM ({_NUMBERED}) AS d
"""  # noqa: S608 - constants
_TRACES: Final = f"""
    INSERT INTO knowledge_recalltrace
        (id, tenant_id, principal_id, surface, kind, sensitivity_ceiling, query_text, as_of, live,
        policy, analyzer_version, beliefs, notes, omitted, shown, pressed, block_sha256,
        block_tokens, duration_ms, created_at)
    SELECT gen_random_uuid(), %(tenant)s, 'person-' || n %% 50, 'api', 'search', 'internal',
        'What is said of ' || title || '?', {_AGO}, true, 'four-terms', 'generated', '[]', '{{}}',
        '[]', 3, n %% 10 = 0, repeat('0', 64), 900, 5 + n %% 90, {_AGO}
    FROM ({_NUMBERED}) AS d, generate_series(1, 2)
"""  # noqa: S608 - constants
_PASSAGES: Final = f"""
    INSERT INTO knowledge_tracedpassage
        (trace_id, tenant_id, position, chunk_id, document_id, content_sha256, title,
        heading_path, instruction_like, tokens, score, terms, arms)
    SELECT t.id, %(tenant)s, p, c.chunk_id, d.document_id, c.content_sha256, d.title,
        c.heading_path, false, c.tokens, 0.5, '{{"match": 0.5}}', '["lexical"]'
    FROM (
        SELECT id, row_number() OVER (ORDER BY id) AS n FROM knowledge_recalltrace
        WHERE tenant_id = %(tenant)s
    ) AS t
    CROSS JOIN generate_series(0, 2) AS p
    JOIN ({_NUMBERED}) AS d
        ON d.n = (t.n * 3 + p) %% (SELECT count(*) FROM knowledge_document
            WHERE tenant_id = %(tenant)s) + 1
    JOIN knowledge_documentversion v ON v.document_id = d.document_id
    JOIN knowledge_chunkset s ON s.version_id = v.id
    JOIN knowledge_chunk c ON c.chunk_set_id = s.id AND c.ordinal = 0
"""  # noqa: S608 - constants
_JOBS: Final = f"""
    INSERT INTO knowledge_ingestjob
        (job_id, tenant_id, principal_id, principal, request, document_id, state, attempts,
        attempts_left, next_attempt_at, embedded, total, batch, batches, problem, created_at,
        finished_at, discards_upload)
    SELECT gen_random_uuid(), %(tenant)s, 'person-' || n %% 50, '{{}}', '{{}}', document_id,
        (ARRAY['done', 'done', 'done', 'refused', 'failed'])[n %% 5 + 1], 1, 4, {_AGO}, 20, 20, 1, 1,
        '{{"code": "secret_found"}}', {_AGO}, {_AGO}, false
    FROM ({_NUMBERED}) AS d WHERE n %% 2 = 0
"""  # noqa: S608 - constants
_FILES: Final = f"""
    INSERT INTO artifacts_artifact
        (id, tenant_id, principal_id, origin, media_type, filename, attribution, sha256, byte_size,
        storage_key, created_at)
    SELECT gen_random_uuid(), %(tenant)s, 'person-' || n %% 50, 'ATTACHMENT', 'text/plain',
        'sent-' || n || '.txt', '', repeat('0', 64), 0, 'bench/sent-' || gen_random_uuid(), {_AGO}
    FROM ({_NUMBERED}) AS d WHERE n %% 4 = 0
"""  # noqa: S608 - constants
_CONVERSATIONS: Final = """
    INSERT INTO knowledge_conversation (tenant_id, principal_id, conversation_id, created_at)
    SELECT DISTINCT %(tenant)s, a.principal_id, 'c-' || a.principal_id, now()
    FROM artifacts_artifact a WHERE a.tenant_id = %(tenant)s AND a.origin = 'ATTACHMENT'
"""
_ATTACHMENTS: Final = """
    INSERT INTO knowledge_attachment
        (attachment_id, tenant_id, conversation_id, principal_id, actor, surface, artifact_id,
        refusal, created_at)
    SELECT gen_random_uuid(), %(tenant)s, c.id, a.principal_id, 'principal', 'chat', a.id,
        'secret_found', a.created_at
    FROM artifacts_artifact a
    JOIN knowledge_conversation c ON c.tenant_id = a.tenant_id AND c.principal_id = a.principal_id
    WHERE a.tenant_id = %(tenant)s AND a.origin = 'ATTACHMENT'
"""
_STATEMENTS: Final = {
    "events": _EVENTS,
    "traces": _TRACES,
    "traced passages": _PASSAGES,
    "jobs": _JOBS,
    "files": _FILES,
    "conversations": _CONVERSATIONS,
    "attachments": _ATTACHMENTS,
}


def remember(tenant_id: str) -> dict[str, int]:
    """Gives a tenant of a measurement its past. Returns how many rows each table got."""
    checked(tenant_id)
    with tenant_session(tenant_id), connection.cursor() as cursor:
        written = {}
        for name, statement in _STATEMENTS.items():
            cursor.execute(statement, {"tenant": tenant_id})
            written[name] = cursor.rowcount
    settle(
        *("knowledge_document", "knowledge_documentversion", "knowledge_chunkset"),
        *("knowledge_knowledgeevent", "knowledge_recalltrace", "knowledge_tracedpassage"),
        *("knowledge_ingestjob", "knowledge_attachment", "artifacts_artifact", "knowledge_chunk"),
    )
    roll_up()
    return written
