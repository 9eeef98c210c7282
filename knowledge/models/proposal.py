"""Proposals to keep a file, from agents that may not admit it themselves."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from access.models import one_of, vocabulary_choices
from access.trust import OriginTrust, Sensitivity
from artifacts.models import Artifact
from knowledge.core.types import ChunkSetState, JobState, ProposalDecision, Visibility
from knowledge.models.job import IngestJob


class RetentionProposalQuerySet(models.QuerySet["RetentionProposal"]):
    def undecided(self) -> RetentionProposalQuerySet:
        """Those that an operator may still decide on, by the database's clock."""
        return self.filter(decision=ProposalDecision.PARKED, expires_at__gt=Now())

    def overdue(self) -> RetentionProposalQuerySet:
        return self.filter(decision=ProposalDecision.PARKED, expires_at__lte=Now())


class RetentionProposal(models.Model):
    """A snapshot of a file, what it would be admitted as, and what an operator says of it.

    Nothing of it changes but the decision. `passages` are what was scanned and what the operator
    reads; they and the snapshot go when the proposal is declined, has expired, or has become a
    document.
    """

    proposal_id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    surface = models.CharField(max_length=50)
    origin_trust = models.CharField(max_length=20, choices=vocabulary_choices(OriginTrust))
    reason = models.CharField(max_length=2_000)

    snapshot = models.OneToOneField(
        Artifact, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    filename = models.CharField(max_length=255)
    media_type = models.CharField(max_length=255)
    sha256 = models.CharField(max_length=64)
    byte_size = models.BigIntegerField()

    title = models.CharField(max_length=500)
    visibility = models.CharField(max_length=10, choices=vocabulary_choices(Visibility))
    project_scope = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - NULL is "none"
    sensitivity = models.CharField(max_length=20, choices=vocabulary_choices(Sensitivity))
    doc_date = models.DateField(null=True, blank=True)
    language = models.CharField(max_length=50)

    # What could be quoted of it, in order: {heading_path, text, matches}.
    passages = models.JSONField(default=list, blank=True)
    chunk_count = models.PositiveIntegerField()
    flagged_count = models.PositiveIntegerField()
    instruction_families = ArrayField(models.CharField(max_length=100), default=list, blank=True)

    decision = models.CharField(
        max_length=10,
        choices=vocabulary_choices(ProposalDecision),
        default=ProposalDecision.PARKED,
    )
    decided_by = models.CharField(max_length=200, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.CharField(max_length=500, blank=True)
    document_id = models.UUIDField(null=True, blank=True)
    job = models.OneToOneField(
        IngestJob, on_delete=models.SET_NULL, null=True, blank=True, related_name="proposal"
    )
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()

    objects = RetentionProposalQuerySet.as_manager()

    class Meta:
        verbose_name = "retention proposal"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="proposal_tenant_named"),
            models.CheckConstraint(
                condition=one_of("decision", ProposalDecision), name="proposal_decision"
            ),
            # A document of one principal alone is that principal's to admit.
            models.CheckConstraint(
                condition=Q(visibility=Visibility.PROJECT, project_scope__isnull=False)
                | Q(visibility=Visibility.TENANT, project_scope__isnull=True),
                name="proposal_visibility",
            ),
            models.CheckConstraint(
                condition=Q(decision=ProposalDecision.PARKED, decided_at__isnull=True)
                | (~Q(decision=ProposalDecision.PARKED) & Q(decided_at__isnull=False)),
                name="proposal_decided_iff_decision",
            ),
        )
        indexes = (
            # The desk: what waits for a decision, and what has waited too long.
            models.Index(
                fields=["tenant_id", "created_at"],
                condition=Q(decision=ProposalDecision.PARKED),
                name="proposal_parked",
            ),
            models.Index(fields=["tenant_id", "-created_at"], name="proposal_newest"),
            # Decided ones whose snapshot may still be there.
            models.Index(
                fields=["expires_at"],
                condition=Q(snapshot__isnull=False),
                name="proposal_with_snapshot",
            ),
        )

    def __str__(self) -> str:
        return str(self.proposal_id)

    @property
    def receipt(self) -> dict[str, Any] | None:
        """What came of an approval; `verified` claims no more than a reader can find.

        `{verified, state, document_id, version, code, report}`; `None` unless it was approved.
        """
        if self.decision != ProposalDecision.APPROVED:
            return None
        result = (self.job.result if self.job else None) or {}
        report = result.get("report")
        admitted = report["chunks"] - report["quarantined"] - report["rejected"] if report else 0
        done = self.job is not None and self.job.state == JobState.DONE
        return {
            "verified": done and result.get("state") == ChunkSetState.LIVE and admitted > 0,
            "state": str(self.job.state) if self.job else "deleted",
            "document_id": self.document_id,
            "version": result.get("version"),
            "code": self.job.problem["code"] if self.job and self.job.problem else "",
            "report": report,
        }
