"""Deletion: all of it goes, at once, and only by whom it may."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import Scope, Sensitivity
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.adapters import term_index
from knowledge.core.errors import Deleted, LegalHold
from knowledge.core.types import ConnectorIdentity, IngestResult, Visibility
from knowledge.models import Document, KnowledgeEvent, RecallTrace, TermStatistic, TracedPassage
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.support import admit, ask, bearer, footprint, principal, upload

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe quokka pump is started by hand.\n"
SOURCE = ConnectorIdentity(type="wiki", id="pumps")
OURS = (
    "knowledge_document",
    "knowledge_documentversion",
    "knowledge_chunkset",
    "knowledge_chunk",
    "knowledge_chunk_index",
)


def two_versions() -> IngestResult:
    admit(NOTE, source=SOURCE, title="Pumps of the quokka")
    return admit(
        NOTE + "\nAnd stopped by the wombat.\n", source=SOURCE, title="Pumps of the quokka"
    )


def hold(document_id: Any, *, held: bool = True) -> None:
    with tenant_session("acme"):
        Document.objects.filter(document_id=document_id).update(legal_hold=held)


def test_nothing_of_a_deleted_document_is_left(blob_root: Path) -> None:
    kept = admit("# Other\n\nThe wallaby stays.\n", filename="other.md")
    before = footprint(blob_root)
    result = two_versions()
    ask("quokka", max_passages=5)
    receipt = store().delete(result.document_id, principal(), reason="no longer true")

    assert (receipt.document_id, receipt.versions, receipt.chunk_sets) == (result.document_id, 2, 2)
    assert (receipt.chunks, receipt.index_rows, receipt.traced_passages) == (2, 2, 1)
    assert receipt.bytes_state == "pending_sweep"
    after = footprint(blob_root)
    assert {table: after[table] for table in OURS} == {table: before[table] for table in OURS}
    assert not ask("quokka").passages
    assert not ask("quokka").omitted
    for chunk_id in result.chunk_ids:
        with pytest.raises(Deleted):
            store().get_chunk(chunk_id, principal())
    with pytest.raises(Deleted):
        store().get_document(result.document_id, principal())
    assert store().get_chunk(kept.chunk_ids[0], principal())
    assert ask("wallaby").passages


def test_no_word_of_it_is_left_in_any_row_but_the_callers_question(blob_root: Path) -> None:
    result = two_versions()
    ask("pump started by hand", max_passages=5)
    store().delete(result.document_id, principal())
    # At once: nothing waits for the statistics to be merged.
    rows = every_row()
    for word in ("quokka", "wombat", "Pumps of the"):
        assert not [(t, row) for t, found in rows.items() for row in found if word in row]


def test_statistics_forget_its_words(blob_root: Path) -> None:
    admit("# Other\n\nThe wallaby stays.\n", filename="other.md", language="english")
    result = two_versions()
    with operations_session():
        term_index.merge_statistics()
    assert_statistics_are_those_of_the_live_rows()
    store().delete(result.document_id, principal())
    assert_statistics_are_those_of_the_live_rows()
    with operations_session():
        term_index.merge_statistics()
        assert not TermStatistic.objects.filter(lexeme__startswith="quokka").exists()
        assert TermStatistic.objects.filter(lexeme="wallabi").exists()
    assert_statistics_are_those_of_the_live_rows()


def test_traces_keep_ids_and_lose_what_they_quoted(blob_root: Path) -> None:
    result = two_versions()
    admit("# Other\n\nThe quokka also visits here.\n", filename="other.md", title="Other")
    answer = ask("quokka", max_passages=5)
    assert len(answer.passages) == 2
    store().delete(result.document_id, principal())
    with tenant_session("acme"):
        trace = RecallTrace.objects.get(pk=answer.trace_id)
        passages = {p.document_id: p for p in trace.passages.all()}
        gone = passages.pop(result.document_id)
        (stays,) = passages.values()
    assert gone.deleted_at is not None
    assert (gone.title, gone.heading_path, gone.doc_date) == ("", [], None)
    assert gone.chunk_id in result.chunk_ids
    assert gone.content_sha256
    assert (stays.deleted_at, stays.title) == (None, "Other")
    # A deleted passage stays deleted for good, even when the same text comes back.
    again = admit(NOTE, source=SOURCE)
    assert again.version == 1
    with tenant_session("acme"):
        assert TracedPassage.objects.get(pk=gone.pk).deleted_at == gone.deleted_at


def test_the_sweeper_takes_its_sources_and_never_the_callers_file(blob_root: Path) -> None:
    mine = upload(principal(), NOTE)
    result = admit(NOTE, source=SOURCE)
    blobs = len(footprint(blob_root)["blobs"])
    with operations_session():
        (source,) = Artifact.objects.filter(origin="KNOWLEDGE_SOURCE")
    receipt = store().delete(result.document_id, principal())
    assert receipt.sources == [source.pk]
    assert sweep().swept == 1
    with operations_session():
        assert not Artifact.objects.filter(pk=source.pk).exists()
        left = Artifact.objects.get(pk=mine.pk)
    assert left.expires_at == mine.expires_at
    assert len(footprint(blob_root)["blobs"]) == blobs - 1


def test_deletion_is_an_event_with_ids_and_counts_alone(blob_root: Path) -> None:
    result = two_versions()
    store().delete(result.document_id, principal(), reason="superseded by law")
    with tenant_session("acme"):
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.DELETED)
    assert (event.document_id, event.actor, event.surface) == (result.document_id, "alice", "api")
    assert event.data["versions"] == 2
    assert event.data["reason"] == "superseded by law"
    assert len(event.data["source_artifact_ids"]) == 2


def test_a_legal_hold_stops_it_and_is_on_record(blob_root: Path, client: Client) -> None:
    result = two_versions()
    hold(result.document_id)
    rows = every_row(without=["knowledge_knowledgeevent", "access_apikey"])
    with pytest.raises(LegalHold):
        store().delete(result.document_id, principal())
    answer = client.delete(f"/v1/documents/{result.document_id}", headers=bearer())
    assert (answer.status_code, answer.json()["code"]) == (409, "legal_hold")
    with tenant_session("acme"):
        refused = KnowledgeEvent.objects.filter(name=KnowledgeEvent.DELETE_REFUSED)
        assert {event.actor for event in refused} == {"alice"}
        assert [event.data for event in refused] == [{"reason": "legal_hold"}] * 2
    assert every_row(without=["knowledge_knowledgeevent", "access_apikey"]) == rows
    hold(result.document_id, held=False)
    assert store().delete(result.document_id, principal()).versions == 2


@pytest.mark.parametrize(
    ("by", "allowed"),
    [
        (principal(), True),
        (principal(scopes=frozenset()), True),
        (principal("bob"), False),
        (principal("bob", scopes=frozenset({Scope.WRITE, Scope.AUDIT})), False),
        (principal("bob", scopes=frozenset({Scope.DELETE})), True),
        (Principal.for_operator("acme", "olga"), True),
    ],
)
def test_who_may_delete_what_they_see(blob_root: Path, by: Principal, allowed: bool) -> None:
    result = admit(NOTE)
    if allowed:
        assert store().delete(result.document_id, by).versions == 1
    else:
        rows = every_row()
        with pytest.raises(Forbidden):
            store().delete(result.document_id, by)
        assert every_row() == rows


@pytest.mark.parametrize(
    "by",
    [
        principal("bob", scopes=frozenset({Scope.DELETE})),
        principal("alice", tenant="globex", scopes=frozenset({Scope.DELETE})),
        principal(sensitivity_ceiling=Sensitivity.PUBLIC),
        Principal.for_operator("globex", "olga"),
    ],
)
def test_what_one_may_not_see_one_cannot_delete(blob_root: Path, by: Principal) -> None:
    result = admit(NOTE, visibility=Visibility.PRINCIPAL)
    rows = every_row()
    for document_id in (result.document_id, uuid4()):
        with pytest.raises(NotFound):
            store().delete(document_id, by)
    assert every_row() == rows


def test_a_project_document_is_deleted_within_its_project(blob_root: Path) -> None:
    result = admit(NOTE, visibility=Visibility.PROJECT)
    with pytest.raises(NotFound):
        store().delete(result.document_id, principal())
    assert store().delete(result.document_id, principal(), current_scope="apollo").versions == 1


def test_the_api_answers_with_the_receipt(blob_root: Path, client: Client) -> None:
    result = two_versions()
    headers = bearer()
    answer = client.delete(f"/v1/documents/{result.document_id}?reason=old", headers=headers)
    receipt = answer.json()
    assert answer.status_code == 200
    assert receipt["document_id"] == str(result.document_id)
    assert (receipt["versions"], receipt["bytes_state"]) == (2, "pending_sweep")
    again = client.delete(f"/v1/documents/{result.document_id}?reason=old", headers=headers)
    assert (again.status_code, again.json()["code"]) == (410, "deleted")


def test_the_same_text_after_a_deletion_has_the_same_ids(blob_root: Path) -> None:
    first = admit(NOTE, source=SOURCE)
    store().delete(first.document_id, principal())
    second = admit(NOTE, source=SOURCE)
    assert (second.document_id, second.version) == (first.document_id, 1)
    assert second.chunk_ids == first.chunk_ids
    assert not second.already_ingested
    assert store().get_chunk(second.chunk_ids[0], principal())


def test_a_search_as_of_before_the_deletion_finds_nothing(blob_root: Path) -> None:
    result = two_versions()
    with tenant_session("acme"):
        document = store().get_document(result.document_id, principal())
        instant = document.versions.all()[0].ingested_at + timedelta(microseconds=1)
    assert ask("quokka", as_of=instant).passages
    store().delete(result.document_id, principal())
    assert not ask("quokka", as_of=instant).passages
