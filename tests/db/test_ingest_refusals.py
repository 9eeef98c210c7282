"""Refused ingests: the right code, and nothing left but a counter of the reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from access.errors import Forbidden, Malformed, NotFound, ProjectForbidden, VerbatimError
from access.tenancy import tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts.models import Artifact
from knowledge.core.errors import (
    BinaryContent,
    EmptyExtraction,
    IngestScopeMismatch,
    InvalidTitle,
    MediaTypeMismatch,
    TooLarge,
    UndecodableText,
    UnsupportedMediaType,
)
from knowledge.core.types import ConnectorIdentity, IngestRequest, Visibility
from knowledge.wiring import store
from tests.inspection import REFUSALS, every_row, refusals
from tests.support import admit, bearer, footprint, principal, upload

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe night pump is started by hand.\n"


def requested(artifact: Artifact, **given: Any) -> IngestRequest:
    return IngestRequest(
        **{
            "artifact_id": artifact.pk,
            "title": "Pumps",
            "visibility": Visibility.TENANT,
            "origin_trust": OriginTrust.USER,
            **given,
        }
    )


def leaves_nothing(
    blob_root: Path,
    error: type[VerbatimError],
    request: IngestRequest,
    *,
    counted: bool,
    by: Any = None,
) -> VerbatimError:
    before = footprint(blob_root, without=[REFUSALS]), every_row(without=[REFUSALS])
    told = refusals()
    with pytest.raises(error) as refused:
        store().ingest(request, by or principal())
    assert (footprint(blob_root, without=[REFUSALS]), every_row(without=[REFUSALS])) == before
    if counted:
        key = ("acme", error.code)
        assert refusals() == told | {key: told.get(key, 0) + 1}
    else:
        assert refusals() == told
    return refused.value


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><text>hi</text></svg>'
HTML = b"<!doctype html><html><body><p>Pumps run at night.</p></body></html>"
PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n"
ZIP = b"PK\x03\x04" + b"\x14\x00\x00\x00" * 8
GERMAN = "Die Pumpe läuft über Nacht. Größe und Maß."


@pytest.mark.parametrize(
    ("content", "filename", "media_type", "error"),
    [
        (SVG, "drawing.svg", "", UnsupportedMediaType),
        (ZIP, "archive.zip", "", UnsupportedMediaType),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "picture.png", "", UnsupportedMediaType),
        (NOTE.encode(), "note.md", "application/x-our-own", MediaTypeMismatch),
        (HTML, "page.md", "text/markdown", MediaTypeMismatch),
        (HTML, "PAGE.MD", "", MediaTypeMismatch),
        (HTML, "page.pdf", "application/pdf", MediaTypeMismatch),
        (SVG, "notes.svg.md", "text/plain", MediaTypeMismatch),
        (PDF, "report.txt", "text/plain", MediaTypeMismatch),
        (PDF, "report.md", "", MediaTypeMismatch),
        (ZIP, "notes.md", "text/markdown", MediaTypeMismatch),
        (b"# Pumps\n\nrun\0at night\n", "note.md", "", BinaryContent),
        (bytes(range(256)) * 4, "note.txt", "text/plain", BinaryContent),
        ("\ufeffrun\0at night".encode("utf-16"), "note.txt", "", BinaryContent),
        (GERMAN.encode("cp1252"), "note.txt", "", UndecodableText),
        (GERMAN.encode("utf-16-le"), "note.txt", "", UndecodableText),
        (GERMAN.encode() + b"\xff", "note.md", "", UndecodableText),
        (b"\xed\xa0\x80 half a pair", "note.md", "", UndecodableText),
        ("备用泵在夜间运行。".encode("gb18030"), "note.txt", "", UndecodableText),
        (NOTE.encode(), "note.md", "text/markdown; charset=nonsense", UndecodableText),
        (b"", "note.md", "", EmptyExtraction),
        (b" \n\t\r\n \x0c\n", "note.txt", "", EmptyExtraction),
        ("\u200b\u00a0\u2003\ufeff\n".encode(), "note.md", "", EmptyExtraction),
        (b"\xef\xbb\xbf\n\n", "note.md", "", EmptyExtraction),
        (b"---\ntitle: Pumps\ndate: 2026-05-02\n---\n\n  \n", "note.md", "", EmptyExtraction),
    ],
)
def test_bytes_that_cannot_be_quoted(
    blob_root: Path, content: bytes, filename: str, media_type: str, error: type[VerbatimError]
) -> None:
    artifact = upload(principal(), content, filename, media_type)
    refused = leaves_nothing(blob_root, error, requested(artifact), counted=True)
    kept = str(refused.problem())
    assert "night" not in kept
    assert "Größe" not in kept


@pytest.mark.parametrize(
    "title",
    [
        "",
        "   ",
        "\t",
        "two\nlines",
        "nul\0here",
        "esc\x1b[31m",
        "\x85",
        "x" * 501,
        "\ud800",
        "a\x7f",
    ],
)
def test_titles_that_cannot_be_shown(blob_root: Path, title: str) -> None:
    leaves_nothing(
        blob_root, InvalidTitle, requested(upload(principal(), NOTE), title=title), counted=True
    )


def test_a_title_may_be_as_long_as_it_may_be(blob_root: Path) -> None:
    assert admit(NOTE, title="ä" * 500).title == "ä" * 500


def test_a_file_that_is_too_large(blob_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = upload(principal(), NOTE)
    monkeypatch.setattr("artifacts.store.read_bytes", lambda artifact: pytest.fail("was read"))
    strict = replace(store().ingestor, max_bytes=artifact.byte_size - 1)
    before = every_row(without=[REFUSALS])
    with pytest.raises(TooLarge):
        strict.ingest(requested(artifact), principal())
    assert every_row(without=[REFUSALS]) == before
    assert refusals() == {("acme", "too_large"): 1}


def test_the_limit_is_that_of_the_settings() -> None:
    assert store().ingestor.max_bytes == django_settings.MAX_DOCUMENT_BYTES


@pytest.mark.parametrize(
    "given",
    [
        {"visibility": Visibility.PROJECT},
        {"visibility": Visibility.TENANT, "project_scope": "apollo"},
        {"visibility": Visibility.PRINCIPAL, "project_scope": "apollo"},
        {"document_id": uuid4(), "source": ConnectorIdentity(type="wiki", id="1")},
    ],
)
def test_requests_that_contradict_themselves(blob_root: Path, given: dict[str, Any]) -> None:
    request = requested(upload(principal(), NOTE), **given)
    leaves_nothing(blob_root, Malformed, request, counted=False)


def test_a_project_that_the_key_may_not_name(blob_root: Path) -> None:
    request = requested(
        upload(principal(), NOTE), visibility=Visibility.PROJECT, project_scope="borealis"
    )
    leaves_nothing(blob_root, ProjectForbidden, request, counted=False)


def test_artifacts_that_are_not_the_callers(blob_root: Path) -> None:
    for artifact in (
        upload(principal("bob"), NOTE),
        upload(principal(tenant="globex"), NOTE),
    ):
        leaves_nothing(blob_root, NotFound, requested(artifact), counted=False)
    unknown = requested(upload(principal(), NOTE), artifact_id=uuid4())
    leaves_nothing(blob_root, NotFound, unknown, counted=False)


def test_an_artifact_that_has_expired(blob_root: Path) -> None:
    artifact = upload(principal(), NOTE)
    with tenant_session("acme"):
        Artifact.objects.filter(pk=artifact.pk).update(
            expires_at=timezone.now() - timedelta(seconds=1)
        )
    leaves_nothing(blob_root, NotFound, requested(artifact), counted=False)


@pytest.mark.parametrize(
    "other",
    [
        {"visibility": Visibility.PRINCIPAL},
        {"visibility": Visibility.PROJECT, "project_scope": "apollo"},
        {"sensitivity": Sensitivity.PUBLIC},
        {"sensitivity": Sensitivity.RESTRICTED},
    ],
)
def test_the_same_document_with_another_visibility(blob_root: Path, other: dict[str, Any]) -> None:
    source = ConnectorIdentity(type="wiki", id="pumps")
    admit(NOTE)
    by_source = admit(NOTE, source=source)
    for given in (
        {},
        {"source": source},
        {"document_id": by_source.document_id},
    ):
        request = requested(upload(principal(), NOTE), **given, **other)
        error = leaves_nothing(blob_root, IngestScopeMismatch, request, counted=False)
        assert "tenant, internal" in error.detail


def test_another_principals_document_takes_no_new_version(blob_root: Path) -> None:
    source = ConnectorIdentity(type="wiki", id="pumps")
    first = admit(NOTE, source=source)
    bob = principal("bob")
    for given in ({"document_id": first.document_id}, {"source": source}):
        for content in (NOTE, NOTE + "More.\n"):
            request = requested(upload(bob, content), **given)
            leaves_nothing(blob_root, Forbidden, request, counted=False, by=bob)
    steward = principal("bob", scopes=frozenset({Scope.WRITE, Scope.DELETE}))
    assert admit(NOTE + "More.\n", by=steward, source=source).version == 2


def test_an_unknown_document_id_is_not_made_up(blob_root: Path) -> None:
    foreign = admit(NOTE, by=principal(tenant="globex"))
    for document_id in (uuid4(), foreign.document_id):
        request = requested(upload(principal(), NOTE), document_id=document_id)
        leaves_nothing(blob_root, NotFound, request, counted=False)


def test_a_document_that_one_may_not_see_is_none(blob_root: Path) -> None:
    """Also when its id can be computed, as that of a connector's document can."""
    source = ConnectorIdentity(type="wiki", id="pumps")
    admit(NOTE, by=principal("bob"), visibility=Visibility.PRINCIPAL, source=source)
    admit(NOTE, by=principal("carol"), sensitivity=Sensitivity.RESTRICTED)
    request = requested(upload(principal(), NOTE), source=source)
    leaves_nothing(blob_root, NotFound, request, counted=False)


BODY = {"title": "Pumps", "visibility": "tenant", "origin_trust": "USER"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"titel": "x"}, "titel"),
        ({"background": "perhaps"}, "background"),
        ({"tenant_id": "globex"}, "tenant_id"),
        ({"principal_id": "bob"}, "principal_id"),
        ({"source": {"type": "a", "id": "b", "extra": 1}}, "source.extra"),
        ({"source": {"type": "a"}}, "source.id"),
        ({"source": "wiki"}, "source"),
        ({"visibility": "everyone"}, "visibility"),
        ({"visibility": None}, "visibility"),
        ({"sensitivity": "secret"}, "sensitivity"),
        ({"authority": "divine"}, "authority"),
        ({"doc_date": "2026-02-30"}, "doc_date"),
        ({"doc_date": "yesterday"}, "doc_date"),
        ({"language": "klingon"}, "language"),
        ({"artifact": "not-an-id"}, "artifact"),
        ({"document_id": "not-an-id"}, "document_id"),
        ({"title": ["Pumps"]}, "title"),
        ({"title": {"a": 1}}, "title"),
        ({"title": "x" * 501}, "title"),
        ({"title": ""}, "title"),
        ({"title": "a\0b"}, "title"),
    ],
)
def test_the_api_names_the_member_that_is_wrong(
    client: Client, blob_root: Path, change: dict[str, Any], field: str
) -> None:
    body = {"artifact": str(upload(principal(), NOTE).pk), **BODY, **change}
    headers = bearer()
    before = every_row(without=[REFUSALS, "access_apikey"])
    answer = client.post(
        "/v1/tools/knowledge.ingest", body, content_type="application/json", headers=headers
    )
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "malformed")
    assert field in {entry["field"] for entry in problem["fields"]}
    assert every_row(without=[REFUSALS, "access_apikey"]) == before
