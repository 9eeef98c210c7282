"""Questions with the passages that answer them, and how well the search finds those over time."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from access.models import one_of, vocabulary_choices
from access.trust import Sensitivity
from knowledge.core.types import AnswerState, GoldenOutcome, GoldenRunState

NAME_LIMIT = 200


class GoldenSet(models.Model):
    """Questions that are asked as one principal, on behalf of one project, under one ceiling."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    name = models.CharField(max_length=NAME_LIMIT)
    principal_id = models.CharField(max_length=200)
    current_scope = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - NULL is "none"
    sensitivity_ceiling = models.CharField(
        max_length=20, choices=vocabulary_choices(Sensitivity), default=Sensitivity.INTERNAL
    )
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("tenant_id", "name"), name="golden_set_name"),
        )

    def __str__(self) -> str:
        return self.name


class GoldenQuestion(models.Model):
    """What is asked, with what a search may be told beside its text."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.CharField(max_length=100)
    golden_set = models.ForeignKey(GoldenSet, on_delete=models.CASCADE, related_name="questions")
    text = models.TextField()
    objective = models.TextField(blank=True)
    entities = models.JSONField(default=list, blank=True)
    aliases = models.JSONField(default=dict, blank=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"question {self.pk}"


class GoldenAnswer(models.Model):
    """A passage that answers, by its id, by the hash of its text and by the words that do.

    The words are looked for in the document's newest version when the passage itself is
    superseded. Deleting the document takes the words away; ids and hash stay, as in a trace.
    There is no foreign key, for the document may go.
    """

    question = models.ForeignKey(GoldenQuestion, on_delete=models.CASCADE, related_name="answers")
    tenant_id = models.CharField(max_length=100)
    document_id = models.UUIDField()
    chunk_id = models.CharField(max_length=40)
    content_sha256 = models.CharField(max_length=64)
    quote = models.TextField(blank=True)
    state = models.CharField(
        max_length=10, choices=vocabulary_choices(AnswerState), default=AnswerState.CURRENT
    )
    found_in = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("question", "chunk_id"), name="golden_answer_passage"),
        )
        indexes = (
            # Deleting a document takes its words away.
            models.Index(fields=["document_id"], name="golden_answer_document"),
        )

    def __str__(self) -> str:
        return self.chunk_id


class GoldenRun(models.Model):
    """One asking of all questions of a set. The row is the progress, and then the result.

    Figures are of the questions that could be answered: those with at least one passage that a
    search can find today. The others are counted in `stale`, never dropped in silence.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.CharField(max_length=100)
    golden_set = models.ForeignKey(GoldenSet, on_delete=models.CASCADE, related_name="runs")
    state = models.CharField(
        max_length=10,
        choices=vocabulary_choices(GoldenRunState),
        default=GoldenRunState.QUEUED,
    )
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    touched_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    policy = models.CharField(max_length=50, blank=True)
    total = models.PositiveIntegerField(default=0)
    asked = models.PositiveIntegerField(default=0)
    stale = models.PositiveIntegerField(default=0)
    found = models.PositiveIntegerField(default=0)
    recall_at_3 = models.FloatField(null=True, blank=True)
    noise_at_3 = models.FloatField(null=True, blank=True)
    mrr_at_10 = models.FloatField(null=True, blank=True)
    problem = models.CharField(max_length=60, blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(
                condition=one_of("state", GoldenRunState), name="golden_run_state"
            ),
            # Two at once would ask the same.
            models.UniqueConstraint(
                fields=("golden_set",),
                condition=Q(state__in=[str(GoldenRunState.QUEUED), str(GoldenRunState.RUNNING)]),
                name="golden_run_one_at_a_time",
            ),
        )

    def __str__(self) -> str:
        return f"run {self.pk}"


class GoldenResult(models.Model):
    """What one question came to in one run. `rank` counts from 1 over all that was ranked."""

    run = models.ForeignKey(GoldenRun, on_delete=models.CASCADE, related_name="results")
    tenant_id = models.CharField(max_length=100)
    question = models.ForeignKey(GoldenQuestion, on_delete=models.CASCADE, related_name="results")
    outcome = models.CharField(max_length=10, choices=vocabulary_choices(GoldenOutcome))
    rank = models.PositiveIntegerField(null=True, blank=True)
    returned = models.PositiveIntegerField(default=0)
    noise = models.PositiveIntegerField(default=0)
    trace_id = models.UUIDField(null=True, blank=True)

    class Meta:
        ordering = ("question_id",)
        constraints = (
            models.UniqueConstraint(fields=("run", "question"), name="golden_result_question"),
            models.CheckConstraint(
                condition=one_of("outcome", GoldenOutcome), name="golden_result_outcome"
            ),
        )

    def __str__(self) -> str:
        return f"{self.outcome}"
