"""What operators do to many documents at once, document by document in the background."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce, Now

from access.models import one_of, vocabulary_choices
from knowledge.core.types import BulkAction, BulkOutcome, BulkState

_UNFINISHED: Final = (str(BulkState.QUEUED), str(BulkState.RUNNING))


class BulkTaskQuerySet(models.QuerySet["BulkTask"]):
    def due(self) -> BulkTaskQuerySet:
        """Tasks that a worker may take now: whose time has come, or whose worker is gone."""
        return self.filter(
            Q(state=BulkState.QUEUED, next_turn_at__lte=Now())
            | Q(state=BulkState.RUNNING, lease_until__lte=Now())
        )

    def claim(self, task_id: UUID, lease: timedelta) -> BulkTask | None:
        """Takes a due task; `None` when another has."""
        token = uuid.uuid4()
        taken = self.due().filter(task_id=task_id)
        started = Coalesce("started_at", Now())
        if not taken.update(
            state=BulkState.RUNNING,
            lease_token=token,
            lease_until=Now() + lease,
            started_at=started,
        ):
            return None
        return self.filter(task_id=task_id, lease_token=token).first()

    def held(self, task: BulkTask) -> BulkTaskQuerySet:
        """The task, while whoever claimed it is the one that works on it."""
        return self.filter(pk=task.pk, lease_token=task.lease_token, state=BulkState.RUNNING)


class BulkTask(models.Model):
    """One action on a list of documents, fixed when it was asked for.

    `change` says how: a reason, and for a rescope the new scope. Nothing of a document is in it.
    """

    number = models.BigAutoField(primary_key=True)
    task_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    # The operator who asked, and who answers for it.
    username = models.CharField(max_length=150)
    action = models.CharField(max_length=20, choices=vocabulary_choices(BulkAction))
    change = models.JSONField(default=dict)
    state = models.CharField(
        max_length=10, choices=vocabulary_choices(BulkState), default=BulkState.QUEUED
    )
    total = models.PositiveIntegerField()
    done = models.PositiveIntegerField(default=0)
    unchanged = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    next_turn_at = models.DateTimeField()
    lease_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    hinted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = BulkTaskQuerySet.as_manager()

    class Meta:
        verbose_name = "bulk action"
        ordering = ("-number",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="bulk_tenant_named"),
            models.CheckConstraint(condition=one_of("action", BulkAction), name="bulk_action"),
            models.CheckConstraint(condition=one_of("state", BulkState), name="bulk_state"),
            models.CheckConstraint(
                condition=Q(state=BulkState.RUNNING, lease_until__isnull=False)
                | (~Q(state=BulkState.RUNNING) & Q(lease_until__isnull=True)),
                name="bulk_leased_iff_running",
            ),
            models.CheckConstraint(
                condition=Q(
                    total__gte=models.F("done")
                    + models.F("unchanged")
                    + models.F("refused")
                    + models.F("failed")
                ),
                name="bulk_counts_partition",
            ),
        )
        indexes = (
            # What is waiting, oldest first.
            models.Index(
                fields=["number"], condition=Q(state__in=_UNFINISHED), name="bulk_unfinished"
            ),
            # The admin's list, newest first.
            models.Index(fields=["tenant_id", "-number"], name="bulk_newest"),
        )

    def __str__(self) -> str:
        return str(self.task_id)

    @property
    def settled(self) -> int:
        return self.done + self.unchanged + self.refused + self.failed

    @property
    def finished(self) -> bool:
        return self.state not in _UNFINISHED


class BulkItem(models.Model):
    """One document of a task. An empty `outcome` waits; `code` and `detail` say why not."""

    task = models.ForeignKey(BulkTask, on_delete=models.CASCADE, related_name="items")
    tenant_id = models.CharField(max_length=100)
    position = models.PositiveIntegerField()
    document_id = models.UUIDField()
    attempts = models.PositiveIntegerField(default=0)
    outcome = models.CharField(max_length=10, blank=True, choices=vocabulary_choices(BulkOutcome))
    code = models.CharField(max_length=60, blank=True)
    detail = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ("task_id", "position")
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="bulk_item_tenant_named"),
            models.CheckConstraint(
                condition=one_of("outcome", ["", *BulkOutcome]), name="bulk_item_outcome"
            ),
            models.UniqueConstraint(fields=("task", "position"), name="bulk_item_position"),
        )
        indexes = (
            # What is left of a task, and what of it did not go well.
            models.Index(fields=["task", "outcome", "position"], name="bulk_item_outcomes"),
        )

    def __str__(self) -> str:
        return f"{self.position} of {self.task_id}"
