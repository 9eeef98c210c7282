"""What hosts tell of their answers: which passages one cited, and whether rightly.

Ids, verdicts and hashes; no quote and no other words of an answer. Nothing here ranks anything.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from access.models import one_of, vocabulary_choices
from knowledge.core.types import CitationVerdict
from knowledge.models.trace import RecallTrace


class CitedAnswer(models.Model):
    """One answer that a host gave after a search, or did not give.

    `answer_id` is the host's own name for it. `cited` counts the passages of the trace's block
    that it cites. `fingerprint` is a keyed hash of what was told, by which the same call is known.
    """

    tenant_id = models.CharField(max_length=100)
    trace = models.ForeignKey(RecallTrace, on_delete=models.CASCADE, related_name="answers")
    answer_id = models.CharField(max_length=200, blank=True)
    principal_id = models.CharField(max_length=200)
    answered = models.BooleanField()
    cited = models.PositiveIntegerField()
    fingerprint = models.CharField(max_length=64)
    recorded_at = models.DateTimeField()

    class Meta:
        ordering = ("-recorded_at", "-id")
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="cited_answer_tenant_named"),
            models.UniqueConstraint(fields=("trace", "answer_id"), name="cited_answer_once"),
        )
        # The figures of a day.
        indexes = (models.Index(fields=["recorded_at"], name="cited_answer_recorded"),)

    def __str__(self) -> str:
        return f"{self.answer_id or 'answer'} to {self.trace_id}"


class Citation(models.Model):
    """One citation of an answer. `chunk_id` is empty when what was cited is no id of ours."""

    answer = models.ForeignKey(CitedAnswer, on_delete=models.CASCADE, related_name="citations")
    tenant_id = models.CharField(max_length=100)
    position = models.PositiveIntegerField()
    chunk_id = models.CharField(max_length=40, blank=True)
    verdict = models.CharField(max_length=20, choices=vocabulary_choices(CitationVerdict))

    class Meta:
        ordering = ("answer_id", "position")
        constraints = (
            models.CheckConstraint(
                condition=one_of("verdict", CitationVerdict), name="citation_verdict"
            ),
            models.UniqueConstraint(fields=("answer", "position"), name="citation_position"),
        )

    def __str__(self) -> str:
        return f"{self.chunk_id}: {self.verdict}"
