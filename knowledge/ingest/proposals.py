"""Proposals to keep a file: an agent asks, an operator decides, and only then it is ingested."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, OriginTrust, Sensitivity
from artifacts import store as artifacts
from artifacts.models import ArtifactOrigin
from knowledge.adapters.database import now
from knowledge.core import fingerprint
from knowledge.core.errors import ProposalDecided, Refused
from knowledge.core.scanning import SecretGate
from knowledge.core.types import (
    Authority,
    IngestRequest,
    JobState,
    ProposalDecision,
    ProposalRequest,
    Visibility,
)
from knowledge.ingest import jobs
from knowledge.ingest.admission import Admitted, read
from knowledge.ingest.pipeline import Ingestor
from knowledge.ingest.plan import IngestPlan
from knowledge.ingest.refusals import count_refusal
from knowledge.models import KnowledgeEvent, RetentionProposal

_AT_ONCE = 100


def propose(ingestor: Ingestor, asked: ProposalRequest, principal: Principal) -> RetentionProposal:
    """Parks a proposal with a snapshot of the bytes; ingests nothing.

    All that an ingest would refuse is refused here and now, and then nothing is stored.
    """
    try:
        admitted, plan = _planned(ingestor, asked, principal)
    except Refused as refused:
        count_refusal(principal.tenant_id, refused.code)
        raise
    with artifacts.putting(
        principal,
        io.BytesIO(admitted.content),
        filename=admitted.artifact.filename,
        media_type=admitted.artifact.media_type,
        attribution=admitted.artifact.attribution,
        origin=ArtifactOrigin.PROPOSAL,
    ) as snapshot:
        proposal = RetentionProposal.objects.create(
            tenant_id=principal.tenant_id,
            principal_id=principal.principal_id,
            surface=principal.surface,
            origin_trust=principal.trust_of(asked.origin_trust),
            reason=asked.reason,
            snapshot=snapshot,
            filename=snapshot.filename,
            media_type=plan.media_type,
            sha256=snapshot.sha256,
            byte_size=snapshot.byte_size,
            title=admitted.title,
            visibility=asked.visibility,
            project_scope=asked.project_scope,
            sensitivity=asked.sensitivity,
            doc_date=plan.doc_date,
            language=plan.language,
            **_to_review(plan),
            expires_at=now() + timedelta(days=settings.PROPOSAL_DAYS),
        )
        _record(
            KnowledgeEvent.PROPOSAL_PARKED,
            proposal,
            actor=principal,
            data={"chunks": proposal.chunk_count, "flagged": proposal.flagged_count},
        )
    return proposal


def proposal_of(proposal_id: UUID, principal: Principal) -> RetentionProposal:
    """The principal's own proposal; `NotFound` for anybody else's."""
    with tenant_session(principal.tenant_id):
        proposal = (
            RetentionProposal.objects.select_related("job")
            .defer("passages")
            .filter(pk=proposal_id, principal_id=principal.principal_id)
            .first()
        )
    if proposal is None:
        raise NotFound
    return proposal


def approve(ingestor: Ingestor, proposal_id: UUID, operator: Principal) -> RetentionProposal:
    """Takes responsibility for the file as it was proposed, and puts its ingest into the queue.

    Raises `ProposalDecided` when it was decided before or has expired, so that of two operators
    at once one approves it. The ingest is the operator's own: theirs is the trust and the name.
    """
    operator.require_permission(OperatorPermission.APPROVE)
    with tenant_session(operator.tenant_id):
        proposal = _decide(proposal_id, operator, ProposalDecision.APPROVED)
        if proposal.snapshot is None:
            raise ProposalDecided
        proposal.document_id = fingerprint.document_id_for_proposal(
            proposal.tenant_id, proposal.principal_id, proposal.sha256
        )
        proposal.job = jobs.enqueue(
            ingestor,
            IngestRequest(
                artifact_id=proposal.snapshot.pk,
                title=proposal.title,
                visibility=Visibility(proposal.visibility),
                project_scope=proposal.project_scope,
                sensitivity=Sensitivity(proposal.sensitivity),
                authority=Authority.FETCHED,
                doc_date=proposal.doc_date,
                language=proposal.language,
                derived_id=proposal.document_id,
                origin_trust=OriginTrust.USER,
            ),
            operator,
        )
        proposal.save(update_fields=["document_id", "job"])
        _record(KnowledgeEvent.PROPOSAL_APPROVED, proposal, actor=operator)
    return proposal


def decline(proposal_id: UUID, operator: Principal, *, reason: str) -> RetentionProposal:
    """Says no, and why; the snapshot goes with the sweeper's next pass."""
    operator.require_permission(OperatorPermission.APPROVE)
    with tenant_session(operator.tenant_id):
        proposal = _decide(proposal_id, operator, ProposalDecision.DECLINED, reason=reason)
        _let_go(proposal)
        _record(KnowledgeEvent.PROPOSAL_DECLINED, proposal, actor=operator, data={"reason": reason})
    return proposal


def expire_proposals(*, dry_run: bool = False) -> int:
    """Lets go of what nobody decided in time, and of snapshots that have served their purpose.

    Returns how many snapshots went to the sweeper, or with `dry_run` how many would.
    """
    if dry_run:
        with operations_session():
            overdue = RetentionProposal.objects.overdue().filter(snapshot__isnull=False)
            return overdue.count() + _served().count()
    let_go = 0
    for expire_some in (_expire_some, _let_go_some):
        while batch := expire_some():
            let_go += batch
    return let_go


def _served() -> QuerySet[RetentionProposal]:
    """Approved ones whose ingest is over, so that nothing needs the snapshot any more."""
    over = Q(job__isnull=True) | Q(job__state__in=[JobState.DONE, JobState.REFUSED])
    late = Q(job__state=JobState.FAILED, expires_at__lte=Now())
    return RetentionProposal.objects.filter(
        over | late, decision=ProposalDecision.APPROVED, snapshot__isnull=False
    )


def _let_go_some() -> int:
    with operations_session():
        # Of the proposal alone: its job may be none, and is not ours to lock.
        found = _served().select_for_update(skip_locked=True, of=("self",)).defer("passages")
        served = list(found[:_AT_ONCE])
        for proposal in served:
            _let_go(proposal)
    return len(served)


def _expire_some() -> int:
    with operations_session():
        due = list(
            RetentionProposal.objects.overdue()
            .select_for_update(skip_locked=True)
            .defer("passages")
            .order_by("expires_at")[:_AT_ONCE]
        )
        for proposal in due:
            proposal.decision = ProposalDecision.EXPIRED
            proposal.decided_at = now()
            proposal.save(update_fields=["decision", "decided_at"])
            _let_go(proposal)
            _record(KnowledgeEvent.PROPOSAL_EXPIRED, proposal, actor=None)
    return len(due)


# --- the parts -------------------------------------------------------------------------------


def _planned(
    ingestor: Ingestor, asked: ProposalRequest, principal: Principal
) -> tuple[Admitted, IngestPlan]:
    """All of an ingest before its commit, but for the question who vouches for it."""
    admitted = read(
        IngestRequest(
            artifact_id=asked.artifact_id,
            title=asked.title,
            visibility=asked.visibility,
            project_scope=asked.project_scope,
            sensitivity=asked.sensitivity,
            doc_date=asked.doc_date,
            language=asked.language,
        ),
        principal,
        max_bytes=ingestor.max_bytes,
    )
    SecretGate(ingestor.secret_scanner).check(
        raw="", normalised="", fields={"reason": asked.reason}, chunks=()
    )
    return admitted, ingestor.plan(admitted)


def _to_review(plan: IngestPlan) -> dict[str, Any]:
    """What an operator reads before they decide."""
    return {
        "chunk_count": plan.total,
        "flagged_count": sum(bool(chunk.matches) for chunk in plan.chunks),
        "instruction_families": sorted(
            {match["family"] for chunk in plan.chunks for match in chunk.matches}
        ),
        "passages": [
            {
                "heading_path": list(chunk.draft.heading_path),
                "text": chunk.draft.text,
                "matches": chunk.matches,
            }
            for chunk in plan.chunks
        ],
    }


def _decide(
    proposal_id: UUID, operator: Principal, decision: ProposalDecision, *, reason: str = ""
) -> RetentionProposal:
    """One of several at once decides; the others, and whoever comes later, are told so."""
    decided = (
        RetentionProposal.objects.undecided()
        .filter(pk=proposal_id)
        .update(
            decision=decision,
            decided_by=operator.principal_id,
            decided_at=now(),
            decision_reason=reason,
        )
    )
    proposal = (
        RetentionProposal.objects.select_related("snapshot")
        .defer("passages")
        .filter(pk=proposal_id)
        .first()
    )
    if proposal is None:
        raise NotFound
    if not decided:
        raise ProposalDecided
    return proposal


def _let_go(proposal: RetentionProposal) -> None:
    if proposal.snapshot_id is not None:
        artifacts.expire([proposal.snapshot_id])
    proposal.snapshot = None
    proposal.passages = []
    proposal.save(update_fields=["snapshot", "passages"])


def _record(
    name: str,
    proposal: RetentionProposal,
    *,
    actor: Principal | None,
    data: dict[str, object] | None = None,
) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=proposal.tenant_id,
        name=name,
        document_id=proposal.document_id,
        actor=actor.principal_id if actor else "system",
        surface=actor.surface if actor else "sweeper",
        data={"proposal_id": str(proposal.pk), **(data or {})},
    )
