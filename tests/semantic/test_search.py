"""The semantic arm beside the lexical one: found by meaning, seen by scope, gone when it is away."""

from __future__ import annotations

import logging

import pytest
from django.test import Client
from pytest_django import Settings

from access.tenancy import operations_session, tenant_session
from knowledge.core.fusion import LEXICAL, SEMANTIC, CalibratedFusion
from knowledge.core.scope import resolve_scope
from knowledge.core.types import KnowledgeQuery, Visibility
from knowledge.lifecycle.figures import roll_up
from knowledge.models import ArmSwitch, RecallTrace
from knowledge.retrieval.arms import SearchView
from knowledge.wiring import store
from tests.semantic.conftest import Semantic, moment
from tests.support import admit, ask, principal, texts

TOKEN = "t" * 20
CAR = "# Garage\n\nThe car waits behind the house.\n"
TREE = "# Garden\n\nThe tree bends over the pond.\n"


def test_a_passage_is_found_by_a_word_of_the_same_meaning(semantic: Semantic) -> None:
    admit(CAR)
    admit(TREE)
    found = ask("automobile house")
    assert texts(found) == ["The car waits behind the house."]
    arms = found.passages[0].candidate.arms
    assert set(arms) == {LEXICAL, SEMANTIC}
    assert arms[SEMANTIC] > 0
    only_by_meaning = ask("automobile")
    assert texts(only_by_meaning) == ["The car waits behind the house."]
    assert only_by_meaning.passages[0].candidate.arms[LEXICAL] == 0


def test_a_misspelt_question_is_embedded_as_it_was_meant(semantic: Semantic) -> None:
    """Words that occur nowhere, by the words that the lexical arm searches for instead."""
    admit(CAR)
    before = moment()
    found = ask("Whihc automobile is behind the Houze?")
    assert texts(found) == ["The car waits behind the house."]
    assert any("“houze”" in note for note in found.notes)
    assert semantic.embedder.asked == ["which automobile is behind the house?"]
    for asked in ("the house", "the houze of zyxwvut"):
        ask(asked, as_of=before)
        assert semantic.embedder.asked[-1] == asked, "nobody knows what occurred then"


def test_no_embedder_is_told_of_words_that_the_caller_may_not_see(semantic: Semantic) -> None:
    admit(CAR)
    admit("The acquisition of Borealis.\n", visibility=Visibility.PRINCIPAL)
    semantic.switch_on("globex")
    for caller in (principal("bob"), principal(tenant="globex")):
        ask("borealiss", by=caller)
        assert semantic.embedder.asked.pop() == "borealiss"
    ask("borealiss")
    assert semantic.embedder.asked == ["borealis"]


def test_off_until_it_is_switched_on_for_the_tenant(semantic: Semantic) -> None:
    admit(CAR, by=principal(tenant="globex"))
    found = ask("automobile house", by=principal(tenant="globex"))
    assert set(found.passages[0].candidate.arms) == {LEXICAL}
    assert not texts(ask("automobile", by=principal(tenant="globex")))
    assert semantic.embedder.asked == []
    semantic.switch_on("globex")
    assert texts(ask("automobile", by=principal(tenant="globex")))


def test_every_member_of_the_union_is_scored_by_both(semantic: Semantic) -> None:
    """Even what an arm by itself leaves out for want of room, or because no word of it is there."""
    for number in range(4):
        admit(f"The car number {number} waits.\n", title=f"Car {number}")
    admit(TREE)
    searcher = store().searcher
    query = KnowledgeQuery(text="automobile number tree")
    asked = {arm.name: arm.prepare(query) for arm in searcher.arms}
    with tenant_session("acme"):
        view = SearchView.of(resolve_scope(principal(), None))
        one_each = {name: look(view, 1) for name, look in asked.items()}
        everything = {name: look(view, 50) for name, look in asked.items()}
        for name, found in one_each.items():
            assert len(found.scores) == 1
            others = sorted(everything[LEXICAL].scores)
            assert found.score(others) == pytest.approx(
                {number: everything[name].scores.get(number, 0.0) for number in others}, abs=1e-3
            ), name


def test_a_nonsense_question_finds_nothing_in_either_arm(semantic: Semantic) -> None:
    for number in range(30):
        admit(f"The car number {number} waits behind the house.\n", title=f"Car {number}")
    for nonsense in ("qwxz vbnmp", "the of and", "?!", "zyxw" * 20):
        assert not ask(nonsense, min_score=None).passages, nonsense
    for nonsense in ("qwxz vbnmp", "the of and"):
        query = KnowledgeQuery(text=nonsense)
        with tenant_session("acme"):
            view = SearchView.of(resolve_scope(principal(), None))
        asked = {arm.name: arm.prepare(query) for arm in store().searcher.arms}
        with tenant_session("acme"):
            found = {name: look(view, 50).scores for name, look in asked.items()}
        assert max(CalibratedFusion().fuse(found).values(), default=0.0) < 0.28


def test_visibility_is_in_the_statement(semantic: Semantic) -> None:
    admit(CAR, visibility=Visibility.PRINCIPAL)
    admit("A car of the project.\n", visibility=Visibility.PROJECT)
    assert len(texts(ask("automobile", current_scope="apollo"))) == 2
    assert texts(ask("automobile")) == ["The car waits behind the house."]
    assert texts(ask("automobile", by=principal("bob"))) == []
    assert texts(ask("automobile", by=principal("bob"), current_scope="apollo")) == [
        "A car of the project."
    ]


@pytest.mark.parametrize("small_view", [0, 10_000], ids=["walked", "compared"])
def test_the_graph_and_the_comparison_find_the_same(semantic: Semantic, small_view: int) -> None:
    semantic.use(semantic.embedder, small_view=small_view)
    for number in range(60):
        admit(
            f"The car number {number} waits.\n",
            title=f"Car {number}",
            visibility=Visibility.PRINCIPAL if number % 20 else Visibility.TENANT,
        )
    found = ask("automobile", by=principal("bob"), max_passages=10, max_per_document=10)
    assert len(found.passages) == 3


def metrics(client: Client) -> str:
    return client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).content.decode()


def test_words_alone_when_the_embedder_is_away(
    semantic: Semantic, caplog: pytest.LogCaptureFixture, client: Client, settings: Settings
) -> None:
    settings.METRICS_TOKEN = TOKEN
    admit(CAR)
    semantic.embedder.down = True
    with caplog.at_level(logging.WARNING):
        found = ask("car house")
    assert texts(found) == ["The car waits behind the house."]
    assert set(found.passages[0].candidate.arms) == {LEXICAL}
    assert any("semantic" in note for note in found.notes)
    with operations_session():
        trace = RecallTrace.objects.get(pk=found.trace_id)
    assert trace.asked is not None
    assert trace.asked["arms"] == [LEXICAL]
    assert trace.asked["arms_away"] == [SEMANTIC]
    assert "car house" not in caplog.text
    roll_up()
    assert 'verbatim_searches_without_arm_total{tenant="acme"} 1.0' in metrics(client)
    semantic.embedder.down = False
    again = ask("car house")
    assert not again.notes
    with operations_session():
        trace = RecallTrace.objects.get(pk=again.trace_id)
    assert trace.asked is not None
    assert trace.asked["arms"] == [LEXICAL, SEMANTIC]


def test_a_switch_is_one_tenants(semantic: Semantic) -> None:
    with tenant_session("globex"):
        assert not ArmSwitch.objects.exists()


def test_an_embedder_that_failed_is_left_alone_for_a_moment(semantic: Semantic) -> None:
    semantic.use(semantic.embedder, left_alone=60)
    admit(CAR)
    semantic.embedder.down = True
    assert ask("car").notes
    semantic.embedder.down = False
    assert ask("car").notes, "no search waits for it yet"
    assert semantic.embedder.asked == []
