"""Traces age: whole, then ids, hashes and counts, then nothing."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import close_old_connections, connection
from django.db.models import F
from django.test import Client

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from knowledge.core.types import OmittedReason
from knowledge.lifecycle import retention
from knowledge.lifecycle.retention import Retained, retain_traces
from knowledge.models import CitedAnswer, RecallTrace, TracedPassage
from knowledge.retrieval.citations import Cited
from knowledge.retrieval.replay import BlockState, PassageState
from knowledge.wiring import store
from tests.factories import PASSWORD, make_operator
from tests.support import admit, ask, bearer, principal

FULL, WHOLE = timedelta(days=30), timedelta(days=365)
SECRETS = ("zebra", "Pumps", "Start", "belief of hers", "2026-05-02")


def retain() -> Retained:
    return retain_traces(full=FULL, whole=WHOLE)


def aged(trace_id: UUID, days: float) -> UUID:
    with operations_session():
        RecallTrace.objects.filter(pk=trace_id).update(
            created_at=F("created_at") - timedelta(days=days)
        )
    return trace_id


def rows() -> tuple[int, int]:
    with operations_session():
        return RecallTrace.objects.count(), TracedPassage.objects.count()


def everything_kept_of(trace_id: UUID) -> str:
    """Every column of a trace and its passages, as text."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT t::text || coalesce(string_agg(p::text, ''), '') FROM knowledge_recalltrace t"
            " LEFT JOIN knowledge_tracedpassage p ON p.trace_id = t.id WHERE t.id = %s GROUP BY t.*",
            [trace_id],
        )
        text: str = cursor.fetchone()[0]
    return text


@pytest.fixture
def searched(blob_root: Path) -> Any:
    admit(
        "# Start\n\nThe zebra pump starts by hand.\n\n# Stop\n\nA zebra valve stops it.\n",
        title="Pumps",
        doc_date="2026-05-02",
    )
    admit("# Other\n\nOne more zebra pump.\n", title="Pumps too")
    return ask("zebra pump", beliefs=({"id": "b1", "text": "belief of hers"},), max_passages=1)


@pytest.mark.django_db
def test_the_two_tiers(searched: Any) -> None:
    kept = aged(searched.trace_id, 29.9)
    assert retain() == Retained(thinned=0, dropped=0)
    assert "zebra" in everything_kept_of(kept)
    aged(kept, 0.2)
    assert retain() == Retained(thinned=1, dropped=0)
    assert retain() == Retained(thinned=0, dropped=0), "once is enough"
    aged(kept, 334)
    assert retain() == Retained(thinned=0, dropped=0)
    aged(kept, 1)
    assert retain() == Retained(thinned=0, dropped=1)
    assert rows() == (0, 0)


@pytest.mark.django_db
def test_a_thinned_trace_keeps_ids_hashes_and_counts_and_no_words(
    client: Client, searched: Any
) -> None:
    headers = bearer()
    address = f"/v1/traces/{searched.trace_id}"
    before = client.get(address, headers=headers).json()
    assert before["thinned_at"] is None
    assert {one["reason"] for one in before["omitted"]} == {"passages"}
    assert set(before["omitted"][0]["terms"]) == set(before["passages"][0]["terms"])
    assert everything_kept_of(searched.trace_id).count("belief of hers") == 1
    aged(searched.trace_id, 31)
    retain()
    kept = everything_kept_of(searched.trace_id)
    assert not [secret for secret in SECRETS if secret in kept]

    after = client.get(address, headers=headers).json()
    assert after["thinned_at"]
    assert (after["text"], after["beliefs"], after["notes"]) == (None, None, None)
    assert (after["block"], after["block_state"]) == (None, "thinned")
    for same in ("trace_id", "policy", "block_sha256", "block_tokens", "duration_ms", "kind"):
        assert after[same] == before[same]
    (passage,), (was,) = after["passages"], before["passages"]
    for same in ("chunk_id", "document_id", "content_sha256", "tokens", "position", "state"):
        assert passage[same] == was[same]
    for gone in ("title", "heading_path", "doc_date", "score", "terms", "arms"):
        assert was[gone] is not None
        assert passage[gone] is None
    # The words are the chunk's own, and the hash says that they are those that were shown.
    assert (passage["text"], passage["verified"]) == (was["text"], True)
    assert after["omitted"] == [
        {name: one[name] for name in ("chunk_id", "document_id", "reason", "tokens")}
        for one in before["omitted"]
    ]


@pytest.mark.django_db
def test_a_passage_that_is_not_what_was_shown_is_found_out(searched: Any) -> None:
    with tenant_session("acme"):
        TracedPassage.objects.update(content_sha256="0" * 64)
    aged(searched.trace_id, 31)
    retain()
    (passage,) = store().view_trace(searched.trace_id, principal()).passages
    assert (passage.state, passage.verified) == (PassageState.SHOWN, False)


@pytest.mark.django_db
def test_a_deleted_passage_stays_deleted_when_its_trace_is_thinned(searched: Any) -> None:
    (passage,) = searched.passages
    store().delete(passage.candidate.document_id, principal())
    aged(searched.trace_id, 31)
    retain()
    view = store().view_trace(searched.trace_id, principal())
    assert view.block_state is BlockState.THINNED
    assert [(one.state, one.verified) for one in view.passages] == [(PassageState.DELETED, None)]


@pytest.mark.django_db
def test_the_admin_says_what_is_forgotten(client: Client, searched: Any) -> None:
    make_operator("acme", "olga")
    client.login(username="olga", password=PASSWORD)
    aged(searched.trace_id, 31)
    retain()
    for address in (
        f"/admin/knowledge/recalltrace/{searched.trace_id}/change/",
        "/admin/knowledge/recalltrace/",
    ):
        page = client.get(address).content.decode()
        assert "(forgotten)" in page
        assert "zebra" not in page
    page = client.get(f"/admin/knowledge/recalltrace/{searched.trace_id}/change/").content.decode()
    assert "Thinned on" in page
    assert "words unchanged" in page
    assert "None" not in page.split("<main")[1]


@pytest.mark.django_db
def test_what_is_told_of_answers_goes_with_the_trace(searched: Any) -> None:
    cited = Cited(chunk_id=searched.passages[0].candidate.chunk_id)
    store().record_answer(searched.trace_id, principal(), answered=True, citations=[cited])
    aged(searched.trace_id, 31)
    retain()
    with operations_session():
        assert CitedAnswer.objects.count() == 1
    aged(searched.trace_id, 335)
    retain()
    with operations_session():
        assert CitedAnswer.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_batches_and_several_runs_at_once(blob_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_BATCH", 4)
    admit("The zebra pump starts by hand.")
    for _ in range(30):
        aged(ask("zebra").trace_id, 400)
    for _ in range(30):
        aged(ask("zebra").trace_id, 40)
    for _ in range(3):
        ask("zebra")
    done: list[Retained] = []

    def run() -> None:
        done.append(retain())
        close_old_connections()
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each trace was taken by one of them; whoever met a locked one left it to the other.
    assert sum(one.dropped for one in done) == 30
    assert sum(one.thinned for one in done) == 30
    assert rows() == (33, 33)


@pytest.mark.django_db(transaction=True)
def test_a_run_that_dies_has_done_what_it_did_and_the_next_goes_on(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_BATCH", 4)
    admit("The zebra pump starts by hand.")
    for _ in range(10):
        aged(ask("zebra").trace_id, 40)
    real, calls = retention._thin, list[int]()

    def dies(traces: list[UUID]) -> None:
        real(traces)
        calls.append(len(traces))
        if len(calls) == 2:
            raise RuntimeError("killed")

    monkeypatch.setattr(retention, "_thin", dies)
    with pytest.raises(RuntimeError):
        retain()
    with operations_session():
        assert RecallTrace.objects.filter(thinned_at__isnull=False).count() == 4
    monkeypatch.setattr(retention, "_thin", real)
    assert retain().thinned == 6


@pytest.mark.django_db(transaction=True)
def test_a_deletion_that_is_scrubbing_the_same_trace_is_not_waited_for(blob_root: Path) -> None:
    made = admit("The zebra pump starts by hand.")
    first = aged(ask("zebra").trace_id, 40)
    admit("A wallaby sleeps.", title="Other")
    second = aged(ask("wallaby").trace_id, 40)
    held, go_on = threading.Event(), threading.Event()

    def delete() -> None:
        with tenant_session("acme"):
            store().delete(made.document_id, principal())
            held.set()
            go_on.wait(60)
        connection.close()

    thread = threading.Thread(target=delete)
    thread.start()
    assert held.wait(60)
    assert retain().thinned == 1
    go_on.set()
    thread.join()
    with operations_session():
        assert RecallTrace.objects.get(pk=second).thinned_at
        assert not RecallTrace.objects.get(pk=first).thinned_at
    assert retain().thinned == 1
    assert "hand" not in everything_kept_of(first)


@pytest.mark.django_db
def test_every_candidate_is_in_the_trace_with_its_score_and_why_it_was_left_out(
    blob_root: Path,
) -> None:
    long = " ".join(f"zebra word{number}" for number in range(90))
    for number in range(3):
        admit(f"The zebra pump number {number} turns.", title=f"Pump {number}")
    admit("The ZEBRA pump number 2 turns.", title="Pump 2 again")
    admit(f"# A\n\nzebra pump {long}.\n\n# B\n\nzebra pump {long} too.\n", title="Long")
    admit("Something about a pump and a great many other things that nobody asked for.")
    seen: dict[str, set[str]] = {}
    for given in (
        {"budget_tokens": 30, "max_passages": 10},
        {"max_passages": 2},
        {"max_per_document": 1, "max_passages": 10},
        {"min_score": 0.3, "max_passages": 10},
    ):
        result = ask("zebra pump", **given)
        view = store().view_trace(result.trace_id, principal())
        candidates = [one.traced.chunk_id for one in view.passages if one.traced]
        candidates += [one["chunk_id"] for one in view.omitted]
        assert len(candidates) == len(set(candidates)) == 7
        for one in view.omitted:
            seen.setdefault(one["reason"], set()).add(one["chunk_id"])
            assert 0 <= one["score"] <= 1
            assert set(one["terms"]) == {"match", "authority", "scope", "recency", "penalty"}
    assert set(seen) == {str(reason) for reason in OmittedReason}


def test_an_operator_sees_it_as_anybody_else_does(db: None, searched: Any) -> None:
    aged(searched.trace_id, 31)
    retain()
    view = store().view_trace(searched.trace_id, Principal.for_operator("acme", "olga"))
    assert view.block_state is BlockState.THINNED


@pytest.mark.django_db
def test_a_document_that_thinned_traces_cite_can_be_deleted_again_and_again(
    searched: Any, blob_root: Path
) -> None:
    cited = searched.passages[0].candidate.document_id
    store().delete(cited, principal())
    aged(searched.trace_id, 31)
    assert retain().thinned == 1
    assert not store().verify_deletion(cited, Principal.for_operator("acme", "olga")).left
    admit(
        "# Start\n\nThe zebra pump starts by hand.\n\n# Stop\n\nA zebra valve stops it.\n",
        title="Pumps",
    )
    again = store().delete(cited, principal())
    assert not any(again.left.values())
    assert not store().verify_deletion(cited, Principal.for_operator("acme", "olga")).left
