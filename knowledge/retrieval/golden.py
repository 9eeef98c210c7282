"""Golden sets: questions with their right passages, asked through the real search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

from access.errors import Malformed, NotFound, VerbatimError
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, Sensitivity
from knowledge.adapters import database
from knowledge.core.errors import GoldenRunning, GoldenSetExists, QuoteElsewhere
from knowledge.core.golden import Figures, Judged, figures, judge
from knowledge.core.query import form_query
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.core.types import (
    GOLDEN_SURFACE,
    AnswerState,
    GoldenOutcome,
    GoldenRunState,
    KnowledgeQuery,
    SearchResult,
)
from knowledge.models import (
    Chunk,
    GoldenAnswer,
    GoldenQuestion,
    GoldenResult,
    GoldenRun,
    GoldenSet,
    KnowledgeEvent,
)
from knowledge.models.golden import NAME_LIMIT
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.search import Searcher

MOST_QUESTIONS: Final = 1_000
MOST_ANSWERS: Final = 20
_FORSAKEN: Final = timedelta(minutes=1)
_HINTS_AT_ONCE: Final = 50
_UNFINISHED: Final = (str(GoldenRunState.QUEUED), str(GoldenRunState.RUNNING))


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenAsked:
    """A question to keep. `answers` are chunk ids, each with the words that answer in it; no
    words mean the whole passage."""

    text: str
    answers: Mapping[str, str]
    objective: str | None = None
    entities: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def squeezed(text: str) -> str:
    """Words compare without their white space, as evaluation compares them."""
    return "".join(text.split())


# --- what an operator does with them ----------------------------------------------------------


def create_set(name: str, viewpoint: Viewpoint, operator: Principal) -> GoldenSet:
    """An empty set; raises `GoldenSetExists` when the tenant has one of that name."""
    operator.require_permission(OperatorPermission.MANAGE)
    name = " ".join(name.split())
    if not 0 < len(name) <= NAME_LIMIT or not viewpoint.principal_id:
        raise Malformed("A golden set has a name and a principal.")
    with tenant_session(operator.tenant_id):
        try:
            with transaction.atomic():
                made = GoldenSet.objects.create(
                    tenant_id=operator.tenant_id,
                    name=name,
                    principal_id=viewpoint.principal_id,
                    current_scope=viewpoint.current_scope,
                    sensitivity_ceiling=viewpoint.sensitivity_ceiling,
                    created_by=operator.principal_id,
                    created_at=database.now(),
                )
        except IntegrityError as taken:
            raise GoldenSetExists from taken
        _record(KnowledgeEvent.GOLDEN_SET_CHANGED, made.pk, operator, what="created")
    return made


def keep_question(set_id: UUID, asked: GoldenAsked, operator: Principal) -> GoldenQuestion:
    """Adds a question with its right passages.

    Raises `NotFound` for a set or a passage that is not there, `QuoteElsewhere` when a passage
    does not hold the words it is said to, `InvalidQuery`.
    """
    operator.require_permission(OperatorPermission.MANAGE)
    form_query(
        KnowledgeQuery(
            text=asked.text,
            objective=asked.objective,
            entities=asked.entities,
            aliases=asked.aliases,
        )
    )
    if not asked.text.strip() or not 1 <= len(asked.answers) <= MOST_ANSWERS:
        raise Malformed(f"A golden question has words, and 1 to {MOST_ANSWERS} right passages.")
    with tenant_session(operator.tenant_id):
        chosen = _set_of(set_id)
        if chosen.questions.count() >= MOST_QUESTIONS:
            raise Malformed(f"A golden set has at most {MOST_QUESTIONS} questions.")
        at = database.now()
        question = GoldenQuestion.objects.create(
            tenant_id=operator.tenant_id,
            golden_set=chosen,
            text=asked.text,
            objective=asked.objective or "",
            entities=list(asked.entities),
            aliases={name: list(words) for name, words in asked.aliases.items()},
            created_by=operator.principal_id,
            created_at=at,
        )
        GoldenAnswer.objects.bulk_create(_answers(question, asked, operator))
        told = {"what": "question_added", "question_id": question.pk}
        _record(KnowledgeEvent.GOLDEN_SET_CHANGED, set_id, operator, **told)
    return question


def remove_question(question_id: int, operator: Principal) -> UUID:
    """Takes a question away, with what it came to in every run. Returns the set's id."""
    operator.require_permission(OperatorPermission.MANAGE)
    with tenant_session(operator.tenant_id):
        question = GoldenQuestion.objects.filter(pk=question_id).first()
        if question is None:
            raise NotFound
        set_id: UUID = question.golden_set_id
        question.delete()
        told = {"what": "question_removed", "question_id": question_id}
        _record(KnowledgeEvent.GOLDEN_SET_CHANGED, set_id, operator, **told)
    return set_id


def remove_set(set_id: UUID, operator: Principal) -> None:
    """Takes a set away with its questions and runs; the traces of those stay as long as any."""
    operator.require_permission(OperatorPermission.MANAGE)
    with tenant_session(operator.tenant_id):
        _set_of(set_id).delete()
        _record(KnowledgeEvent.GOLDEN_SET_REMOVED, set_id, operator)


def begin_run(set_id: UUID, operator: Principal) -> GoldenRun:
    """A run for later; whoever begins one hints at it. Raises `GoldenRunning` for a second one."""
    operator.require_permission(OperatorPermission.MANAGE)
    with tenant_session(operator.tenant_id):
        chosen = _set_of(set_id)
        total = chosen.questions.count()
        if not total:
            raise Malformed("This golden set has no question yet.")
        at = database.now()
        try:
            with transaction.atomic():
                run = GoldenRun.objects.create(
                    tenant_id=operator.tenant_id,
                    golden_set=chosen,
                    requested_by=operator.principal_id,
                    created_at=at,
                    touched_at=at,
                    total=total,
                )
        except IntegrityError as already:
            raise GoldenRunning from already
        _record(KnowledgeEvent.GOLDEN_SET_RUN, set_id, operator, run_id=run.pk)
    return run


def _set_of(set_id: UUID) -> GoldenSet:
    found = GoldenSet.objects.filter(pk=set_id).first()
    if found is None:
        raise NotFound
    return found


def _answers(
    question: GoldenQuestion, asked: GoldenAsked, operator: Principal
) -> Iterable[GoldenAnswer]:
    readable = Chunk.objects.readable(resolve_scope(operator, None)).filter(
        chunk_id__in=asked.answers
    )
    # A deletion waits until the words are written, and takes them then; or it came before.
    database.hold_against_deletion(
        readable.order_by().values_list("chunk_set__version__document", flat=True)
    )
    chunks = {
        chunk.chunk_id: chunk
        for chunk in readable.select_related("chunk_set__version").only(
            "chunk_id", "text", "content_sha256", "chunk_set__version__document_id"
        )
    }
    for chunk_id, words in asked.answers.items():
        chunk = chunks.get(chunk_id)
        if chunk is None:
            raise NotFound
        if squeezed(words) not in squeezed(chunk.text):
            raise QuoteElsewhere
        yield GoldenAnswer(
            question=question,
            tenant_id=operator.tenant_id,
            document_id=chunk.chunk_set.finalized_version.document_id,
            chunk_id=chunk_id,
            content_sha256=chunk.content_sha256,
            quote=words.strip() or chunk.text,
        )


def _record(name: str, set_id: UUID, operator: Principal, **data: Any) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=operator.tenant_id,
        name=name,
        actor=operator.principal_id,
        surface=operator.surface,
        data={"golden_set_id": str(set_id), **data},
    )


# --- asking them ------------------------------------------------------------------------------


def run(searcher: Searcher, run_id: int) -> None:
    """Asks what has not been asked yet, and finishes the run. Safe to do twice, and at once.

    Every question is a transaction of its own, so that a kill loses one question and the next
    attempt goes on from there.
    """
    with operations_session():
        GoldenRun.objects.filter(pk=run_id, state__in=_UNFINISHED).update(
            state=GoldenRunState.RUNNING, policy=searcher.policy.version
        )
        begun = (
            GoldenRun.objects.select_related("golden_set")
            .filter(pk=run_id, state=GoldenRunState.RUNNING)
            .first()
        )
        if begun is None:
            return
        left = list(
            begun.golden_set.questions.exclude(results__run=begun)
            .order_by("pk")
            .prefetch_related("answers")
        )
    viewpoint = Viewpoint(
        principal_id=begun.golden_set.principal_id,
        current_scope=begun.golden_set.current_scope,
        sensitivity_ceiling=Sensitivity(begun.golden_set.sensitivity_ceiling),
    )
    as_whom = viewpoint.principal(
        begun.tenant_id, surface=GOLDEN_SURFACE, acting_operator=begun.requested_by
    )
    try:
        for question in left:
            if not _ask(searcher, begun, question, as_whom, viewpoint.current_scope):
                return
    except VerbatimError as refused:
        _finish(begun, state=GoldenRunState.FAILED, problem=refused.code)
        return
    _finish(begun, state=GoldenRunState.DONE)


def forsaken_runs() -> list[int]:
    """Runs that nobody has worked on for a while: their hint was lost, or their worker is gone."""
    with operations_session():
        return list(
            GoldenRun.objects.filter(state__in=_UNFINISHED, touched_at__lt=Now() - _FORSAKEN)
            .order_by("pk")
            .values_list("pk", flat=True)[:_HINTS_AT_ONCE]
        )


def _ask(
    searcher: Searcher,
    begun: GoldenRun,
    question: GoldenQuestion,
    as_whom: Principal,
    current_scope: str | None,
) -> bool:
    """One question; false when the run or the question has gone meanwhile."""
    with tenant_session(begun.tenant_id):
        if not GoldenRun.objects.filter(pk=begun.pk, state=GoldenRunState.RUNNING).exists():
            return False
        right, documents = placed(
            list(question.answers.all()), resolve_scope(as_whom, current_scope)
        )
        result = None
        if right:
            result = searcher.search(_query(question, current_scope), as_whom)
        judged = _judged(result, right, documents)
        try:
            with transaction.atomic():
                _, new = GoldenResult.objects.get_or_create(
                    run=begun,
                    question=question,
                    defaults={
                        "tenant_id": begun.tenant_id,
                        "outcome": judged.outcome,
                        "rank": judged.rank,
                        "returned": judged.returned,
                        "noise": judged.noise,
                        "trace_id": result.trace_id if result else None,
                    },
                )
        except IntegrityError:  # the question was removed while it was asked
            return GoldenRun.objects.filter(pk=begun.pk).exists()
        GoldenRun.objects.filter(pk=begun.pk).update(
            asked=F("asked") + int(new), touched_at=database.now()
        )
    return True


def _query(question: GoldenQuestion, current_scope: str | None) -> KnowledgeQuery:
    return KnowledgeQuery(
        text=question.text,
        current_scope=current_scope,
        objective=question.objective or None,
        entities=tuple(question.entities),
        aliases={name: tuple(words) for name, words in question.aliases.items()},
    )


def _judged(
    result: SearchResult | None, right: frozenset[str], documents: frozenset[UUID]
) -> Judged:
    if result is None:
        return Judged(outcome=GoldenOutcome.STALE)
    ranked = [(-one.score, one.candidate.chunk_id) for one in result.passages]
    ranked += [(-left.score, left.chunk_id) for left in result.omitted]
    return judge(
        [(one.candidate.chunk_id, one.candidate.document_id) for one in result.passages],
        [chunk_id for _, chunk_id in sorted(ranked)],
        right,
        documents,
    )


def placed(
    answers: Sequence[GoldenAnswer], scope: ReadScope
) -> tuple[frozenset[str], frozenset[UUID]]:
    """The passages that answer today and their documents; each answer's row learns its state."""
    findable = Chunk.objects.searchable(scope)
    right: set[str] = set()
    documents: set[UUID] = set()
    for answer in answers:
        if answer.deleted_at is not None:
            continue
        of_document = findable.filter(chunk_set__version__document=answer.document_id)
        state, found = AnswerState.CURRENT, [answer.chunk_id]
        if not of_document.filter(chunk_id=answer.chunk_id).exists():
            found = _moved(answer, of_document)
            state = AnswerState.MOVED
            if not found:
                live = Chunk.objects.filter(
                    chunk_id=answer.chunk_id,
                    chunk_set__state="live",
                    chunk_set__version__superseded_at__isnull=True,
                )
                state = AnswerState.HIDDEN if live.exists() else AnswerState.SUPERSEDED
        GoldenAnswer.objects.filter(pk=answer.pk, deleted_at__isnull=True).update(
            state=state, found_in=found
        )
        if found:
            right.update(found)
            documents.add(answer.document_id)
    return frozenset(right), frozenset(documents)


def _moved(answer: GoldenAnswer, of_document: Any) -> list[str]:
    """Passages of the document as it is now that hold the words; by hash first, which is cheap."""
    same = list(
        of_document.filter(content_sha256=answer.content_sha256).values_list("chunk_id", flat=True)
    )
    if same:
        return same
    words = squeezed(answer.quote)
    texts = of_document.values_list("chunk_id", "text").iterator(chunk_size=500)
    return [chunk_id for chunk_id, text in texts if words in squeezed(text)] if words else []


def _finish(begun: GoldenRun, *, state: GoldenRunState, problem: str = "") -> None:
    with tenant_session(begun.tenant_id):
        results = GoldenResult.objects.filter(run=begun)
        told = _figures(results.values_list("outcome", "rank", "returned", "noise"))
        GoldenRun.objects.filter(pk=begun.pk, state=GoldenRunState.RUNNING).update(
            state=state,
            problem=problem,
            asked=told.asked,
            stale=told.stale,
            found=told.found,
            recall_at_3=told.recall,
            noise_at_3=told.noise,
            mrr_at_10=told.mrr,
            finished_at=database.now(),
            touched_at=database.now(),
        )


def _figures(rows: Iterable[tuple[str, int | None, int, int]]) -> Figures:
    return figures(
        [
            Judged(outcome=GoldenOutcome(outcome), rank=rank, returned=returned, noise=noise)
            for outcome, rank, returned, noise in rows
        ]
    )
