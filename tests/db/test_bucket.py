"""All of the product with its bytes in a bucket: in, quoted, downloaded, deleted, and gone."""

from __future__ import annotations

import io
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from access.principal import Principal
from access.tenancy import operations_session
from access.trust import Scope
from artifacts import store as artifacts
from artifacts.models import Artifact, SweepRun
from artifacts.s3 import S3BlobStore
from artifacts.sweeper import SweepReport, sweep
from knowledge.wiring import store
from tests.buckets import Bucket
from tests.factories import make_superuser
from tests.storages import nowhere, redirect
from tests.support import ask, bearer, principal, texts, upload
from tests.uploading import pieces, send, sha, stored

pytestmark = pytest.mark.django_db

NOTE = b"# Pumps\n\nThe zebra pump is started by hand.\n"
OLGA = Principal.for_operator("acme", "olga")


def post(client: Client, address: str, body: Any, headers: dict[str, str]) -> Any:
    answer = client.post(address, body, content_type="application/json", headers=headers)
    assert answer.status_code < 300, answer.content
    return answer.json()


def ours(bucket: Bucket) -> list[bytes]:
    """The bytes of each of our objects."""
    return sorted(
        content for key, content in bucket.keys().items() if key.startswith(bucket.prefix)
    )


def test_the_way_of_a_document(client: Client, bucket: Bucket) -> None:
    alice = bearer(scopes=(Scope.WRITE, Scope.DELETE))
    file = SimpleUploadedFile("pumps.md", NOTE)
    uploaded = client.post("/v1/artifacts", {"file": file}, headers=alice).json()
    admitted = post(
        client,
        "/v1/tools/knowledge.ingest",
        {
            "artifact": uploaded["artifact_id"],
            "title": "Pumps",
            "visibility": "tenant",
            "origin_trust": "USER",
        },
        alice,
    )
    document_id = UUID(admitted["document_id"])
    assert ours(bucket) == [NOTE, NOTE]

    # Found and cited, and the citation leads to the very bytes.
    found = post(client, "/v1/tools/knowledge.search", {"text": "zebra pump"}, alice)
    chunk_id = found["passages"][0]["chunk_id"]
    source = client.get(f"/v1/chunks/{chunk_id}", headers=alice).json()["source"]
    address = f"/v1/artifacts/{source['artifact_id']}/content"
    assert b"".join(iter(client.get(address, headers=alice))) == NOTE
    part = client.get(address, headers={**alice, "Range": "bytes=2-6"})
    assert (part.status_code, b"".join(iter(part))) == (206, b"Pumps")
    wanted = {"artifact": source["artifact_id"], "sha256": sha(NOTE), "offset": 2}
    assert post(client, "/v1/tools/knowledge.attachment", wanted, alice)["next_offset"] is None

    # Divided anew from the stored source.
    store().rechunk(document_id, OLGA)
    assert texts(ask("zebra")) == ["The zebra pump is started by hand."]

    # Deleted: first no longer to be had, then gone, and proven to be.
    gone = client.delete(f"/v1/documents/{document_id}", headers=alice)
    assert gone.status_code == 200
    assert client.get(address, headers=alice).status_code == 404
    found = store().verify_deletion(document_id, OLGA, NOTE.decode().splitlines())
    assert [place.what for place in found.waiting if place.place == "blob store"] == ["bytes"]
    assert sweep() == SweepReport(swept=1)
    assert ours(bucket) == [NOTE]
    assert store().verify_deletion(document_id, OLGA, NOTE.decode().splitlines()).clean
    assert "of another program" in bucket.keys()  # noqa: SIM118 - no mapping


def test_a_file_in_pieces(bucket: Bucket) -> None:
    data = random.Random(5).randbytes(130_000)
    alice, request_id = principal(), uuid4()
    receipts = [send(alice, request_id, one) for one in pieces(data)]
    assert stored(alice, receipts[-1].artifact_id) == data
    assert ours(bucket) == [data]


def test_the_sweeper_finds_what_nobody_knows(
    bucket: Bucket, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket's own clock says when something was written: here it is ours that goes on."""
    kept = upload(principal(), b"kept", "kept.md")
    bucket.write(f"{bucket.prefix}/aa/aa/orphan", b"nobody's")
    assert sweep() == SweepReport()
    # Moto says of all of them that they began in 2010.
    bucket.begin(f"{bucket.prefix}/aa/aa/half")
    bucket.begin("of another program")
    later = timezone.now() + timedelta(hours=settings.ORPHAN_GRACE_HOURS + 1)
    monkeypatch.setattr("artifacts.sweeper.now", lambda: later)
    assert sweep(dry_run=True) == SweepReport(orphans=2)
    assert sweep() == SweepReport(orphans=2)
    assert ours(bucket) == [b"kept"]
    assert bucket.unfinished() == ["of another program"]
    assert artifacts.read_bytes(kept) == b"kept"


def test_a_write_that_has_just_begun_is_left_alone(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = bucket.begin(f"{bucket.prefix}/aa/aa/half")
    monkeypatch.setattr(S3BlobStore, "unfinished", lambda _: iter([("aa/aa/half", begun)]))
    assert sweep() == SweepReport()
    assert bucket.unfinished() == [f"{bucket.prefix}/aa/aa/half"]


def test_a_bucket_that_is_away_keeps_the_row_until_it_is_back(
    bucket: Bucket, settings: Settings, client: Client
) -> None:
    artifact = upload(principal(), b"due", "due.md")
    with operations_session():
        artifacts.expire([artifact.pk])
    redirect(settings, endpoint_url=nowhere())
    assert sweep() == SweepReport(failed=2)
    with operations_session():
        assert Artifact.objects.stuck().get().sweep_error == "EndpointConnectionError"
        assert SweepRun.objects.latest("id").error == "EndpointConnectionError"
    client.force_login(make_superuser())
    page = client.get("/admin/artifacts/sweeprun/").content.decode()
    assert "EndpointConnectionError" in page
    redirect(settings, bucket_name="nobodys-bucket", endpoint_url=bucket.endpoint)
    sweep()
    with operations_session():
        assert Artifact.objects.stuck().get().sweep_error == "NoSuchBucket"
    redirect(settings, bucket_name=bucket.name)
    assert sweep() == SweepReport(swept=1)
    assert ours(bucket) == []


def test_what_a_failed_ingest_wrote_is_taken_back(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    delete = S3BlobStore.delete

    def recorded(self: S3BlobStore, key: str) -> None:
        taken.append(key)
        delete(self, key)

    monkeypatch.setattr(S3BlobStore, "delete", recorded)
    with (
        pytest.raises(RuntimeError),
        artifacts.putting(principal(), io.BytesIO(NOTE), filename="a.md"),
    ):
        raise RuntimeError
    assert len(taken) == 1
    assert ours(bucket) == []
