"""Searches that look at a real streaming replica: they show what the primary would, at once.

Replay is paused, so that whatever a test changes has not arrived there: the worst case of a replica
that is behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope
from knowledge.adapters import changes, term_index
from knowledge.core.types import (
    ConnectorIdentity,
    DocumentChange,
    IngestResult,
    KnowledgeQuery,
    SearchResult,
    Visibility,
)
from knowledge.lifecycle.figures import roll_up
from knowledge.models import Chunk, Document, RecallTrace, SearchChange
from knowledge.retrieval.arms import Asked, Found, SearchArm, SearchView
from knowledge.retrieval.replica import Replica
from knowledge.store import KnowledgeStore
from knowledge.wiring import store
from tests import support
from tests.faults.test_delete_during_search import check
from tests.replicas import ALIAS, reading, replicating
from tests.replicas import Replica as Server
from tests.serving import serving
from tests.support import admit, ask, bearer, principal, texts

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", ALIAS]),
    pytest.mark.long,
]

SOURCE = ConnectorIdentity(type="wiki", id="pumps", version="r1")
NOTE = "# Pumps\n\nThe quokka pump runs at night.\n"


@pytest.fixture(scope="module", autouse=True)
def server(django_db_setup: None) -> Iterator[Server]:
    # Before any test asks which databases there are.
    with replicating() as running, reading(running):
        yield running


@pytest.fixture
def looking(
    server: Server, blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KnowledgeStore]:
    """A store whose searches look at the replica, which has all that there is."""
    own = store()
    searcher = replace(own.searcher, replica=Replica(ALIAS, left_alone=0.0))
    looks = replace(own, searcher=searcher)
    monkeypatch.setattr(support, "store", lambda: looks)
    server.catch_up()
    yield looks
    server.resume()


def answered(result: SearchResult, tenant: str = "acme") -> str:
    with tenant_session(tenant):
        return str((RecallTrace.objects.get(pk=result.trace_id).asked or {})["replica"])


def shown(result: SearchResult) -> dict[str, Any]:
    """All of an answer that two searches of the same corpus have in common."""
    return {"passages": result.passages, "omitted": result.omitted, "notes": result.notes}


def asked_of_the_primary(text: str, **given: Any) -> SearchResult:
    return store().search(KnowledgeQuery(text=text, min_score=0.0, **given), principal())


def test_what_has_arrived_is_found_there_as_on_the_primary(
    server: Server, looking: KnowledgeStore
) -> None:
    for number in range(3):
        admit(f"# Pump {number}\n\nThe quokka pump {number} runs at night.\n")
    server.catch_up()
    found = ask("quokka pomp at night")
    assert answered(found) == "replica"
    assert len(found.passages) == 3
    assert shown(found) == shown(asked_of_the_primary("quokka pomp at night"))


def test_whoever_changes_something_finds_it_changed_at_once(
    server: Server, looking: KnowledgeStore
) -> None:
    admit("# Hoses\n\nThe wombat hose leaks.\n", by=principal(tenant="globex"))
    server.catch_up()
    server.pause()
    admit(NOTE)
    mine = ask("quokka pump")
    assert texts(mine)
    assert answered(mine) == "behind"
    # What another tenant wrote last is there, so its searches still look there.
    theirs = ask("wombat hose", by=principal(tenant="globex"))
    assert texts(theirs)
    assert answered(theirs, "globex") == "replica"
    server.resume()
    assert answered(ask("quokka pump")) == "replica"


def new_version(_before: IngestResult) -> None:
    admit("# Pumps\n\nThe quokka pump is gone.\n", source=replace(SOURCE, version="r2"))


def delete(before: IngestResult) -> None:
    store().delete(before.document_id, principal("bob", scopes=frozenset({Scope.DELETE})))


def rescope(before: IngestResult) -> None:
    change = DocumentChange(visibility=Visibility.PRINCIPAL, origin_trust=OriginTrust.USER)
    store().update(before.document_id, principal(), change)


def retitle(before: IngestResult) -> None:
    store().update(
        before.document_id,
        principal(),
        DocumentChange(title="Wallabies", origin_trust=OriginTrust.USER),
    )


CHANGES: dict[str, Callable[[IngestResult], None]] = {
    "new version": new_version,
    "deletion": delete,
    "rescoping": rescope,
    "retitling": retitle,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_by_anybody_is_undone_for_others(
    change: Callable[[IngestResult], None], server: Server, looking: KnowledgeStore
) -> None:
    before = admit(NOTE, source=SOURCE)
    server.catch_up()
    bob = principal("bob")
    assert answered(ask("quokka pump wallabies", by=bob)) == "replica"
    server.pause()
    change(before)
    later = ask("quokka pump wallabies", by=bob)
    assert answered(later) == "behind"
    expected = store().search(KnowledgeQuery(text="quokka pump wallabies", min_score=0.0), bob)
    assert shown(later) == shown(expected)
    if change in (delete, rescope):
        assert not later.passages
        assert not later.omitted
    # There it is still as it was: what was avoided.
    with tenant_session("acme", using=ALIAS):
        document = Document.objects.using(ALIAS).get(pk=before.document_id)
        assert (document.title, document.space.visibility) == ("A note", "tenant")
    server.resume()
    arrived = ask("quokka pump wallabies", by=bob)
    assert answered(arrived) == "replica"
    assert shown(arrived) == shown(expected)


def test_the_order_of_commits_counts_and_not_that_of_marks(
    server: Server, looking: KnowledgeStore
) -> None:
    admit(NOTE)
    with tenant_session("acme"):
        changes.mark("acme")
        (early,) = SearchChange.objects.order_by("-id")[:1]
        in_between = connections.create_connection("default")
        try:
            in_between.set_autocommit(True)
            with in_between.cursor() as cursor:
                cursor.execute("SELECT set_config('verbatim.tenant', 'acme', false)")
                cursor.execute(
                    "INSERT INTO knowledge_search_change (tenant_id) VALUES ('acme') RETURNING id"
                )
                (late,) = cursor.fetchone()
        finally:
            in_between.close()
        assert early.pk < late
        server.catch_up()
        server.pause()
    assert answered(ask("quokka pump")) == "behind"


def test_merged_marks_say_as_much_as_they_did(server: Server, looking: KnowledgeStore) -> None:
    first = admit(NOTE)
    admit("# Hoses\n\nThe wombat hose leaks.\n")
    server.catch_up()
    server.pause()
    store().delete(first.document_id, principal())
    assert len(changes.marks_of("acme")) == 3
    with operations_session():
        term_index.merge_statistics()
    assert len(changes.marks_of("acme")) == 1
    assert answered(ask("quokka pump")) == "behind"
    server.resume()
    assert answered(ask("quokka pump")) == "replica"


def test_a_search_in_the_transaction_of_a_change_reads_its_own_writes(
    server: Server, looking: KnowledgeStore
) -> None:
    with transaction.atomic():
        admit(NOTE)
        assert texts(ask("quokka pump"))


def test_on_the_replica_nobody_sees_another_tenant_and_nobody_writes(
    server: Server, looking: KnowledgeStore
) -> None:
    admit(NOTE)
    admit("# Hoses\n\nThe wombat hose leaks.\n", by=principal(tenant="globex"))
    server.catch_up()
    with tenant_session("acme", using=ALIAS):
        seen = set(Chunk.objects.using(ALIAS).values_list("tenant_id", flat=True))
        assert seen == {"acme"}
    assert not Chunk.objects.using(ALIAS).exists()
    with (
        pytest.raises(Exception, match="read-only transaction"),
        tenant_session("acme", using=ALIAS),
    ):
        Chunk.objects.using(ALIAS).update(text="x")


def test_its_role_is_looked_at_like_that_of_the_primary(server: Server) -> None:
    call_command("check", databases=[ALIAS])


def test_while_it_is_away_the_primary_answers_and_then_it_does_again(
    server: Server, looking: KnowledgeStore
) -> None:
    admit(NOTE)
    server.catch_up()
    assert answered(ask("quokka pump")) == "replica"
    server.kill()
    try:
        for _ in range(2):
            started = time.monotonic()
            found = ask("quokka pump")
            assert texts(found)
            assert answered(found) == "away"
            assert time.monotonic() - started < 5
    finally:
        server.start()
    server.catch_up()
    assert answered(ask("quokka pump")) == "replica"


def test_one_that_failed_is_left_alone_for_a_while(server: Server, looking: KnowledgeStore) -> None:
    admit(NOTE)
    server.catch_up()
    patient = replace(looking.searcher, replica=Replica(ALIAS, left_alone=60.0))
    query = KnowledgeQuery(text="quokka pump")
    server.kill()
    try:
        assert answered(patient.search(query, principal())) == "away"
    finally:
        server.start()
    server.catch_up()
    assert answered(patient.search(query, principal())) == "away"
    assert answered(ask("quokka pump")) == "replica"


@dataclass
class Disturbed:
    """An arm that on the replica has something happen before it goes on with what it found."""

    name: str
    arm: SearchArm
    meanwhile: Callable[[], None]

    def prepare(self, query: KnowledgeQuery) -> Asked:
        asked = self.arm.prepare(query)

        def ask(view: SearchView, limit: int) -> Found:
            found = asked(view, limit)
            if view.using == ALIAS:
                self.meanwhile()
            return found

        return ask


def in_a_statement(server: Server, document: UUID) -> None:
    """Rows that a statement may still look at are deleted and vacuumed."""

    def remove() -> None:
        try:
            server.wait(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active'"
                " AND query LIKE %s AND pid <> pg_backend_pid())",
                "SELECT pg_sleep(50)%",
            )
            store().delete(document, principal("bob", scopes=frozenset({Scope.DELETE})))
            server.tell_primary("VACUUM knowledge_chunk")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool, connections[ALIAS].cursor() as cursor:
        removing = pool.submit(remove)
        try:
            cursor.execute("SELECT pg_sleep(50) FROM knowledge_chunk")
        finally:
            removing.result()


def between_two(server: Server, document: UUID) -> None:
    """A table that its transaction has read is locked, as a migration would."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    store().delete(document, principal("bob", scopes=frozenset({Scope.DELETE})))
    server.tell_primary("BEGIN; LOCK TABLE knowledge_search_change; COMMIT")
    server.wait("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", pid)


@pytest.mark.parametrize("way", [in_a_statement, between_two])
def test_a_search_in_the_way_of_replay_is_answered_by_the_primary_and_the_next_is_not(
    way: Callable[[Server, UUID], None],
    server: Server,
    looking: KnowledgeStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    going = admit(NOTE).document_id
    staying = admit("# Hoses\n\nThe quokka hose leaks.\n").document_id
    server.catch_up()
    times: list[Any] = []

    def meanwhile() -> None:
        times.append(way)
        way(server, going)

    patient = replace(looking.searcher, replica=Replica(ALIAS, left_alone=600.0))
    arms = [Disturbed(arm.name, arm, meanwhile) for arm in patient.arms]
    query = KnowledgeQuery(text="quokka", min_score=0.0)
    with server.impatient():
        found = replace(patient, arms=arms, speller=None).search(query, principal())
    assert times == [way]
    assert answered(found) == "cancelled"
    # What happened meanwhile is seen.
    assert [one.candidate.document_id for one in found.passages] == [staying]
    (told,) = (record for record in caplog.records if record.msg == "replica_failed")
    assert vars(told)["sqlstate"] == "40001"
    server.catch_up()
    again = patient.search(query, principal())
    assert answered(again) == "replica"
    assert shown(again) == shown(found)


def test_deletions_while_others_search_there(server: Server, looking: KnowledgeStore) -> None:
    check(25)
    with operations_session():
        by = {(trace.asked or {}).get("replica") for trace in RecallTrace.objects.all()}
    assert "replica" in by


def test_a_web_process_uses_it_says_so_and_goes_on_without_it(
    server: Server, blob_root: Path
) -> None:
    admit(NOTE)
    server.catch_up()
    key = bearer()
    given = {"DATABASE_REPLICA_URL": server.url, "DATABASE_POOL_SIZE": "4"}
    token = "t" * 20
    with (
        serving(blob_root, METRICS_TOKEN=token, **given) as web,
        httpx.Client(base_url=web.url, headers=key, timeout=30) as client,
    ):

        def search() -> float:
            started = time.monotonic()
            answer = client.post("/v1/tools/knowledge.search", json={"text": "quokka pump"})
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["passages"]) == 1
            return time.monotonic() - started

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(lambda _: search(), range(24)))
        held = server.tell(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s",
            connection.settings_dict["NAME"],
        )
        assert 1 <= held <= 4
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["replica"]["status"] == "ok"
        assert ready.json()["replica"]["behind_bytes"] >= 0
        server.kill()
        try:
            assert max(search() for _ in range(10)) < 5
            ready = client.get("/readyz")
            assert ready.status_code == 200
            assert ready.json()["replica"] == {"status": "unavailable"}
        finally:
            server.start()
        roll_up()
        told = client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text
        assert 'verbatim_searches_on_replica_total{tenant="acme"} 24.0' in told
        assert 'verbatim_searches_fell_back_total{tenant="acme"} 10.0' in told
