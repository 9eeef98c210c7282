"""Automatic recall: off until a measurement switched it on, strict, and free when it is empty."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from access.errors import Forbidden
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from knowledge.core.errors import NoGain
from knowledge.core.preturn import EmptyReason, Trial
from knowledge.core.types import KnowledgeQuery, RecallKind, Visibility
from knowledge.models import KnowledgeEvent, PreturnPolicy, RecallTrace
from knowledge.wiring import store
from tests.support import admit, bearer, principal

pytestmark = pytest.mark.django_db

ADDRESS = "/v1/context/preturn"
OLGA = Principal.for_operator("acme", "olga")
GOOD = Trial(
    collection="ours",
    floor=0.45,
    policy="knowledge-v1",
    answerable=40,
    recalled=22,
    answered=20,
    unanswerable={"off_topic": 42, "small_talk": 60},
    disturbed={"small_talk": 1},
    tokens=300,
)
NOTE = "# Zebra pump\n\nThe zebra pump of hall four is started by hand every morning.\n"


def with_(**changed: Any) -> Trial:
    from dataclasses import replace  # noqa: PLC0415 - one line of it

    return replace(GOOD, **changed)


def recalled(client: Client, text: str, **given: Any) -> Any:
    headers = given.pop("headers", None) or bearer()
    answer = client.post(
        ADDRESS, {"text": text, **given}, content_type="application/json", headers=headers
    )
    assert answer.status_code == 200, answer.content
    return answer.json()


def traces() -> list[RecallTrace]:
    with operations_session():
        return list(RecallTrace.objects.all())


def test_off_by_default_costs_nothing_and_leaves_nothing(client: Client, blob_root: Path) -> None:
    admit(NOTE, title="Zebra pump")
    assert recalled(client, "How is the zebra pump of hall four started?") == {
        "block": "",
        "block_tokens": 0,
        "reason": "disabled",
        "trace_id": None,
        "knowledge": None,
    }
    assert traces() == []


def test_it_recalls_what_a_turn_is_about(client: Client, blob_root: Path) -> None:
    admit(NOTE, title="Zebra pump")
    store().enable_preturn(GOOD, OLGA)
    told = recalled(client, "How is the zebra pump of hall four started?")
    assert told["reason"] is None
    assert "started by hand" in told["block"]
    assert told["block_tokens"] == told["knowledge"]["block_tokens"] > 0
    (passage,) = told["knowledge"]["passages"]
    assert passage["citation_url"]
    (trace,) = traces()
    assert (str(trace.pk), trace.kind, trace.shown) == (told["trace_id"], RecallKind.PRETURN, 1)


@pytest.mark.parametrize(
    "turn", ["Thanks, that helps a lot.", "Zebra pump?", "", "Why do cats purr?"]
)
def test_a_turn_that_nothing_fits_pays_nothing(client: Client, blob_root: Path, turn: str) -> None:
    admit(NOTE, title="Zebra pump")
    store().enable_preturn(GOOD, OLGA)
    told = recalled(client, turn)
    assert (told["block"], told["block_tokens"], told["knowledge"]) == ("", 0, None)
    assert told["reason"] == "below_floor"
    (trace,) = traces()
    assert (str(trace.pk), trace.shown) == (told["trace_id"], 0)


def test_the_floor_can_be_raised_and_not_lowered(client: Client, blob_root: Path) -> None:
    admit(NOTE, title="Zebra pump")
    store().enable_preturn(GOOD, OLGA)
    asked = "How is the zebra pump of hall four started?"
    assert recalled(client, asked, min_score=1.0)["reason"] == "below_floor"
    assert (
        recalled(client, "Who paints the zebra on hall doors in winter?", min_score=0.0)["reason"]
        == "below_floor"
    )


def test_what_does_not_fit_is_said_to_be_for_want_of_room(client: Client, blob_root: Path) -> None:
    admit(NOTE, title="Zebra pump")
    store().enable_preturn(GOOD, OLGA)
    asked = "How is the zebra pump of hall four started?"
    told = recalled(client, asked, budget_tokens=3)
    assert (told["reason"], told["block"], told["block_tokens"]) == ("budget", "", 0)
    assert traces()[0].pressed


def test_it_shows_what_a_search_would_and_nothing_else(client: Client, blob_root: Path) -> None:
    admit(NOTE, title="Zebra pump", by=principal("carol"), visibility=Visibility.PRINCIPAL)
    store().enable_preturn(GOOD, OLGA)
    asked = "How is the zebra pump of hall four started?"
    assert recalled(client, asked)["reason"] == "below_floor"
    assert recalled(client, asked, headers=bearer("carol"))["block"]
    # The switch is of one tenant.
    assert recalled(client, asked, headers=bearer("gina", "globex"))["reason"] == "disabled"
    assert client.post(ADDRESS, {}, content_type="application/json").status_code == 401


# --- the switch --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        (with_(answered=9), "were given a passage that answers"),
        (with_(answered=10, recalled=21), "Of the questions that were given passages"),
        (with_(disturbed={"off_topic": 3, "small_talk": 3}), "turns without an answer"),
        (with_(answerable=19, answered=18), "are needed"),
        (with_(unanswerable={"small_talk": 19}), "are needed"),
    ],
)
def test_without_a_gain_it_stays_as_it_is(trial: Trial, why: str) -> None:
    with pytest.raises(NoGain, match=why) as refused:
        store().enable_preturn(trial, OLGA)
    assert refused.value.members["figures"]["recall"] == round(trial.recall, 4)
    with tenant_session("acme"):
        assert not PreturnPolicy.objects.exists()
        (event,) = KnowledgeEvent.objects.all()
    assert (event.name, event.data["enabled"]) == (KnowledgeEvent.PRETURN_REFUSED, False)
    assert event.data["figures"]["shortfalls"]
    # One that is on is not switched off by a measurement that was tried.
    store().enable_preturn(GOOD, OLGA)
    with pytest.raises(NoGain):
        store().enable_preturn(trial, OLGA)
    with tenant_session("acme"):
        assert PreturnPolicy.objects.get().enabled


def test_on_and_off_are_events_with_the_figures() -> None:
    store().enable_preturn(GOOD, OLGA)
    store().disable_preturn(OLGA)
    with tenant_session("acme"):
        policy = PreturnPolicy.objects.get()
        off, on = KnowledgeEvent.objects.filter(name=KnowledgeEvent.PRETURN_CHANGED)
    assert (policy.enabled, policy.changed_by) == (False, OLGA.principal_id)
    assert (on.data["enabled"], off.data["enabled"]) == (True, False)
    assert on.data["figures"] == json.loads(json.dumps(GOOD.figures()))
    assert store().preturn(KnowledgeQuery(text="zebra"), principal()).reason is EmptyReason.DISABLED


def test_only_an_operator_has_the_switch() -> None:
    with pytest.raises(Forbidden):
        store().enable_preturn(GOOD, principal())
    with pytest.raises(Forbidden):
        store().disable_preturn(principal())
    with tenant_session("acme"):
        assert not PreturnPolicy.objects.exists()


# --- the command -------------------------------------------------------------------------------


def collection(folder: Path, *, foreign: bool = False) -> Path:
    """Thirty machines, a question about each and, when `foreign`, questions about none."""
    names = [
        f"{colour}{kind}"
        for colour in ("red", "green", "blue", "black", "white")
        for kind in ("crane", "loader", "welder", "lathe", "press", "drill")
    ]
    folder.mkdir()
    (folder / "qrels").mkdir()
    documents, queries, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for number, name in enumerate(names):
        words = f"The {name} in bay {number} needs oil of grade K{number} each spring."
        documents.append({"_id": f"d{number}", "title": f"The {name}", "text": words})
        asked = f"What oil does the {name} in bay {number} need?"
        queries.append({"_id": f"q{number}", "text": asked})
        judged.append(f"q{number}\td{(number + 1) % len(names) if foreign else number}\t1")
    queries.append({"_id": "u1", "text": "Who invented the crane?"})
    for name, rows in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        (folder / name).write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n")
    return folder


def command(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    try:
        call_command("preturn", "--tenant", "acme", "--json", *arguments, stdout=out)
    except CommandError as error:
        return {
            "failed": str(error),
            "exit": error.returncode,
            **json.loads(out.getvalue() or "{}"),
        }
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def test_the_command_switches_on_after_a_gain(blob_root: Path, tmp_path: Path) -> None:
    assert command() == {"tenant": "acme", "enabled": False, "figures": None}
    told = command("--enable", "--collection", str(collection(tmp_path / "machines")))
    assert told["enabled"]
    figures = told["figures"]
    assert (figures["collection"], figures["answerable"]) == ("machines", 30)
    assert figures["recall"] > 0.9
    assert figures["unanswerable"] == {"collection": 1, "off_topic": 42, "small_talk": 60}
    assert figures["noise"] <= 0.03
    assert figures["shortfalls"] == []
    with tenant_session("acme"):
        assert PreturnPolicy.objects.get().figures == figures
    with operations_session():
        assert not RecallTrace.objects.exists(), "the tenant of the trial is gone"
    off = command("--disable")
    assert (off["enabled"], command()["enabled"]) == (False, False)


def test_the_command_refuses_without_a_gain(blob_root: Path, tmp_path: Path) -> None:
    folder = collection(tmp_path / "wrong", foreign=True)
    told = command("--enable", "--collection", str(folder))
    assert told["failed"].startswith("no_gain")
    assert told["exit"] == 1
    assert (told["code"], told["figures"]["answered"]) == ("no_gain", 0)
    assert not command()["enabled"]
    for wrong in (["--enable"], ["--collection", str(folder)]):
        assert "go together" in command(*wrong)["failed"]
    missing = command("--enable", "--collection", str(tmp_path / "nowhere"))
    assert missing["code"] == "invalid_collection"
