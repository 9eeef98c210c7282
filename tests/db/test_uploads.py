"""Files in pieces: journalled, repeatable, never half there; and descriptors of what is kept."""

from __future__ import annotations

import base64
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pytest_django import Settings

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import operations_session
from access.trust import Sensitivity
from artifacts import store as artifacts
from artifacts.descriptors import descriptor_id
from artifacts.errors import (
    ChecksumMismatch,
    InvalidUpload,
    UploadConflict,
    UploadOutOfOrder,
    UploadQuotaExceeded,
)
from artifacts.models import Artifact, SourceDescriptor, Upload, UploadPiece, UploadState
from artifacts.sweeper import sweep
from artifacts.uploads import LARGEST_PIECE, Piece
from knowledge.core.types import ConnectorIdentity, Visibility
from knowledge.wiring import store
from tests.support import admit, bearer, footprint, principal, upload
from tests.uploading import TOLD, journal, piece, pieces, send, sha, stored

pytestmark = pytest.mark.django_db

ATTACH = "/v1/tools/knowledge.attach"
ATTACHMENT = "/v1/tools/knowledge.attachment"
BIG = random.Random(7).randbytes(3 * LARGEST_PIECE + 11)


@pytest.fixture(autouse=True)
def _blobs(blob_root: Path) -> None:
    pass


def post(client: Client, address: str, body: Any, who: str = "alice", **key: Any) -> Any:
    return client.post(address, body, content_type="application/json", headers=bearer(who, **key))


def body(request_id: UUID, one: Piece, **told: Any) -> dict[str, Any]:
    return {
        "request_id": str(request_id),
        "offset": one.offset,
        "content": base64.b64encode(one.content).decode(),
        "sha256": one.sha256,
        "final": one.final,
        **TOLD,
        **told,
    }


# --- pieces that become a file ---------------------------------------------------------------


def test_pieces_become_the_file_and_the_same_call_has_the_same_receipt() -> None:
    alice, request_id = principal(), uuid4()
    told = []
    for one in pieces(BIG):
        told.append(send(alice, request_id, one))
        before = journal()
        assert send(alice, request_id, one) == told[-1]
        assert journal() == before
    assert [receipt.received for receipt in told[:2]] == [LARGEST_PIECE, 2 * LARGEST_PIECE]
    assert {receipt.state for receipt in told[:-1]} == {UploadState.RECEIVING}
    last = told[-1]
    assert (last.state, last.received, last.sha256) == (UploadState.COMPLETE, len(BIG), sha(BIG))
    assert stored(alice, last.artifact_id) == BIG
    before = journal()
    assert [send(alice, request_id, one) for one in pieces(BIG)] == told
    assert journal() == before
    with operations_session():
        assert not UploadPiece.objects.filter(content__isnull=False).exists()
        artifact = Artifact.objects.get()
        left = artifact.expires_at - timezone.now()  # type: ignore[operator]
    assert timedelta(days=29) < left <= timedelta(days=30)
    assert (artifact.filename, artifact.attribution) == ("log.bin", "the field team")


def test_a_file_may_be_empty_or_end_with_an_empty_piece() -> None:
    alice = principal()
    empty = send(alice, uuid4(), piece(0, b"", final=True))
    assert stored(alice, empty.artifact_id) == b""
    request_id = uuid4()
    send(alice, request_id, piece(0, b"abc"))
    ended = send(alice, request_id, piece(3, b"", final=True))
    assert (stored(alice, ended.artifact_id), ended.received) == (b"abc", 3)
    with pytest.raises(InvalidUpload):
        send(alice, uuid4(), piece(0, b""))


def test_a_file_may_be_larger_than_one_request_takes(settings: Settings) -> None:
    settings.MAX_UPLOAD_BYTES = 10
    request_id = uuid4()
    for one in pieces(BIG):
        receipt = send(principal(), request_id, one)
    assert stored(principal(), receipt.artifact_id) == BIG


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    ("one", "told"),
    [
        (piece(0, b"abd"), {}),
        (piece(0, b"ab"), {}),
        (piece(0, b"abc", final=True), {}),
        (piece(0, b"abc"), {"filename": "other.bin"}),
        (piece(0, b"abc"), {"media_type": "text/plain"}),
        (piece(0, b"abc"), {"attribution": "somebody else"}),
        (piece(3, b"def"), {"attribution": ""}),
    ],
)
def test_whatever_differs_is_a_conflict_and_changes_nothing(
    complete: bool, one: Piece, told: dict[str, str]
) -> None:
    alice, request_id = principal(), uuid4()
    send(alice, request_id, piece(0, b"abc"))
    if complete:
        send(alice, request_id, piece(3, b"def", final=True))
    before = journal()
    with pytest.raises(UploadConflict):
        send(alice, request_id, one, **told)
    assert journal() == before


def test_a_gap_an_overlap_and_what_comes_after_the_end_are_refused() -> None:
    alice, request_id = principal(), uuid4()
    with pytest.raises(UploadOutOfOrder) as refused:
        send(alice, request_id, piece(1, b"bc"))
    assert refused.value.members == {"next_offset": 0}
    assert journal() == [[], [], []]
    send(alice, request_id, piece(0, b"abc"))
    before = journal()
    for offset in (1, 2, 4, 99):
        with pytest.raises(UploadOutOfOrder) as refused:
            send(alice, request_id, piece(offset, b"x"))
        assert refused.value.members == {"next_offset": 3}
    assert journal() == before
    send(alice, request_id, piece(3, b"d", final=True))
    before = journal()
    for offset in (2, 4):
        with pytest.raises(UploadConflict):
            send(alice, request_id, piece(offset, b"x"))
    assert journal() == before


def test_no_byte_is_kept_that_is_not_the_one_it_says() -> None:
    with pytest.raises(ChecksumMismatch):
        send(principal(), uuid4(), piece(0, b"abc", sha256=sha(b"abd")))
    with pytest.raises(InvalidUpload):
        send(principal(), uuid4(), piece(0, b"x" * (LARGEST_PIECE + 1)))
    assert journal() == [[], [], []]


def test_a_request_id_is_the_principals_own() -> None:
    request_id = uuid4()
    callers = [principal(), principal("bob"), principal(tenant="globex")]
    for number, caller in enumerate(callers):
        send(caller, request_id, piece(0, bytes([number])))
    made = [send(caller, request_id, piece(1, b"!", final=True)) for caller in callers]
    for number, (caller, receipt) in enumerate(zip(callers, made, strict=True)):
        assert stored(caller, receipt.artifact_id) == bytes([number]) + b"!"
    with pytest.raises(NotFound):
        stored(callers[1], made[0].artifact_id)


def test_a_final_piece_whose_file_was_not_made_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, blob_root: Path
) -> None:
    alice, request_id = principal(), uuid4()
    first, final = piece(0, b"abc"), piece(3, b"def", final=True)
    send(alice, request_id, first)
    with monkeypatch.context() as broken:
        broken.setattr("artifacts.blobs.StorageBlobStore.put", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            send(alice, request_id, final)
    with pytest.raises(UploadConflict):
        send(alice, request_id, piece(6, b"g"))
    assert send(alice, request_id, first).received == 3
    assert stored(alice, send(alice, request_id, final).artifact_id) == b"abcdef"
    assert len(footprint(blob_root)["blobs"]) == 1


# --- quota and expiry --------------------------------------------------------------------------


def test_a_quota_counts_what_is_kept_and_what_arrives(settings: Settings, blob_root: Path) -> None:
    settings.UPLOAD_QUOTA_BYTES = 10
    alice, request_id = principal(), uuid4()
    upload(alice, b"1234")
    send(alice, request_id, piece(0, b"5678"))
    before = footprint(blob_root), journal()
    for refused in (
        lambda: send(alice, request_id, piece(4, b"9ab")),
        lambda: send(principal("bob"), uuid4(), piece(0, b"9ab")),
        lambda: upload(alice, b"9ab"),
    ):
        with pytest.raises(UploadQuotaExceeded):
            refused()
        assert (footprint(blob_root), journal()) == before
    send(principal(tenant="globex"), uuid4(), piece(0, b"9ab"))
    assert send(alice, request_id, piece(4, b"9a", final=True)).artifact_id
    settings.UPLOAD_QUOTA_BYTES = 0
    upload(alice, b"9ab")


def test_only_an_unfinished_journal_expires() -> None:
    alice, finished, left, going = principal(), uuid4(), uuid4(), uuid4()
    send(alice, finished, piece(0, b"abc", final=True))
    for request_id in (left, going):
        send(alice, request_id, piece(0, b"abc"))
    with operations_session():
        due = timezone.now() - timedelta(seconds=1)
        Upload.objects.exclude(request_id=finished).update(expires_at=due)
    send(alice, going, piece(3, b"d"))
    forecast = sweep(dry_run=True)
    assert (forecast.expired, forecast.swept) == (1, 0)
    swept = sweep()
    assert (swept.expired, swept.swept) == (1, 0)
    with operations_session():
        assert set(Upload.objects.values_list("request_id", flat=True)) == {finished, going}
        assert UploadPiece.objects.count() == 3
    assert send(alice, going, piece(4, b"e", final=True)).received == 5
    assert send(alice, left, piece(0, b"another")).received == 7


def test_a_receipt_outlives_its_file() -> None:
    alice, request_id = principal(), uuid4()
    only = piece(0, b"abc", final=True)
    receipt = send(alice, request_id, only)
    with operations_session():
        Artifact.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert sweep().swept == 1
    assert send(alice, request_id, only) == receipt


# --- several at once ---------------------------------------------------------------------------


def at_once(calls: list[Any]) -> list[Any]:
    ready = threading.Barrier(len(calls))

    def run(call: Any) -> Any:
        try:
            ready.wait(30)
            return call()
        except (UploadConflict, UploadOutOfOrder) as refused:
            return refused.code
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.django_db(transaction=True)
def test_two_writers_of_one_upload_take_turns() -> None:
    alice, request_id = principal(), uuid4()
    for one in pieces(BIG):
        answers = at_once([lambda one=one: send(alice, request_id, one)] * 3)
        assert len(set(answers)) == 1, answers
    assert stored(alice, answers[0].artifact_id) == BIG
    with operations_session():
        assert (Upload.objects.count(), Artifact.objects.count()) == (1, 1)
    other = uuid4()
    answers = at_once(
        [lambda n=n: send(alice, other, piece(0, bytes([n]), final=True)) for n in range(4)]
    )
    assert answers.count("upload_conflict") == 3
    (won,) = [answer for answer in answers if answer != "upload_conflict"]
    assert stored(alice, won.artifact_id) == bytes([answers.index(won)])


@pytest.mark.django_db(transaction=True)
def test_uploads_at_once_do_not_meet(settings: Settings) -> None:
    settings.UPLOAD_QUOTA_BYTES = 4 * len(BIG)
    contents = [bytes([n]) + BIG[1:] for n in range(4)]

    def whole(content: bytes) -> Any:
        request_id = uuid4()
        return [send(principal(), request_id, one) for one in pieces(content)][-1]

    made = at_once([lambda content=content: whole(content) for content in contents])
    assert [stored(principal(), one.artifact_id) for one in made] == contents


# --- over HTTP -----------------------------------------------------------------------------------


def test_attach_and_download_over_http(client: Client) -> None:
    request_id = uuid4()
    answers = [post(client, ATTACH, body(request_id, one)) for one in pieces(BIG)]
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json() == {
        "request_id": str(request_id),
        "offset": 0,
        "received": LARGEST_PIECE,
        "state": "receiving",
        "artifact_id": None,
        "sha256": None,
    }
    told = answers[-1].json()
    asked = {"artifact": told["artifact_id"], "sha256": told["sha256"]}
    content, offset = b"", 0
    while offset is not None:
        part = post(client, ATTACHMENT, {**asked, "offset": offset}).json()
        data = base64.b64decode(part["content"])
        assert part["offset"] == offset
        assert len(data) <= 32 * 1024
        content, offset = content + data, part["next_offset"]
    assert content == BIG
    assert (part["size"], part["filename"], part["descriptor_id"]) == (len(BIG), "log.bin", None)
    few = post(client, ATTACHMENT, {**asked, "offset": 5, "length": 3}).json()
    assert (base64.b64decode(few["content"]), few["next_offset"]) == (BIG[5:8], 8)
    end = post(client, ATTACHMENT, {**asked, "offset": len(BIG)}).json()
    assert (end["content"], end["next_offset"]) == ("", None)
    beyond = post(client, ATTACHMENT, {**asked, "offset": len(BIG) + 1})
    assert (beyond.status_code, beyond.json()["code"]) == (416, "range_not_satisfiable")


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({"sha256": "0" * 64}, 422, "checksum_mismatch"),
        ({"sha256": "A" * 64}, 400, "malformed"),
        ({"content": "a"}, 400, "malformed"),
        ({"content": "YWJj\n"}, 422, "checksum_mismatch"),
        ({"content": "_-8="}, 400, "malformed"),
        ({"content": "YWJj" * 16385}, 400, "invalid_upload"),
        ({"offset": -1}, 400, "malformed"),
        ({"offset": 9}, 409, "upload_out_of_order"),
        ({"filename": ""}, 400, "malformed"),
        ({"filename": "a\x01b"}, 400, "invalid_upload"),
        ({"media_type": "nonsense"}, 400, "invalid_upload"),
        ({"surprise": 1}, 400, "malformed"),
        ({"request_id": "mine"}, 400, "malformed"),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(
    client: Client, given: dict[str, Any], status: int, code: str
) -> None:
    answer = post(client, ATTACH, {**body(uuid4(), piece(0, b"abd")), **given})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert journal() == [[], [], []]


def test_a_download_needs_the_reference_the_hash_and_the_right_to_see(client: Client) -> None:
    secret = admit("# Plans\n\nThe ibex is ours.\n", visibility=Visibility.PRINCIPAL)
    source = store().get_chunk(secret.chunk_ids[0], principal()).chunk_set.finalized_version.source
    mine = upload(principal(), b"mine")
    never = post(client, ATTACHMENT, {"artifact": str(uuid4()), "sha256": "0" * 64}, "bob")
    assert never.status_code == 404
    for artifact in (source, mine):
        asked = {"artifact": str(artifact.pk), "sha256": artifact.sha256}
        assert post(client, ATTACHMENT, asked).status_code == 200
        wrong = post(client, ATTACHMENT, {**asked, "sha256": "0" * 64})
        hidden = post(client, ATTACHMENT, asked, "bob")
        foreign = post(client, ATTACHMENT, asked, tenant="globex")
        for refused in (wrong, hidden, foreign):
            assert (refused.status_code, refused.json()) == (404, never.json())


def test_the_source_of_what_one_may_see_follows_todays_visibility(client: Client) -> None:
    admitted = admit("# Plans\n\nThe ibex.\n", visibility=Visibility.PROJECT)
    chunk_id = admitted.chunk_ids[0]
    shown = client.get(f"/v1/chunks/{chunk_id}?current_scope=apollo", headers=bearer()).json()
    source = shown["source"]
    asked = {"artifact": source["artifact_id"], "sha256": source["sha256"]}
    assert post(client, ATTACHMENT, asked, "bob").status_code == 404
    seen = post(client, ATTACHMENT, {**asked, "current_scope": "apollo"}, "bob").json()
    assert base64.b64decode(seen["content"]) == b"# Plans\n\nThe ibex.\n"
    assert seen["descriptor_id"] == source["descriptor_id"]
    low = post(
        client,
        ATTACHMENT,
        {**asked, "current_scope": "apollo"},
        "bob",
        sensitivity_ceiling=Sensitivity.PUBLIC,
    )
    assert low.status_code == 404
    store().delete(admitted.document_id, principal(), current_scope="apollo")
    gone = post(client, ATTACHMENT, {**asked, "current_scope": "apollo"}, "bob")
    assert gone.status_code == 404


# --- descriptors ---------------------------------------------------------------------------------


def test_a_source_has_a_descriptor_that_is_shown_and_goes_with_the_document(
    client: Client,
) -> None:
    kept = admit("# Other\n\nThe wallaby.\n", filename="other.md")
    first = admit("# Pumps\n\nThe quokka.\n", source=ConnectorIdentity(type="wiki", id="1"))
    second = admit("# Pumps\n\nThe quokka.\n", source=ConnectorIdentity(type="wiki", id="2"))
    shown = [
        client.get(f"/v1/chunks/{one.chunk_ids[0]}", headers=bearer()).json()["source"]
        for one in (first, second)
    ]
    assert shown[0]["sha256"] == shown[1]["sha256"]
    assert shown[0]["descriptor_id"] != shown[1]["descriptor_id"]
    with operations_session():
        for source in shown:
            found = SourceDescriptor.objects.get(artifact=source["artifact_id"])
            assert found.pk == descriptor_id(found.canonical.encode()) == source["descriptor_id"]
    receipt = store().delete(first.document_id, principal())
    assert (receipt.descriptors, receipt.left["descriptors"]) == (1, 0)
    with operations_session():
        assert not SourceDescriptor.objects.filter(pk=shown[0]["descriptor_id"]).exists()
        assert SourceDescriptor.objects.filter(pk=shown[1]["descriptor_id"]).exists()
    assert sweep().swept == 1
    olga = Principal.for_operator("acme", "olga")
    verified = store().verify_deletion(first.document_id, olga, ["The wallaby runs at night."])
    assert verified.clean, verified
    assert store().get_chunk(kept.chunk_ids[0], principal())


def test_a_descriptor_that_stayed_behind_is_found() -> None:
    gone = admit("# Pumps\n\nThe quokka.\n")
    with operations_session():
        (left,) = SourceDescriptor.objects.all()
    store().delete(gone.document_id, principal())
    with operations_session():
        left.save(force_insert=True)
    found = store().verify_deletion(gone.document_id, Principal.for_operator("acme", "olga"))
    assert "artifacts_sourcedescriptor" in {place.place for place in found.left}


def test_nothing_changes_a_descriptor() -> None:
    admit("# Pumps\n\nThe quokka.\n")
    with pytest.raises(DatabaseError), operations_session(), transaction.atomic():
        SourceDescriptor.objects.update(canonical="{}")


def test_knowing_a_descriptor_opens_nothing(client: Client) -> None:
    admit("# Plans\n\nThe ibex.\n", visibility=Visibility.PRINCIPAL)
    with operations_session():
        known = SourceDescriptor.objects.select_related("artifact").get()
    for artifact in (known.pk, known.artifact.sha256):
        asked = {"artifact": artifact, "sha256": known.pk}
        assert post(client, ATTACHMENT, asked, "bob").status_code in {400, 404}
    asked = {"artifact": str(known.artifact.pk), "sha256": known.pk}
    assert post(client, ATTACHMENT, asked, "bob").status_code == 404
    assert post(client, ATTACHMENT, asked).status_code == 404
    assert artifacts.get(principal(), known.artifact.pk)


# --- the journal against a model -----------------------------------------------------------------


class Journal(RuleBasedStateMachine):
    """Any calls in any order, against a list of pieces in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.request_id = uuid4()
        self.kept: dict[int, tuple[bytes, bool]] = {}
        self.receipts: dict[int, Any] = {}

    @property
    def whole(self) -> bytes:
        return b"".join(content for content, _ in self.kept.values())

    @property
    def ended(self) -> bool:
        return any(final for _, final in self.kept.values())

    @rule(
        step=st.sampled_from([0, 0, 0, -1, 1, -3]),
        content=st.binary(min_size=1, max_size=5),
        final=st.sampled_from([False, False, False, True]),
    )
    def next(self, step: int, content: bytes, final: bool) -> None:
        offset = max(0, len(self.whole) + step)
        known = self.kept.get(offset)
        sent = piece(offset, content, final=final)
        if known == (content, final):
            assert send(principal(), self.request_id, sent) == self.receipts[offset]
        elif known is not None or self.ended:
            self.refused(sent, UploadConflict)
        elif offset != len(self.whole):
            self.refused(sent, UploadOutOfOrder)
        else:
            self.receipts[offset] = send(principal(), self.request_id, sent)
            self.kept[offset] = (content, final)

    @rule(chance=st.randoms(use_true_random=False))
    def again(self, chance: random.Random) -> None:
        for offset, (content, final) in chance.sample(sorted(self.kept.items()), len(self.kept)):
            repeated = send(principal(), self.request_id, piece(offset, content, final=final))
            assert repeated == self.receipts[offset]

    @rule(content=st.binary(max_size=5), told=st.sampled_from(sorted(TOLD)))
    def wrong(self, content: bytes, told: str) -> None:
        offset = len(self.whole)
        bad = piece(offset, content, sha256=sha(content + b"x"), final=True)
        self.refused(bad, ChecksumMismatch)
        if self.kept:
            sent = piece(offset, content, final=True)
            self.refused(sent, UploadConflict, **{told: "text/other"})

    def refused(self, sent: Piece, error: type[Exception], **told: str) -> None:
        before = journal()
        with pytest.raises(error):
            send(principal(), self.request_id, sent, **told)
        assert journal() == before

    @invariant()
    def it_is_what_was_sent(self) -> None:
        with operations_session():
            found = Upload.objects.filter(request_id=self.request_id).first()
        assert (found.received if found else 0) == len(self.whole)
        if self.ended:
            assert found is not None
            assert stored(principal(), found.artifact_id) == self.whole


class JournalTest(TestCase):
    """In a transaction of its own for each example."""

    @pytest.mark.usefixtures("blob_root")
    def test_it(self) -> None:
        run_state_machine_as_test(
            Journal,
            settings=hypothesis_settings(max_examples=8, stateful_step_count=12, deadline=None),
        )
