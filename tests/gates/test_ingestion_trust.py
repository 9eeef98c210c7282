"""Gate: an ingest from a turn below USER origin trust is refused, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from access.errors import ScopeMissing
from access.trust import OriginTrust, Scope
from artifacts.models import Artifact
from knowledge.core.errors import UntrustedOrigin
from knowledge.core.types import IngestRequest, Visibility
from knowledge.wiring import store
from tests.inspection import REFUSALS, every_row, refusals
from tests.support import bearer, footprint, principal, upload, work

NOTE = "# Pumps\n\nThe night pump is started by hand.\n"
BELOW_USER = [None, OriginTrust.EXTERNAL_UNTRUSTED, OriginTrust.TOOL, OriginTrust.MODEL]

pytestmark = pytest.mark.django_db


def requested(artifact: Artifact, claim: OriginTrust | None, **given: Any) -> IngestRequest:
    return IngestRequest(
        **{
            "artifact_id": artifact.pk,
            "title": "Pumps",
            "visibility": Visibility.TENANT,
            "origin_trust": claim,
            **given,
        }
    )


def posted(client: Client, artifact: Artifact, headers: dict[str, str], **given: Any) -> Any:
    body = {"artifact": str(artifact.pk), "title": "Pumps", "visibility": "tenant", **given}
    return client.post(
        "/v1/tools/knowledge.ingest", body, content_type="application/json", headers=headers
    )


@pytest.mark.parametrize("claim", BELOW_USER)
def test_a_turn_below_user_admits_nothing(blob_root: Path, claim: OriginTrust | None) -> None:
    artifact = upload(principal(), NOTE)
    counted = footprint(blob_root, without=[REFUSALS])
    rows = every_row(without=[REFUSALS])
    with pytest.raises(UntrustedOrigin):
        store().ingest(requested(artifact, claim), principal())
    assert footprint(blob_root, without=[REFUSALS]) == counted
    # Row for row: the caller's artifact and its expires_at among them.
    assert every_row(without=[REFUSALS]) == rows
    assert refusals() == {("acme", "untrusted_origin"): 1}


@pytest.mark.parametrize("ceiling", BELOW_USER[1:])
def test_a_claim_above_what_the_key_may_vouch_for_counts_as_the_lower(
    blob_root: Path, ceiling: OriginTrust
) -> None:
    caller = principal(max_origin_trust=ceiling)
    artifact = upload(caller, NOTE)
    rows = every_row(without=[REFUSALS])
    for claim in (OriginTrust.USER, OriginTrust.SYSTEM):
        with pytest.raises(UntrustedOrigin):
            store().ingest(requested(artifact, claim), caller)
    assert every_row(without=[REFUSALS]) == rows
    assert refusals() == {("acme", "untrusted_origin"): 2}


@pytest.mark.parametrize("claim", [OriginTrust.USER, OriginTrust.SYSTEM])
@pytest.mark.parametrize("ceiling", [OriginTrust.USER, OriginTrust.SYSTEM])
def test_a_turn_that_a_person_or_the_system_vouches_for_admits(
    blob_root: Path, claim: OriginTrust, ceiling: OriginTrust
) -> None:
    caller = principal(max_origin_trust=ceiling)
    result = store().ingest(requested(upload(caller, NOTE), claim), caller)
    assert result.version == 1
    assert not refusals()


def test_a_key_without_the_scope_admits_nothing(blob_root: Path) -> None:
    caller = principal(scopes=frozenset({Scope.DELETE, Scope.AUDIT}))
    artifact = upload(caller, NOTE)
    rows = every_row(without=[REFUSALS])
    with pytest.raises(ScopeMissing):
        store().ingest(requested(artifact, OriginTrust.USER), caller)
    assert every_row(without=[REFUSALS]) == rows
    assert refusals() == {("acme", "scope_missing"): 1}


def test_trust_is_asked_for_before_anything_is_read(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an artifact exists is no business of a turn that may not admit one."""
    theirs = upload(principal("bob"), NOTE)
    monkeypatch.setattr("artifacts.store.read_bytes", lambda artifact: pytest.fail("was read"))
    for artifact_id in (theirs.pk, uuid4()):
        with pytest.raises(UntrustedOrigin):
            store().ingest(requested(theirs, None, artifact_id=artifact_id), principal())


def test_a_new_version_of_an_own_document_needs_the_same_trust(blob_root: Path) -> None:
    first = store().ingest(requested(upload(principal(), NOTE), OriginTrust.USER), principal())
    newer = upload(principal(), NOTE + "\nAnd stopped by the timer.\n")
    rows = every_row(without=[REFUSALS])
    with pytest.raises(UntrustedOrigin):
        store().ingest(
            requested(newer, OriginTrust.MODEL, document_id=first.document_id), principal()
        )
    assert every_row(without=[REFUSALS]) == rows


@pytest.mark.parametrize(
    ("claim", "ceiling", "scopes", "code"),
    [
        (None, OriginTrust.SYSTEM, [Scope.WRITE], "untrusted_origin"),
        ("EXTERNAL_UNTRUSTED", OriginTrust.SYSTEM, [Scope.WRITE], "untrusted_origin"),
        ("TOOL", OriginTrust.SYSTEM, [Scope.WRITE], "untrusted_origin"),
        ("MODEL", OriginTrust.SYSTEM, [Scope.WRITE], "untrusted_origin"),
        ("USER", OriginTrust.MODEL, [Scope.WRITE], "untrusted_origin"),
        ("SYSTEM", OriginTrust.EXTERNAL_UNTRUSTED, [Scope.WRITE], "untrusted_origin"),
        ("USER", OriginTrust.USER, [], "scope_missing"),
        ("USER", OriginTrust.USER, [Scope.DELETE, Scope.AUDIT], "scope_missing"),
    ],
)
def test_the_api_refuses_with_a_code_and_keeps_nothing(  # noqa: PLR0917 - a table's columns
    client: Client,
    blob_root: Path,
    claim: str | None,
    ceiling: OriginTrust,
    scopes: list[Scope],
    code: str,
) -> None:
    headers = bearer(scopes=scopes, max_origin_trust=ceiling)
    artifact = upload(principal(), NOTE)
    # The time of a key's last use is no trace of the ingest.
    without = [REFUSALS, "access_apikey"]
    counted, rows = footprint(blob_root, without=[REFUSALS]), every_row(without=without)
    answer = posted(client, artifact, headers, **({"origin_trust": claim} if claim else {}))
    assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert footprint(blob_root, without=[REFUSALS]) == counted
    assert every_row(without=without) == rows
    assert refusals() == {("acme", code): 1}


@pytest.mark.parametrize("claim", ["user", "ROOT", "", 3, ["USER"], {"USER": True}])
def test_a_trust_that_is_none_of_ours_is_malformed(
    client: Client, blob_root: Path, claim: Any
) -> None:
    answer = posted(client, upload(principal(), NOTE), bearer(), origin_trust=claim)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("ceiling", BELOW_USER[1:])
def test_an_agent_admits_nothing_by_attaching_or_proposing_it(
    client: Client, blob_root: Path, ceiling: OriginTrust
) -> None:
    """Naming the principal as a message's actor is no more than a key may vouch for."""
    headers = bearer(scopes=list(Scope), max_origin_trust=ceiling)
    attached = client.post(
        "/v1/attachments",
        {
            "file": SimpleUploadedFile("pumps.md", NOTE.encode()),
            "conversation_id": "c-1",
            "actor": "principal",
        },
        headers=headers,
    )
    assert (attached.status_code, attached.json()["state"]) == (201, "stored")
    proposed = client.post(
        "/v1/tools/knowledge.propose_retention",
        {
            "artifact": str(upload(principal(), NOTE).pk),
            "title": "Pumps",
            "visibility": "tenant",
            "reason": "Useful.",
            "origin_trust": "SYSTEM",
        },
        content_type="application/json",
        headers=headers,
    )
    assert (proposed.status_code, proposed.json()["state"]) == (201, "parked")
    assert proposed.json()["origin_trust"] == ceiling
    assert work() == 0
    left = footprint(blob_root)
    for table in ("document", "documentversion", "chunkset", "chunk", "chunk_index", "ingestjob"):
        assert left[f"knowledge_{table}"] == 0, table
