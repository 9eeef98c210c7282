"""Embedding spaces: one per model, of which one is live, and the flip that changes which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db import connection, transaction

from knowledge.core.errors import ModelDimensionsChanged

_LOCK: Final = 0x73656D616E  # of making a space and of the flip
# Half as large as an index of whole floats, and as good: what is lost is below a thousandth.
_INDEX = """
    CREATE INDEX semantic_hnsw_{number} ON semantic_chunk_vector
    USING hnsw ((vector::halfvec({dimensions})) halfvec_cosine_ops)
    WHERE embedding = {number} AND live
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """An embedding space as it stands; `state` is a word of `EmbeddingState`."""

    number: int
    model: str
    dimensions: int
    state: str


def known() -> list[Space]:
    """All embedding spaces, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, model, dimensions, state FROM semantic_embedding_space ORDER BY id"
        )
        return [
            Space(number=number, model=model, dimensions=dimensions, state=state)
            for number, model, dimensions, state in cursor.fetchall()
        ]


def live() -> Space | None:
    """The space that searches read."""
    return next((space for space in known() if space.state == "live"), None)


def number_of(model: str) -> int | None:
    return next((space.number for space in known() if space.model == model), None)


def made(model: str, *, dimensions: int) -> int:
    """The number of a model's space, which is made with its index when there is none.

    The first of all is live at once; every other one is filled beside it. Raises
    `ModelDimensionsChanged` when the model had vectors of another length before.
    """
    for space in known():
        if space.model == model:
            if space.dimensions != dimensions:
                raise ModelDimensionsChanged(
                    f"{model} has vectors of {space.dimensions} dimensions here and made one of"
                    f" {dimensions}. Give the other model another name."
                )
            return space.number
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if (number := number_of(model)) is not None:
            return number
        cursor.execute(
            "INSERT INTO semantic_embedding_space (model, dimensions, state, live_at)"
            " SELECT %s, %s, CASE WHEN l.live THEN 'filling' ELSE 'live' END,"
            " CASE WHEN l.live THEN NULL ELSE statement_timestamp() END"
            " FROM (SELECT EXISTS (SELECT FROM semantic_embedding_space WHERE state = 'live') live) l"
            " RETURNING id",
            [model, dimensions],
        )
        number = int(cursor.fetchone()[0])
        cursor.execute(_INDEX.format(number=number, dimensions=dimensions))
    return number


def take_over(number: int) -> None:
    """Makes a space the one that searches read, and retires the one that they read before.

    In the caller's transaction: every search sees all of the one model or all of the other.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        cursor.execute(
            "UPDATE semantic_embedding_space SET state = 'retired',"
            " retired_at = statement_timestamp() WHERE state = 'live' AND id <> %s",
            [number],
        )
        cursor.execute(
            "UPDATE semantic_embedding_space SET state = 'live', retired_at = NULL,"
            " live_at = statement_timestamp() WHERE id = %s AND state <> 'live'",
            [number],
        )


def drop(number: int) -> int:
    """Deletes a retired space with its vectors and its index. Returns how many vectors went."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM semantic_chunk_vector WHERE embedding = %s", [number])
        gone: int = cursor.rowcount
        cursor.execute(f"DROP INDEX IF EXISTS semantic_hnsw_{int(number)}")
        cursor.execute("DELETE FROM semantic_embedding_space WHERE id = %s", [number])
    return gone


def bytes_of_vector(dimensions: int) -> int:
    """What a vector of half-precision numbers takes in its row."""
    return 8 + 2 * dimensions


def bytes_of_graph(number: int) -> int:
    """What a space's index takes, which is over the live vectors of all tenants."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(pg_relation_size(to_regclass(%s)), 0)",
            [f"semantic_hnsw_{int(number)}"],
        )
        return int(cursor.fetchone()[0])
