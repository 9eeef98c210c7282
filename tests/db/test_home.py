"""The front page, the health of the installation, and the headers of every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

pytestmark = pytest.mark.django_db


def test_the_front_page_says_what_this_is_and_where_to_go(client: Client) -> None:
    answer = client.get("/")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "can quote from" in page
    assert 'href="/admin/"' in page
    assert 'href="/docs/"' in page


def test_pages_allow_nothing_inline(client: Client) -> None:
    headers = client.get("/").headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"


def test_only_the_page_of_the_api_may_set_styles(client: Client) -> None:
    answer = client.get("/docs/")
    policy = answer.headers["Content-Security-Policy"]
    assert answer.status_code == 200
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src 'self';" in policy
    assert "<script>" not in answer.content.decode()
    assert client.get("/docs/", {"script": ""}).status_code == 200


def test_the_description_of_the_api_is_openapi_3_1(client: Client) -> None:
    assert client.get("/openapi.json").json()["openapi"].startswith("3.1")


def test_ready_when_everything_can_be_used(client: Client, blob_root: Path) -> None:
    assert client.get("/livez").json() == {"status": "ok"}
    answer = client.get("/readyz")
    assert answer.json() == {
        "status": "ready",
        "checks": {"database": "ok", "broker": "ok", "storage": "ok"},
    }
    assert [path for path in blob_root.rglob("*") if path.is_file()] == []


def test_not_ready_without_broker_or_storage(
    client: Client, settings: Settings, blob_root: Path
) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock"
    blob_root.write_text("a file where the folder should be")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert answer.json()["checks"] == {
        "database": "ok",
        "broker": "unavailable",
        "storage": "unavailable",
    }
