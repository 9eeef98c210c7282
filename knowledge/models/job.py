"""Background ingests. The row is the queue and the truth; the broker carries hints."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now

from access.models import one_of, vocabulary_choices
from knowledge.core.types import JobState

MOST_ATTEMPTS: Final = 5
"""In a row without a batch that was committed."""

_UNFINISHED: Final = (str(JobState.QUEUED), str(JobState.RUNNING))


class IngestJobQuerySet(models.QuerySet["IngestJob"]):
    def due(self) -> IngestJobQuerySet:
        """Jobs that a worker may take now: whose time has come, or whose worker is gone.

        Jobs of one document go in the order in which they came, so that an older text never
        arrives after a newer one.
        """
        earlier = IngestJob.objects.filter(
            document_id=OuterRef("document_id"),
            number__lt=OuterRef("number"),
            state__in=_UNFINISHED,
        )
        return self.filter(
            Q(state=JobState.QUEUED, next_attempt_at__lte=Now())
            | Q(state=JobState.RUNNING, lease_until__lte=Now())
        ).exclude(Exists(earlier))

    def claim(self, job_id: UUID, lease: timedelta) -> IngestJob | None:
        """Takes a due job, counting the attempt before its work begins; `None` when another has."""
        token = uuid.uuid4()
        taken = (
            self.due()
            .filter(job_id=job_id, attempts_left__gt=0)
            .update(
                state=JobState.RUNNING,
                attempts=F("attempts") + 1,
                attempts_left=F("attempts_left") - 1,
                lease_token=token,
                lease_until=Now() + lease,
                started_at=Now(),
            )
        )
        return self.get(job_id=job_id, lease_token=token) if taken else None

    def held(self, job_id: UUID, token: UUID) -> IngestJobQuerySet:
        """The job, while the attempt with this token is the one that works on it."""
        return self.filter(job_id=job_id, lease_token=token, state=JobState.RUNNING)


class IngestJob(models.Model):
    """One background ingest on behalf of the principal who asked for it.

    `request` and `principal` are values of ours as JSON; the request goes when the job is done or
    refused. `problem` is why the last attempt did not end well.
    """

    # The order in which they came; callers know a job by the name that cannot be counted up.
    number = models.BigAutoField(primary_key=True)
    job_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    principal = models.JSONField(encoder=DjangoJSONEncoder)
    request = models.JSONField(encoder=DjangoJSONEncoder)
    # The upload is this job's alone, and goes when the job has ended for good.
    discards_upload = models.BooleanField(default=False)
    # The document, as soon as it is known.
    document_id = models.UUIDField(null=True, blank=True)
    state = models.CharField(
        max_length=10, choices=vocabulary_choices(JobState), default=JobState.QUEUED
    )
    attempts = models.PositiveIntegerField(default=0)
    attempts_left = models.PositiveIntegerField(default=MOST_ATTEMPTS)
    next_attempt_at = models.DateTimeField()
    lease_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    hinted_at = models.DateTimeField(null=True, blank=True)
    embedded = models.PositiveIntegerField(default=0)
    total = models.PositiveIntegerField(default=0)
    batch = models.PositiveIntegerField(default=0)
    batches = models.PositiveIntegerField(default=0)
    result = models.JSONField(null=True, blank=True)
    problem = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = IngestJobQuerySet.as_manager()

    class Meta:
        verbose_name = "ingest job"
        ordering = ("-number",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="job_tenant_named"),
            models.CheckConstraint(condition=one_of("state", JobState), name="job_state"),
            models.CheckConstraint(
                condition=Q(state=JobState.RUNNING, lease_until__isnull=False)
                | (~Q(state=JobState.RUNNING) & Q(lease_until__isnull=True)),
                name="job_leased_iff_running",
            ),
            models.CheckConstraint(
                condition=Q(state__in=_UNFINISHED, finished_at__isnull=True)
                | (~Q(state__in=_UNFINISHED) & Q(finished_at__isnull=False)),
                name="job_finished_iff_final",
            ),
        )
        indexes = (
            # What is waiting, oldest first: few rows, whatever the history.
            models.Index(
                fields=["number"], condition=Q(state__in=_UNFINISHED), name="job_unfinished"
            ),
            # What ended badly and may need a person.
            models.Index(
                fields=["number"],
                condition=Q(state__in=(JobState.REFUSED, JobState.FAILED)),
                name="job_ended_badly",
            ),
            # The jobs of one document: those before it, and those that go with it.
            models.Index(fields=["document_id", "number"], name="job_of_document"),
            # The admin's list, newest first.
            models.Index(fields=["tenant_id", "-number"], name="job_newest"),
        )

    def __str__(self) -> str:
        return str(self.job_id)
