"""The admin's pages of uploads: the journal, quotas, and what names an artifact."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission
from artifacts.errors import UploadQuotaExceeded
from artifacts.models import Artifact, Upload, UploadPiece, UploadQuota
from artifacts.quota import quota_of
from knowledge.core.records import AttachedFile
from knowledge.models import KnowledgeEvent
from tests.factories import make_attachment, make_document, make_operator, make_proposal
from tests.support import admit, principal, save_page, upload
from tests.uploading import piece, pieces, send

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

JOURNAL = "/admin/artifacts/upload/"
QUOTAS = "/admin/artifacts/uploadquota/"


def operator(*permissions: OperatorPermission, tenant: str = "acme") -> Client:
    client = Client()
    chosen = permissions or tuple(OperatorPermission)
    client.force_login(make_operator(tenant, f"op-{uuid4().hex[:8]}", chosen))
    return client


def page(client: Client, path: str, **query: Any) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200, path
    return answer.content.decode()


def half(tenant: str = "acme", who: str = "alice", **told: str) -> UUID:
    request_id = uuid4()
    for one in pieces(b"x" * 100_000)[:2]:
        send(principal(who, tenant), request_id, one, **told)
    return request_id


def row(request_id: UUID) -> Upload:
    with operations_session():
        return Upload.objects.get(request_id=request_id)


# --- the journal -------------------------------------------------------------------------------


def test_the_journal_shows_who_sends_what_and_how_far_it_is() -> None:
    half(filename="half.bin")
    whole = uuid4()
    for one in pieces(b"y" * 60_000):
        receipt = send(principal("bob"), whole, one, filename="whole.bin")
    half(tenant="globex", filename="foreign.bin")
    client = operator()
    listed = page(client, JOURNAL)
    for word in ("half.bin", "whole.bin", "alice", "bob", "receiving", "complete", "96.0"):
        assert word in listed
    assert "foreign.bin" not in listed
    assert "whole.bin" not in page(client, JOURNAL, state="receiving")
    assert "half.bin" not in page(client, JOURNAL, q=str(whole))
    shown = page(client, reverse("admin:artifacts_upload_change", args=[row(whole).pk]))
    assert f"/admin/artifacts/artifact/{receipt.artifact_id}/" in shown
    assert 'name="filename"' not in shown  # nothing of it can be edited
    with operations_session():
        Artifact.objects.all().delete()
    gone = page(client, reverse("admin:artifacts_upload_change", args=[row(whole).pk]))
    assert f"{receipt.artifact_id} (gone)" in gone


def test_an_unfinished_one_is_cancelled_and_can_be_begun_anew() -> None:
    left = half()
    finished = uuid4()
    send(principal(), finished, piece(0, b"abc", final=True))
    foreign = half(tenant="globex")
    chosen = [str(row(one).pk) for one in (left, finished, foreign)]
    asked = {"action": "cancel_selected", "_selected_action": chosen}
    operator(OperatorPermission.VIEW).post(JOURNAL, asked)
    assert row(left).received == 2 * 48 * 1024
    said = operator().post(JOURNAL, asked, follow=True).content.decode()
    assert "1 upload cancelled" in said
    with operations_session():
        assert set(Upload.objects.values_list("request_id", flat=True)) == {finished, foreign}
        assert not UploadPiece.objects.filter(tenant_id="acme", content__isnull=False).exists()
    assert send(principal(), left, piece(0, b"abc", final=True)).artifact_id


def test_the_journal_costs_the_same_however_long_it_is() -> None:
    client = operator()
    counts = []
    for more in (1, 6):
        for _ in range(more):
            half()
        with CaptureQueriesContext(connection) as queries:
            page(client, JOURNAL)
        counts.append(len(queries))
    assert counts[0] == counts[1]


# --- what names an artifact --------------------------------------------------------------------


def artifact_page(client: Client, artifact_id: Any) -> str:
    return page(client, reverse("admin:artifacts_artifact_change", args=[artifact_id]))


def test_a_source_shows_its_descriptor_and_its_document() -> None:

    result = admit("# Pumps\n\nThe zebra pump.\n", title="On pumps")
    with tenant_session("acme"):
        source = Artifact.objects.select_related("descriptor").get(origin="KNOWLEDGE_SOURCE")
    shown = artifact_page(operator(), source.pk)
    assert source.descriptor.descriptor_id in shown
    assert source.descriptor.canonical.replace('"', "&quot;") in shown
    assert f"/admin/knowledge/document/{result.document_id}/" in shown
    assert "On pumps" in shown


def test_other_artifacts_show_what_names_them() -> None:
    client = operator()
    attachment = make_attachment("acme", conversation_id="c-9")
    assert "c-9" in artifact_page(client, attachment.artifact_id)
    proposal = make_proposal("acme", title="A proposed one")
    assert "A proposed one" in artifact_page(client, proposal.snapshot_id)
    kept = upload(principal(), b"# Kept\n\nFor a page.\n")
    save_page(
        title="A page that cites",
        attachments=[AttachedFile(artifact_id=kept.pk, sha256=kept.sha256)],
    )
    assert "A page that cites" in artifact_page(client, kept.pk)
    whole = uuid4()
    receipt = send(principal(), whole, piece(0, b"abc", final=True))
    assert str(whole) in artifact_page(client, receipt.artifact_id)
    make_document("acme", "<script>alert(1)</script>")
    with tenant_session("acme"):
        source = Artifact.objects.filter(filename="runbook.md").latest("created_at")
    assert "<script>alert" not in artifact_page(client, source.pk)


# --- quotas ------------------------------------------------------------------------------------


def test_a_tenant_may_have_a_quota_of_its_own(settings: Settings) -> None:
    settings.UPLOAD_QUOTA_BYTES = 10
    upload(principal(tenant="globex"), b"x" * 10)
    call("--tenant", "acme", "--bytes", "20")
    upload(principal(), b"x" * 20)
    for act in (
        lambda: upload(principal(), b"x"),
        lambda: send(principal(), uuid4(), piece(0, b"x")),
        lambda: upload(principal(tenant="globex"), b"x"),
    ):
        with pytest.raises(UploadQuotaExceeded):
            act()
    # Nothing at all may be the limit of one, where others have one.
    assert call("--tenant", "acme", "--bytes", "0") == {"tenant": "acme", "quota_bytes": 0}
    upload(principal(), b"x" * 1_000)
    assert call("--tenant", "acme", "--default") == {"tenant": "acme", "quota_bytes": 10}
    with pytest.raises(UploadQuotaExceeded):
        upload(principal(), b"x")


def test_by_default_there_is_none() -> None:
    assert call("--tenant", "acme") == {"tenant": "acme", "quota_bytes": 0}
    upload(principal(), b"x" * 1_000)
    with pytest.raises(CommandError):
        call("--tenant", "acme", "--bytes", "-1")


def call(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("upload_quota", *arguments, "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def test_it_is_set_in_the_admin_by_whoever_manages_the_tenant() -> None:
    client = operator(OperatorPermission.VIEW, OperatorPermission.MANAGE)
    operator(OperatorPermission.VIEW).post(f"{QUOTAS}add/", {"quota_bytes": "5"})
    assert not held("acme")
    client.post(f"{QUOTAS}add/", {"quota_bytes": "5", "tenant_id": "globex"})
    assert (held("acme"), held("globex")) == (5, 0)
    assert client.get(f"{QUOTAS}add/").status_code == 403
    client.post(f"{QUOTAS}acme/change/", {"quota_bytes": "7"})
    assert held("acme") == 7
    for wrong in ("-1", "x", "", str(2**63)):
        assert client.post(f"{QUOTAS}acme/change/", {"quota_bytes": wrong}).status_code == 200
    assert held("acme") == 7
    with operations_session():
        assert [
            event.data["quota_bytes"]
            for event in KnowledgeEvent.objects.filter(
                name="access.upload_quota.changed", tenant_id="acme"
            ).order_by("at", "id")
        ] == [5, 7]
        assert UploadQuota.objects.get().changed_by.startswith("operator:")


def test_a_superuser_sets_it_for_any_tenant(admin_client: Client) -> None:
    admin_client.post(f"{QUOTAS}add/", {"quota_bytes": "5", "tenant_id": "globex"})
    assert held("globex") == 5
    admin_client.post(f"{QUOTAS}globex/change/", {"quota_bytes": "6"})
    assert held("globex") == 6


def held(tenant: str) -> int:
    with tenant_session(tenant):
        return quota_of(tenant)
