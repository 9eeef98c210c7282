"""One thing done to many documents: whole, once, counted, stoppable, and survived by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models.functions import Now

from access.errors import Forbidden, NotFound, Unavailable
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import Sensitivity
from knowledge import tasks
from knowledge.core.errors import ReasonMissing, TooManyDocuments
from knowledge.core.types import BulkAction, BulkOutcome, BulkState, Visibility
from knowledge.lifecycle import bulk
from knowledge.models import BulkItem, BulkTask, ChunkSet, Document, KnowledgeEvent
from knowledge.wiring import store
from tests.factories import make_document
from tests.rechunk_fakes import later
from tests.support import admit, ask, principal, work_in_bulk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

OLGA = Principal.for_operator("acme", "olga")


def begin(action: BulkAction, documents: Sequence[Any], **change: str) -> BulkTask:
    ids = [getattr(one, "pk", one) for one in documents]
    return store().begin_bulk(action, ids, OLGA, reason="asked by legal", change=change)


def after(task: BulkTask) -> BulkTask:
    with operations_session():
        return BulkTask.objects.get(pk=task.pk)


def outcomes(task: BulkTask) -> list[tuple[str, str]]:
    with operations_session():
        items = BulkItem.objects.filter(task=task).order_by("position")
        return list(items.values_list("outcome", "code"))


def events(name: str) -> list[KnowledgeEvent]:
    with operations_session():
        return list(KnowledgeEvent.objects.filter(name=name).order_by("pk"))


def test_each_document_is_done_in_the_operators_name_and_has_an_outcome() -> None:
    going = [make_document("acme", f"Going {number}") for number in range(3)]
    held = make_document("acme", "Held", legal_hold=True)
    foreign = make_document("globex")
    task = begin(BulkAction.DELETE, [*going, held, foreign, uuid4(), going[0]])
    assert (task.state, task.total) == (BulkState.QUEUED, 6)
    work_in_bulk()
    ended = after(task)
    assert ended.state == BulkState.DONE
    assert (ended.done, ended.refused, ended.failed, ended.settled) == (3, 3, 0, 6)
    assert outcomes(task) == [
        *[("done", "")] * 3,
        ("refused", "legal_hold"),
        ("refused", "not_found"),
        ("refused", "not_found"),
    ]
    with operations_session():
        assert set(Document.objects.values_list("pk", flat=True)) == {held.pk, foreign.pk}
    deleted = events(KnowledgeEvent.DELETED)
    assert {(event.actor, event.data["reason"]) for event in deleted} == {
        ("operator:olga", "asked by legal")
    }
    # What a refusal leaves is left by this one too.
    assert len(events(KnowledgeEvent.DELETE_REFUSED)) == 1
    (begun,) = events(KnowledgeEvent.BULK_BEGUN)
    assert (begun.data["documents"], begun.data["action"]) == (6, "delete")


def test_rescope_hold_and_lifting_reach_the_store() -> None:
    first = admit("# Pumps\n\nThe pump runs.\n", title="One")
    second = admit("# Valves\n\nThe valve shuts.\n", title="Two")
    both = [first.document_id, second.document_id]
    begin(BulkAction.RESCOPE, both, visibility="project", project_scope="apollo")
    begin(BulkAction.RESCOPE, both, sensitivity="restricted")
    begin(BulkAction.HOLD, both)
    work_in_bulk()
    with operations_session():
        for document in Document.objects.select_related("space"):
            assert document.legal_hold
            assert document.space.visibility == Visibility.PROJECT
            assert document.space.project_scope == "apollo"
            assert document.space.sensitivity == Sensitivity.RESTRICTED
    assert not ask("pump").passages
    assert ask("pump", current_scope="apollo").passages
    lifted = begin(BulkAction.LIFT_HOLD, both)
    wrong = begin(BulkAction.RESCOPE, both, visibility="tenant", project_scope="apollo")
    work_in_bulk()
    assert outcomes(lifted) == [("done", "")] * 2
    assert outcomes(wrong) == [("refused", "malformed")] * 2


def test_dividing_anew_is_done_once() -> None:
    found = admit("# Pumps\n\nThe pump runs.\n")
    task = begin(BulkAction.RECHUNK, [found.document_id])
    work_in_bulk()
    assert outcomes(task) == [("unchanged", "")]
    newer = later()
    task = begin(BulkAction.RECHUNK, [found.document_id])
    assert not newer.run_bulk(task.task_id)
    assert outcomes(task) == [("done", "")]
    with operations_session():
        assert ChunkSet.objects.count() == 2
    assert after(task).unchanged == 0


def test_only_an_operator_begins_or_stops_one_and_says_why() -> None:
    with pytest.raises(Forbidden):
        store().begin_bulk(BulkAction.DELETE, [uuid4()], principal(), reason="x")
    with pytest.raises(ReasonMissing):
        store().begin_bulk(BulkAction.DELETE, [uuid4()], OLGA, reason=" ")
    for documents in ([], [uuid4() for _ in range(bulk.MOST_DOCUMENTS + 1)]):
        with pytest.raises(TooManyDocuments):
            store().begin_bulk(BulkAction.DELETE, documents, OLGA, reason="x")
    task = begin(BulkAction.HOLD, [make_document("acme")])
    with pytest.raises(Forbidden):
        store().cancel_bulk(task.task_id, principal())
    with pytest.raises(NotFound):
        store().cancel_bulk(task.task_id, Principal.for_operator("globex", "zed"))
    with pytest.raises(NotFound):
        store().cancel_bulk(uuid4(), OLGA)
    assert after(task).cancelled_at is None


def test_stopping_ends_it_between_two_documents() -> None:
    documents = [make_document("acme", f"Number {number}") for number in range(5)]
    task = begin(BulkAction.DELETE, documents)
    seen: list[UUID] = []

    def act(of: BulkTask, document_id: UUID, operator: Principal) -> BulkOutcome:
        seen.append(document_id)
        if len(seen) == 2:
            store().cancel_bulk(of.task_id, OLGA)
        return BulkOutcome.DONE

    assert not bulk.run(task.task_id, act)
    ended = after(task)
    assert (ended.state, ended.done, len(seen)) == (BulkState.CANCELLED, 2, 2)
    assert outcomes(task)[2:] == [("", "")] * 3
    assert len(events(KnowledgeEvent.BULK_CANCELLED)) == 1
    # Twice changes nothing, and one that nobody works on ends at once.
    store().cancel_bulk(task.task_id, OLGA)
    assert len(events(KnowledgeEvent.BULK_CANCELLED)) == 1
    waiting = begin(BulkAction.HOLD, documents)
    assert store().cancel_bulk(waiting.task_id, OLGA).state == BulkState.CANCELLED
    assert work_in_bulk() == 0


class Killed(BaseException):
    """The process ends here."""


def expire_lease(task: BulkTask) -> None:
    with operations_session():
        BulkTask.objects.filter(pk=task.pk).update(lease_until=Now())


def test_a_killed_worker_leaves_a_task_that_another_finishes() -> None:
    documents = [make_document("acme", f"Number {number}") for number in range(4)]
    task = begin(BulkAction.HOLD, documents)
    done: list[UUID] = []

    def dies_within_the_second(of: BulkTask, document: UUID, operator: Principal) -> BulkOutcome:
        store()._do_in_bulk(of, document, operator)
        if len(done) == 1:
            raise Killed
        done.append(document)
        return BulkOutcome.DONE

    with pytest.raises(Killed):
        bulk.run(task.task_id, dies_within_the_second)
    assert after(task).state == BulkState.RUNNING
    assert [outcome for outcome, _ in outcomes(task)] == ["done", "", "", ""]
    with operations_session():
        # What was cut off is as if it had not begun.
        assert Document.objects.filter(legal_hold=True).count() == 1
    assert tasks.reconcile_bulk_tasks() == 0, "it may be alive"
    assert not store().run_bulk(task.task_id), "and nobody else takes it"
    expire_lease(task)
    with operations_session():
        BulkTask.objects.update(hinted_at=None)
    assert tasks.reconcile_bulk_tasks() == 1
    assert tasks.reconcile_bulk_tasks() == 0, "hinted at just now"
    work_in_bulk()
    assert after(task).done == 4
    assert len(events(KnowledgeEvent.HELD)) == 4


def test_a_document_that_kills_its_worker_is_given_up_and_the_rest_done() -> None:
    documents = [make_document("acme", f"Number {number}") for number in range(3)]
    task = begin(BulkAction.HOLD, documents)

    def dies_of_the_second(of: BulkTask, document: UUID, operator: Principal) -> BulkOutcome:
        if document == documents[1].pk:
            raise Killed
        return BulkOutcome.DONE

    for _ in range(3):
        with pytest.raises(Killed):
            bulk.run(task.task_id, dies_of_the_second)
        expire_lease(task)
    assert not bulk.run(task.task_id, dies_of_the_second)
    assert outcomes(task) == [("done", ""), ("failed", "attempts_exhausted"), ("done", "")]


def test_what_passes_is_tried_again_and_what_does_not_is_recorded() -> None:
    documents = [make_document("acme", f"Number {number}") for number in range(3)]
    task = begin(BulkAction.HOLD, documents)
    tries: list[UUID] = []

    def act(of: BulkTask, document: UUID, operator: Principal) -> BulkOutcome:
        tries.append(document)
        if document == documents[0].pk and len(tries) < 3:
            raise Unavailable
        if document == documents[1].pk:
            raise Unavailable
        if document == documents[2].pk:
            raise ZeroDivisionError
        return BulkOutcome.UNCHANGED

    for _ in range(20):
        bulk.run(task.task_id, act)
        with operations_session():
            BulkTask.objects.filter(state=BulkState.QUEUED).update(next_turn_at=Now())
    assert after(task).state == BulkState.DONE
    assert outcomes(task) == [("unchanged", ""), ("failed", "unavailable"), ("failed", "internal")]
    assert len(tries) == 3 + 3 + 1


def test_a_long_task_lets_others_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_TURN_SECONDS", 0.0)
    task = begin(BulkAction.HOLD, [make_document("acme")])
    assert store().run_bulk(task.task_id), "there is more to do"
    assert after(task).state == BulkState.QUEUED
    monkeypatch.setattr(bulk, "_TURN_SECONDS", 9.0)
    tasks.run_bulk_task(str(task.task_id))
    assert after(task).state == BulkState.DONE
    with tenant_session("acme"):
        BulkTask.objects.update(finished_at=Now() - bulk.KEPT - bulk.LEASE)
    tasks.reconcile_bulk_tasks()
    with operations_session():
        assert not BulkTask.objects.exists()
        assert not BulkItem.objects.exists()
