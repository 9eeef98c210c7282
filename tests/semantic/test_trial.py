"""The switch of the arm: measured first, refused without a lift, one tenant's alone."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from access.errors import Forbidden
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission
from knowledge.core.arms import ArmTrial
from knowledge.core.errors import NoLift, VectorsMissing
from knowledge.core.fusion import SEMANTIC
from knowledge.models import ArmSwitch, KnowledgeEvent
from knowledge.wiring import store
from tests.semantic.conftest import Semantic
from tests.support import admit, ask, principal, texts

OLGA = Principal.for_operator("globex", "olga")
GOOD = ArmTrial(
    arm=SEMANTIC,
    model="words-1",
    collection="ours",
    policy="knowledge-v1",
    fusion="calibrated-1",
    questions=40,
    without={"ndcg_at_10": 0.6, "hit_at_3": 0.7},
    with_arm={"ndcg_at_10": 0.65, "hit_at_3": 0.75},
    unanswerable=100,
    disturbed_without=4,
    disturbed_with=6,
)


def switch(tenant: str = "globex") -> ArmSwitch | None:
    with tenant_session(tenant):
        return ArmSwitch.objects.filter(tenant_id=tenant).first()


def test_a_lift_switches_it_on_and_leaves_its_figures(semantic: Semantic) -> None:
    admit("The car waits.\n", by=principal(tenant="globex"))
    assert not texts(ask("automobile", by=principal(tenant="globex")))
    store().enable_arm(GOOD, OLGA)
    on = switch()
    assert on is not None
    assert on.enabled
    assert on.figures["lift"] == 0.05
    assert texts(ask("automobile", by=principal(tenant="globex")))
    store().disable_arm(SEMANTIC, OLGA)
    assert not texts(ask("automobile", by=principal(tenant="globex")))
    with operations_session():
        events = KnowledgeEvent.objects.filter(name=KnowledgeEvent.ARM_CHANGED).order_by("id")
        assert [event.data["enabled"] for event in events] == [True, False]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"with_arm": {"ndcg_at_10": 0.605, "hit_at_3": 0.75}}, "a lift of 0.01 is needed"),
        ({"with_arm": {"ndcg_at_10": 0.65, "hit_at_3": 0.68}}, "falls by 2.0%"),
        ({"disturbed_with": 20}, "16.0% more were shown passages"),
        ({"questions": 19}, "19 questions"),
    ],
)
def test_without_a_lift_it_stays_off(semantic: Semantic, change: dict[str, Any], told: str) -> None:
    with pytest.raises(NoLift, match=told):
        store().enable_arm(replace(GOOD, **change), OLGA)
    assert switch() is None
    with operations_session():
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.ARM_REFUSED)
    assert event.data["figures"]["shortfalls"]


def test_not_while_passages_have_no_vector(semantic: Semantic) -> None:
    admit("The car waits.\n", by=principal(tenant="globex"))
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM semantic_chunk_vector")
    with pytest.raises(VectorsMissing, match="1 passages of globex"):
        store().enable_arm(GOOD, OLGA)


def test_not_by_whoever_may_not_manage(semantic: Semantic) -> None:
    vera = Principal.for_operator("globex", "vera", frozenset({OperatorPermission.VIEW}))
    with pytest.raises(Forbidden):
        store().enable_arm(GOOD, vera)
    with pytest.raises(Forbidden):
        store().disable_arm(SEMANTIC, vera)


def collection(folder: Path, asked: str) -> Path:
    """Twenty documents, each with a word for itself, and a question to each."""
    words = ["car", "couch", "doctor"] + [f"w{number}word" for number in range(17)]
    (folder / "qrels").mkdir(parents=True)
    rows = [
        {"_id": f"d{number}", "title": f"T{number}", "text": f"The {word} stands in hall {number}."}
        for number, word in enumerate(words)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    same = {"car": "automobile", "couch": "sofa", "doctor": "physician"}
    questions = [
        {"_id": f"q{number}", "text": asked.format(same.get(word, word))}
        for number, word in enumerate(words)
    ]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(len(words)))
    )
    return folder


def command(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("arms", *arguments, "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue().splitlines()[-1])
    return told


def test_the_command_measures_and_switches(semantic: Semantic, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra 'evaluation' is not installed")
    folder = collection(tmp_path / "c", "Where is the {}?")
    told = command("--tenant", "globex", "--enable", "semantic", "--collection", str(folder))
    found = told["arms"]["semantic"]
    assert found["enabled"]
    assert found["figures"]["with_arm"]["ndcg_at_10"] > found["figures"]["without"]["ndcg_at_10"]
    assert found["figures"]["model"] == "words-1"
    assert command("--tenant", "globex") == told
    assert not command("--tenant", "globex", "--disable", "semantic")["arms"]["semantic"]["enabled"]


def test_the_command_refuses_where_words_are_enough(semantic: Semantic, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="the extra 'evaluation' is not installed")
    folder = collection(tmp_path / "c", "What stands in the hall of {}?")
    queries = (folder / "queries.jsonl").read_text()
    for same, word in (("automobile", "car"), ("sofa", "couch"), ("physician", "doctor")):
        queries = queries.replace(same, word)
    (folder / "queries.jsonl").write_text(queries)
    with pytest.raises(CommandError, match="no_lift"):
        command("--tenant", "globex", "--enable", "semantic", "--collection", str(folder))
    assert switch() is None
