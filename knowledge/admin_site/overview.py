"""What the overview shows: the corpus, what waits for a person, and what happened by day.

The caller has bound the session, so "all" is all of a tenant, or all there is for a superuser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Now
from django.urls import reverse

from artifacts.models import Artifact
from knowledge.admin_site.charts import Chart, charts
from knowledge.core.types import JobState, Verdict
from knowledge.lifecycle.figures import Corpus, corpus, figures_by_day
from knowledge.models import (
    Attachment,
    Chunk,
    IngestJob,
    KnowledgeEvent,
    RetentionProposal,
    UnfinishedVersion,
)

PERIODS: Final = (7, 30, 90)
_EVENTS: Final = 10
_COUNTED: Final = 1_000
_LATELY: Final = timedelta(days=30)
_LONG: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Things of one kind that need a person: how many, `more` when uncounted, and since when."""

    name: str
    to_do: str
    url: str
    count: int
    more: bool
    oldest: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The corpus by the values of one of its properties."""

    title: str
    rows: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything on the page. `days` is the period of the charts."""

    corpus: Corpus
    shares: Sequence[Share]
    waiting: Sequence[Waiting]
    days: int
    charts: Sequence[Chart]
    events: Sequence[KnowledgeEvent]

    @property
    def tiles(self) -> list[tuple[str, int]]:
        names = {"documents": "Documents", "versions": "Versions", "chunks": "Live chunks"}
        return [(label, self.corpus.total(name)) for name, label in names.items()]

    @property
    def source_bytes(self) -> int:
        return self.corpus.total("source_bytes")

    @property
    def flagged(self) -> int:
        return self.corpus.total("flagged")

    @property
    def held(self) -> int:
        return self.corpus.total("held")

    @property
    def empty(self) -> bool:
        return not self.corpus.shares and not self.waiting


def overview(days: int, *, by_tenant: bool) -> Overview:
    counted = corpus()
    properties = {
        "visibility": "Visibility",
        "sensitivity": "Sensitivity",
        "media_type": "Media type",
    }
    if by_tenant:
        properties = {"tenant_id": "Tenant", **properties}
    return Overview(
        corpus=counted,
        shares=[Share(title=title, rows=counted.by(name)) for name, title in properties.items()],
        waiting=waiting(),
        days=days,
        charts=charts(figures_by_day(days)),
        events=list(KnowledgeEvent.objects.all()[:_EVENTS]),
    )


def waiting() -> list[Waiting]:
    """What needs a person, at most a thousand of each kind counted, in one statement."""
    desks = _desks()
    first, *others = (
        rows.annotate(kind=Value(name), since=F(at))
        .order_by()
        .values_list("kind", "since")[: _COUNTED + 1]
        for name, (_, _, rows, at) in desks.items()
    )
    found: dict[str, list[datetime]] = {}
    for kind, since in first.union(*others, all=True):
        found.setdefault(kind, []).append(since)
    return [
        Waiting(
            name=name,
            to_do=to_do,
            url=url,
            count=min(len(found[name]), _COUNTED),
            more=len(found[name]) > _COUNTED,
            oldest=min(found[name]),
        )
        for name, (to_do, url, _, _) in desks.items()
        if name in found
    ]


def _desks() -> dict[str, tuple[str, str, QuerySet[Any], str]]:
    """By name: what to do, where, which rows, and the field that says since when."""
    ended_badly = Q(job__state__in=(JobState.REFUSED, JobState.FAILED))
    jobs = IngestJob.objects.filter(attachment__isnull=True)
    stuck = Q(state=JobState.RUNNING, lease_until__lt=Now() - _LONG) | Q(
        state=JobState.QUEUED, next_attempt_at__lt=Now() - _LONG
    )
    return {
        "Passages in quarantine": (
            "Read, then release or purge.",
            reverse("admin:knowledge_quarantinedchunk_changelist"),
            Chunk.objects.filter(verdict=Verdict.QUARANTINE),
            "chunk_set__begun_at",
        ),
        "Proposals of agents": (
            "Approve or decline.",
            reverse("admin:knowledge_retentionproposal_changelist") + "?decision__exact=parked",
            RetentionProposal.objects.undecided(),
            "created_at",
        ),
        "Attachments refused or failed in 30 days": (
            "See why; try again what failed.",
            reverse("admin:knowledge_attachment_changelist"),
            Attachment.objects.filter(
                ~Q(refusal="") | ended_badly, created_at__gte=Now() - _LATELY
            ),
            "created_at",
        ),
        "Jobs that failed": (
            "See why, and try again.",
            reverse("admin:knowledge_ingestjob_changelist") + f"?state={JobState.FAILED}",
            jobs.filter(state=JobState.FAILED),
            "created_at",
        ),
        "Jobs that nobody works on": (
            "Is a worker running?",
            reverse("admin:knowledge_ingestjob_changelist") + f"?state={JobState.QUEUED}",
            IngestJob.objects.filter(stuck),
            "created_at",
        ),
        "Bytes that could not be swept": (
            "Is the storage there? The sweeper tries again by itself.",
            reverse("admin:artifacts_artifact_changelist") + "?due=stuck",
            Artifact.objects.stuck(),
            "sweep_failed_at",
        ),
        "Versions left unfinished": (
            "Resume the ingest; what nobody resumes goes by itself.",
            reverse("admin:knowledge_ingestjob_changelist"),
            UnfinishedVersion.objects.filter(lease_until__lt=Now() - _LONG),
            "started_at",
        ),
    }


def period(asked: str, periods: Iterable[int] = PERIODS) -> int:
    """The days that an address asks for, or 30."""
    return int(asked) if asked in {str(days) for days in periods} else 30
