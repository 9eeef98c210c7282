"""Vectors of what has none yet, another model beside the one in use, and the flip between them."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from access.errors import Forbidden
from access.principal import Principal
from access.tenancy import operations_session
from access.trust import OperatorPermission, OriginTrust
from knowledge.core.errors import NoEmbedder
from knowledge.core.fusion import SEMANTIC
from knowledge.core.types import DocumentChange
from knowledge.models import KnowledgeEvent
from knowledge.semantic import spaces
from knowledge.tasks import embed_missing
from knowledge.wiring import store
from tests.semantic.conftest import Semantic
from tests.semantic.embedders import WordsEmbedder
from tests.support import admit, ask, principal, texts

OLGA = Principal.for_operator("acme", "olga")


def command(name: str, *arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(name, *arguments, "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def count(model: str, **where: Any) -> int:
    conditions = "".join(f" AND {name} = %({name})s" for name in where)
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM semantic_chunk_vector WHERE embedding = %(number)s" + conditions,
            {"number": spaces.number_of(model) or 0, **where},
        )
        return int(cursor.fetchone()[0])


def forget(semantic: Semantic) -> None:
    """As if all of it had been admitted before there was an embedder."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM semantic_chunk_vector")
    semantic.embedder.embedded.clear()


def cars(number: int, tenant: str = "acme") -> None:
    for one in range(number):
        admit(f"The car number {one} waits.\n", title=f"Car {one}", by=principal(tenant=tenant))


def test_what_was_admitted_without_an_embedder_is_embedded_by_the_command(
    semantic: Semantic,
) -> None:
    cars(3)
    cars(2, "globex")
    first = admit("# Garden\n\nThe tree bends.\n")
    admit("# Garden\n\nThe pond is deep.\n", document_id=first.document_id)
    forget(semantic)
    assert not texts(ask("automobile"))
    told = command("embed", "--tenant", "acme")
    assert told["models"] == [
        {"model": "words-1", "embedded": 5, "missing": 0, "failure": ""},
    ]
    assert count("words-1", live=True) == 4
    assert count("words-1", live=False) == 1, "the former version is found as of then"
    assert len(texts(ask("automobile"))) == 3
    assert command("embed", "--tenant", "acme")["models"][0]["embedded"] == 0
    assert store().embed(Principal.for_operator("globex", "gus"))[0].embedded == 2


def test_the_command_goes_on_where_the_embedder_failed(
    semantic: Semantic, monkeypatch: pytest.MonkeyPatch
) -> None:
    cars(5)
    forget(semantic)
    monkeypatch.setattr("knowledge.semantic.filling.AT_ONCE", 2)
    embed = semantic.embedder.embed

    def failing(given: Any) -> Any:
        semantic.embedder.down = len(semantic.embedder.embedded) >= 3
        return embed(given)

    monkeypatch.setattr(semantic.embedder, "embed", failing)
    with pytest.raises(CommandError, match="answered 503"):
        command("embed", "--tenant", "acme")
    assert count("words-1") == 3
    monkeypatch.setattr(semantic.embedder, "embed", embed)
    semantic.embedder.down = False
    told = command("embed", "--tenant", "acme")
    assert (told["models"][0]["embedded"], told["models"][0]["missing"]) == (2, 0)
    assert len(semantic.embedder.embedded) == 5, "nothing was embedded twice"


def test_an_ingest_that_lost_its_embedder_goes_on(semantic: Semantic) -> None:
    semantic.embedder.down = True
    done = admit("# Garage\n\nThe car waits.\n")
    assert (done.state, done.report.complete, done.report.pending) == ("ingesting", False, 1)
    assert not texts(ask("car"))
    semantic.embedder.down = False
    done = admit("# Garage\n\nThe car waits.\n", resume=True)
    assert done.report.complete
    assert texts(ask("automobile"))


def test_the_workers_embed_what_is_missing_of_every_tenant(semantic: Semantic) -> None:
    cars(2)
    cars(1, "globex")
    forget(semantic)
    embed_missing()
    assert count("words-1") == 3


def test_another_model_takes_over_in_one_flip(semantic: Semantic) -> None:
    """Filled beside the one in use, which answers until then; no vector meets one of the other."""
    cars(3)
    cars(2, "globex")
    following = WordsEmbedder("words-2", dimensions=192)
    semantic.use(semantic.embedder, following)
    told = command("embed", "--tenant", "acme")
    assert {one["model"]: one["embedded"] for one in told["models"]} == {"words-1": 0, "words-2": 3}
    assert {one.model: one.state for one in spaces.known()} == {
        "words-1": "live",
        "words-2": "filling",
    }
    assert len(texts(ask("automobile"))) == 3
    assert following.asked == []
    with pytest.raises(CommandError, match=r"vectors_missing.*globex"):
        command("embed", "--tenant", "acme", "--switch")
    assert spaces.live() is not None
    assert count("words-2") == 3
    command("embed", "--tenant", "globex")
    semantic.embedder.embedded.clear()
    assert command("embed", "--tenant", "acme", "--switch")["switched_to"] == "words-2"
    assert {one.model: one.state for one in spaces.known()} == {
        "words-1": "retired",
        "words-2": "live",
    }
    assert len(texts(ask("automobile"))) == 3
    assert following.asked == ["automobile"]
    admit("A new car.\n", title="New")
    assert semantic.embedder.embedded == [], "what is admitted now is embedded by the new model"
    assert (count("words-1"), count("words-2")) == (5, 6)
    with operations_session():
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.MODEL_SWITCHED)
    assert event.data == {"model": "words-2", "former": "words-1"}
    assert command("embed", "--tenant", "acme", "--drop-retired")["dropped"] == {"words-1": 5}
    assert [one.model for one in spaces.known()] == ["words-2"]
    assert len(texts(ask("automobile", max_passages=9))) == 4


def test_while_a_model_is_filled_what_changes_reaches_both(semantic: Semantic) -> None:
    cars(2)
    following = WordsEmbedder("words-2", dimensions=192)
    semantic.use(semantic.embedder, following)
    store().embed(OLGA)
    admit("A new car.\n", title="New")
    assert count("words-2") == 2, "ingest waits for one embedder only"
    (document,) = {one.candidate.document_id for one in ask("number 0").passages[:1]}
    retitled = DocumentChange(title="Couch", origin_trust=OriginTrust.USER)
    store().update(document, principal(), retitled)
    reports = store().embed(OLGA)
    assert {one.model: one.embedded for one in reports} == {"words-1": 1, "words-2": 2}
    store().delete(document, principal())
    assert (count("words-1"), count("words-2")) == (2, 2)


def test_a_model_nobody_set_up_an_embedder_for_is_words_alone(semantic: Semantic) -> None:
    cars(1)
    semantic.use(WordsEmbedder("words-2", dimensions=192))
    found = ask("car")
    assert texts(found)
    assert SEMANTIC not in found.passages[0].candidate.arms
    assert any("semantic" in note for note in found.notes)
    store().embed(OLGA)
    assert store().switch_model(OLGA) == "words-2"
    assert texts(ask("automobile"))


def test_operators_who_may_not_manage_change_nothing(semantic: Semantic) -> None:
    viewer = Principal.for_operator(
        "acme", "vera", permissions=frozenset({OperatorPermission.VIEW})
    )
    for act in (store().embed, store().switch_model, store().drop_retired_models):
        with pytest.raises(Forbidden):
            act(viewer)


def test_there_is_nothing_to_switch_to(semantic: Semantic) -> None:
    cars(1)
    with pytest.raises(NoEmbedder, match="NEXT_EMBEDDER"):
        store().switch_model(OLGA)


def test_the_workers_stop_in_time_and_ask_no_embedder_that_failed(
    semantic: Semantic, monkeypatch: pytest.MonkeyPatch
) -> None:
    cars(1)
    cars(1, "globex")
    forget(semantic)
    assert store().embed_all(seconds=-1)["acme"][0].missing == 1
    semantic.embedder.down = True
    told = store().embed_all(seconds=60)
    assert list(told) == ["acme"]
    assert told["acme"][0].failure == "the endpoint answered 503"
