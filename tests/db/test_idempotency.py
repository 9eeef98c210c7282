"""`Idempotency-Key`, request ids and limits per key: what a caller may rely on when it repeats."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import Client
from pytest_django import Settings

from access.clock import now
from access.idempotency import expire_answers
from access.models import ApiKey, IdempotentAnswer
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust
from artifacts.models import Artifact
from knowledge.models import Document
from tests.support import bearer

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe zebra pump is started by hand.\n"


@pytest.fixture
def alice(blob_root: Path) -> dict[str, str]:
    return bearer()


def upload(headers: dict[str, str], *, key: str | None, content: str = NOTE, **given: Any) -> Any:
    named = headers if key is None else headers | {"Idempotency-Key": key}
    file = SimpleUploadedFile("pumps.md", content.encode())
    return Client().post("/v1/artifacts", {"file": file, **given}, headers=named)


def ingest(headers: dict[str, str], artifact: str, *, key: str, **given: Any) -> Any:
    return Client().post(
        "/v1/tools/knowledge.ingest",
        {
            "artifact": artifact,
            "title": "Pumps",
            "visibility": "tenant",
            "origin_trust": "USER",
            **given,
        },
        content_type="application/json",
        headers=headers | {"Idempotency-Key": key},
    )


def artifacts() -> int:
    with operations_session():
        return Artifact.objects.count()


# --- a write that is sent twice --------------------------------------------------------------


def test_a_file_sent_twice_under_one_key_is_one_artifact(alice: dict[str, str]) -> None:
    first, again = upload(alice, key="a-1"), upload(alice, key="a-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert artifacts() == 1
    assert upload(alice, key=None).json() != first.json()
    assert upload(alice, key="a-2").json() != first.json()
    assert artifacts() == 3


@pytest.mark.parametrize("change", [{"content": NOTE + "x"}, {"attribution": "the field team"}])
def test_a_key_of_another_request_is_refused_and_changes_nothing(
    alice: dict[str, str], change: dict[str, Any]
) -> None:
    upload(alice, key="a-1")
    refused = upload(alice, key="a-1", **change)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert artifacts() == 1


def test_a_key_is_its_principals_own(alice: dict[str, str]) -> None:
    mine = upload(alice, key="a-1").json()
    for other in (bearer("bob"), bearer("alice", "globex")):
        theirs = upload(other, key="a-1", content=NOTE + "theirs")
        assert theirs.status_code == 201
        assert theirs.json()["artifact_id"] != mine["artifact_id"]
    # Another key of the same principal is the same caller.
    assert upload(bearer(), key="a-1").json() == mine


def test_a_refusal_is_not_kept(alice: dict[str, str]) -> None:
    artifact = upload(alice, key=None).json()["artifact_id"]
    refused = ingest(alice, artifact, key="i-1", origin_trust="TOOL")
    assert refused.status_code == 403
    with operations_session():
        assert not IdempotentAnswer.objects.exists()
    assert ingest(alice, artifact, key="i-1").status_code == 201


def test_of_two_at_once_one_is_told_to_wait(alice: dict[str, str]) -> None:
    upload(alice, key="a-1")
    with tenant_session("acme"):
        IdempotentAnswer.objects.update(status=None, body=None)
    waiting = upload(alice, key="a-1")
    assert (waiting.status_code, waiting.json()["code"]) == (409, "request_in_progress")
    # Whoever has been at work for so long is dead.
    with tenant_session("acme"):
        IdempotentAnswer.objects.update(claimed_at=now() - timedelta(minutes=6))
    assert upload(alice, key="a-1").status_code == 201


@pytest.mark.parametrize("key", ["", "two words", "ümlaut", "x" * 201])
def test_a_key_that_is_none_is_malformed(alice: dict[str, str], key: str) -> None:
    refused = upload(alice, key=key)
    assert (refused.status_code, refused.json()["code"]) == (400, "malformed")
    assert artifacts() == 0


@pytest.mark.django_db(transaction=True)
def test_many_at_once_make_one(alice: dict[str, str]) -> None:
    answers: list[Any] = []

    def send() -> None:
        try:
            answers.append(upload(alice, key="a-1"))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({a.json()["artifact_id"] for a in answers if a.status_code == 201}) == 1
    assert artifacts() == 1


def test_what_was_answered_about_a_deleted_document_is_forgotten(alice: dict[str, str]) -> None:
    artifact = upload(alice, key=None).json()["artifact_id"]
    made = ingest(alice, artifact, key="i-1").json()
    gone = Client().delete(f"/v1/documents/{made['document_id']}", headers=alice)
    assert gone.status_code == 200, gone.content
    with operations_session():
        kept = IdempotentAnswer.objects.get(key="i-1")
        assert (kept.body, kept.subjects) == (None, [UUID(made["document_id"])]) or (
            kept.body is None and UUID(made["document_id"]) in kept.subjects
        )
        assert "Pumps" not in json.dumps(list(IdempotentAnswer.objects.values_list("body")))
    again = ingest(alice, artifact, key="i-1")
    assert (again.status_code, again.json()["code"]) == (410, "answer_forgotten")
    with operations_session():
        assert not Document.objects.exists()


def test_answers_go_after_their_time(alice: dict[str, str]) -> None:
    upload(alice, key="a-1")
    upload(alice, key="a-2")
    with tenant_session("acme"):
        IdempotentAnswer.objects.filter(key="a-1").update(expires_at="2020-01-01T00:00:00Z")
    assert expire_answers(dry_run=True) == 1
    assert expire_answers(dry_run=False) == 1
    with operations_session():
        assert IdempotentAnswer.objects.get().key == "a-2"


# --- limits ----------------------------------------------------------------------------------


def test_a_key_over_its_limit_is_told_when_to_ask_again(
    alice: dict[str, str], settings: Settings
) -> None:
    cache.clear()
    settings.RATE_LIMIT_PER_MINUTE = 3
    codes = [Client().get("/v1/documents", headers=alice).status_code for _ in range(8)]
    # The minute may turn in between.
    assert codes[:3] == [200] * 3
    assert 429 in codes
    refused = next(
        answer
        for answer in (Client().get("/v1/documents", headers=alice) for _ in range(4))
        if answer.status_code == 429
    )
    assert refused.json()["code"] == "throttled"
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    # Another key has a count of its own.
    assert Client().get("/v1/documents", headers=bearer()).status_code == 200


@pytest.mark.parametrize(("own", "refused"), [(0, False), (1, True), (None, False)])
def test_a_limit_of_its_own_goes_before_the_common_one(
    blob_root: Path, settings: Settings, own: int | None, refused: bool
) -> None:
    cache.clear()
    settings.RATE_LIMIT_PER_MINUTE = 1000 if own else 0
    _, plain = ApiKey.issue(
        tenant_id="acme",
        principal_id="alice",
        max_origin_trust=OriginTrust.USER,
        requests_per_minute=own,
    )
    headers = {"Authorization": f"Bearer {plain}"}
    codes = {Client().get("/v1/documents", headers=headers).status_code for _ in range(6)}
    assert (429 in codes) is refused


def test_a_cache_that_is_away_refuses_nobody(alice: dict[str, str], settings: Settings) -> None:
    settings.RATE_LIMIT_PER_MINUTE = 1
    away = {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {"default": away}
    codes = [Client().get("/v1/documents", headers=alice).status_code for _ in range(3)]
    assert codes == [200] * 3


# --- request ids -----------------------------------------------------------------------------


def test_every_answer_names_its_request() -> None:
    answer = Client().get("/v1/documents")
    assert answer.status_code == 401
    assert len(answer.headers["X-Request-ID"]) == 32
    named = Client().get("/livez", headers={"X-Request-ID": "trace-7.a_b"})
    assert named.headers["X-Request-ID"] == "trace-7.a_b"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, 'a"b', "a\x7fb"])
def test_what_could_harm_a_log_is_not_taken_over(given: str) -> None:
    answer = Client().get("/livez", headers={"X-Request-ID": given})
    assert answer.headers["X-Request-ID"] != given
    assert len(answer.headers["X-Request-ID"]) == 32
