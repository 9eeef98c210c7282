"""Time zones and clocks that are wrong: what counts is the database's clock, in UTC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from access.tenancy import tenant_session
from artifacts import store as artifacts
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.core.types import ConnectorIdentity
from knowledge.models import DocumentVersion
from knowledge.wiring import store
from tests.support import admit, ask, footprint, principal, upload

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe zebra pump runs at night.\n"
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
    before = footprint(blob_root)
    with tenant_session("acme"):
        source = DocumentVersion.objects.get().source_id
        Artifact.objects.filter(pk=source).update(expires_at=Now() - timedelta(days=1))
    assert sweep().swept == 0
    assert footprint(blob_root) == before
