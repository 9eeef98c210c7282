"""The one front door. API, admin, tasks, MCP tools and commands are thin callers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.db.models import QuerySet

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OperatorPermission
from knowledge.core.admission import PiiRules
from knowledge.core.arms import ArmTrial
from knowledge.core.assembly import RecallItem
from knowledge.core.errors import EmbedderUnavailable, NoEmbedder
from knowledge.core.fingerprint import is_chunk_id
from knowledge.core.fusion import LEXICAL
from knowledge.core.instants import checked_instant
from knowledge.core.ports import VectorFiller, VectorSink
from knowledge.core.preturn import Trial
from knowledge.core.provenance import Provenance
from knowledge.core.scope import resolve_scope
from knowledge.core.types import (
    Actor,
    BulkAction,
    BulkOutcome,
    DocumentChange,
    EmbedReport,
    IngestProgress,
    IngestRequest,
    IngestResult,
    KnowledgeQuery,
    ProposalRequest,
    RechunkOutcome,
    RechunkRequest,
    RechunkResult,
    SearchResult,
)
from knowledge.evidence.moving import change_record
from knowledge.evidence.reading import ResolvedEvidence, get_record, resolve_evidence
from knowledge.evidence.records import Records
from knowledge.evidence.removing import RecordRemoval, remove_record
from knowledge.evidence.writing import WrittenRevision
from knowledge.ingest import attachments, jobs, proposals, rechunking
from knowledge.ingest.attempt import Attempt, ignore_progress
from knowledge.ingest.handing_in import hand_in
from knowledge.ingest.pipeline import Ingestor
from knowledge.lifecycle import bulk
from knowledge.lifecycle.arms import disable_arm, enable_arm
from knowledge.lifecycle.conversations import ConversationReceipt, delete_conversation
from knowledge.lifecycle.corpus import CorpusReport, OnKind, ignore_kinds, verify_corpus
from knowledge.lifecycle.delete import delete_document
from knowledge.lifecycle.pii_policy import set_pii_policy
from knowledge.lifecycle.preturn import disable_preturn, enable_preturn
from knowledge.lifecycle.quarantine import purge_chunk, release_chunk
from knowledge.lifecycle.tombstones import deletion_of, missing_chunk, missing_document
from knowledge.lifecycle.update import Updater
from knowledge.lifecycle.verify_deletion import Verification, verify_deletion
from knowledge.models import (
    Attachment,
    BulkTask,
    Chunk,
    Deletion,
    Document,
    GoldenQuestion,
    GoldenRun,
    GoldenSet,
    IngestJob,
    PiiPolicy,
    RetentionProposal,
)
from knowledge.models.attachment import AttachmentQuerySet
from knowledge.retrieval import golden
from knowledge.retrieval.acting import Viewpoint, search_as
from knowledge.retrieval.arms import SearchArm
from knowledge.retrieval.assemble import Assembly, assemble
from knowledge.retrieval.citations import Cited, RecordedAnswer, record_answer
from knowledge.retrieval.golden import GoldenAsked
from knowledge.retrieval.preturn import Recalled, preturn
from knowledge.retrieval.provenance import check_provenance
from knowledge.retrieval.replay import TraceView, view_trace
from knowledge.retrieval.search import Searcher
from knowledge.retrieval.verify import CheckedQuote, Quote, verify_quotes
from knowledge.transfer.exporting import Exported, OnProgress, export_corpus, untold
from knowledge.transfer.importing import Imported, import_corpus


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeStore:
    """Every call takes the caller; what the caller may not see raises `NotFound`."""

    ingestor: Ingestor
    searcher: Searcher
    # Of an installation that has an embedder.
    filler: VectorFiller | None = None

    @property
    def vectors(self) -> VectorSink | None:
        """Where this installation keeps its vectors, when it has an embedder."""
        return self.ingestor.embedding.vectors if self.ingestor.embedding else None

    @property
    def records(self) -> Records:
        """Writes of records that cite; see `Records`."""
        return Records(secret_scanner=self.ingestor.secret_scanner)

    def get_record(
        self,
        record_id: UUID,
        principal: Principal,
        *,
        current_scope: str | None = None,
        revision: int | None = None,
    ) -> WrittenRevision:
        """A record as its latest revision has it, or as an earlier one had."""
        return get_record(record_id, principal, current_scope=current_scope, revision=revision)

    def resolve_evidence(
        self,
        record_id: UUID,
        principal: Principal,
        *,
        current_scope: str | None = None,
        revision: int | None = None,
    ) -> tuple[WrittenRevision, list[ResolvedEvidence]]:
        """A revision, and where each of its citations leads for whoever asks."""
        return resolve_evidence(
            record_id, principal, current_scope=current_scope, revision=revision
        )

    def change_record(
        self,
        record_id: UUID,
        principal: Principal,
        change: DocumentChange,
        *,
        current_scope: str | None = None,
    ) -> WrittenRevision:
        """Rescopes a record, holds it; see `change_record`."""
        return change_record(record_id, principal, change, current_scope=current_scope)

    def remove_record(
        self,
        record_id: UUID,
        principal: Principal,
        *,
        current_scope: str | None = None,
        reason: str = "",
    ) -> RecordRemoval:
        """Removes a record with its history; its originals stay. See `remove_record`."""
        return remove_record(record_id, principal, current_scope=current_scope, reason=reason)

    def ingest(
        self, request: IngestRequest, principal: Principal, attempt: Attempt | None = None
    ) -> IngestResult:
        return self.ingestor.ingest(request, principal, attempt)

    def ingest_later(self, request: IngestRequest, principal: Principal) -> IngestJob:
        """A background job; whoever makes one hints at it through the broker."""
        return jobs.enqueue(self.ingestor, request, principal)

    def hand_in(
        self, content: IO[bytes], principal: Principal, *, filename: str, **asked: Any
    ) -> IngestJob:
        """A file for one ingest; whoever hands one in hints at its job. See `hand_in`."""
        return hand_in(self.ingestor, principal, content, filename=filename, **asked)

    def get_job(self, job_id: UUID, principal: Principal) -> IngestJob:
        """A job of the principal's own; `NotFound` otherwise."""
        return jobs.job_of(job_id, principal)

    def retry_jobs(self, jobs_of: QuerySet[IngestJob], *, asked_by: str) -> list[UUID]:
        """Gives failed jobs their attempts again, in the operator's session. Returns which."""
        return jobs.retry(jobs_of, asked_by=asked_by)

    def run_job(self, job_id: UUID) -> list[UUID]:
        """One attempt at a background job. Returns the jobs to hint at now that it has ended."""
        return jobs.run(self.ingestor, job_id)

    def attach(
        self,
        content: IO[bytes],
        principal: Principal,
        *,
        conversation_id: str,
        actor: Actor,
        filename: str,
        media_type: str = "",
    ) -> Attachment:
        """A file of a conversation; whoever stores one hints at its job, when it has one."""
        return attachments.attach(
            self.ingestor,
            principal,
            content,
            conversation_id=conversation_id,
            actor=actor,
            filename=filename,
            media_type=media_type,
        )

    def get_attachment(self, attachment_id: UUID, principal: Principal) -> Attachment:
        """What became of a file that the principal sent; `NotFound` otherwise."""
        return attachments.attachment_of(attachment_id, principal)

    def retry_attachments(self, chosen: AttachmentQuerySet, *, asked_by: str) -> list[Attachment]:
        """Those of an operator's choice that ended badly; whoever asks hints at their jobs."""
        return attachments.retry(self.ingestor, chosen, asked_by=asked_by)

    def delete_conversation(
        self, conversation_id: str, principal: Principal, *, reason: str = "", owner: str = ""
    ) -> ConversationReceipt:
        """The principal's own, or of the `owner` whom an operator names."""
        return delete_conversation(
            conversation_id, principal, self.vectors, reason=reason, owner=owner
        )

    def propose(self, asked: ProposalRequest, principal: Principal) -> RetentionProposal:
        """Parks a proposal for an operator to decide on; ingests nothing."""
        return proposals.propose(self.ingestor, asked, principal)

    def get_proposal(self, proposal_id: UUID, principal: Principal) -> RetentionProposal:
        """A proposal of the principal's own; `NotFound` otherwise."""
        return proposals.proposal_of(proposal_id, principal)

    def approve_proposal(self, proposal_id: UUID, operator: Principal) -> RetentionProposal:
        """Raises `ProposalDecided` when it is too late; whoever approves hints at its job."""
        return proposals.approve(self.ingestor, proposal_id, operator)

    def decline_proposal(
        self, proposal_id: UUID, operator: Principal, *, reason: str
    ) -> RetentionProposal:
        """Raises `ProposalDecided` when it is too late."""
        return proposals.decline(proposal_id, operator, reason=reason)

    def search(self, query: KnowledgeQuery, principal: Principal) -> SearchResult:
        return self.searcher.search(query, principal)

    def preturn(self, query: KnowledgeQuery, principal: Principal) -> Recalled:
        """Automatic recall, where the tenant has it; see `preturn`."""
        return preturn(self.searcher, query, principal)

    def enable_preturn(self, trial: Trial, principal: Principal) -> None:
        """Raises `NoGain` when the trial shows none."""
        enable_preturn(trial, principal)

    def disable_preturn(self, principal: Principal) -> None:
        disable_preturn(principal)

    def embed(
        self,
        operator: Principal,
        *,
        on_progress: Callable[[EmbedReport], None] = lambda _report: None,
    ) -> Sequence[EmbedReport]:
        """Gives vectors to the tenant's passages that lack them; raises `NoEmbedder`."""
        operator.require_permission(OperatorPermission.MANAGE)
        return self._filler.fill(operator.tenant_id, on_progress=on_progress)

    def embed_all(self, *, seconds: float) -> Mapping[str, Sequence[EmbedReport]]:
        """The same for every tenant that lacks some, for about so long: what the workers do."""
        return self.filler.fill_all(seconds=seconds) if self.filler else {}

    def switch_model(self, operator: Principal) -> str:
        """Makes the next model the one that searches read; raises `NoEmbedder`, `VectorsMissing`."""
        operator.require_permission(OperatorPermission.MANAGE)
        return self._filler.switch(operator)

    def drop_retired_models(self, operator: Principal) -> Mapping[str, int]:
        """Deletes the vectors of models that were switched away from."""
        operator.require_permission(OperatorPermission.MANAGE)
        return self._filler.drop_retired()

    @property
    def _filler(self) -> VectorFiller:
        if self.filler is None:
            raise NoEmbedder
        return self.filler

    def enable_arm(self, trial: ArmTrial, operator: Principal) -> None:
        """Raises `NoLift` when the trial shows none; see `enable_arm`."""
        enable_arm(trial, operator, self.filler)

    def disable_arm(self, arm: str, operator: Principal) -> None:
        disable_arm(arm, operator)

    def search_as(
        self,
        query: KnowledgeQuery,
        viewpoint: Viewpoint,
        operator: Principal,
        searcher: Searcher | None = None,
    ) -> SearchResult:
        """What a principal would find, for an operator; by another way of searching, when given."""
        return search_as(searcher or self.searcher, query, viewpoint, operator)

    def create_golden_set(self, name: str, viewpoint: Viewpoint, operator: Principal) -> GoldenSet:
        return golden.create_set(name, viewpoint, operator)

    def keep_golden_question(
        self, set_id: UUID, asked: GoldenAsked, operator: Principal
    ) -> GoldenQuestion:
        """A question with its right passages; see `keep_question`."""
        return golden.keep_question(set_id, asked, operator)

    def remove_golden_question(self, question_id: int, operator: Principal) -> UUID:
        return golden.remove_question(question_id, operator)

    def remove_golden_set(self, set_id: UUID, operator: Principal) -> None:
        golden.remove_set(set_id, operator)

    def begin_golden_run(self, set_id: UUID, operator: Principal) -> GoldenRun:
        """A run for later; whoever begins one hints at it through the broker."""
        return golden.begin_run(set_id, operator)

    def run_golden_set(self, run_id: int) -> None:
        """Asks the questions of a run that have not been asked; safe to do twice."""
        golden.run(self.searcher, run_id)

    def assemble(
        self,
        query: KnowledgeQuery,
        principal: Principal,
        *,
        tokens_left: int,
        recall: Sequence[RecallItem],
    ) -> Assembly:
        return assemble(self.searcher, query, principal, tokens_left=tokens_left, recall=recall)

    def check_provenance(self, provenance: Sequence[Provenance], principal: Principal) -> None:
        """Raises `BeliefFromDocument` when any of it is a document or a part of one."""
        check_provenance(provenance, principal)

    @property
    def _word_arms(self) -> list[SearchArm]:
        """What finds a quote: its words, and no other words of the same meaning."""
        return [arm for arm in self.searcher.arms if arm.name == LEXICAL]

    def verify_quotes(
        self,
        quotes: Sequence[Quote],
        principal: Principal,
        *,
        current_scope: str | None = None,
        as_of: datetime | None = None,
    ) -> list[CheckedQuote]:
        """Whether passages say what they are quoted as saying; see `verify_quotes`."""
        return verify_quotes(
            self._word_arms, quotes, principal, current_scope=current_scope, as_of=as_of
        )

    def record_answer(
        self,
        trace_id: UUID,
        principal: Principal,
        *,
        answered: bool,
        citations: Sequence[Cited] = (),
        answer_id: str = "",
    ) -> RecordedAnswer:
        """What became of an answer after a search; see `record_answer`."""
        return record_answer(
            self._word_arms,
            trace_id,
            principal,
            answer_id=answer_id,
            answered=answered,
            citations=citations,
        )

    def view_trace(
        self, trace_id: UUID, principal: Principal, *, current_scope: str | None = None
    ) -> TraceView:
        """A search's trace with the block that the model saw; see `view_trace`."""
        return view_trace(trace_id, principal, current_scope=current_scope)

    def get_chunk(
        self,
        chunk_id: str,
        principal: Principal,
        *,
        current_scope: str | None = None,
        as_of: datetime | None = None,
    ) -> Chunk:
        """A citation's passage with its version, document and source.

        As of an instant it is what the citation led to then, for whoever may see it today. Raises
        `Deleted` to whoever could have seen it before it was deleted, `NotFound` otherwise.
        """
        checked_instant(as_of)
        if not is_chunk_id(chunk_id):
            raise NotFound
        scope = resolve_scope(principal, current_scope)
        with tenant_session(principal.tenant_id):
            chunk = (
                Chunk.objects.readable(scope)
                .with_document(as_of=as_of)
                .filter(chunk_id=chunk_id)
                .first()
            )
            if chunk is None:
                raise missing_chunk(chunk_id, scope)
        return chunk

    def get_document(
        self,
        document_id: UUID,
        principal: Principal,
        *,
        current_scope: str | None = None,
        as_of: datetime | None = None,
    ) -> Document:
        """A document with its versions, newest first: those of now, or those of an instant.

        Raises `Deleted` to whoever could have seen it before it was deleted, `NotFound` otherwise.
        """
        checked_instant(as_of)
        scope = resolve_scope(principal, current_scope)
        with tenant_session(principal.tenant_id):
            document = (
                Document.objects.readable(scope)
                .with_versions(as_of)
                .filter(document_id=document_id)
                .first()
            )
            if document is None:
                raise missing_document(document_id, scope)
        if as_of is not None:
            for version in document.versions.all():
                if version.superseded_at is not None and version.superseded_at > as_of:
                    version.superseded_at = None  # that it would be, nobody knew then
        return document

    def update(
        self,
        document_id: UUID,
        principal: Principal,
        change: DocumentChange,
        *,
        current_scope: str | None = None,
    ) -> Document:
        """Retitles, rescopes, holds; returns the document with its versions. See `Updater`."""
        updater = Updater(
            titles=self.ingestor.titles,
            secret_scanner=self.ingestor.secret_scanner,
            vectors=self.vectors,
        )
        return updater.update(document_id, principal, change, current_scope=current_scope)

    def delete(
        self,
        document_id: UUID,
        principal: Principal,
        *,
        current_scope: str | None = None,
        reason: str = "",
    ) -> Deletion:
        """Removes a document for real; see `delete_document`."""
        return delete_document(
            document_id, principal, self.vectors, current_scope=current_scope, reason=reason
        )

    def get_deletion(
        self, deletion_id: UUID, principal: Principal, *, current_scope: str | None = None
    ) -> Deletion:
        """The receipt of a deletion, with what has become of the bytes; `NotFound` otherwise."""
        return deletion_of(deletion_id, principal, current_scope=current_scope)

    def verify_deletion(
        self, document_id: UUID, operator: Principal, text: Iterable[str] | None = None
    ) -> Verification:
        """Searches everything for what a deleted document owned; see `verify_deletion`."""
        return verify_deletion(document_id, operator, self.ingestor.stemmer, text)

    def verify_corpus(
        self, tenant: str | None = None, *, on_progress: OnKind = ignore_kinds
    ) -> CorpusReport:
        """Looks whether all that is stored is what was once written; see `verify_corpus`."""
        return verify_corpus(
            self.ingestor.extractors, self.vectors, tenant=tenant, on_progress=on_progress
        )

    def release_chunk(self, chunk_id: str, operator: Principal, *, reason: str) -> Chunk:
        """Lets a quarantined passage into the corpus."""
        ingestor = self.ingestor
        return release_chunk(
            chunk_id, operator, ingestor.stemmer, ingestor.embedding, reason=reason
        )

    def purge_chunk(self, chunk_id: str, operator: Principal, *, reason: str) -> None:
        """Removes a quarantined passage for good."""
        purge_chunk(chunk_id, operator, reason=reason)

    def documents_to_rechunk(
        self,
        operator: Principal,
        *,
        documents: Sequence[UUID] = (),
        extractor_version: str | None = None,
        chunker_version: str | None = None,
    ) -> list[UUID]:
        """What `rechunk` is called for, one by one; raises `NotInstalled`."""
        return rechunking.documents_to_rechunk(
            self.ingestor,
            operator,
            documents=documents,
            extractor_version=extractor_version,
            chunker_version=chunker_version,
        )

    def rechunk(
        self,
        document_id: UUID,
        operator: Principal,
        asked: RechunkRequest = RechunkRequest(),  # noqa: B008 - a frozen value
        on_progress: Callable[[IngestProgress], None] = ignore_progress,
    ) -> RechunkResult:
        """Divides a document anew from its stored source, by today's rules; see `rechunk`."""
        return rechunking.rechunk(self.ingestor, document_id, operator, asked, on_progress)

    def begin_bulk(
        self,
        action: BulkAction,
        documents: Sequence[UUID],
        operator: Principal,
        *,
        reason: str,
        change: Mapping[str, Any] | None = None,
    ) -> BulkTask:
        """One thing done to many documents in the background; whoever begins it hints at it.

        `change` of a rescope has what of `visibility`, `project_scope` and `sensitivity` is to be
        another. Raises `Forbidden`, `ReasonMissing`, `TooManyDocuments`.
        """
        return bulk.begin(action, documents, operator, reason=reason, change=change or {})

    def run_bulk(self, task_id: UUID) -> bool:
        """One turn at a bulk action. Whether there is more to do at once."""
        return bulk.run(task_id, self._do_in_bulk)

    def cancel_bulk(self, task_id: UUID, operator: Principal) -> BulkTask:
        """Begins nothing more of it; what is done stays done."""
        return bulk.cancel(task_id, operator)

    def _do_in_bulk(self, task: BulkTask, document_id: UUID, operator: Principal) -> BulkOutcome:
        reason = task.change["reason"]
        match BulkAction(task.action):
            case BulkAction.DELETE:
                self.delete(document_id, operator, reason=reason)
            case BulkAction.RECHUNK:
                return _rechunked(self.rechunk(document_id, operator))
            case BulkAction.HOLD:
                self.update(document_id, operator, DocumentChange(legal_hold=True, reason=reason))
            case BulkAction.LIFT_HOLD:
                self.update(document_id, operator, DocumentChange(legal_hold=False, reason=reason))
            case BulkAction.RESCOPE:
                change = DocumentChange.of_scope(task.change, reason=reason)
                self.update(document_id, operator, change)
        return BulkOutcome.DONE

    def set_pii_policy(self, rules: PiiRules, principal: Principal) -> PiiPolicy:
        """What the tenant does about personal data from now on; see `set_pii_policy`."""
        return set_pii_policy(rules, principal)

    def export_corpus(
        self,
        destination: Path,
        *,
        actor: str,
        tenant_id: str | None = None,
        traces: bool = False,
        tar: bool = False,
        on_progress: OnProgress = untold,
    ) -> Exported:
        """Writes a tenant's corpus, or all of them, to a folder or a tar; see `export_corpus`."""
        return export_corpus(
            destination,
            tenant_id=tenant_id,
            traces=traces,
            tar=tar,
            actor=actor,
            on_progress=on_progress,
        )

    def import_corpus(
        self,
        source: Path,
        *,
        actor: str,
        dry_run: bool = False,
        on_progress: OnProgress = untold,
    ) -> Imported:
        """Takes in what `export_corpus` wrote, or refuses and changes nothing; see `import_corpus`.

        Vectors are not in an archive: `without_vector` says how many are to be made.
        """
        done = import_corpus(
            source, self.ingestor.stemmer, dry_run=dry_run, actor=actor, on_progress=on_progress
        )
        if self.filler is None or dry_run:
            return done
        missing = {tenant: self.filler.missing(tenant) for tenant in done.tenants}
        return replace(done, without_vector=missing)


def _rechunked(result: RechunkResult) -> BulkOutcome:
    if result.outcome is RechunkOutcome.UNFINISHED:
        raise EmbedderUnavailable("The embedder failed on the way.")
    unchanged = result.outcome is RechunkOutcome.UNCHANGED
    return BulkOutcome.UNCHANGED if unchanged else BulkOutcome.DONE
