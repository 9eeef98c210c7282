"""What the semantic arm reads: one vector per admitted chunk and model, and which model counts.

Neither table has a tenant, a text or a policy, for the reasons that `knowledge.models.index`
gives. What a caller may name here (spaces) and what a number turns into (text) both come from
tables under row-level security.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from pgvector.django import HalfVectorField


class EmbeddingState(StrEnum):
    """Filling beside the one that counts, live, or retired by a switch."""

    FILLING = "filling"
    LIVE = "live"
    RETIRED = "retired"


class EmbeddingSpace(models.Model):
    """The vectors of one model, which are comparable with each other and with no others."""

    id = models.SmallAutoField(primary_key=True)
    model = models.CharField(max_length=200)
    dimensions = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=10)
    created_at = models.DateTimeField(db_default=Now())
    live_at = models.DateTimeField(null=True)
    retired_at = models.DateTimeField(null=True)

    # Named because types are checked where the app is not installed.
    objects: ClassVar[models.Manager[EmbeddingSpace]] = models.Manager()

    class Meta:
        db_table = "semantic_embedding_space"
        constraints = (
            models.UniqueConstraint(fields=["model"], name="embedding_space_model"),
            models.UniqueConstraint(
                fields=["state"],
                condition=Q(state=str(EmbeddingState.LIVE)),
                name="embedding_space_one_live",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[str(state) for state in EmbeddingState]),
                name="embedding_space_state",
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} ({self.dimensions})"


class ChunkVector(models.Model):
    """The vector of an admitted chunk in an embedding space.

    `space` is the number of its visibility space, NULL until it is published; `live` is false for
    superseded versions and retired chunk sets. `digest` says what the vector is of, its tenant
    included, and is empty when the passage reads otherwise by now: it lets passages that read the
    same share the embedder's work, and goes with the last of them because it is their own.
    Each embedding space has an index of its own over its live vectors, made with the space.
    """

    pk = models.CompositePrimaryKey("chunk", "embedding")
    chunk = models.BigIntegerField()
    embedding = models.SmallIntegerField()
    space = models.IntegerField(null=True)
    live = models.BooleanField()
    digest = models.BinaryField(max_length=32)
    vector = HalfVectorField()

    objects: ClassVar[models.Manager[ChunkVector]] = models.Manager()

    class Meta:
        db_table = "semantic_chunk_vector"
        indexes = (
            # Small viewers: all vectors of a few spaces, without the approximate index.
            models.Index(fields=["embedding", "space"], name="chunk_vector_space"),
            # What a tenant has embedded before.
            models.Index(fields=["embedding", "digest"], name="chunk_vector_digest"),
        )

    def __str__(self) -> str:
        return f"vector of chunk {self.chunk}"
