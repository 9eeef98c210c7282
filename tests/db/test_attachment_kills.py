"""kill -9 of the worker at any point: nothing that was sent is lost, nothing is there twice."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from access.principal import Principal
from access.tenancy import operations_session
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.core.types import Actor
from knowledge.models import (
    Attachment,
    Chunk,
    Document,
    DocumentVersion,
    IngestJob,
    KnowledgeEvent,
    RetentionProposal,
    UnfinishedVersion,
)
from knowledge.wiring import store
from tests.factories import make_proposal
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import ask, principal

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

_WORKER = """
import django
django.setup()
from access.tenancy import operations_session
from knowledge.models import IngestJob
from knowledge.wiring import store
store().ingestor.secret_scanner.scan("warm up")
print("ready", flush=True)
while True:
    with operations_session():
        due = IngestJob.objects.due().order_by("number").values_list("job_id", flat=True).first()
        left = IngestJob.objects.filter(state__in=["queued", "running"]).exists()
    if due:
        store().run_job(due)
    elif not left:
        break
"""
_KILLS = 12
_PATIENCE = 120.0


def test_a_worker_killed_again_and_again_loses_and_doubles_nothing(blob_root: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    # Short ones are one transaction, long ones are batches.
    texts = [
        f"# Note {number}\n\nThe quokka number {number} runs.\n"
        + "".join(f"\n# Part {n}\n\n{'It runs on. ' * 150}\n" for n in range(90 * (number % 2)))
        for number in range(4)
    ]
    for number, text in enumerate([*texts, texts[0], texts[1]]):
        _send(text, f"c-{number}")
    proposal = make_proposal("acme", text="# Kept\n\nThe quokka is kept.\n")
    store().approve_proposal(proposal.pk, Principal.for_operator("acme", "olga"))
    for _ in range(_KILLS):
        _work_until_killed(blob_root, after=chance.uniform(0, 2.5))
        with operations_session():
            # A kill is no failure of the text: the budget of attempts is another test's.
            IngestJob.objects.filter(state="running").update(lease_until=Now(), attempts_left=4)
            found = {passage.candidate.document_id for passage in ask("quokka").passages}
            assert found <= set(Document.objects.values_list("pk", flat=True))
            assert not Chunk.objects.filter(
                chunk_set__version__isnull=True, index_row__isnull=False
            ).exists(), "half of one can be found"
    _work_to_the_end(blob_root)
    with operations_session():
        sent = Attachment.objects.with_state()
        assert Counter(one.state for one in sent) == {"ingested": 6}
        assert Document.objects.count() == DocumentVersion.objects.count() == 5
        ingested = KnowledgeEvent.objects.filter(name=KnowledgeEvent.INGESTED)
        assert set(Counter(event.document_id for event in ingested).values()) == {1}
        assert not UnfinishedVersion.objects.exists()
        kept = RetentionProposal.objects.select_related("job").get()
        assert kept.receipt is not None
        assert kept.receipt["verified"] is True
    assert_statistics_are_those_of_the_live_rows()
    _no_bytes_without_a_row(blob_root)


def _send(text: str, conversation: str) -> None:
    store().attach(
        io.BytesIO(text.encode()),
        principal(),
        conversation_id=conversation,
        actor=Actor.PRINCIPAL,
        filename="note.md",
    )


def _worker(blob_root: Path) -> subprocess.Popen[bytes]:
    address = urlsplit(os.environ["DATABASE_URL"])
    own = urlunsplit(address._replace(path=f"/{connection.settings_dict['NAME']}"))
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER],
        cwd=settings.BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": own,
            "ARTIFACT_ROOT": str(blob_root),
        },
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    return worker


def _work_until_killed(blob_root: Path, *, after: float) -> None:
    worker = _worker(blob_root)
    time.sleep(after)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()


def _work_to_the_end(blob_root: Path) -> None:
    worker = _worker(blob_root)
    worker.communicate(timeout=_PATIENCE)
    assert worker.returncode == 0


def _no_bytes_without_a_row(blob_root: Path) -> None:
    for blob in blob_root.rglob("*"):
        if blob.is_file():
            os.utime(blob, (0, 0))
    sweep()
    with operations_session():
        named = set(Artifact.objects.values_list("storage_key", flat=True))
    assert {
        str(path.relative_to(blob_root)) for path in blob_root.rglob("*") if path.is_file()
    } == named
