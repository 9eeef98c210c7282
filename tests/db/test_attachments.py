"""Files sent in conversations: which become documents, in what way, and how they go again."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.db.models.functions import Now
from django.test import Client

from access.errors import NotFound, Unavailable
from access.models import ApiKey
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge import tasks
from knowledge.core import fingerprint
from knowledge.core.errors import ConversationDeleted
from knowledge.core.types import Actor, AttachmentState, Visibility
from knowledge.ingest.pipeline import Ingestor
from knowledge.models import Attachment, Document, DocumentVersion, IngestJob, KnowledgeEvent
from knowledge.wiring import store
from tests.inspection import every_row, forge_secret, refusals
from tests.support import admit, ask, bearer, footprint, principal, work

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe quokka pump is started by hand.\n"
ATTACH = "/v1/attachments"


def send(
    content: str | bytes = NOTE,
    *,
    by: Principal | None = None,
    conversation: str = "c-1",
    actor: Actor = Actor.PRINCIPAL,
    filename: str = "pumps.md",
) -> Attachment:
    data = content.encode() if isinstance(content, str) else content
    return store().attach(
        io.BytesIO(data),
        by or principal(),
        conversation_id=conversation,
        actor=actor,
        filename=filename,
    )


def state_of(attachment: Attachment) -> str:
    with operations_session():
        shown: str = Attachment.objects.with_state().get(pk=attachment.pk).state
    return shown


def reason_of(attachment: Attachment) -> str:
    with operations_session():
        one: Attachment = Attachment.objects.with_state().get(pk=attachment.pk)
        return one.reason


def documents() -> list[UUID]:
    with operations_session():
        return list(Document.objects.values_list("document_id", flat=True))


def versions() -> int:
    with operations_session():
        return DocumentVersion.objects.count()


# --- which become documents ------------------------------------------------------------------


def test_an_owner_sent_file_becomes_a_document_with_the_fixed_request(blob_root: Path) -> None:
    attachment = send()
    assert state_of(attachment) == AttachmentState.PENDING
    assert not documents()
    assert work() == 1
    assert state_of(attachment) == AttachmentState.INGESTED
    with tenant_session("acme"):
        document = Document.objects.select_related("space").get()
        version = document.versions.get()
    sha256 = fingerprint.content_sha256(NOTE)
    assert document.document_id == attachment.document_id
    assert document.document_id == fingerprint.document_id_for_attachment("acme", "alice", sha256)
    assert (document.title, document.ingested_by_principal_id) == ("pumps.md", "alice")
    assert (document.space.visibility, document.space.principal_id) == ("principal", "alice")
    assert (document.space.sensitivity, version.authority) == ("internal", "principal_supplied")
    assert ask("quokka").passages
    assert not ask("quokka", by=principal("bob")).passages


@pytest.mark.parametrize("actor", [Actor.SURFACE, Actor.SCHEDULER])
def test_a_surface_or_a_scheduler_never_admits(blob_root: Path, actor: Actor) -> None:
    attachment = send(actor=actor)
    assert state_of(attachment) == AttachmentState.STORED
    assert work() == 0
    assert not documents()


@pytest.mark.parametrize(
    "by",
    [
        principal(scopes=frozenset()),
        principal(scopes=frozenset({Scope.DELETE, Scope.AUDIT})),
        principal(max_origin_trust=OriginTrust.MODEL),
        principal(max_origin_trust=OriginTrust.EXTERNAL_UNTRUSTED),
    ],
)
def test_a_key_that_may_not_admit_only_stores(blob_root: Path, by: Principal) -> None:
    """Else an agent's key could admit by calling itself the principal."""
    attachment = send(by=by)
    assert state_of(attachment) == AttachmentState.STORED
    assert artifacts.read_bytes(attachment.artifact) == NOTE.encode()
    assert work() == 0
    assert not documents()


def test_the_file_lives_as_long_as_the_conversation_and_is_the_senders_alone(
    blob_root: Path,
) -> None:
    attachment = send()
    assert attachment.artifact.origin == "ATTACHMENT"
    assert attachment.artifact.expires_at is None
    assert artifacts.get(principal(), attachment.artifact_id).pk == attachment.artifact_id
    with pytest.raises(NotFound):
        artifacts.get(principal("bob"), attachment.artifact_id)


def test_the_same_file_sent_twice_is_one_document(blob_root: Path) -> None:
    first, second = send(), send(filename="again.md")
    work()
    assert [state_of(one) for one in (first, second)] == [AttachmentState.INGESTED] * 2
    assert documents() == [first.document_id]
    assert versions() == 1


def test_another_principal_and_another_tenant_have_documents_of_their_own(
    blob_root: Path,
) -> None:
    ids = {
        send(by=by).document_id
        for by in (principal(), principal("bob"), principal(tenant="globex"))
    }
    work()
    assert set(documents()) == ids
    assert len(ids) == 3


def test_a_document_admitted_by_hand_from_the_same_bytes_is_another_one(blob_root: Path) -> None:
    by_hand = admit(NOTE, filename="pumps.md", visibility=Visibility.PRINCIPAL)
    attachment = send()
    work()
    assert attachment.document_id != by_hand.document_id
    store().delete_conversation("c-1", principal())
    assert documents() == [by_hand.document_id]


# --- what goes wrong -------------------------------------------------------------------------


def test_a_secret_is_refused_with_its_code_and_in_no_row(blob_root: Path) -> None:
    secret = forge_secret()
    attachment = send(f"# Keys\n\ntoken: {secret}\n")
    work()
    assert state_of(attachment) == AttachmentState.REFUSED
    assert reason_of(attachment) == "secret_found"
    assert not documents()
    assert not [row for rows in every_row().values() for row in rows if secret in row]
    assert refusals() == {("acme", "secret_found"): 1}


@pytest.mark.parametrize(
    ("content", "filename", "code"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "photo.png", "unsupported_media_type"),
        (b"  \n", "blank.txt", "empty_extraction"),
        (b"a\x00b", "odd.txt", "binary_content"),
        (b"caf\xe9 \xff", "latin.txt", "undecodable_text"),
    ],
)
def test_what_the_pipeline_refuses_is_refused(
    blob_root: Path, content: bytes, filename: str, code: str
) -> None:
    attachment = send(content, filename=filename)
    work()
    assert (state_of(attachment), reason_of(attachment)) == (AttachmentState.REFUSED, code)
    assert artifacts.read_bytes(attachment.artifact) == content
    assert not documents()


class Failing:
    """Makes the ingests of a test fail as often as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self.calls = 0
        plan = Ingestor.plan

        def failing(ingestor: Ingestor, admitted: Any) -> Any:
            self.calls += 1
            if self.left:
                self.left -= 1
                raise Unavailable
            return plan(ingestor, admitted)

        monkeypatch.setattr(Ingestor, "plan", failing)


def time_passes() -> None:
    with operations_session():
        IngestJob.objects.update(next_attempt_at=Now())


def test_a_transient_failure_is_retried_three_times_with_backoff(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch, times=99)
    attachment = send()
    pauses = []
    for attempt in range(1, 5):
        assert work() == 1
        with operations_session():
            job = IngestJob.objects.get()
        assert job.attempts == attempt
        if attempt < 4:
            assert state_of(attachment) == AttachmentState.PENDING
            pauses.append(job.next_attempt_at)
            time_passes()
    assert failing.calls == 4
    assert (state_of(attachment), reason_of(attachment)) == (AttachmentState.FAILED, "unavailable")
    assert work() == 0
    # An operator may try it once more.
    failing.left = 0
    with operations_session():
        chosen = Attachment.objects.filter(pk=attachment.pk)
        assert [one.pk for one in store().retry_attachments(chosen, asked_by="operator:olga")] == [
            attachment.pk
        ]
        assert store().retry_attachments(chosen, asked_by="operator:olga") == []
    work()
    assert state_of(attachment) == AttachmentState.INGESTED


def test_a_failure_that_passes_loses_nothing(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, times=3)
    attachment = send()
    for _ in range(4):
        work()
        time_passes()
    assert state_of(attachment) == AttachmentState.INGESTED
    assert versions() == 1


def test_a_worker_that_died_leaves_a_row_that_is_picked_up_again(blob_root: Path) -> None:
    attachment = send()
    assert attachment.job is not None
    with operations_session():
        claimed = IngestJob.objects.claim(attachment.job.job_id, timedelta(seconds=20))
        assert claimed is not None
    assert work() == 0, "another worker is at it"
    with operations_session():
        IngestJob.objects.update(lease_until=Now() - timedelta(seconds=1))
    assert tasks.reconcile_ingest_jobs() >= 0
    assert work() == 1
    assert state_of(attachment) == AttachmentState.INGESTED
    assert versions() == 1


def test_a_key_that_is_revoked_in_the_meantime_admits_nothing(blob_root: Path) -> None:
    key, plain = ApiKey.issue(
        tenant_id="acme",
        principal_id="alice",
        scopes=[Scope.WRITE],
        max_origin_trust=OriginTrust.USER,
    )
    sender = ApiKey.authenticate(plain)
    assert sender is not None
    attachment = send(by=sender)
    with operations_session():
        ApiKey.objects.filter(pk=key.pk).update(revoked_at=Now())
    work()
    assert state_of(attachment) == AttachmentState.REFUSED
    assert reason_of(attachment) == "not_authenticated"
    assert not documents()


@pytest.mark.django_db(transaction=True)
def test_delivered_three_times_at_once_it_is_one_version(blob_root: Path) -> None:
    attachments = [send(f"{NOTE}\nNumber {number}.\n") for number in range(3)]
    deliveries = [str(one.job.job_id) for one in attachments if one.job] * 3

    def deliver(job_id: str) -> None:
        try:
            tasks.run_ingest_job(job_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(deliver, deliveries))
    work()
    assert versions() == 3
    assert {state_of(one) for one in attachments} == {AttachmentState.INGESTED}
    with operations_session():
        names = list(KnowledgeEvent.objects.values_list("name", flat=True))
        assert {job.attempts for job in IngestJob.objects.all()} == {1}
    assert names == [KnowledgeEvent.INGESTED] * 3


def test_pending_ones_are_taken_in_upload_order(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [
        send(f"{NOTE}{number}", by=principal(who), conversation=f"c-{number}")
        for number, who in enumerate(["alice", "bob", "alice", "carol"])
    ]
    with operations_session():
        IngestJob.objects.update(hinted_at=None)
    hinted: list[UUID] = []
    monkeypatch.setattr(tasks, "hint", hinted.append)
    assert tasks.reconcile_ingest_jobs() == 4
    assert hinted == [one.job.job_id for one in sent if one.job]


# --- over HTTP -------------------------------------------------------------------------------


def post(client: Client, headers: dict[str, str], **given: Any) -> Any:
    body = {
        "file": SimpleUploadedFile("pumps.md", NOTE.encode(), content_type="text/plain"),
        "conversation_id": "c-1",
        "actor": "principal",
        **given,
    }
    return client.post(ATTACH, {k: v for k, v in body.items() if v is not None}, headers=headers)


def test_the_api_stores_marks_and_tells(blob_root: Path, client: Client) -> None:
    headers = bearer()
    answer = post(client, headers)
    assert answer.status_code == 201
    shown = answer.json()
    assert set(shown) == {
        "attachment_id", "conversation_id", "artifact_id", "filename", "media_type", "byte_size",
        "sha256", "actor", "state", "reason", "attempts", "document_id", "created_at",
    }  # fmt: skip
    assert (shown["state"], shown["reason"], shown["attempts"]) == ("pending", "", 0)
    assert (shown["filename"], shown["media_type"]) == ("pumps.md", "text/markdown")
    work()
    told = client.get(f"{ATTACH}/{shown['attachment_id']}", headers=headers).json()
    assert told == {**shown, "state": "ingested", "attempts": 1}
    document = client.get(f"/v1/documents/{told['document_id']}", headers=headers).json()
    assert document["title"] == "pumps.md"
    client.delete(f"/v1/documents/{told['document_id']}", headers=headers)
    told = client.get(f"{ATTACH}/{shown['attachment_id']}", headers=headers).json()
    assert told["state"] == "deleted"


def test_the_api_says_stored_when_it_is_no_admission(blob_root: Path, client: Client) -> None:
    for headers, actor in (
        (bearer(), "surface"),
        (bearer(), "scheduler"),
        (bearer(scopes=[]), "principal"),
        (bearer(max_origin_trust=OriginTrust.MODEL), "principal"),
    ):
        shown = post(client, headers, actor=actor).json()
        assert (shown["state"], shown["document_id"], shown["attempts"]) == ("stored", None, 0)


def test_an_attachment_is_shown_to_its_sender_alone(blob_root: Path, client: Client) -> None:
    shown = post(client, bearer()).json()
    address = f"{ATTACH}/{shown['attachment_id']}"
    never = client.get(f"{ATTACH}/{uuid4()}", headers=bearer())
    for headers in (
        bearer("bob", scopes=list(Scope)),
        bearer("alice", "globex"),
        bearer("bob", projects=None),
    ):
        answer = client.get(address, headers=headers)
        assert (answer.status_code, answer.content) == (404, never.content)
    # Another key of the same principal is the same sender.
    assert client.get(address, headers=bearer(scopes=[])).status_code == 200
    assert client.get(address).status_code == 401


@pytest.mark.parametrize(
    "given",
    [
        {"file": None},
        {"conversation_id": None},
        {"conversation_id": ""},
        {"conversation_id": "c" * 201},
        {"conversation_id": "c\x00"},
        {"actor": None},
        {"actor": "agent"},
        {"actor": "PRINCIPAL"},
        {"media_type": "nonsense"},
    ],
)
def test_what_is_malformed_stores_nothing(
    blob_root: Path, client: Client, given: dict[str, Any]
) -> None:
    headers = bearer()
    before = footprint(blob_root)
    answer = post(client, headers, **given)
    assert answer.status_code == 400, answer.content
    assert footprint(blob_root) == before


# --- deleting a conversation -----------------------------------------------------------------


def test_a_conversation_goes_with_its_files_and_documents(blob_root: Path) -> None:
    before = footprint(blob_root)
    owner_sent = send(), send("# Valves\n\nThe quokka valve.\n", filename="valves.md")
    send(actor=Actor.SURFACE, filename="report.md")
    work()
    receipt = store().delete_conversation("c-1", principal(), reason="asked to")
    assert receipt.attachments == 3
    assert {one.document_id for one in receipt.documents} == {one.document_id for one in owner_sent}
    for one in receipt.documents:
        assert one.outcome == "deleted"
        assert one.receipt is not None
        assert (one.receipt.versions, one.receipt.chunks, one.receipt.index_rows) == (1, 1, 1)
    assert not documents()
    assert not ask("quokka").passages
    assert sweep().swept == 5
    after = footprint(blob_root)
    kept = {
        *("knowledge_conversation", "knowledge_knowledgeevent", "knowledge_recalltrace"),
        *("knowledge_deletion", "knowledge_deletedchunk", "artifacts_sweeprun"),
        "knowledge_search_change",
    }
    for table in set(before) - kept:
        assert after[table] == before[table] or "term" in table or "space" in table, table
    assert after["knowledge_conversation"] == 1


def test_repeating_it_is_in_order(blob_root: Path) -> None:
    send()
    work()
    first = store().delete_conversation("c-1", principal())
    rows = every_row()
    again = store().delete_conversation("c-1", principal())
    assert (again.attachments, again.documents) == (0, ())
    assert again.deleted_at == first.deleted_at
    assert every_row() == rows
    unknown = store().delete_conversation("never-was", principal())
    assert (unknown.attachments, unknown.documents) == (0, ())


def test_the_same_file_goes_with_the_last_conversation_that_sent_it(blob_root: Path) -> None:
    first, second = send(conversation="c-1"), send(conversation="c-2")
    work()
    receipt = store().delete_conversation("c-1", principal())
    assert [one.outcome for one in receipt.documents] == ["kept"]
    assert receipt.attachments == 1
    assert documents() == [first.document_id]
    assert state_of(second) == AttachmentState.INGESTED
    assert ask("quokka").passages
    receipt = store().delete_conversation("c-2", principal())
    assert [one.outcome for one in receipt.documents] == ["deleted"]
    assert not documents()


def test_a_file_still_to_be_ingested_elsewhere_keeps_the_document(blob_root: Path) -> None:
    send(conversation="c-1")
    work()
    waiting = send(conversation="c-2")
    receipt = store().delete_conversation("c-1", principal())
    assert [one.outcome for one in receipt.documents] == ["kept"]
    work()
    assert state_of(waiting) == AttachmentState.INGESTED
    assert versions() == 1


def test_only_the_principals_own_conversation_goes(blob_root: Path) -> None:
    mine, theirs = send(), send(by=principal("bob"))
    foreign = send(by=principal(tenant="globex"))
    work()
    mallory = principal("mallory", scopes=frozenset(Scope))
    receipt = store().delete_conversation("c-1", mallory)
    assert (receipt.attachments, receipt.documents) == (0, ())
    store().delete_conversation("c-1", principal())
    assert set(documents()) == {theirs.document_id, foreign.document_id}
    assert mine.document_id not in documents()


def hold(document_id: UUID | None, *, held: bool) -> None:
    assert document_id is not None
    with tenant_session("acme"):
        Document.objects.filter(pk=document_id).update(legal_hold=held)


def test_a_legal_hold_keeps_that_document_and_the_rest_goes(blob_root: Path) -> None:
    held = send()
    other = send("# Valves\n\nThe wallaby valve.\n", filename="valves.md")
    work()
    hold(held.document_id, held=True)
    receipt = store().delete_conversation("c-1", principal(), reason="asked to")
    assert {one.document_id: str(one.outcome) for one in receipt.documents} == {
        held.document_id: "held",
        other.document_id: "deleted",
    }
    assert receipt.attachments == 1
    assert documents() == [held.document_id]
    with tenant_session("acme"):
        refused = KnowledgeEvent.objects.get(name=KnowledgeEvent.DELETE_REFUSED)
        deleted = KnowledgeEvent.objects.get(name=KnowledgeEvent.CONVERSATION_DELETED)
    assert (refused.document_id, refused.data) == (held.document_id, {"reason": "legal_hold"})
    assert deleted.data["documents"] == {
        str(held.document_id): "held",
        str(other.document_id): "deleted",
    }
    # Lifted, it goes with the next call.
    hold(held.document_id, held=False)
    receipt = store().delete_conversation("c-1", principal())
    assert [str(one.outcome) for one in receipt.documents] == ["deleted"]
    assert receipt.attachments == 1
    assert not documents()


def test_a_document_that_was_rescoped_out_of_the_owners_sight_goes_too(blob_root: Path) -> None:
    attachment = send()
    work()
    with tenant_session("acme"):
        document = Document.objects.select_related("space").get()
        document.space.sensitivity = Sensitivity.RESTRICTED
        document.space.save()
    low = principal(sensitivity_ceiling=Sensitivity.PUBLIC)
    receipt = store().delete_conversation("c-1", low)
    assert [one.document_id for one in receipt.documents] == [attachment.document_id]
    assert not documents()


def test_a_pending_file_of_a_deleted_conversation_never_becomes_a_document(
    blob_root: Path,
) -> None:
    attachment = send()
    assert attachment.job is not None
    receipt = store().delete_conversation("c-1", principal())
    assert [str(one.outcome) for one in receipt.documents] == ["never"]
    assert work() == 0
    tasks.run_ingest_job(str(attachment.job.job_id))
    assert not documents()
    with operations_session():
        assert not IngestJob.objects.exists()
    with pytest.raises(NotFound):
        store().get_attachment(attachment.attachment_id, principal())


def test_nothing_can_be_attached_to_a_deleted_conversation(blob_root: Path, client: Client) -> None:
    store().delete_conversation("c-1", principal())
    before = footprint(blob_root)
    with pytest.raises(ConversationDeleted):
        send()
    assert footprint(blob_root) == before
    answer = post(client, bearer())
    assert (answer.status_code, answer.json()["code"]) == (410, "conversation_deleted")


def test_deletion_is_an_event_with_ids_and_counts_alone(blob_root: Path) -> None:
    send()
    work()
    store().delete_conversation("c-1", principal(), reason="asked to")
    with tenant_session("acme"):
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.CONVERSATION_DELETED)
        gone = KnowledgeEvent.objects.get(name=KnowledgeEvent.DELETED)
    assert (event.actor, event.surface) == ("alice", "api")
    assert set(event.data) == {"conversation_id", "reason", "attachments", "documents"}
    assert gone.data["reason"] == "asked to"


def test_the_api_deletes_with_a_receipt(blob_root: Path, client: Client) -> None:
    headers = bearer()
    shown = post(client, headers, conversation_id="team/42 ü").json()
    work()
    address = "/v1/conversations/team%2F42%20%C3%BC?reason=asked"
    receipt = client.delete(address, headers=headers).json()
    assert set(receipt) == {
        "conversation_id", "deleted_at", "attachments", "documents", "bytes_state",
    }  # fmt: skip
    assert (receipt["conversation_id"], receipt["attachments"]) == ("team/42 ü", 1)
    (document,) = receipt["documents"]
    assert (document["document_id"], document["outcome"]) == (shown["document_id"], "deleted")
    assert document["receipt"]["chunks"] == 1
    again = client.delete(address, headers=headers)
    assert (again.status_code, again.json()["documents"]) == (200, [])
    gone = client.get(f"{ATTACH}/{shown['attachment_id']}", headers=headers)
    assert gone.status_code == 404
    assert client.delete(address).status_code == 401
    for bad in ("/v1/conversations/a%00b", f"/v1/conversations/{'a' * 201}",
                "/v1/conversations/c-1?why=x"):  # fmt: skip
        assert client.delete(bad, headers=headers).status_code == 400


def test_the_api_of_another_principal_deletes_nothing_of_mine(
    blob_root: Path, client: Client
) -> None:
    shown = post(client, bearer()).json()
    work()
    for headers in (bearer("bob", scopes=list(Scope)), bearer("alice", "globex")):
        receipt = client.delete("/v1/conversations/c-1", headers=headers).json()
        assert (receipt["attachments"], receipt["documents"]) == (0, [])
    told = client.get(f"{ATTACH}/{shown['attachment_id']}", headers=bearer()).json()
    assert told["state"] == "ingested"


def test_the_artifact_of_a_deleted_attachment_cannot_be_fetched(blob_root: Path) -> None:
    attachment = send()
    store().delete_conversation("c-1", principal())
    with pytest.raises(NotFound):
        artifacts.get(principal(), attachment.artifact_id)
    assert sweep().swept == 1
    with operations_session():
        assert not Artifact.objects.exists()
