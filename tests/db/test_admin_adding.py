"""Adding files in the admin: in the operator's name, each with its outcome and what to fix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from access.tenancy import operations_session
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.core.types import JobState
from knowledge.models import Document, DocumentVersion, IngestJob
from tests.db.test_admin import Harmless, page, signed_in
from tests.factories import make_operator, make_superuser
from tests.support import ask, footprint, principal, work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

ADD = "/admin/knowledge/document/add/"
ONE = f"{ADD}one/"
NOTE = b"# Pumps\n\nThe night pump is started by hand.\n"


@pytest.fixture
def olga() -> Client:
    return signed_in(make_operator("acme", "olga"))


def add(client: Client, path: str, *files: tuple[str, bytes], **given: Any) -> str:
    response = client.post(
        path,
        {
            "upload": [SimpleUploadedFile(name, content) for name, content in files],
            "visibility": "tenant",
            "sensitivity": "internal",
            "authority": "principal_supplied",
            "naming": "stem",
            **given,
        },
    )
    assert response.status_code == 200
    html = response.content.decode()
    Harmless().feed(html)
    return html


def told_later(client: Client, html: str) -> str:
    """What the page says of each file when it has fetched that anew."""
    work()
    said = [page(client, path) for path in re.findall(r'hx-get="([^"]*)"', html)]
    assert not any("hx-get" in each for each in said), "what is settled is asked for no more"
    return " ".join(said)


def test_many_files_are_admitted_in_the_operators_name(olga: Client) -> None:
    assert "me alone" in page(olga, ADD)
    html = add(
        olga,
        ADD,
        ("pumps.md", NOTE),
        ("valves.txt", b"The valve shuts by itself.\n"),
        sensitivity="restricted",
        authority="principal_authored",
        visibility="project",
        project_scope="apollo",
    )
    assert html.count("waits for a worker") == 2
    later = told_later(olga, html)
    assert later.count("added</span>") == 2
    assert "1 passage" in later
    with operations_session():
        pumps = Document.objects.select_related("space").get(title="pumps")
        assert pumps.ingested_by_principal_id == "operator:olga"
        assert (pumps.space.project_scope, pumps.space.sensitivity) == ("apollo", "restricted")
        version = DocumentVersion.objects.get(document=pumps)
        assert version.authority == "principal_authored"
    assert f"/admin/knowledge/document/{pumps.pk}/change/" in later
    assert ask("night pump", current_scope="apollo").passages
    assert not ask("night pump").passages


def test_the_uploads_go_and_the_documents_stay(olga: Client, blob_root: Path) -> None:
    told_later(olga, add(olga, ADD, ("pumps.md", NOTE), ("bad.md", b"\x00\x01")))
    sweep()
    with operations_session():
        assert Artifact.objects.get().origin == "KNOWLEDGE_SOURCE"
    assert len(footprint(blob_root)["blobs"]) == 1
    assert ask("night pump").passages


@pytest.mark.parametrize(
    ("filename", "content", "code", "sentence"),
    [
        ("a.exe", b"MZ\x90", "media_type_mismatch", "The bytes are text"),
        ("page_named.pdf", b"<html><body>x</body></html>", "media_type_mismatch", "claims"),
        ("empty.md", b" \n", "empty_extraction", "There is no text"),
        ("latin.txt", "gr\u00fc\u00dfe".encode("latin-1"), "undecodable_text", "encoding"),
        ("nul.md", b"a\x00b", "binary_content", "NUL"),
        ("svg.svg", b"<svg onload='x'/>", "unsupported_media_type", "cannot be admitted"),
    ],
)
def test_a_refusal_says_what_to_fix(
    olga: Client, filename: str, content: bytes, code: str, sentence: str
) -> None:
    html = add(olga, ONE, (filename, content))
    html += told_later(olga, html)
    assert f'<span class="badge flag">{code}</span>' in html
    assert sentence in html
    with operations_session():
        assert not Document.objects.exists()
        assert not Artifact.objects.exclude(expires_at__isnull=False).exists()


def test_hostile_names_are_shown_as_they_are(olga: Client) -> None:
    # What reorders is dropped from a name before anybody sees it.
    html = add(olga, ONE, ("\u202egnp.<img src=x onerror=alert(1)>.md", NOTE))
    assert "\u202e" not in html
    assert "<img src=x" not in html
    assert "&lt;img src=x" in told_later(olga, html)


def test_titles_follow_the_rule(olga: Client) -> None:
    for given, title in (
        ({"naming": "stem"}, "pumps.v2"),
        ({"naming": "name"}, "pumps.v2.md"),
        ({"naming": "given", "title": "On pumps"}, "On pumps"),
    ):
        content = f"# Pumps\n\n{title} is said of the pump.\n".encode()
        told_later(olga, add(olga, ONE, ("pumps.v2.md", content), **given))
        with operations_session():
            assert Document.objects.filter(title=title).count() == 1, title
    told_later(olga, add(olga, ONE, (".md", b"# A\n\nNo name.\n")))
    with operations_session():
        assert Document.objects.filter(title=".md").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"visibility": "project"}, "Which project?"),
        ({"project_scope": "apollo"}, "Only documents of a project have one."),
        ({"naming": "given"}, "Which title?"),
        ({"naming": "given", "title": "x", "count": "2"}, "One title is for one file."),
        ({"visibility": "everybody"}, "Select a valid choice"),
    ],
)
def test_a_wrong_form_adds_nothing_and_says_why(
    olga: Client, given: dict[str, str], said: str
) -> None:
    for path in (ADD, ONE):
        assert said in add(olga, path, ("pumps.md", NOTE), **given)
    assert "This field is required" in add(olga, ADD)
    with operations_session():
        assert not IngestJob.objects.exists()
        assert not Artifact.objects.exists()


def test_the_same_file_again_was_there_already(olga: Client) -> None:
    told_later(olga, add(olga, ONE, ("pumps.md", NOTE)))
    assert "was there already" in told_later(olga, add(olga, ONE, ("pumps.md", NOTE)))


def test_progress_is_told_while_it_is_tried(olga: Client) -> None:
    html = add(olga, ONE, ("pumps.md", NOTE))
    (path,) = re.findall(r'hx-get="([^"]*)"', html)
    with operations_session():
        IngestJob.objects.update(embedded=3, total=9, batch=1, batches=3, attempts=1)
    assert "3 of 9 passages" in page(olga, path)
    assert 'hx-trigger="every 1s"' in page(olga, path)
    with operations_session():
        IngestJob.objects.update(problem={"code": "unavailable", "title": "Later."})
    assert "unavailable" not in page(olga, path), "it is tried again"
    assert signed_in(make_operator("globex")).get(path).status_code == 404
    assert olga.get(f"{ADD}not-an-id/").status_code == 404
    assert Client().post(ONE, {"upload": SimpleUploadedFile("a.md", NOTE)}).status_code == 302


def test_a_superuser_names_the_tenant() -> None:
    root = signed_in(make_superuser())
    assert "This field is required" in add(root, ADD, ("pumps.md", NOTE))
    told_later(root, add(root, ADD, ("pumps.md", NOTE), tenant="globex"))
    with operations_session():
        assert Document.objects.get().tenant_id == "globex"
    assert ask("night pump", by=principal(tenant="globex")).passages


def test_a_failed_one_keeps_its_upload_for_another_try(olga: Client) -> None:
    add(olga, ONE, ("pumps.md", NOTE))
    with operations_session():
        IngestJob.objects.update(state=JobState.FAILED, finished_at="2026-01-01T00:00Z")
        assert not Artifact.objects.expired().exists()
    olga.post(
        "/admin/knowledge/ingestjob/",
        {"action": "try_again", "_selected_action": str(_job().pk)},
    )
    work()
    assert _job().state == JobState.DONE
    assert ask("night pump").passages


def _job() -> IngestJob:
    with operations_session():
        return IngestJob.objects.get()
