"""Conversations that are deleted while their files are being sent and ingested: real transactions."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connections

from access.errors import NotFound
from access.tenancy import operations_session
from artifacts import store as artifacts
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.core.errors import ConversationDeleted
from knowledge.core.types import Actor
from knowledge.ingest import attachments, batches, commit, publishing
from knowledge.ingest.pipeline import Ingestor
from knowledge.lifecycle import conversations
from knowledge.models import (
    Attachment,
    Chunk,
    ChunkIndex,
    ChunkSet,
    Document,
    DocumentVersion,
    IngestJob,
    UnfinishedVersion,
)
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import ask, principal

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")
NOTE = "# Pumps\n\nThe quokka pump is started by hand.\n"
LONG = "".join(f"# Part {number}\n\n{'The quokka runs. ' * 150}\n\n" for number in range(90))
_PATIENCE = 60.0


def send(content: str = NOTE, conversation: str = "c-1") -> Attachment:
    return store().attach(
        io.BytesIO(content.encode()),
        principal(),
        conversation_id=conversation,
        actor=Actor.PRINCIPAL,
        filename="pumps.md",
    )


def delete(conversation: str = "c-1") -> conversations.ConversationReceipt:
    return store().delete_conversation(conversation, principal())


def run(attachment: Attachment) -> None:
    assert attachment.job is not None
    store().run_job(attachment.job.job_id)


def closing(call: Callable[[], T]) -> Callable[[], T]:
    def closed() -> T:
        try:
            return call()
        finally:
            connections.close_all()

    return closed


class Gate:
    """A point that a thread reaches and waits at until it is let through, the first time."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            assert self.open.wait(_PATIENCE)

    def before(self, call: Callable[..., T]) -> Callable[..., T]:
        def gated(*args: Any, **kwargs: Any) -> T:
            self.pass_through()
            return call(*args, **kwargs)

        return gated

    def after(self, call: Callable[..., T]) -> Callable[..., T]:
        def gated(*args: Any, **kwargs: Any) -> T:
            result = call(*args, **kwargs)
            self.pass_through()
            return result

        return gated


@contextmanager
def started(call: Callable[[], T], gate: Gate) -> Iterator[Future[T]]:
    """Runs a call in a thread up to the gate, then the block, then the rest of the call."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(closing(call))
        try:
            assert gate.reached.wait(_PATIENCE)
            yield running
        finally:
            gate.open.set()
        running.result(_PATIENCE)


def assert_nothing_is_left() -> None:
    with operations_session():
        for model in (Document, DocumentVersion, ChunkSet, Chunk, ChunkIndex, UnfinishedVersion,
                      IngestJob, Attachment):  # fmt: skip
            assert not model.objects.exists(), model
        assert not Artifact.objects.filter(expires_at__isnull=True).exists()
    assert not ask("quokka").passages
    assert_statistics_are_those_of_the_live_rows()


def test_deleted_while_it_is_being_read(blob_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attachment, gate = send(), Gate()
    monkeypatch.setattr(Ingestor, "plan", gate.after(Ingestor.plan))
    with started(lambda: run(attachment), gate):
        assert [str(one.outcome) for one in delete().documents] == ["never"]
    assert_nothing_is_left()
    sweep()
    assert not [path for path in blob_root.rglob("*") if path.is_file()]


def test_deleted_while_it_is_being_published(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion waits for the document's lock, and then takes what was published."""
    attachment, gate = send(), Gate()
    monkeypatch.setattr(commit, "publish", gate.after(publishing.publish))
    with ThreadPoolExecutor(1) as pool:
        with started(lambda: run(attachment), gate):
            deleting = pool.submit(closing(delete))
            with pytest.raises(TimeoutError):
                deleting.result(timeout=0.5)
            assert not ask("quokka").passages
        receipt = deleting.result(_PATIENCE)
    assert [str(one.outcome) for one in receipt.documents] == ["deleted"]
    assert_nothing_is_left()


def test_deleted_between_two_batches(blob_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attachment, gate = send(LONG), Gate()
    monkeypatch.setattr(batches, "_embedded", _second_time(batches._embedded, gate))
    with started(lambda: run(attachment), gate):
        with operations_session():
            assert UnfinishedVersion.objects.exists()
            assert Chunk.objects.exists()
        assert [str(one.outcome) for one in delete().documents] == ["never"]
    assert_nothing_is_left()


def _second_time(call: Callable[..., T], gate: Gate) -> Callable[..., T]:
    calls = []

    def gated(*args: Any, **kwargs: Any) -> T:
        calls.append(1)
        if len(calls) == 2:
            gate.pass_through()
        return call(*args, **kwargs)

    return gated


def test_deleted_while_a_file_is_being_sent(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file came before: the deletion waits for it and takes it."""
    gate = Gate()
    monkeypatch.setattr(attachments, "_open", gate.after(attachments._open))
    with ThreadPoolExecutor(1) as pool:
        with started(send, gate) as sending:
            deleting = pool.submit(closing(delete))
            with pytest.raises(TimeoutError):
                deleting.result(timeout=0.5)
        assert deleting.result(_PATIENCE).attachments == 1
    assert sending.result().document_id is not None
    assert_nothing_is_left()


def test_a_file_that_is_sent_while_it_is_being_deleted_is_refused(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    gate = Gate()
    monkeypatch.setattr(conversations, "_closed", gate.after(conversations._closed))
    with ThreadPoolExecutor(1) as pool:
        with started(delete, gate):
            sending = pool.submit(closing(lambda: send("# Late\n\nThe quokka is late.\n")))
            with pytest.raises(TimeoutError):
                sending.result(timeout=0.5)
        with pytest.raises(ConversationDeleted):
            sending.result(_PATIENCE)
    assert_nothing_is_left()


def test_of_two_conversations_deleted_at_once_one_takes_the_shared_document(
    blob_root: Path,
) -> None:
    for round_ in range(5):
        names = [f"{round_}-{side}" for side in "ab"]
        sent = [send(conversation=name) for name in names]
        for attachment in sent:
            run(attachment)
        with ThreadPoolExecutor(2) as pool:
            receipts = list(pool.map(lambda name: closing(lambda: delete(name))(), names))
        outcomes = sorted(str(one.outcome) for receipt in receipts for one in receipt.documents)
        assert outcomes == ["deleted", "kept"]
        assert_nothing_is_left()


@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_sending_working_and_deleting_leaves_what_is_still_sent(
    blob_root: Path, seed: int
) -> None:
    """A document is there exactly when an attachment of a conversation that lives names it."""
    texts = [NOTE, "# Valves\n\nThe quokka valve.\n", LONG[:9_000]]
    names = [f"c-{number}" for number in range(6)]

    def act(number: int) -> None:
        chance = random.Random(f"{seed}-{number}")
        for _ in range(6):
            name = chance.choice(names)
            what = chance.random()
            try:
                if what < 0.5:
                    send(chance.choice(texts), name)
                elif what < 0.6:
                    delete(name)
                else:
                    work_on_one(chance)
            except ConversationDeleted:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: closing(lambda: act(number))(), range(4)))
    chance = random.Random(seed)
    while work_on_one(chance):
        pass
    with operations_session():
        sent = Attachment.objects.with_state().filter(conversation__deleted_at__isnull=True)
        assert {one.state for one in sent} <= {"ingested"}
        assert set(Document.objects.values_list("pk", flat=True)) == {
            one.document_id for one in sent
        }
        assert DocumentVersion.objects.count() == Document.objects.count()
        assert not UnfinishedVersion.objects.exists()
    assert_statistics_are_those_of_the_live_rows()
    for name in names:
        delete(name)
    assert_nothing_is_left()


def work_on_one(chance: random.Random) -> bool:
    with operations_session():
        due = list(IngestJob.objects.due().values_list("job_id", flat=True))
        unfinished = IngestJob.objects.filter(state__in=["queued", "running"]).exists()
    if due:
        store().run_job(chance.choice(due))
    return bool(due) or unfinished


def test_what_is_deleted_is_gone_for_its_sender_at_once(blob_root: Path) -> None:
    attachment = send()
    run(attachment)
    delete()
    with pytest.raises(NotFound):
        store().get_attachment(attachment.attachment_id, principal())
    with pytest.raises(NotFound):
        artifacts.get(principal(), attachment.artifact_id)
