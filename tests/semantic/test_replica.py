"""The semantic arm on a replica: the same meanings, the same walk, and no vector too few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.fusion import SEMANTIC
from knowledge.core.types import KnowledgeQuery, SearchResult
from knowledge.models import RecallTrace
from knowledge.retrieval.replica import Replica
from knowledge.wiring import store
from tests.replicas import ALIAS, reading, replicating
from tests.replicas import Replica as Server
from tests.semantic.conftest import Semantic
from tests.semantic.test_filling import cars, forget
from tests.support import principal

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", ALIAS]),
    pytest.mark.long,
]

OLGA = Principal.for_operator("acme", "olga")


@pytest.fixture(scope="module", autouse=True)
def server(django_db_setup: None) -> Iterator[Server]:
    with replicating() as running, reading(running):
        yield running


def ask(*, there: bool) -> tuple[SearchResult, str]:
    replica = Replica(ALIAS, left_alone=0.0) if there else None
    searcher = replace(store().searcher, replica=replica)
    found = searcher.search(KnowledgeQuery(text="automobile", min_score=0.0), principal())
    with tenant_session("acme"):
        asked = RecallTrace.objects.get(pk=found.trace_id).asked or {}
    return found, asked.get("replica", "")


@pytest.mark.parametrize("small_view", [1_000, 1], ids=["all compared", "the graph walked"])
def test_meanings_are_found_there_as_on_the_primary(
    server: Server, semantic: Semantic, small_view: int
) -> None:
    options: dict[str, Any] = {"small_view": small_view}
    semantic.use(semantic.embedder, **options)
    cars(5)
    server.catch_up()
    found, by = ask(there=True)
    assert by == "replica"
    assert len(found.passages) == 3
    assert all(one.candidate.arms[SEMANTIC] > 0 for one in found.passages)
    assert found.passages == ask(there=False)[0].passages


def test_vectors_that_were_filled_in_are_waited_for(server: Server, semantic: Semantic) -> None:
    cars(3)
    forget(semantic)
    server.catch_up()
    found, by = ask(there=True)
    assert (by, found.passages) == ("replica", ())
    server.pause()
    try:
        store().embed(OLGA)
        found, by = ask(there=True)
        assert (by, len(found.passages)) == ("behind", 3)
    finally:
        server.resume()
    found, by = ask(there=True)
    assert (by, len(found.passages)) == ("replica", 3)
