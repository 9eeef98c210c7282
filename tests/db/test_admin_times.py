"""Times on pages: in the zone of whoever looks, with the distance to UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from access.operator_timezone import COOKIE
from access.tenancy import tenant_session
from knowledge.models import Document
from tests.factories import make_document, make_operator
from tests.support import bearer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

AT = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Europe/Berlin", "2026-03-02 00:30:00 +0100"),
        ("America/St_Johns", "2026-03-01 20:00:00 -0330"),
        ("", "2026-03-01 23:30:00 +0000"),
        ("../../etc/passwd", "2026-03-01 23:30:00 +0000"),
        ("Mars/Olympus", "2026-03-01 23:30:00 +0000"),
    ],
)
def test_pages_show_the_viewers_zone_and_programs_get_utc(zone: str, shown: str) -> None:
    document = make_document("acme")
    with tenant_session("acme"):
        Document.objects.update(created_at=AT)
    client = Client()
    client.force_login(make_operator("acme"))
    client.cookies[COOKIE] = zone
    opened = client.get(f"/admin/knowledge/document/{document.pk}/change/")
    assert shown in opened.content.decode()
    listed = client.get("/admin/knowledge/document/").content.decode()
    assert f"{shown[:16]} {shown[-5:]}" in listed
    answer = client.get(f"/v1/documents/{document.pk}", headers=bearer()).json()
    assert answer["created_at"] == "2026-03-01T23:30:00Z"
