"""What searches read: one narrow row per admitted chunk, and term statistics per space.

None of these tables has a tenant or a policy, but for the marks of what changed. Row-level security would keep the full-text
index from being used (`@@` is not leakproof, so under a policy it becomes a filter). What a
caller may name here (spaces) and what a number turns into (text) both come from tables under
row-level security.
"""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Q
from pgvector.django import SparseVectorField

from knowledge.models.chunk import Chunk


class ChunkIndex(models.Model):
    """The index row of an admitted chunk.

    `sv` holds the BM25 weight of each lexeme at its number, so that the inner product with a
    query's idf values is the whole score; `tsv` finds candidates and phrases. `live` is false
    for superseded versions and chunk sets that are not published.
    """

    chunk = models.OneToOneField(
        Chunk,
        primary_key=True,
        db_column="chunk",
        on_delete=models.DO_NOTHING,
        related_name="index_row",
        # The constraint is on `admitted_id` instead: no row of a quarantined chunk can be.
        db_constraint=False,
    )
    space = models.IntegerField()
    live = models.BooleanField()
    sv = SparseVectorField()
    tsv = SearchVectorField()

    class Meta:
        db_table = "knowledge_chunk_index"
        indexes = (
            # Candidates of a search: the caller's spaces and the query's rarest words.
            GinIndex(
                fields=["space", "tsv"],
                condition=Q(live=True),
                name="chunk_index_live",
                fastupdate=False,
            ),
            # The same for a search as of an earlier instant, apart so as not to slow the present.
            GinIndex(
                fields=["space", "tsv"],
                condition=Q(live=False),
                name="chunk_index_not_live",
                fastupdate=False,
            ),
            # Small viewers: all live chunks of a few spaces, without the full-text index.
            models.Index(fields=["space"], condition=Q(live=True), name="chunk_index_space"),
        )

    def __str__(self) -> str:
        return f"index row of chunk {self.chunk_id}"


class TermStatistic(models.Model):
    """In how many live chunks of a space a lexeme occurs; the empty lexeme counts the chunks.

    Merged from `TermDelta` by a background task; a reader adds up both.
    """

    # The lexeme first: a search asks for a few of them in all the spaces that its caller sees.
    pk = models.CompositePrimaryKey("lexeme", "space")
    space = models.IntegerField()
    lexeme = models.TextField()
    chunks = models.BigIntegerField()

    class Meta:
        db_table = "knowledge_term_statistic"
        indexes = (
            # What the merging removes: words that now occur nowhere.
            models.Index(fields=["space"], condition=Q(chunks=0), name="term_statistic_gone"),
        )

    def __str__(self) -> str:
        return f"space {self.space}"


class TermDelta(models.Model):
    """A change of a `TermStatistic`, appended in the transaction that changes the index.

    Appending takes no lock on a row that another ingest needs, so ingests of one tenant do not
    queue behind each other's common words.
    """

    id = models.BigAutoField(primary_key=True)
    space = models.IntegerField()
    lexeme = models.TextField()
    chunks = models.IntegerField()

    class Meta:
        db_table = "knowledge_term_delta"
        indexes = (models.Index(fields=["lexeme", "space"], name="term_delta_lookup"),)

    def __str__(self) -> str:
        return f"space {self.space}"


class SearchChange(models.Model):
    """The mark of a change of what a tenant's searches may find, made in its transaction.

    A replica that has all the marks that the primary has for a tenant has replayed all of that
    tenant's changes. Appended like a delta, so that no writer waits for another; `merge` puts one
    mark in the place of several, which nobody has who lacks one of those.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.CharField(max_length=100)

    class Meta:
        db_table = "knowledge_search_change"
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="search_change_tenant_named"),
        )
        indexes = (models.Index(fields=["tenant_id"], name="search_change_tenant"),)

    def __str__(self) -> str:
        return f"change {self.pk} of {self.tenant_id}"
