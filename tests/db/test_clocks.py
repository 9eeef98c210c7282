"""Time zones and clocks that are wrong: what counts is the database's clock, in UTC."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db.models.functions import Now
from django.utils import timezone
from pytest_django import Settings

from access.tenancy import tenant_session
from artifacts import store as artifacts
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.core.types import ConnectorIdentity
from knowledge.models import DocumentVersion
from knowledge.wiring import store
from tests.factories import make_attachment
from tests.support import admit, ask, footprint, other_process, principal, upload, work

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe zebra pump runs at night.\n"
RUNS = ["artifacts_sweeprun"]
SOURCE = ConnectorIdentity(type="wiki", id="pumps")


@pytest.fixture(params=["Pacific/Kiritimati", "UTC", "America/Los_Angeles"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(params=[-2, 2], ids=["two hours slow", "two hours fast"])
def skewed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(hours=request.param))


@pytest.mark.usefixtures("zone", "skewed")
def test_a_deleted_source_is_swept_at_once_whatever_the_clock_of_the_host(blob_root: Path) -> None:
    kept = admit("# Other\n\nThe wallaby stays.\n", filename="other.md")
    result = admit(NOTE, source=SOURCE)
    uploaded = upload(principal(), "only the way in")
    before = len(footprint(blob_root)["blobs"])
    store().delete(result.document_id, principal())
    artifacts.expire_now(uploaded)
    assert sweep().swept == 2
    assert len(footprint(blob_root)["blobs"]) == before - 2
    assert store().get_chunk(kept.chunk_ids[0], principal())


@pytest.mark.usefixtures("zone", "skewed")
def test_what_a_conversation_let_go_of_is_swept_at_once(blob_root: Path) -> None:
    make_attachment("acme")
    work()
    receipt = store().delete_conversation("c-1", principal())
    real = datetime.now(UTC)
    assert abs(receipt.deleted_at - real) < timedelta(hours=1)
    assert receipt.bytes_state == "pending_sweep"
    # The file that was sent, and the document's own copy of it.
    assert sweep().swept == 2


@pytest.mark.usefixtures("zone", "skewed")
def test_an_upload_lives_as_long_as_the_database_says(blob_root: Path, settings: Settings) -> None:
    uploaded = upload(principal(), "kept for a month")
    settings.ARTIFACT_TTL_DAYS = 0
    upload(principal(), "over already")
    assert sweep().swept == 1
    assert artifacts.read_bytes(uploaded) == b"kept for a month"


@pytest.mark.usefixtures("zone", "skewed")
def test_the_bytes_of_an_ingest_under_way_are_no_orphan_by_a_wrong_clock(
    blob_root: Path, settings: Settings
) -> None:
    """Written a moment ago, before the transaction that will name them; the grace is an hour."""
    settings.ORPHAN_GRACE_HOURS = 1
    fresh = artifacts.store_blob(b"named in a moment")
    old = blob_root / artifacts.store_blob(b"nobody's")
    then = datetime.now(UTC).timestamp() - 70 * 60
    os.utime(old, (then, then))
    assert sweep().orphans == 1
    assert (blob_root / fresh).exists()
    assert not old.exists()


@pytest.mark.parametrize("zone_of_child", ["Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.django_db(transaction=True)
def test_a_sweep_in_another_time_zone(blob_root: Path, zone_of_child: str) -> None:
    """A process of its own, as on a host of its own: what is due goes and what lives stays."""
    result = admit(NOTE, source=SOURCE)
    kept = admit("# Other\n\nThe wallaby stays.\n", filename="other.md")
    store().delete(result.document_id, principal())
    swept = subprocess.run(
        [sys.executable, "manage.py", "sweep", "--json"],
        cwd=django_settings.BASE_DIR,
        env=other_process(blob_root, TZ=zone_of_child),
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert json.loads(swept.stdout)["swept"] == 1
    assert store().get_chunk(kept.chunk_ids[0], principal())
    assert sweep().swept == 0


@pytest.mark.parametrize(
    "doc_date", [date(1, 1, 1), date(9999, 12, 31), date(2099, 1, 1), None], ids=str
)
@pytest.mark.usefixtures("zone")
def test_any_date_of_a_document_is_kept_and_its_recency_bounded(
    blob_root: Path, doc_date: date | None
) -> None:
    result = admit(NOTE, source=SOURCE, doc_date=doc_date)
    (passage,) = ask("zebra pump").passages
    assert passage.candidate.doc_date == doc_date
    assert 0.0 <= passage.terms.recency <= 1.0
    assert (passage.terms.recency == 1.0) == (doc_date is not None and doc_date.year > 2026)
    with tenant_session("acme"):
        version = DocumentVersion.objects.get(document_id=result.document_id)
    assert version.doc_date == doc_date


@pytest.mark.usefixtures("zone", "skewed")
def test_versions_follow_each_other_by_the_clock_of_the_database(blob_root: Path) -> None:
    with tenant_session("acme"):
        admit(NOTE, source=SOURCE)
        admit(NOTE.replace("zebra", "okapi"), source=SOURCE)
        first, second = DocumentVersion.objects.order_by("version")
        real = datetime.now(UTC)
        for instant in (first.ingested_at, second.ingested_at):
            assert abs(instant - real) < timedelta(hours=1)
        assert first.superseded_at == second.ingested_at > first.ingested_at
    assert ask("okapi").passages
    assert not ask("zebra").passages


def test_what_a_document_stands_on_is_never_swept(blob_root: Path) -> None:
    """However its time came to be over: a mistake by hand, or by a clock."""
    admit(NOTE, source=SOURCE)
    before = footprint(blob_root, without=RUNS)
    with tenant_session("acme"):
        source = DocumentVersion.objects.get().source_id
        Artifact.objects.filter(pk=source).update(expires_at=Now() - timedelta(days=1))
    assert sweep().swept == 0
    assert footprint(blob_root, without=RUNS) == before
