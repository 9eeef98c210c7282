"""The numbers of the overview, each from one aggregate over rows that are few.

The caller has bound the session, so "all" is all of a tenant, or all there is for a superuser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.utils import timezone

from artifacts.models import Artifact, ArtifactOrigin
from knowledge.core.types import ChunkSetState, JobState
from knowledge.models import (
    ChunkSet,
    Document,
    IngestJob,
    KnowledgeEvent,
    RefusalCount,
    RetentionProposal,
    UnfinishedVersion,
)

REFUSAL_DAYS = 30
_EVENTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is in the corpus, what was refused in `REFUSAL_DAYS` days, what happened last."""

    documents: int
    held: int
    versions: int
    chunks: int
    flagged: int
    quarantined: int
    source_bytes: int
    unfinished: int
    jobs_waiting: int
    jobs_failed: int
    proposals: int
    refusals: Sequence[Mapping[str, Any]]
    events: list[KnowledgeEvent]


def overview() -> Overview:
    documents = Document.objects.aggregate(all=Count("pk"), held=Count("pk", Q(legal_hold=True)))
    # Chunk sets carry the counts of their chunks: the chunks themselves are never counted here.
    live = ChunkSet.objects.filter(
        state=ChunkSetState.LIVE, version__superseded_at__isnull=True
    ).aggregate(
        chunks=Sum("chunk_count", default=0),
        rejected=Sum("rejected_count", default=0),
        flagged=Sum("flagged_count", default=0),
        quarantined=Sum("quarantined_count", default=0),
    )
    kept = Artifact.objects.filter(origin=ArtifactOrigin.KNOWLEDGE_SOURCE, expires_at__isnull=True)
    # A version that is being ingested has its source already, and counts when it is whole.
    unfinished = UnfinishedVersion.objects.all()
    sources = kept.exclude(pk__in=unfinished.values("original")).aggregate(
        versions=Count("pk"), bytes=Sum("byte_size", default=0)
    )
    jobs = IngestJob.objects.aggregate(
        waiting=Count("pk", Q(state__in=(JobState.QUEUED, JobState.RUNNING))),
        failed=Count("pk", Q(state=JobState.FAILED)),
    )
    since = timezone.now().date() - timedelta(days=REFUSAL_DAYS)
    refusals = (
        RefusalCount.objects.filter(day__gte=since)
        .values("reason")
        .annotate(times=Sum("count"))
        .order_by("-times", "reason")
    )
    return Overview(
        documents=documents["all"],
        held=documents["held"],
        versions=sources["versions"],
        chunks=live["chunks"] - live["rejected"],
        flagged=live["flagged"],
        quarantined=live["quarantined"],
        source_bytes=sources["bytes"],
        unfinished=unfinished.count(),
        jobs_waiting=jobs["waiting"],
        jobs_failed=jobs["failed"],
        proposals=RetentionProposal.objects.undecided().count(),
        refusals=list(refusals),
        events=list(KnowledgeEvent.objects.all()[:_EVENTS]),
    )
