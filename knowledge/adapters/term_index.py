"""The index's rows and term statistics, which move together in the caller's transaction.

Every write path of the corpus goes through one of these functions, so that the statistics are
those of the live rows and a recount finds nothing else, and so that each leaves its mark for the
replicas that searches read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections

from knowledge.adapters import changes
from knowledge.core.bm25 import IndexRow, sparse_literal
from knowledge.models import ChunkIndex, ChunkSet, Document

_ALL_CHUNKS = ""  # the lexeme that counts the chunks themselves
_COUNTED = """
    SELECT i.space, word, count(*) AS chunks
    FROM knowledge_chunk_index i
    CROSS JOIN LATERAL unnest(tsvector_to_array(i.tsv) || '{{""}}'::text[]) AS word
    WHERE i.live AND i.chunk IN ({chunks})
    GROUP BY i.space, word
"""
_RECORD = """
    INSERT INTO knowledge_term_delta (space, lexeme, chunks)
    SELECT space, word, %(sign)s * chunks FROM ({counted}) AS counted
"""
_OF_CHUNK = "%(id)s"
_OF_SET = "SELECT id FROM knowledge_chunk WHERE chunk_set_id = %(id)s"
_OF_DOCUMENT = """
    SELECT c.id FROM knowledge_chunk c JOIN knowledge_chunkset s ON s.id = c.chunk_set_id
    JOIN knowledge_documentversion v ON v.id = s.version_id
    WHERE v.document_id = %(id)s
"""
_MOVE = """
    WITH counted AS MATERIALIZED ({counted}), recorded AS (
        INSERT INTO knowledge_term_delta (space, lexeme, chunks)
        SELECT space, word, -chunks FROM counted
        UNION ALL SELECT %(space)s, word, chunks FROM counted
    )
    UPDATE knowledge_chunk_index SET space = %(space)s WHERE chunk IN ({chunks})
"""
_REPLACE = """
    UPDATE knowledge_chunk_index i SET sv = r.sv::sparsevec, tsv = r.tsv::tsvector
    FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS r (chunk, sv, tsv)
    WHERE i.chunk = r.chunk
"""
_REPLACED_AT_ONCE = 500  # rows of some kilobytes each
_MERGE = """
    WITH taken AS (
        DELETE FROM knowledge_term_delta
        WHERE id IN (SELECT id FROM knowledge_term_delta ORDER BY id LIMIT %(limit)s)
        RETURNING space, lexeme, chunks
    ), summed AS (
        SELECT space, lexeme, sum(chunks) AS chunks, count(*) AS deltas
        FROM taken GROUP BY space, lexeme
    ), merged AS (
        INSERT INTO knowledge_term_statistic AS s (space, lexeme, chunks)
        SELECT space, lexeme, chunks FROM summed WHERE chunks <> 0
        ON CONFLICT (space, lexeme) DO UPDATE SET chunks = s.chunks + excluded.chunks
    )
    SELECT coalesce(sum(deltas), 0) FROM summed
"""
_FREQUENCIES = """
    SELECT lexeme, sum(chunks) FROM (
        SELECT lexeme, chunks FROM knowledge_term_statistic
        WHERE space = ANY (%(spaces)s::int[]) AND lexeme = ANY (%(lexemes)s::text[])
        UNION ALL
        SELECT lexeme, chunks FROM knowledge_term_delta
        WHERE space = ANY (%(spaces)s::int[]) AND lexeme = ANY (%(lexemes)s::text[])
    ) AS counted GROUP BY lexeme
"""
# What vanishes anywhere leaves a negative delta: where those of a word, the others of it and its
# statistic add up to nothing, it occurs nowhere in that space.
_FORGET = """
    WITH places AS (
        SELECT DISTINCT space, lexeme AS word FROM knowledge_term_delta WHERE chunks < 0
    ), nowhere AS (
        SELECT p.space, p.word FROM places p
        WHERE 0 = coalesce((
            SELECT sum(d.chunks) FROM knowledge_term_delta d
            WHERE d.lexeme = p.word AND d.space = p.space
        ), 0) + coalesce((
            SELECT s.chunks FROM knowledge_term_statistic s
            WHERE s.lexeme = p.word AND s.space = p.space
        ), 0)
    ), deltas AS (
        DELETE FROM knowledge_term_delta d USING nowhere n
        WHERE d.lexeme = n.word AND d.space = n.space
    )
    DELETE FROM knowledge_term_statistic s USING nowhere n
    WHERE s.lexeme = n.word AND s.space = n.space
"""
_UNFOUNDED = r"""
    WITH counted AS (
        SELECT space, lexeme, sum(chunks) AS chunks, count(*) AS rows FROM (
            SELECT space, lexeme, chunks FROM knowledge_term_statistic
            WHERE space = ANY (%(spaces)s::int[]) AND lexeme = ANY (%(lexemes)s::text[])
            UNION ALL
            SELECT space, lexeme, chunks FROM knowledge_term_delta
            WHERE space = ANY (%(spaces)s::int[]) AND lexeme = ANY (%(lexemes)s::text[])
        ) AS both_tables GROUP BY space, lexeme
    )
    SELECT coalesce(sum(rows) FILTER (WHERE chunks = 0), 0),
        coalesce(sum(rows) FILTER (WHERE chunks <> 0 AND NOT EXISTS (
            SELECT FROM knowledge_chunk_index i
            WHERE i.live AND i.space = counted.space AND i.tsv @@ (
                '''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || ''''
            )::tsquery
        )), 0)
    FROM counted
"""
_MERGE_LOCK = 0x5645_5242  # any constant of our own: one merger at a time
_MERGE_BATCH = 50_000
_FORGET_TRIES, _FORGET_PAUSE = 20, 0.05


def publish(rows: Sequence[tuple[int, IndexRow]], *, space: int, live: bool = True) -> None:
    """Writes rows, `(number of the chunk, its row)`, and counts the words of those that are live."""
    if not rows:
        return
    changes.mark_space(space)
    _copy(
        "knowledge_chunk_index (chunk, space, live, sv, tsv)",
        ((number, space, live, sparse_literal(row.weights), row.tsvector) for number, row in rows),
    )
    if not live:
        return
    words = Counter(lexeme for _, row in rows for lexeme in row.lexemes)
    words[_ALL_CHUNKS] = len(rows)
    _copy(
        "knowledge_term_delta (space, lexeme, chunks)",
        ((space, word, count) for word, count in words.items()),
    )


def _copy(target: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(f"COPY {target} FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(row)


def add(chunk: int, row: IndexRow, *, space: int, live: bool) -> None:
    """Writes the row of one more chunk, by number, of a chunk set that was published before."""
    changes.mark_space(space)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO knowledge_chunk_index (chunk, space, live, sv, tsv)"
            " VALUES (%s, %s, %s, %s::sparsevec, %s::tsvector)",
            [chunk, space, live, sparse_literal(row.weights), row.tsvector],
        )
    _record(1, _OF_CHUNK, chunk)


def replace(chunk_set: ChunkSet, rows: Sequence[tuple[int, IndexRow]]) -> None:
    """Writes other rows in the place of a chunk set's, live or not as they were."""
    changes.mark(chunk_set.tenant_id)
    counted = Counter[tuple[int, str]]()
    with connection.cursor() as cursor:
        cursor.execute(_counted(_OF_SET), {"id": chunk_set.pk})
        for space, word, chunks in cursor.fetchall():  # none unless it is live
            counted[space, word] = -chunks
        for start in range(0, len(rows), _REPLACED_AT_ONCE):
            some = rows[start : start + _REPLACED_AT_ONCE]
            numbers = [number for number, _ in some]
            vectors = [sparse_literal(row.weights) for _, row in some]
            cursor.execute(_REPLACE, [numbers, vectors, [row.tsvector for _, row in some]])
    # Most words are there as often as before: what another title changes is a handful.
    for space in {space for space, _ in counted}:
        counted.update((space, lexeme) for _, row in rows for lexeme in row.lexemes)
        counted[space, _ALL_CHUNKS] += len(rows)
    _copy(
        "knowledge_term_delta (space, lexeme, chunks)",
        ((space, word, chunks) for (space, word), chunks in counted.items() if chunks),
    )


def retire(chunk_set: ChunkSet) -> None:
    """Takes a chunk set's rows out of the present; searches as of an earlier instant keep them."""
    changes.mark(chunk_set.tenant_id)
    _record(-1, _OF_SET, chunk_set.pk)
    ChunkIndex.objects.filter(chunk__chunk_set=chunk_set, live=True).update(live=False)


def move(document: Document, *, space: int) -> int:
    """Moves every row of a document to another space with what it counts. Returns how many."""
    changes.mark(document.tenant_id)
    statement = _MOVE.format(counted=_counted(_OF_DOCUMENT), chunks=_OF_DOCUMENT)
    with connection.cursor() as cursor:
        cursor.execute(statement, {"space": space, "id": document.pk})
        moved: int = cursor.rowcount
    return moved


def remove(document: Document) -> int:
    """Deletes every row of a document, what it counted, and the words that now occur nowhere.

    Returns how many rows went.
    """
    changes.mark(document.tenant_id)
    _record(-1, _OF_DOCUMENT, document.pk)
    _forget()
    gone, _ = ChunkIndex.objects.filter(chunk__chunk_set__version__document=document).delete()
    return gone


def _forget() -> None:
    """Removes the words that now occur nowhere, before the next merge would.

    Never beside a merge, which moves counts from one table to the other. It is not waited for
    long, and never in the manner of a lock: a merge, or another deletion of several documents,
    might wait for us in turn. What is left then goes with the next merge, within a minute.
    """
    for _ in range(_FORGET_TRIES):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_MERGE_LOCK])
            if cursor.fetchone()[0]:
                cursor.execute(_FORGET)
                return
        time.sleep(_FORGET_PAUSE)


def merge_statistics() -> int:
    """Folds appended deltas into the statistics. Returns how many; searches stay correct.

    A reader adds up both tables in one statement, so it sees each delta exactly once. The marks of
    what changed are merged with them.
    """
    merged = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_MERGE_LOCK])
            if not cursor.fetchone()[0]:
                return merged
            cursor.execute(_MERGE, {"limit": _MERGE_BATCH})
            batch = int(cursor.fetchone()[0])
            # A word that now occurs nowhere leaves nothing behind.
            cursor.execute("DELETE FROM knowledge_term_statistic WHERE chunks = 0")
        merged += batch
        if batch < _MERGE_BATCH:
            changes.merge()
            return merged


def _record(sign: int, chunks: str, owner: int | UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_RECORD.format(counted=_counted(chunks)), {"sign": sign, "id": owner})


def _counted(chunks: str) -> str:
    return _COUNTED.format(chunks=chunks)


def document_frequencies(
    spaces: Sequence[int], lexemes: Sequence[str], *, using: str = DEFAULT_DB_ALIAS
) -> tuple[int, dict[str, int]]:
    """How many live chunks the spaces hold, and in how many of them each lexeme occurs."""
    with connections[using].cursor() as cursor:
        cursor.execute(_FREQUENCIES, {"spaces": list(spaces), "lexemes": [_ALL_CHUNKS, *lexemes]})
        counted = {lexeme: max(int(chunks), 0) for lexeme, chunks in cursor.fetchall()}
    return counted.pop(_ALL_CHUNKS, 0), counted


def unfounded(spaces: Sequence[int], lexemes: Sequence[str]) -> tuple[int, int]:
    """Rows of statistics and deltas about words that no live chunk of their space holds.

    First how many add up to nothing, which the next merge removes, then how many do not.
    """
    with connection.cursor() as cursor:
        cursor.execute(_UNFOUNDED, {"spaces": list(spaces), "lexemes": list(lexemes)})
        nothing, wrong = cursor.fetchone()
    return int(nothing), int(wrong)
