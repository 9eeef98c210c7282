"""Gate: deletion takes all of a document with it, whoever asks for it and by which way."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.db.models import ProtectedError
from django.test import Client, RequestFactory
from django.urls import reverse

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope
from artifacts.blobs import StorageBlobStore
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.adapters.embedding import Embedding
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.errors import Deleted, LegalHold
from knowledge.core.types import (
    Actor,
    ChunkSetState,
    ConnectorIdentity,
    IngestRequest,
    IngestResult,
    Verdict,
    Visibility,
)
from knowledge.lifecycle.pii_policy import set_pii_policy
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    IngestJob,
    KnowledgeEvent,
    TracedPassage,
    UnfinishedVersion,
)
from knowledge.retrieval.replay import DELETED_TEXT
from knowledge.wiring import store
from tests.embedding_fakes import FakeEmbedder, FakeVectors
from tests.factories import PASSWORD, make_operator
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.rechunk_fakes import FinerChunker
from tests.support import admit, ask, bearer, principal, upload, work, work_in_bulk

pytestmark = pytest.mark.django_db

OLGA = Principal.for_operator("acme", "olga")
SOURCE = ConnectorIdentity(type="wiki", id="relay")
TITLE = "Relay handbook of the quokka"
FILLER = " ".join(["The narrow bridge rotates the patient ribbon before the anvil is opened."] * 12)
# Words that occur in no other document, one for each way in which a text is stored.
WORDS = ("uniquemarkera", "uniquemarkerb", "unfinishedmarker", "asidemarker", "quokka")
# What may still name the document: the tombstone, scrubbed traces, events with ids.
KEPT = {
    "knowledge_deletion",
    "knowledge_deletedchunk",
    "knowledge_tracedpassage",
    "knowledge_recalltrace",
    "knowledge_knowledgeevent",
    "knowledge_bulkitem",
}


def text(marker: str) -> str:
    return (
        f"# Relay\n\nThe relay says {marker}. {FILLER}\n\n"
        f"## Rollback\n\nRestore the tag. {marker} {FILLER} {FILLER} {FILLER} {FILLER}\n\n"
        f"## People\n\nAsk ann.lee@firma.de about the asidemarker. {FILLER}\n"
    )


@pytest.fixture
def vectors() -> Iterator[FakeVectors]:
    """The store of this process with an embedder and a place for its vectors."""
    wired, sink = store(), FakeVectors()
    own = wired.ingestor
    embedding = Embedding(embedder=FakeEmbedder(), vectors=sink)
    object.__setattr__(wired, "ingestor", replace(own, embedding=embedding))
    try:
        yield sink
    finally:
        object.__setattr__(wired, "ingestor", own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A document with everything that one can have, and what was shown of it."""

    document_id: UUID
    chunk_ids: list[str]
    first_live_at: datetime
    trace_id: UUID
    numbers: list[int]


def request(content: str, **given: Any) -> IngestRequest:
    return IngestRequest(
        artifact_id=upload(principal(), content, "quokka.md").pk,
        title=TITLE,
        origin_trust=OriginTrust.USER,
        **given,
    )


def make(*, of_conversation: bool = False) -> Made:
    """Two versions, a retired chunk set, a quarantined chunk, an unfinished version, a job, a trace."""
    set_pii_policy(PiiRules(verdicts={Detector("email"): Verdict.QUARANTINE}), OLGA)
    first = _sent() if of_conversation else admit(text("uniquemarkera"), title=TITLE, source=SOURCE)
    further: dict[str, Any] = (
        {"document_id": first, "visibility": Visibility.PRINCIPAL}
        if of_conversation
        else {"source": SOURCE, "visibility": Visibility.TENANT}
    )
    document_id = first if isinstance(first, UUID) else first.document_id
    store().ingest(request(text("uniquemarkerb"), **further), principal())
    with _ingestor(chunker=FinerChunker()):
        store().rechunk(document_id, OLGA)
    with _broken_embedder():
        begun = store().ingest(request(text("unfinishedmarker"), **further), principal())
    assert begun.state is ChunkSetState.INGESTING
    store().ingest_later(request(text("uniquemarkera"), **further), principal())
    shown = ask("relay uniquemarkerb", max_passages=5, max_per_document=5)
    assert shown.passages
    with tenant_session("acme"):
        sets = ChunkSet.objects.filter(version__document=document_id)
        assert {str(one.state) for one in sets} == {"live", "retired"}
        chunks = Chunk.objects.exclude(text__contains="wallaby")
        assert chunks.filter(verdict=Verdict.QUARANTINE).exists()
        assert UnfinishedVersion.objects.exists()
        assert IngestJob.objects.filter(state="queued").exists()
        started = DocumentVersion.objects.get(document=document_id, version=1).ingested_at
        return Made(
            document_id=document_id,
            chunk_ids=list(chunks.values_list("chunk_id", flat=True)),
            first_live_at=started + timedelta(microseconds=1),
            trace_id=shown.trace_id,
            numbers=list(chunks.values_list("pk", flat=True)),
        )


def _sent() -> UUID:
    attachment = store().attach(
        io.BytesIO(text("uniquemarkera").encode()),
        principal(),
        conversation_id="c-1",
        actor=Actor.PRINCIPAL,
        filename="quokka.md",
    )
    assert work() == 1
    assert attachment.document_id is not None
    return attachment.document_id


@contextmanager
def _ingestor(**parts: Any) -> Iterator[None]:
    wired, own = store(), store().ingestor
    object.__setattr__(wired, "ingestor", replace(own, **parts))
    try:
        yield
    finally:
        object.__setattr__(wired, "ingestor", own)


@contextmanager
def _broken_embedder() -> Iterator[None]:
    embedding = store().ingestor.embedding
    assert embedding is not None
    embedder: Any = embedding.embedder
    embedder.failing = lambda call: "timeout"
    try:
        yield
    finally:
        embedder.failing = lambda call: None


# --- the ways to ask for it --------------------------------------------------------------------


def by_api(document_id: UUID) -> None:
    headers = bearer("bob", scopes=[Scope.DELETE])
    answer = Client().delete(f"/v1/documents/{document_id}?reason=outdated", headers=headers)
    assert answer.status_code == 200, answer.content


def _operator() -> Client:
    client = Client()
    client.login(username=make_operator("acme").username, password=PASSWORD)
    return client


def by_admin(document_id: UUID) -> None:
    address = reverse("admin:knowledge_document_delete", args=[document_id])
    _operator().post(address, {"confirmed": "yes", "reason": "outdated"})


def by_admin_in_bulk(document_id: UUID) -> None:
    _operator().post(
        reverse("admin:knowledge_document_changelist"),
        {
            "action": "delete_selected",
            "_selected_action": [str(document_id)],
            "asked": "yes",
            "reason": "outdated",
        },
    )
    work_in_bulk()


def by_admin_of_a_queryset(document_id: UUID) -> None:
    asked = RequestFactory().post("/admin/", {"reason": "outdated"})
    asked.user = make_operator("acme")
    asked._messages = _Messages()  # type: ignore[attr-defined]
    with tenant_session("acme"):
        chosen = Document.objects.filter(pk=document_id)
        admin.site._registry[Document].delete_queryset(asked, chosen)


class _Messages:
    def add(self, *given: Any) -> None:
        """Nobody reads them."""


def by_conversation(document_id: UUID) -> None:
    answer = Client().delete("/v1/conversations/c-1?reason=outdated", headers=bearer())
    assert answer.status_code == 200, answer.content


def by_command(document_id: UUID) -> None:
    who = ("--tenant", "acme", "--principal", "alice", "--reason", "outdated", "--json")
    call_command("delete_document", str(document_id), *who, stdout=io.StringIO())


WAYS = [by_api, by_admin, by_admin_in_bulk, by_admin_of_a_queryset, by_conversation, by_command]


def by_name(way: Callable[[UUID], None]) -> str:
    return way.__name__


# --- the gate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=by_name)
def test_all_of_it_goes_at_once_and_its_bytes_with_the_sweep(
    blob_root: Path, vectors: FakeVectors, way: Callable[[UUID], None]
) -> None:
    kept = admit("# Other\n\nThe wallaby stays with the relay.\n", filename="other.md")
    made = make(of_conversation=way is by_conversation)
    assert len([number for number in made.numbers if number in vectors.vectors]) > 5
    way(made.document_id)
    unfound(made, vectors)
    trace_says_deleted(made)
    assert_statistics_are_those_of_the_live_rows()
    assert store().get_chunk(kept.chunk_ids[0], principal())
    assert ask("wallaby").passages

    sweep()
    with operations_session():
        assert not [path for path in words_of_blobs(blob_root) if not its_own_upload(path)]
    fresh = admit(text("uniquemarkera"), title=TITLE, source=SOURCE)
    assert (fresh.version, fresh.already_ingested) == (1, False)
    assert ask("uniquemarkera").passages
    trace_says_deleted(made)


def unfound(made: Made, vectors: FakeVectors) -> None:
    """Before any sweep: no reader finds it, and no table but those that may name it does."""
    for question in ("uniquemarkera", "uniquemarkerb", "unfinishedmarker", "relay tag"):
        for as_of in (None, made.first_live_at):
            found = ask(question, as_of=as_of, max_passages=50, max_per_document=50)
            shown = {passage.candidate.document_id for passage in found.passages}
            assert made.document_id not in shown | {one.document_id for one in found.omitted}
    by = principal()
    with pytest.raises(Deleted):
        store().get_document(made.document_id, by)
    for chunk_id in made.chunk_ids:
        with pytest.raises(Exception, match=r"deleted|nothing by that name"):
            store().get_chunk(chunk_id, by)
    assert not [number for number in made.numbers if number in vectors.vectors]
    ids = [str(made.document_id), *made.chunk_ids]
    for table, rows in every_row().items():
        if table not in KEPT:
            assert not [row for row in rows if any(one in row for one in ids)], table
        if table not in {"artifacts_artifact", "knowledge_recalltrace"}:
            told = [row for row in rows for word in WORDS if word in row.lower()]
            assert not told, table


def trace_says_deleted(made: Made) -> None:
    with tenant_session("acme"):
        passages = TracedPassage.objects.filter(trace=made.trace_id, document_id=made.document_id)
        assert passages.exists()
        for passage in passages:
            assert passage.deleted_at is not None
            assert (passage.title, passage.heading_path) == ("", [])
    view = store().view_trace(made.trace_id, principal())
    assert DELETED_TEXT in {passage.text for passage in view.passages}


def words_of_blobs(blob_root: Path) -> list[Path]:
    files = [path for path in blob_root.rglob("*") if path.is_file()]
    return [path for path in files if any(word.encode() in path.read_bytes() for word in WORDS)]


def its_own_upload(path: Path) -> bool:
    """What the caller put there is the caller's, and goes with its own time."""
    return Artifact.objects.filter(storage_key__endswith=path.name, origin="UPLOAD").exists()


# --- what stops it, and what does not ----------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=by_name)
def test_a_legal_hold_stops_every_way_and_each_is_on_record(
    blob_root: Path, way: Callable[[UUID], None]
) -> None:
    if way is by_conversation:
        document_id = _sent()
    else:
        document_id = admit(text("uniquemarkera"), title=TITLE, source=SOURCE).document_id
    with tenant_session("acme"):
        Document.objects.filter(pk=document_id).update(legal_hold=True)
    try:
        way(document_id)
    except (AssertionError, Exception) as stopped:  # noqa: BLE001 - each says it in its own way
        assert "legal_hold" in str(stopped) or "legal hold" in str(stopped), stopped  # noqa: PT017
    with tenant_session("acme"):
        assert DocumentVersion.objects.filter(document=document_id).count() == 1
        (refused,) = KnowledgeEvent.objects.filter(name=KnowledgeEvent.DELETE_REFUSED)
        assert (refused.document_id, refused.data) == (document_id, {"reason": "legal_hold"})
    with pytest.raises(LegalHold):
        store().delete(document_id, OLGA)


def test_the_database_lets_nobody_around_it(blob_root: Path) -> None:
    result: IngestResult = admit(text("uniquemarkera"), title=TITLE, source=SOURCE)
    rows = every_row()
    with tenant_session("acme"), pytest.raises(ProtectedError):
        Document.objects.filter(pk=result.document_id).delete()
    assert every_row() == rows


def test_bytes_that_the_storage_keeps_are_found_by_nobody_and_tried_again(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = admit(text("uniquemarkera"), title=TITLE, source=SOURCE)
    receipt = store().delete(result.document_id, principal())

    def away(self: StorageBlobStore, key: str) -> None:
        raise OSError("storage is away")

    with monkeypatch.context() as patched:
        patched.setattr(StorageBlobStore, "delete", away)
        assert sweep().failed == 1
    assert not ask("uniquemarkera").passages
    assert store().get_deletion(receipt.pk, principal()).bytes_state == "pending_sweep"
    assert sweep().swept == 1
    assert store().get_deletion(receipt.pk, principal()).bytes_state == "swept"
