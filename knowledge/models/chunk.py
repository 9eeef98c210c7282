"""Chunk sets and chunks, and the one door to the chunks that a caller may read."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.utils import timezone

from access.models import one_of, vocabulary_choices
from knowledge.core.errors import KnowledgeReleaseNotFinalized
from knowledge.core.scope import ReadScope
from knowledge.core.types import ChunkSetState, Verdict
from knowledge.models.document import DocumentVersion, VisibilitySpace, by_then


class ChunkSetQuerySet(models.QuerySet["ChunkSet"]):
    def current(self, as_of: datetime | None = None) -> ChunkSetQuerySet:
        """By which their versions are divided now, or were at an instant."""
        return self.filter(
            ~by_then("retired_at", as_of), by_then("published_at", as_of), version__isnull=False
        )


class ChunkSet(models.Model):
    """One chunking of one document version: the manifest that exists even without chunks.

    `chunker_version` names extractor, normaliser, chunker and profile together. The counts are
    those of the ingest report. While it is `ingesting` it has no index rows. The first of a version
    has no version until then (see `UnfinishedVersion`); one that is to take the place of another
    has, and nobody reads it before it is published.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    version = models.ForeignKey(
        DocumentVersion,
        on_delete=models.PROTECT,
        related_name="chunk_sets",
        null=True,
        blank=True,
    )
    chunker_version = models.CharField(max_length=200)
    analyzer_version = models.CharField(max_length=50)
    secret_scanner_version = models.CharField(max_length=100)
    instruction_scanner_version = models.CharField(max_length=100)
    admission_version = models.CharField(max_length=100)
    plan_fingerprint = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=vocabulary_choices(ChunkSetState))
    chunk_count = models.PositiveIntegerField()
    quarantined_count = models.PositiveIntegerField(default=0)
    rejected_count = models.PositiveIntegerField(default=0)
    flagged_count = models.PositiveIntegerField(default=0)
    begun_at = models.DateTimeField(default=timezone.now)
    published_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)

    objects = ChunkSetQuerySet.as_manager()

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=one_of("state", ChunkSetState), name="chunk_set_state"
            ),
            models.CheckConstraint(
                condition=Q(state=ChunkSetState.INGESTING) | Q(version__isnull=False),
                name="chunk_set_version_unless_ingesting",
            ),
            models.UniqueConstraint(
                fields=("version", "chunker_version"), name="chunk_set_of_version"
            ),
            models.UniqueConstraint(
                fields=("version",),
                condition=Q(state=ChunkSetState.LIVE),
                name="chunk_set_one_live",
            ),
            models.CheckConstraint(
                condition=Q(
                    chunk_count__gte=models.F("quarantined_count") + models.F("rejected_count")
                ),
                name="chunk_set_counts_partition",
            ),
        )

    def __str__(self) -> str:
        return f"{self.chunker_version} of {self.version_id}"

    @property
    def finalized_version(self) -> DocumentVersion:
        """Its version; raises `KnowledgeReleaseNotFinalized` while there is none."""
        if self.version is None:
            raise KnowledgeReleaseNotFinalized
        return self.version

    def admitted_count(self) -> int:
        return self.chunk_count - self.quarantined_count - self.rejected_count


class ChunkQuerySet(models.QuerySet["Chunk"]):
    def readable(self, scope: ReadScope) -> ChunkQuerySet:
        """Admitted chunks, in any version and chunk set, that a caller may see.

        Citations resolve through this: an id once emitted resolves until its document is
        deleted or rescoped away from the caller.
        """
        return self.filter(
            verdict=Verdict.ADMIT,
            chunk_set__state__in=[ChunkSetState.LIVE, ChunkSetState.RETIRED],
            chunk_set__version__document__space__in=VisibilitySpace.objects.visible_to(scope),
        )

    def searchable(self, scope: ReadScope, *, as_of: datetime | None = None) -> ChunkQuerySet:
        """The only door to what a search may return: readable, and live now or at an instant.

        `as_of` picks the version that was live then (`ingested_at <= as_of < superseded_at`);
        who may read it is decided by today's rules, always.
        """
        readable = self.readable(scope)
        if as_of is None:
            return readable.filter(
                chunk_set__state=ChunkSetState.LIVE,
                chunk_set__version__superseded_at__isnull=True,
            )
        return readable.filter(
            Q(chunk_set__version__superseded_at__isnull=True)
            | Q(chunk_set__version__superseded_at__gt=as_of),
            Q(chunk_set__retired_at__isnull=True) | Q(chunk_set__retired_at__gt=as_of),
            chunk_set__version__ingested_at__lte=as_of,
            chunk_set__published_at__lte=as_of,
        )

    def with_document(self, *, as_of: datetime | None = None) -> ChunkQuerySet:
        """With all that a citation shows: `live` and what it is superseded by included.

        As of an instant it shows what could be seen then, and only what was published by then.
        """
        newest = DocumentVersion.objects.current(as_of).filter(
            document=OuterRef("chunk_set__version__document")
        )
        newer_set = ChunkSet.objects.current(as_of).filter(version=OuterRef("chunk_set__version"))
        superseded = by_then("chunk_set__version__superseded_at", as_of)
        retired = by_then("chunk_set__retired_at", as_of)
        published = self if as_of is None else self.filter(chunk_set__published_at__lte=as_of)
        return published.select_related(
            "chunk_set__version__document__space", "chunk_set__version__source__descriptor"
        ).annotate(
            superseded_by_version=Case(
                When(superseded, then=Subquery(newest.values("version")[:1])),
                default=None,
            ),
            # By what the version is divided now, when that is not what this chunk is of.
            superseded_by_chunker_version=Case(
                When(retired, then=Subquery(newer_set.values("chunker_version")[:1])),
                default=None,
            ),
            live=Case(
                When(~superseded & ~retired, then=Value(value=True)),
                default=Value(value=False),
            ),
        )


class Chunk(models.Model):
    """One passage. `text` is an exact slice of the normalised text; `chunk_id` is its citation."""

    id = models.BigAutoField(primary_key=True)
    chunk_id = models.CharField(max_length=40, unique=True)
    tenant_id = models.CharField(max_length=100)
    chunk_set = models.ForeignKey(ChunkSet, on_delete=models.PROTECT, related_name="chunks")
    ordinal = models.PositiveIntegerField()
    heading_path = ArrayField(models.TextField(), default=list, blank=True)
    text = models.TextField()
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    line_start = models.PositiveIntegerField()
    line_end = models.PositiveIntegerField()
    page_start = models.PositiveIntegerField(null=True, blank=True)
    page_end = models.PositiveIntegerField(null=True, blank=True)
    tokens = models.PositiveIntegerField()
    content_sha256 = models.CharField(max_length=64)
    boilerplate = models.FloatField(default=0.0)
    sketch = ArrayField(models.BigIntegerField(), default=list)
    verdict = models.CharField(max_length=10, choices=vocabulary_choices(Verdict))
    # Why it was set aside: `{detector, part, start, end}`, never what was found there.
    verdict_reasons = models.JSONField(default=list, blank=True)
    # What an index row points at, so that a quarantined chunk can have none: its own number when
    # it is admitted, NULL otherwise.
    admitted_id = models.GeneratedField(
        expression=Case(When(verdict=str(Verdict.ADMIT), then=F("id"))),
        output_field=models.BigIntegerField(),
        db_persist=True,
        unique=True,
        null=True,
    )
    contains_instruction_like_text = models.BooleanField(default=False)
    instruction_matches = models.JSONField(default=list, blank=True)

    objects = ChunkQuerySet.as_manager()

    class Meta:
        ordering = ("chunk_set_id", "ordinal")
        constraints = (
            models.UniqueConstraint(fields=("chunk_set", "ordinal"), name="chunk_ordinal"),
            models.CheckConstraint(
                condition=Q(verdict__in=[str(Verdict.ADMIT), str(Verdict.QUARANTINE)]),
                name="chunk_verdict_stored",
            ),
            models.CheckConstraint(condition=Q(end__gt=models.F("start")), name="chunk_slice"),
        )
        indexes = (
            # The quarantine desk, newest first.
            models.Index(
                fields=["tenant_id", "-id"],
                condition=Q(verdict=str(Verdict.QUARANTINE)),
                name="chunk_quarantined",
            ),
        )

    def __str__(self) -> str:
        return self.chunk_id


class QuarantinedManager(models.Manager["QuarantinedChunk"]):
    def get_queryset(self) -> models.QuerySet[QuarantinedChunk]:
        return super().get_queryset().filter(verdict=Verdict.QUARANTINE)


class QuarantinedChunk(Chunk):
    """A passage that admission set aside, as the quarantine desk lists it."""

    objects = QuarantinedManager()  # type: ignore[assignment,misc]

    class Meta:
        proxy = True
        verbose_name = "quarantined passage"
        ordering = ("-id",)
