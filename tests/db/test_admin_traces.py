"""Traces, the playground and golden sets in the admin: what pages say, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import Sensitivity
from knowledge.admin.golden import recall_chart
from knowledge.admin.score_bars import score_bar
from knowledge.core.types import DocumentChange, Visibility
from knowledge.models import (
    GoldenAnswer,
    GoldenQuestion,
    GoldenRun,
    GoldenSet,
    KnowledgeEvent,
    RecallTrace,
    TracedPassage,
)
from knowledge.retrieval.acting import Viewpoint
from knowledge.wiring import store
from tests.factories import make_golden_run, make_operator, make_superuser
from tests.support import admit, ask, principal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

LIST = "/admin/knowledge/recalltrace/"
PLAYGROUND = f"{LIST}playground/"
SETS = "/admin/knowledge/goldenset/"
QUOKKA = "# Runbook\n\nThe quokka drains the node before anything else is done.\n"
LEMUR = "# Lunch\n\nThe lemur serves soup on Fridays in the canteen downstairs.\n"
KNOBS = {
    "text": "What does the quokka drain?",
    "principal_id": "bob",
    "sensitivity_ceiling": "internal",
    "way": "lexical",
    "budget_tokens": "3000",
    "max_passages": "3",
    "max_per_document": "2",
}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def olga() -> Client:
    """An operator of the tenant acme."""
    return signed_in(make_operator("acme", "olga"))


def page(client: Client, path: str, **query: Any) -> str:
    response = client.get(path, query)
    assert response.status_code == 200, (path, response.status_code)
    return re.sub(r"\s+", " ", response.content.decode())


def sent(client: Client, path: str, **data: Any) -> str:
    response = client.post(path, data, follow=True)
    assert response.status_code == 200, (path, response.status_code)
    return re.sub(r"\s+", " ", response.content.decode())


def trace_path(trace_id: Any, action: str = "change") -> str:
    return reverse(f"admin:knowledge_recalltrace_{action}", args=[trace_id])


def set_path(golden: GoldenSet, action: str = "change") -> str:
    return reverse(f"admin:knowledge_goldenset_{action}", args=[golden.pk])


def statements(action: Callable[[], Any]) -> int:
    """How many a page takes; a test's sessions are nested in its own transaction."""
    with CaptureQueriesContext(connection) as captured:
        action()
    nesting = re.compile("SAVEPOINT|RELEASE|SELECT set_config")
    return sum(not nesting.match(one["sql"]) for one in captured.captured_queries)


# --- the trace


def test_a_trace_says_how_the_question_was_taken(olga: Client) -> None:
    admit(QUOKKA + "\nRestart `node_pool` afterwards.\n")
    found = ask(
        "What does the quokka drain after node_pool?",
        by=principal("bob"),
        entities=("NP",),
        aliases={"NP": ("node_pool",)},
        objective="restart",
    )
    shown = page(olga, trace_path(found.trace_id))
    for word, fate in (
        ("what", "dropped: too common"),
        ("quokka", ""),
        ("node_pool", "a whole name, beside its parts"),
        ("np", "nothing that they may see holds it"),
    ):
        row = re.search(rf"<tr[^>]*> <td><bdi>{word}</bdi></td>.*?</tr>", shown)
        assert row, word
        assert fate in row[0], word
    for said in ("restart", "NP", "node_pool", "3 passages, 2 a document, 3000 tokens"):
        assert said in shown
    assert found.block.sha256 in shown
    assert "Hash verified" in shown


def test_what_was_ranked_is_shown_with_what_its_score_is_made_of(olga: Client) -> None:
    admit(QUOKKA)
    admit("# Zoo\n\nThe quokka sleeps. " + "Other animals of the zoo sleep as well. " * 20)
    found = ask("the quokka drains", by=principal("bob"), max_passages=1)
    assert found.omitted
    shown = page(olga, trace_path(found.trace_id))
    assert shown.count('class="score-bar"') == 2
    assert "as many passages as were asked for" in shown
    assert found.omitted[0].chunk_id in shown
    assert "Zoo" in shown
    assert re.search(r"match \.\d+ \+ authority \.\d+", shown)
    assert 'style="' not in shown


def test_bars_are_the_terms_by_their_weights() -> None:
    weights = {"match": 0.9, "authority": 0.1, "scope": 0.0, "recency": 0.0, "penalty": 0.5}
    terms = {"match": 0.5, "authority": 1.0, "scope": 1.0, "recency": 1.0, "penalty": 0.2}
    bar = score_bar(terms, weights, 0.28)
    assert bar is not None
    drawn = {segment.name: (segment.x, segment.width) for segment in bar.segments}
    assert drawn["match"] == ("0.00", "45.00")
    assert drawn["authority"] == ("45.00", "10.00")
    assert drawn["penalty"] == ("45.00", "10.00"), "it is taken off the end"
    assert bar.floor == "28.00"
    assert bar.said == "match .450 + authority .100 − penalty .100"
    assert score_bar(None, weights, 0.28) is None
    assert score_bar(terms, {}, None) is None


def test_the_block_is_downloaded_to_the_byte_and_seen_with_what_it_hides(olga: Client) -> None:
    admit("# Trap\n\nThe quokka\u202e hides <b>things</b>.\n")
    found = ask("quokka", by=principal("bob"))
    shown = page(olga, trace_path(found.trace_id))
    assert "U+202E" in shown
    assert "<b>things" not in shown
    response = olga.get(trace_path(found.trace_id, "block"))
    assert response.content.decode() == found.block.text
    assert response["Content-Disposition"].startswith("attachment")
    assert response["X-Content-Type-Options"] == "nosniff"
    with operations_session():
        RecallTrace.objects.update(block_sha256="0" * 64)
    assert "does not have the recorded SHA-256" in page(olga, trace_path(found.trace_id))
    assert olga.get(trace_path(found.trace_id, "block")).status_code == 404


def test_deleted_and_withheld_passages_say_so(olga: Client) -> None:
    gone = admit(QUOKKA)
    raised = admit(LEMUR, title="Lunch")
    found = ask("quokka lemur", by=principal("bob", sensitivity_ceiling=Sensitivity.INTERNAL))
    store().delete(gone.document_id, principal())
    change = DocumentChange(sensitivity=Sensitivity.RESTRICTED)
    store().update(raised.document_id, _operator(), change)
    shown = page(olga, trace_path(found.trace_id))
    assert "This passage has been deleted." in shown
    assert "This passage is not visible to you." in shown
    assert "Not whole any more" in shown
    assert "up to internal" in shown


def test_the_list_is_filtered_by_principal_surface_and_day(olga: Client) -> None:
    admit(QUOKKA)
    bob = ask("quokka", by=principal("bob")).trace_id
    mcp = ask("quokka", by=principal("zoe", surface="mcp"), as_of=timezone.now()).trace_id
    with operations_session():
        RecallTrace.objects.filter(pk=bob).update(created_at=timezone.now() - timedelta(days=9))
    ask("zebra", by=principal("mallory", tenant="globex"))
    yesterday = f"{timezone.now() - timedelta(days=1):%Y-%m-%d}"
    for query, expected in (
        ({}, {bob, mcp}),
        ({"principal": "bob"}, {bob}),
        ({"surface": "mcp"}, {mcp}),
        ({"time": "then"}, {mcp}),
        ({"kind": "search"}, {bob, mcp}),
        ({"since": yesterday}, {mcp}),
        ({"until": yesterday}, {bob}),
        ({"q": str(bob)}, {bob}),
        ({"q": "nothing"}, set()),
        ({"tenant": "globex"}, {bob, mcp}),
    ):
        listed = olga.get(LIST, query, follow=True).content.decode()
        assert {one for one in (bob, mcp) if str(one) in listed} == expected, query
        assert "zebra" not in listed
    root = signed_in(make_superuser())
    assert "zebra" in page(root, LIST, tenant="globex")
    assert "zebra" not in page(root, LIST, tenant="acme")


def test_a_superuser_who_reads_a_trace_is_on_the_tenants_record() -> None:
    admit(QUOKKA, by=principal(tenant="globex"))
    found = ask("quokka", by=principal(tenant="globex"))
    page(signed_in(make_superuser()), trace_path(found.trace_id))
    with tenant_session("globex"):
        seen = KnowledgeEvent.objects.get(actor="operator:root")
    assert seen.data == {"trace_id": str(found.trace_id)}


# --- the playground


def test_the_playground_shows_what_that_principal_would_see(olga: Client) -> None:
    private = admit(QUOKKA, visibility=Visibility.PRINCIPAL, title="Alice's own")
    assert "Nothing that they may see matched." in sent(olga, PLAYGROUND, **KNOBS)
    as_alice = sent(olga, PLAYGROUND, **{**KNOBS, "principal_id": "alice"})
    assert private.chunk_ids[0] in as_alice
    assert "through whose eyes" in as_alice
    in_project = admit(LEMUR, visibility=Visibility.PROJECT)
    lemur = {**KNOBS, "text": "lemur soup"}
    assert in_project.chunk_ids[0] not in sent(olga, PLAYGROUND, **lemur)
    with_project = sent(olga, PLAYGROUND, **lemur, current_scope="apollo")
    assert in_project.chunk_ids[0] in with_project
    with tenant_session("acme"):
        surfaces = set(RecallTrace.objects.values_list("surface", "acting_operator"))
    assert surfaces == {("playground", "operator:olga")}


def test_two_ways_stand_beside_each_other(olga: Client) -> None:
    admit(QUOKKA)
    admit(LEMUR, title="Lunch")
    mixed = {**KNOBS, "text": "the quokka drains the node before anything in the canteen"}
    shown = sent(olga, PLAYGROUND, **mixed, beside="reciprocal ranks")
    assert shown.count("The block, as the model saw it") == 2
    assert "They hand out different passages" in shown
    assert shown.count('class="differs"') == 1
    same = sent(olga, PLAYGROUND, **KNOBS, beside="lexical-without-penalty")
    assert "Both hand out the same passages, in the same order." in same
    assert "knowledge-v1-rrf-1" in shown
    ablated = sent(olga, PLAYGROUND, **KNOBS, beside="lexical-without-recency")
    assert "knowledge-v1-without-recency" in ablated
    with tenant_session("acme"):
        assert RecallTrace.objects.count() == 6


def test_every_knob_reaches_the_search(olga: Client) -> None:
    admit(QUOKKA)
    as_of = timezone.now() + timedelta(seconds=1)
    sent(
        olga,
        PLAYGROUND,
        **{**KNOBS, "budget_tokens": "77", "max_passages": "4", "max_per_document": "1"},
        as_of=as_of.isoformat(),
        min_score="0.11",
        objective="drain",
        entities="FG\nHR",
        aliases="FG = Frostgate, the gate",
    )
    with tenant_session("acme"):
        trace = RecallTrace.objects.get()
    assert trace.as_of == as_of
    assert trace.asked is not None
    for name, value in {
        "budget_tokens": 77,
        "max_passages": 4,
        "max_per_document": 1,
        "floor": 0.11,
        "objective": "drain",
        "entities": ["FG", "HR"],
        "aliases": {"FG": ["Frostgate", "the gate"]},
    }.items():
        assert trace.asked[name] == value, name
    again = page(olga, PLAYGROUND, trace=str(trace.pk))
    for said in ("What does the quokka drain?", 'value="bob"', "FG = Frostgate, the gate", "77"):
        assert said in again


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"as_of": "2026-07-28T00:00:00"}, "offset"),
        ({"as_of": "yesterday"}, "timestamp"),
        ({"max_passages": "51"}, "50"),
        ({"budget_tokens": "x"}, "whole number"),
        ({"min_score": "2"}, "less than or equal to 1"),
        ({"principal_id": ""}, "required"),
        ({"way": "magic"}, "valid choice"),
        ({"entities": "x" * 201}, "200"),
    ],
)
def test_a_knob_that_cannot_be_is_said_to_be_wrong(
    olga: Client, wrong: dict[str, str], said: str
) -> None:
    assert said in sent(olga, PLAYGROUND, **{**KNOBS, **wrong})
    with operations_session():
        assert not RecallTrace.objects.exists()


def test_another_tenants_trace_prefills_nothing(olga: Client) -> None:
    foreign = ask("zebra merger", by=principal("mallory", tenant="globex"))
    for named in (foreign.trace_id, uuid4(), "nothing"):
        assert "zebra" not in page(olga, PLAYGROUND, trace=str(named))


def test_a_superuser_names_the_tenant_of_a_playground_search() -> None:
    admit(QUOKKA, by=principal(tenant="globex"))
    root = signed_in(make_superuser())
    assert "This field is required" in sent(root, PLAYGROUND, **KNOBS)
    shown = sent(root, PLAYGROUND, **KNOBS, tenant="globex")
    assert "quokka" in shown
    assert "Hash verified" in shown
    with tenant_session("globex"):
        assert RecallTrace.objects.get().acting_operator == "operator:root"


# --- golden sets


def test_a_question_of_a_trace_is_kept_and_run(olga: Client) -> None:
    right = admit(QUOKKA).chunk_ids[0]
    found = ask("What does the quokka drain?", by=principal("bob"), objective="restart")
    keep = trace_path(found.trace_id, "keep")
    assert "Choose at least one passage" in sent(olga, keep, new_set="Runbooks")
    assert "Choose a golden set" in sent(olga, keep, answers=right)
    assert "does not hold these words" in sent(
        olga, keep, new_set="Nothing", answers=right, quote="the lemur"
    )
    with operations_session():
        assert not GoldenSet.objects.exists(), "a refusal leaves no empty set behind"
    shown = sent(olga, keep, new_set="Runbooks", answers=right, quote="drains the node")
    assert "Kept." in shown
    with tenant_session("acme"):
        golden = GoldenSet.objects.get()
        kept = GoldenQuestion.objects.get()
        assert GoldenAnswer.objects.get().quote == "drains the node"
    assert (golden.principal_id, kept.objective) == ("bob", "restart")
    again = sent(olga, keep, golden_set=str(golden.pk), more=right)
    assert "Kept." in again
    assert "The questions are being asked" in sent(olga, set_path(golden, "run"))
    assert "Asking, 0 of 2" in page(olga, set_path(golden))
    assert "Asking, 0 of 2" in page(olga, set_path(golden, "progress"))
    assert "being asked already" in sent(olga, set_path(golden, "run"))
    with operations_session():
        run = GoldenRun.objects.get()
    store().run_golden_set(run.pk)
    ended = olga.get(set_path(golden, "progress"))
    assert ended["HX-Refresh"] == "true"
    shown = page(olga, set_path(golden))
    assert re.search(r"<dt>Recall@3</dt><dd>1.00</dd>", shown)
    assert "found" in shown
    assert "1.00" in page(olga, SETS)


def test_a_foreign_set_is_no_place_to_keep_a_question(olga: Client) -> None:
    foreign = admit(QUOKKA, by=principal(tenant="globex"))
    golden = make_golden_run("globex", foreign.chunk_ids[0], "Zebra").golden_set
    right = admit(QUOKKA).chunk_ids[0]
    keep = trace_path(ask("quokka", by=principal("bob")).trace_id, "keep")
    nowhere = [
        sent(olga, keep, golden_set=str(chosen), answers=right).replace(str(chosen), "")
        for chosen in (golden.pk, uuid4())
    ]
    assert "There is nothing by that name" in nowhere[0]
    assert "Zebra" not in nowhere[0]
    with operations_session():
        assert GoldenQuestion.objects.count() == 1
        question = GoldenQuestion.objects.get()
    own = store().create_golden_set("Own", _viewpoint(), _operator())
    for number in (question.pk, 2**31, "x", ""):
        path = set_path(own, "remove_question")
        assert olga.post(path, {"question": number}).status_code == 404


def _viewpoint() -> Viewpoint:
    return Viewpoint(
        principal_id="bob", current_scope=None, sensitivity_ceiling=Sensitivity.INTERNAL
    )


def _operator() -> Principal:
    return Principal.for_operator("acme", "olga")


def test_a_set_is_made_filled_and_removed_by_hand(olga: Client) -> None:
    right = admit(QUOKKA).chunk_ids[0]
    made = sent(
        olga,
        f"{SETS}add/",
        name="Runbooks",
        principal_id="bob",
        current_scope="",
        sensitivity_ceiling="internal",
    )
    assert "None yet." in made
    with tenant_session("acme"):
        golden = GoldenSet.objects.get()
    twice = sent(
        olga, f"{SETS}add/", name="Runbooks", principal_id="bob", sensitivity_ceiling="internal"
    )
    assert "There is a golden set of that name already." in twice
    assert "has no question yet" in sent(olga, set_path(golden, "run"))
    added = sent(olga, set_path(golden, "add_question"), text="Which animal?", answers=right)
    assert "Which animal?" in added
    empty = sent(olga, set_path(golden, "add_question"), text="", answers="")
    assert "This field is required" in empty
    with tenant_session("acme"):
        question = GoldenQuestion.objects.get()
    removed = sent(olga, set_path(golden, "remove_question"), question=question.pk)
    assert "Which animal?" not in removed
    asked = sent(olga, set_path(golden, "delete"))
    assert "0 questions" in asked
    assert "Removed" in sent(olga, set_path(golden, "delete"), confirmed="yes")
    with tenant_session("acme"):
        assert not GoldenSet.objects.exists()


def test_stale_answers_are_shown_as_what_they_are(olga: Client) -> None:
    first = admit(QUOKKA)
    run = make_golden_run("acme", first.chunk_ids[0], "Runbooks")
    admit(QUOKKA.replace("anything", "everything"), document_id=first.document_id)
    again = store().begin_golden_run(run.golden_set_id, _operator())
    store().run_golden_set(again.pk)
    shown = page(olga, set_path(run.golden_set))
    assert "its words are in no passage of the newest version" in shown
    assert re.search(r'class="attention"><dt>Stale</dt><dd>1</dd>', shown)
    store().delete(first.document_id, principal())
    shown = page(olga, set_path(run.golden_set))
    assert "its document was deleted" in shown
    assert "quokka drains" not in shown


def test_recall_over_time_is_drawn() -> None:
    at = timezone.now()
    runs = [
        GoldenRun(recall_at_3=recall, created_at=at - timedelta(days=age), found=1, asked=2)
        for age, recall in enumerate((1.0, None, 0.5, 0.0))
    ]
    chart = recall_chart(runs)
    assert chart is not None
    assert len(chart.points) == 3, "a run without a figure is no point"
    heights = [float(point.y) for point in chart.points]
    assert heights == sorted(heights, reverse=True), "oldest first, and it got better"
    assert (heights[0], heights[-1]) == (148.0, 12.0)
    assert recall_chart(runs[:2]) is None


# --- what pages cost


def _traces(count: int) -> None:
    at = timezone.now()
    with tenant_session("acme"):
        made = RecallTrace.objects.bulk_create(
            RecallTrace(
                tenant_id="acme",
                principal_id="bob",
                surface="api",
                sensitivity_ceiling="internal",
                query_text="x" * 5_000,
                as_of=at,
                policy="p",
                analyzer_version="a",
                block_sha256="0" * 64,
                block_tokens=0,
                duration_ms=1.0,
                created_at=at,
                omitted=[
                    {"chunk_id": f"kc_{n}", "document_id": str(uuid4()), "reason": "floor"}
                    for n in range(3)
                ],
            )
            for _ in range(count)
        )
        TracedPassage.objects.bulk_create(
            TracedPassage(
                trace=trace,
                tenant_id="acme",
                position=0,
                chunk_id="kc_0",
                document_id=uuid4(),
                content_sha256="0" * 64,
                title="t",
                instruction_like=False,
                tokens=1,
                score=0.1,
                terms={},
                arms={},
            )
            for trace in made[:10]
        )


def test_lists_and_pages_take_as_many_statements_with_a_thousand_rows(olga: Client) -> None:
    passage = admit(QUOKKA).chunk_ids[0]
    run = make_golden_run("acme", passage, "Set 0")
    trace = ask("quokka", by=principal("bob")).trace_id
    paths = [LIST, f"{LIST}?principal=bob", trace_path(trace), PLAYGROUND, SETS]
    paths.append(set_path(run.golden_set))
    for path in paths:
        page(olga, path)

    def grow(count: int) -> None:
        _traces(count)
        with tenant_session("acme"):
            questions = GoldenQuestion.objects.bulk_create(
                GoldenQuestion(
                    tenant_id="acme",
                    golden_set=run.golden_set,
                    text="?",
                    created_by="o",
                    created_at=timezone.now(),
                )
                for _ in range(count)
            )
            GoldenAnswer.objects.bulk_create(
                GoldenAnswer(
                    question=question,
                    tenant_id="acme",
                    document_id=uuid4(),
                    chunk_id="kc_0",
                    content_sha256="0" * 64,
                )
                for question in questions
            )
            GoldenSet.objects.bulk_create(
                GoldenSet(
                    tenant_id="acme",
                    name=f"{count}-{number}",
                    principal_id="bob",
                    created_by="o",
                    created_at=timezone.now(),
                )
                for number in range(count)
            )

    counts = []
    for count in (10, 1_000):
        grow(count)
        counts.append({path: statements(partial(page, olga, path)) for path in paths})
    assert counts[0] == counts[1]
    assert max(counts[0].values()) <= 15, counts[0]


def test_the_list_reads_no_long_column(olga: Client) -> None:
    _traces(3)
    with CaptureQueriesContext(connection) as captured:
        page(olga, LIST)
    (listed,) = [
        one["sql"]
        for one in captured.captured_queries
        if '"knowledge_recalltrace"."query_text"' in one["sql"]
    ]
    for column in ("omitted", "beliefs", "words", "asked"):
        assert f'"{column}"' not in listed
