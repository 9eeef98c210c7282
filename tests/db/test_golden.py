"""Golden sets on a real database: asked as somebody, kept through versions, honest when stale."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from access.errors import Forbidden, Malformed, NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, Sensitivity
from knowledge.core.errors import GoldenRunning, GoldenSetExists, QuoteElsewhere
from knowledge.core.types import NOT_USE, AnswerState, KnowledgeQuery, Visibility
from knowledge.evaluation.collections import Collection
from knowledge.evaluation.harness import Evaluator
from knowledge.models import (
    GoldenAnswer,
    GoldenQuestion,
    GoldenResult,
    GoldenRun,
    GoldenSet,
    KnowledgeEvent,
    RecallTrace,
)
from knowledge.retrieval import golden as retrieval
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.golden import GoldenAsked
from knowledge.wiring import store
from tests.support import admit, ask, principal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

OLGA = Principal.for_operator("acme", "olga")
QUOKKA = "# Runbook\n\nThe quokka drains the node before anything else is done.\n"
LEMUR = "# Lunch\n\nThe lemur serves soup on Fridays in the canteen downstairs.\n"


def viewpoint(who: str = "bob", **given: Any) -> Viewpoint:
    values = {"current_scope": None, "sensitivity_ceiling": Sensitivity.INTERNAL}
    return Viewpoint(principal_id=who, **{**values, **given})


def make_set(name: str = "Runbooks", who: str = "bob", **given: Any) -> UUID:
    return store().create_golden_set(name, viewpoint(who, **given), OLGA).pk


def keep(set_id: UUID, text: str, *chunk_ids: str, quote: str = "", **given: Any) -> GoldenQuestion:
    answers = dict.fromkeys(chunk_ids, quote)
    return store().keep_golden_question(
        set_id, GoldenAsked(text=text, answers=answers, **given), OLGA
    )


def run(set_id: UUID) -> GoldenRun:
    begun = store().begin_golden_run(set_id, OLGA)
    store().run_golden_set(begun.pk)
    with tenant_session("acme"):
        return GoldenRun.objects.get(pk=begun.pk)


def state_of(question: GoldenQuestion) -> tuple[str, str | None]:
    """The state of its one answer, and the passage where the words are today."""
    with tenant_session("acme"):
        answer = GoldenAnswer.objects.get(question=question)
    return answer.state, answer.found_in[0] if answer.found_in else None


def test_a_run_asks_the_real_search_and_tells_recall_noise_and_rank() -> None:
    quokka, lemur = admit(QUOKKA).chunk_ids[0], admit(LEMUR, title="Lunch").chunk_ids[0]
    set_id = make_set()
    found = keep(set_id, "What does the quokka drain?", quokka)
    missed = keep(set_id, "What does the quokka do?", lemur)
    told = run(set_id)
    assert (told.state, told.total, told.asked, told.found, told.stale) == ("done", 2, 2, 1, 0)
    assert told.recall_at_3 == 0.5
    assert told.noise_at_3 == 0.5
    assert told.mrr_at_10 is not None
    assert 0.5 <= told.mrr_at_10 < 1
    assert told.policy == store().searcher.policy.version
    with tenant_session("acme"):
        results = {r.question_id: r for r in GoldenResult.objects.filter(run=told)}
        assert (results[found.pk].outcome, results[found.pk].rank) == ("found", 1)
        assert results[missed.pk].outcome == "missed"
        trace = RecallTrace.objects.get(pk=str(results[found.pk].trace_id))
    assert (trace.principal_id, trace.surface) == ("bob", "golden")
    assert trace.acting_operator == "operator:olga"
    assert trace.surface in NOT_USE, "figures of use leave it out"


def test_it_is_asked_through_the_eyes_of_its_principal() -> None:
    admitted = admit(QUOKKA, visibility=Visibility.PROJECT)
    question = "What does the quokka drain?"
    blind, seeing = make_set("Without"), make_set("With", current_scope="apollo")
    hidden = keep(blind, question, admitted.chunk_ids[0])
    keep(seeing, question, admitted.chunk_ids[0])
    told = run(blind)
    assert (told.recall_at_3, told.stale) == (None, 1)
    assert state_of(hidden)[0] == AnswerState.HIDDEN
    assert run(seeing).recall_at_3 == 1.0
    secret = admit("# Vault\n\nThe okapi opens the vault.\n", sensitivity=Sensitivity.RESTRICTED)
    keep(seeing, "Who opens the vault?", secret.chunk_ids[0])
    assert run(seeing).stale == 1


def test_a_superseded_passage_is_found_where_its_words_are_now() -> None:
    first = admit(QUOKKA)
    set_id = make_set()
    whole = keep(set_id, "What does the quokka drain?", first.chunk_ids[0])
    words = keep(set_id, "Who drains it?", first.chunk_ids[0], quote="quokka drains\nthe  node")
    assert run(set_id).recall_at_3 == 1.0
    assert state_of(whole) == (AnswerState.CURRENT, first.chunk_ids[0])
    changed = QUOKKA.replace("anything else", "everything else")
    second = admit(changed, document_id=first.document_id)
    assert second.chunk_ids[0] != first.chunk_ids[0]
    told = run(set_id)
    assert (told.asked, told.stale, told.found) == (2, 1, 1)
    assert state_of(whole) == (AnswerState.SUPERSEDED, None)
    assert state_of(words) == (AnswerState.MOVED, second.chunk_ids[0])
    admit(QUOKKA, document_id=first.document_id)
    assert run(set_id).stale == 0, "words that come back are found again"


def test_deleting_the_document_takes_the_words_and_leaves_the_question_stale() -> None:
    admitted = admit(QUOKKA)
    set_id = make_set()
    kept = keep(set_id, "What is drained first?", admitted.chunk_ids[0])
    run(set_id)
    receipt = store().delete(admitted.document_id, principal())
    assert receipt.left["golden_answers"] == 0, "the deletion itself looks for the words"
    verified = store().verify_deletion(admitted.document_id, OLGA, QUOKKA.splitlines())
    assert verified.left == ()
    assert "a scrubbed golden answer" in {place.why for place in verified.kept}
    with tenant_session("acme"):
        answer = GoldenAnswer.objects.get(question=kept)
        assert "quokka" not in str(GoldenAnswer.objects.values().get())
    assert (answer.state, answer.quote, answer.chunk_id) == (
        AnswerState.DELETED,
        "",
        admitted.chunk_ids[0],
    )
    assert answer.content_sha256
    again = admit(QUOKKA)
    assert again.chunk_ids == admitted.chunk_ids
    told = run(set_id)
    assert (told.asked, told.stale, told.recall_at_3) == (1, 1, None)
    assert state_of(kept)[0] == AnswerState.DELETED, "for good, as a trace says it"


def test_context_is_asked_too() -> None:
    admitted = admit(QUOKKA)
    set_id = make_set()
    keep(
        set_id,
        "How is FG restarted?",
        admitted.chunk_ids[0],
        entities=("FG",),
        aliases={"FG": ("quokka",)},
        objective="drain the node",
    )
    assert run(set_id).asked == 1
    with tenant_session("acme"):
        trace = RecallTrace.objects.get()
    assert trace.asked is not None
    assert (trace.asked["aliases"], trace.asked["objective"]) == (
        {"FG": ["quokka"]},
        "drain the node",
    )


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({}, Malformed),
        ({"kc_0000000000000000": ""}, NotFound),
        ({"own": "words that are not there"}, QuoteElsewhere),
        ({f"kc_{number:016}": "" for number in range(21)}, Malformed),
    ],
)
def test_what_no_passage_answers_is_not_kept(
    answers: dict[str, str], error: type[Exception]
) -> None:
    own = admit(QUOKKA).chunk_ids[0]
    set_id = make_set()
    named = {own if name == "own" else name: words for name, words in answers.items()}
    with pytest.raises(error):
        store().keep_golden_question(set_id, GoldenAsked(text="Which?", answers=named), OLGA)
    with operations_session():
        assert not GoldenQuestion.objects.exists()


def test_another_tenants_passages_and_sets_are_not_there() -> None:
    foreign = admit(QUOKKA, by=principal(tenant="globex")).chunk_ids[0]
    set_id = make_set()
    with pytest.raises(NotFound):
        keep(set_id, "Which?", foreign)
    mallory = Principal.for_operator("globex", "mallory")
    for attempt in (
        lambda: store().begin_golden_run(set_id, mallory),
        lambda: store().remove_golden_set(set_id, mallory),
        lambda: store().begin_golden_run(uuid4(), OLGA),
    ):
        with pytest.raises(NotFound):
            attempt()


def test_a_viewer_changes_no_set_and_an_agent_none_either() -> None:
    set_id = make_set()
    viewer = Principal.for_operator("acme", "vi", frozenset({OperatorPermission.VIEW}))
    for who in (viewer, principal()):
        for attempt in (
            lambda who=who: store().create_golden_set("Other", viewpoint(), who),
            lambda who=who: store().begin_golden_run(set_id, who),
            lambda who=who: store().remove_golden_set(set_id, who),
            lambda who=who: store().keep_golden_question(
                set_id, GoldenAsked(text="?", answers={}), who
            ),
        ):
            with pytest.raises(Forbidden):
                attempt()


def test_names_are_one_a_tenant_and_runs_one_at_a_time() -> None:
    admitted = admit(QUOKKA)
    set_id = make_set()
    with pytest.raises(GoldenSetExists):
        make_set(" Runbooks ")
    with pytest.raises(Malformed):
        store().begin_golden_run(set_id, OLGA)
    keep(set_id, "What does the quokka drain?", admitted.chunk_ids[0])
    store().begin_golden_run(set_id, OLGA)
    with pytest.raises(GoldenRunning):
        store().begin_golden_run(set_id, OLGA)


def test_a_run_that_was_cut_off_goes_on_and_one_done_twice_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admitted = admit(QUOKKA)
    set_id = make_set()
    for number in range(3):
        keep(set_id, "What does the quokka drain" + "?" * number, admitted.chunk_ids[0])
    begun = store().begin_golden_run(set_id, OLGA)
    judged = retrieval._judged
    calls = []

    def cut_off(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise ZeroDivisionError
        return judged(*given)

    monkeypatch.setattr(retrieval, "_judged", cut_off)
    with pytest.raises(ZeroDivisionError):
        store().run_golden_set(begun.pk)
    with tenant_session("acme"):
        assert GoldenRun.objects.get().state == "running"
        assert GoldenRun.objects.get().asked == 1
    assert retrieval.forsaken_runs() == []
    with operations_session():
        GoldenRun.objects.update(touched_at=begun.created_at.replace(year=2020))
    assert retrieval.forsaken_runs() == [begun.pk]
    store().run_golden_set(begun.pk)
    store().run_golden_set(begun.pk)
    with tenant_session("acme"):
        told = GoldenRun.objects.get()
        assert (told.state, told.asked, told.recall_at_3) == ("done", 3, 1.0)
        assert GoldenResult.objects.count() == 3
    assert retrieval.forsaken_runs() == []


def test_a_set_that_is_removed_takes_its_run_along() -> None:
    admitted = admit(QUOKKA)
    set_id = make_set()
    question = keep(set_id, "What does the quokka drain?", admitted.chunk_ids[0])
    begun = store().begin_golden_run(set_id, OLGA)
    assert store().remove_golden_question(question.pk, OLGA) == set_id
    store().run_golden_set(begun.pk)
    with tenant_session("acme"):
        assert GoldenRun.objects.get().state == "done"
    store().remove_golden_set(set_id, OLGA)
    store().run_golden_set(begun.pk)
    with tenant_session("acme"):
        assert not GoldenSet.objects.exists()
        names = list(KnowledgeEvent.objects.filter(name__contains="golden").order_by("id"))
    assert [(event.name.rpartition(".")[2], event.data.get("what")) for event in names] == [
        ("changed", "created"),
        ("changed", "question_added"),
        ("run", None),
        ("changed", "question_removed"),
        ("removed", None),
    ]
    assert {event.actor for event in names} == {"operator:olga"}


# --- searching as somebody else


def test_an_operator_sees_what_that_principal_would_see_and_it_is_on_record() -> None:
    private = admit(QUOKKA, visibility=Visibility.PRINCIPAL)
    shared = admit(LEMUR, title="Lunch")
    query = KnowledgeQuery(text="quokka lemur", min_score=0.0)

    def seen(who: str) -> set[UUID]:
        result = store().search_as(query, viewpoint(who), OLGA)
        return {passage.candidate.document_id for passage in result.passages}

    assert seen("alice") == {private.document_id, shared.document_id}
    assert seen("bob") == {shared.document_id}
    assert seen("operator:olga") == {shared.document_id}, "the operator's own sight is no help"
    with tenant_session("acme"):
        events = list(KnowledgeEvent.objects.filter(name=KnowledgeEvent.SEARCHED_AS).order_by("id"))
        traces = {str(trace.pk): trace for trace in RecallTrace.objects.all()}
    assert [event.data["principal_id"] for event in events] == ["alice", "bob", "operator:olga"]
    for event in events:
        assert event.actor == "operator:olga"
        trace = traces[event.data["trace_id"]]
        assert (trace.surface, trace.acting_operator) == ("playground", "operator:olga")
    with pytest.raises(Forbidden):
        store().search_as(query, viewpoint("alice"), principal("bob"))


def test_whose_eyes_were_used_does_not_read_what_the_operator_asked() -> None:
    admit(QUOKKA)
    asked = store().search_as(KnowledgeQuery(text="Is bob careless?"), viewpoint("bob"), OLGA)
    with pytest.raises(NotFound):
        store().view_trace(asked.trace_id, principal("bob"))
    assert store().view_trace(asked.trace_id, OLGA).trace.query_text == "Is bob careless?"
    own = ask("quokka", by=principal("bob"))
    assert store().view_trace(own.trace_id, principal("bob"))


# --- as a folder that `evaluate` reads


def golden(*arguments: str) -> dict[str, Any]:
    written = io.StringIO()
    call_command("golden", *arguments, "--tenant", "acme", "--json", stdout=written)
    told: dict[str, Any] = json.loads(written.getvalue())
    return told


def test_a_set_is_exported_evaluated_and_imported(tmp_path: Path) -> None:
    guide = "# Guide\n\n## Before\n\nThe quokka drains the node.\n\n## After\n\nThe okapi restarts it.\n"
    quokka = admit(guide, title="Guide")
    admit(LEMUR, title="Lunch")
    admit("# Secret\n\nThe tapir is not for bob.\n", visibility=Visibility.PRINCIPAL)
    set_id = make_set()
    keep(set_id, "What does the quokka drain?", quokka.chunk_ids[0], quote="quokka drains the node")
    keep(set_id, "Who restarts it?", quokka.chunk_ids[-1], objective="restart")
    gone = admit("# Old\n\nThe dodo is gone.\n")
    keep(set_id, "Where is the dodo?", gone.chunk_ids[0])
    store().delete(gone.document_id, principal())

    folder = tmp_path / "runbooks"
    told = golden("export", "Runbooks", str(folder))
    assert (told["documents"], told["questions"], len(told["stale"])) == (2, 2, 1)
    corpus = (folder / "corpus.jsonl").read_text()
    assert "tapir" not in corpus, "what the set's principal may not see is not written"
    assert "## Before" in corpus
    with pytest.raises(CommandError, match="something in it"):
        golden("export", "Runbooks", str(folder))
    with pytest.raises(CommandError):
        golden("export", "Nothing", str(tmp_path / "nothing"))

    evaluated = Evaluator(store()).evaluate(Collection.at(folder))
    assert evaluated["refused"] == []
    assert (evaluated["documents"], evaluated["queries"]) == (2, 2)
    assert evaluated["arms"]["lexical"]["passage_recall_at_3"] == 1.0

    taken = golden("import", "Again", str(folder), "--principal", "bob")
    assert (taken["questions"], taken["unplaced"]) == (2, [])
    ran = golden("run", "Again")
    assert (ran["state"], ran["recall_at_3"], ran["stale"]) == ("done", 1.0, 0)
    with tenant_session("acme"):
        kept = GoldenQuestion.objects.filter(golden_set__name="Again").order_by("id")
        assert [question.objective for question in kept] == ["", "restart"]


def test_questions_that_nothing_here_answers_are_named(tmp_path: Path) -> None:
    quokka = admit(QUOKKA)
    set_id = make_set()
    keep(set_id, "What does the quokka drain?", quokka.chunk_ids[0])
    folder = tmp_path / "runbooks"
    golden("export", "Runbooks", str(folder))
    store().delete(quokka.document_id, principal())
    taken = golden("import", "Again", str(folder), "--principal", "bob")
    assert taken["questions"] == 0
    assert len(taken["unplaced"]) == 1
