"""Vectors in PostgreSQL: written, shown, hidden, moved and deleted in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from knowledge.core.types import KeptVector, PassageVector
from knowledge.semantic import spaces

_WRITE = """
    INSERT INTO semantic_chunk_vector AS v (chunk, embedding, space, live, digest, vector)
    SELECT r.chunk, %(embedding)s, %(space)s, %(live)s, r.digest, r.vector::halfvec
    FROM unnest(%(chunks)s::bigint[], %(digests)s::bytea[], %(vectors)s::text[])
        AS r (chunk, digest, vector)
"""
# What was missing or outdated, as its chunk stands now: of a set that is live, or was.
_FILL = """
    INSERT INTO semantic_chunk_vector AS v (chunk, embedding, space, live, digest, vector)
    SELECT r.chunk, %(embedding)s, d.space_id,
        s.state = 'live' AND e.superseded_at IS NULL, r.digest, r.vector::halfvec
    FROM unnest(%(chunks)s::bigint[], %(digests)s::bytea[], %(vectors)s::text[])
        AS r (chunk, digest, vector)
    JOIN knowledge_chunk c ON c.admitted_id = r.chunk
    JOIN knowledge_chunkset s ON s.id = c.chunk_set_id AND s.state <> 'ingesting'
    JOIN knowledge_documentversion e ON e.id = s.version_id
    JOIN knowledge_document d ON d.document_id = e.document_id AND d.title = %(title)s
    ON CONFLICT (chunk, embedding) DO UPDATE
    SET digest = excluded.digest, vector = excluded.vector
"""
_KNOWN = """
    SELECT DISTINCT ON (v.digest) v.digest, v.vector::text
    FROM semantic_chunk_vector v JOIN knowledge_chunk c ON c.id = v.chunk
    WHERE v.embedding = %(embedding)s AND v.digest = ANY (%(digests)s::bytea[])
"""
_OF_SETS = "FROM knowledge_chunk c WHERE c.chunk_set_id = ANY (%(sets)s::uuid[]) AND v.chunk = c.id"


class PostgresVectors:
    """The `VectorSink` of an installation with an embedder."""

    def write(
        self,
        vectors: Mapping[int, PassageVector],
        *,
        model: str,
        space: int | None = None,
        live: bool = False,
    ) -> None:
        if vectors:
            _put(_WRITE, vectors, model, space=space, live=live)

    def fill(self, vectors: Mapping[int, PassageVector], *, model: str, title: str) -> int:
        """Writes what was missing or outdated where searches find it, over what is there.

        A chunk that is gone meanwhile, or has another title, is left out. Returns how many were
        written.
        """
        return _put(_FILL, vectors, model, title=title) if vectors else 0

    def known(self, digests: Sequence[bytes], *, model: str) -> Mapping[bytes, Sequence[float]]:
        number = spaces.number_of(model)
        if number is None:
            return {}
        with connection.cursor() as cursor:
            cursor.execute(_KNOWN, {"embedding": number, "digests": list(digests)})
            return {bytes(digest): json.loads(vector) for digest, vector in cursor.fetchall()}

    def publish(self, chunk_set: UUID, *, space: int) -> None:
        self._update("space = %(space)s, live = true", [chunk_set], space=space)

    def retire(self, chunk_set: UUID) -> None:
        self._update("live = false", [chunk_set])

    def outdate(self, chunk_sets: Sequence[UUID]) -> None:
        self._update("digest = ''", chunk_sets)

    def move(self, chunk_sets: Sequence[UUID], *, space: int) -> None:
        self._update("space = %(space)s", chunk_sets, space=space)

    def discard(self, chunk_set: UUID) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM semantic_chunk_vector v USING knowledge_chunk c"
                " WHERE c.chunk_set_id = %s AND v.chunk = c.id",
                [chunk_set],
            )
            gone: int = cursor.rowcount
        return gone

    def held(self, numbers: Sequence[int]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM semantic_chunk_vector WHERE chunk = ANY (%s::bigint[])",
                [list(numbers)],
            )
            return int(cursor.fetchone()[0])

    def kept(self, chunk_set: UUID) -> list[KeptVector]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT v.chunk, v.digest, v.space, v.live FROM semantic_chunk_vector v"
                " JOIN knowledge_chunk c ON c.id = v.chunk WHERE c.chunk_set_id = %s"
                " ORDER BY v.chunk, v.embedding",
                [chunk_set],
            )
            return [
                KeptVector(chunk=chunk, digest=bytes(digest), space=space, live=live)
                for chunk, digest, space, live in cursor.fetchall()
            ]

    def _update(self, change: str, chunk_sets: Sequence[UUID], **values: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE semantic_chunk_vector v SET {change} {_OF_SETS}",  # noqa: S608 - constants
                {"sets": list(chunk_sets), **values},
            )


def _put(statement: str, vectors: Mapping[int, PassageVector], model: str, **values: Any) -> int:
    of_passages = list(vectors.values())
    number = spaces.made(model, dimensions=len(of_passages[0].vector))
    with connection.cursor() as cursor:
        cursor.execute(
            statement,
            {
                "embedding": number,
                "chunks": list(vectors),
                "digests": [passage.digest for passage in of_passages],
                "vectors": [literal(passage.vector) for passage in of_passages],
                **values,
            },
        )
        written: int = cursor.rowcount
    return written


def literal(vector: Sequence[float]) -> str:
    """A vector as PostgreSQL reads it."""
    return "[" + ",".join(f"{value:.7g}" for value in vector) + "]"
