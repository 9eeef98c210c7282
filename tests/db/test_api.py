"""The HTTP API: shapes, problems, ids that one may not see, downloads and pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from access.models import ApiKey
from access.tenancy import operations_session
from access.trust import Scope, Sensitivity
from artifacts.models import Artifact
from knowledge.core.types import ConnectorIdentity, IngestResult, Visibility
from knowledge.models import DocumentVersion
from tests.support import admit, ask, bearer, principal, upload

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe zebra pump is started by hand.\n"
SEARCH = "/v1/tools/knowledge.search"
INGEST = "/v1/tools/knowledge.ingest"


@pytest.fixture
def alice(blob_root: Path) -> dict[str, str]:
    return bearer()


def post(client: Client, address: str, body: Any, headers: dict[str, str]) -> Any:
    return client.post(address, body, content_type="application/json", headers=headers)


def send(client: Client, headers: dict[str, str], file: Any, **given: Any) -> Any:
    return client.post("/v1/artifacts", {"file": file, **given}, headers=headers)


def is_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert set(problem) >= {"type", "title", "status", "code", "detail"}
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:verbatim:problem:{code}"
    return problem


def content(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


# --- shapes ----------------------------------------------------------------------------------


def test_the_way_of_a_document_in_the_shapes_that_callers_rely_on(
    client: Client, alice: dict[str, str]
) -> None:
    sent = send(client, alice, SimpleUploadedFile("pumps.md", NOTE.encode()))
    assert sent.status_code == 201
    artifact = sent.json()
    assert set(artifact) - {"attribution"} == {
        "artifact_id",
        "sha256",
        "byte_size",
        "media_type",
        "filename",
        "origin",
        "created_at",
        "expires_at",
    }
    assert (artifact["filename"], artifact["byte_size"]) == ("pumps.md", len(NOTE.encode()))
    assert (artifact["media_type"], artifact["origin"]) == ("text/markdown", "UPLOAD")

    body = {
        "artifact": artifact["artifact_id"],
        "title": "Pumps",
        "visibility": "tenant",
        "origin_trust": "USER",
        "doc_date": "2026-05-02",
        "source": {"type": "wiki", "id": "pumps", "version": "r1"},
    }
    done = post(client, INGEST, body, alice)
    assert done.status_code == 201
    ingested = done.json()
    assert set(ingested) == {
        "document_id",
        "version",
        "state",
        "chunk_set_id",
        "already_ingested",
        "title",
        "chunk_ids",
        "report",
    }
    assert set(ingested["report"]) == {
        "chunks",
        "embedded",
        "skipped",
        "quarantined",
        "rejected",
        "pending",
        "complete",
        "truncated",
        "warnings",
        "deleted",
    }
    assert (ingested["state"], ingested["already_ingested"]) == ("live", False)
    again = post(client, INGEST, body, alice)
    assert (again.status_code, again.json()["already_ingested"]) == (200, True)

    found = post(client, SEARCH, {"text": "zebra pump started by hand"}, alice)
    assert found.status_code == 200
    result = found.json()
    assert set(result) == {
        "trust",
        "policy",
        "as_of",
        "trace_id",
        "block",
        "block_sha256",
        "block_tokens",
        "notes",
        "passages",
        "omitted",
    }
    assert result["trust"] == "KNOWLEDGE"
    (passage,) = result["passages"]
    assert set(passage) == {
        "chunk_id",
        "document_id",
        "version",
        "title",
        "heading_path",
        "text",
        "tokens",
        "doc_date",
        "authority",
        "score",
        "terms",
        "arms",
        "instruction_like",
        "line_start",
        "line_end",
        "page_start",
        "page_end",
        "citation_url",
    }
    assert set(passage["terms"]) == {"match", "authority", "scope", "recency", "penalty"}
    assert passage["text"] == "The zebra pump is started by hand."
    assert (passage["line_start"], passage["line_end"]) == (3, 3)
    assert passage["citation_url"].startswith(f"http://testserver/c/{passage['chunk_id']}?")
    assert passage["text"] in result["block"]

    answer = client.get(f"/v1/chunks/{passage['chunk_id']}", headers=alice)
    chunk = answer.json()
    assert set(chunk) == {
        "chunk_id",
        "document_id",
        "version",
        "title",
        "heading_path",
        "ordinal",
        "text",
        "tokens",
        "content_sha256",
        "line_start",
        "line_end",
        "page_start",
        "page_end",
        "chunker_version",
        "live",
        "superseded_by_version",
        "superseded_by_chunker_version",
        "source",
    }
    assert set(chunk["source"]) == {
        "artifact_id",
        "sha256",
        "filename",
        "media_type",
        "descriptor_id",
    }
    assert (chunk["live"], chunk["superseded_by_version"]) == (True, None)
    assert chunk["source"]["sha256"] == artifact["sha256"]
    assert chunk["source"]["artifact_id"] != artifact["artifact_id"]

    document = client.get(f"/v1/documents/{ingested['document_id']}", headers=alice).json()
    assert (document["title"], document["visibility"]) == ("Pumps", "tenant")
    assert [v["version"] for v in document["versions"]] == [1]
    versions = client.get(f"/v1/documents/{ingested['document_id']}/versions", headers=alice).json()
    assert versions == document["versions"]
    (listed,) = client.get("/v1/documents", headers=alice).json()["results"]
    assert listed["document_id"] == ingested["document_id"]


def test_what_is_left_out_is_listed_with_a_reason(client: Client, alice: dict[str, str]) -> None:
    admit(NOTE)
    body = {"text": "zebra pump", "budget_tokens": 0, "min_score": 0}
    result = post(client, SEARCH, body, alice).json()
    (omitted,) = result["omitted"]
    assert set(omitted) == {"chunk_id", "document_id", "reason", "tokens", "score"}
    assert omitted["reason"] == "budget"


# --- problems --------------------------------------------------------------------------------

# The same in every worker: parallel runs must collect the same tests.
NOBODY = UUID(int=1)
ADDRESSES = [
    ("post", SEARCH),
    ("post", INGEST),
    ("post", "/v1/artifacts"),
    ("get", f"/v1/artifacts/{NOBODY}"),
    ("get", f"/v1/artifacts/{NOBODY}/content"),
    ("get", "/v1/documents"),
    ("get", f"/v1/documents/{NOBODY}"),
    ("get", f"/v1/documents/{NOBODY}/versions"),
    ("delete", f"/v1/documents/{NOBODY}"),
    ("get", "/v1/chunks/kc_0123456789abcdef"),
]


@pytest.mark.parametrize(("method", "address"), ADDRESSES)
def test_nothing_is_answered_without_a_key(client: Client, method: str, address: str) -> None:
    _, revoked = ApiKey.issue(tenant_id="acme", principal_id="alice")
    with operations_session():
        ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    for header in (
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer vk_00000000_" + "A" * 43,
        "Bearer vk_x",
        f"Bearer {revoked}",
        f"Bearer {revoked} {revoked}",
        "Bearer \xff",
    ):
        headers = {} if header is None else {"Authorization": header}
        answer = getattr(client, method)(address, headers=headers)
        is_problem(answer, 401, "not_authenticated")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="verbatim"'


def test_every_class_of_error_is_a_problem(client: Client, alice: dict[str, str]) -> None:
    document = admit(NOTE, by=principal("bob"))
    artifact = str(upload(principal(), NOTE).pk)
    page = str(upload(principal(), '<svg xmlns="http://www.w3.org/2000/svg"/>', "image.svg").pk)
    blank = str(upload(principal(), " \n").pk)
    body = {"artifact": artifact, "title": "t", "visibility": "tenant", "origin_trust": "USER"}
    is_problem(post(client, SEARCH, {"txt": "zebra"}, alice), 400, "malformed")
    is_problem(
        post(client, INGEST, {**body, "origin_trust": "TOOL"}, alice), 403, "untrusted_origin"
    )
    is_problem(post(client, INGEST, body, bearer(scopes=())), 403, "scope_missing")
    other = {"text": "zebra", "current_scope": "borealis"}
    is_problem(post(client, SEARCH, other, alice), 403, "project_forbidden")
    address = f"/v1/documents/{document.document_id}"
    is_problem(client.delete(address, headers=alice), 403, "forbidden")
    is_problem(client.get(f"/v1/documents/{uuid4()}", headers=alice), 404, "not_found")
    is_problem(client.put(address, headers=alice), 405, "method_not_allowed")
    is_problem(client.get(SEARCH, headers=alice), 405, "method_not_allowed")
    is_problem(
        client.get("/v1/documents", headers={**alice, "Accept": "image/png"}), 406, "not_acceptable"
    )
    admit(NOTE)
    is_problem(
        post(client, INGEST, {**body, "sensitivity": "public"}, alice), 409, "ingest_scope_mismatch"
    )
    is_problem(
        client.post(SEARCH, "text=zebra", content_type="text/plain", headers=alice),
        415,
        "unsupported_body",
    )
    is_problem(
        client.post("/v1/artifacts", "{}", content_type="application/json", headers=alice),
        415,
        "unsupported_body",
    )
    is_problem(
        post(client, INGEST, {**body, "artifact": page}, alice), 415, "unsupported_media_type"
    )
    is_problem(post(client, INGEST, {**body, "artifact": blank}, alice), 422, "empty_extraction")


def test_an_unknown_profile_is_refused_with_the_known_ones(
    client: Client, alice: dict[str, str]
) -> None:
    sent = send(client, alice, SimpleUploadedFile("pumps.md", NOTE.encode())).json()
    body = {
        "artifact": sent["artifact_id"],
        "title": "Pumps",
        "visibility": "tenant",
        "origin_trust": "USER",
    }
    problem = is_problem(
        post(client, INGEST, {**body, "profile": "huge"}, alice), 400, "unknown_profile"
    )
    assert problem["profiles"] == ["default", "chat", "reference"]
    assert post(client, INGEST, {**body, "profile": "reference"}, alice).status_code == 201


def test_a_body_or_a_file_that_is_too_large(
    client: Client, alice: dict[str, str], settings: Any
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000
    is_problem(post(client, SEARCH, {"text": "x" * 11_000}, alice), 413, "body_too_large")
    settings.MAX_UPLOAD_BYTES = 100
    large = SimpleUploadedFile("large.md", b"x" * 101)
    is_problem(send(client, alice, large), 413, "upload_too_large")
    with operations_session():
        assert not Artifact.objects.exists()
    assert send(client, alice, SimpleUploadedFile("fits.md", b"x" * 100)).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[",
        b"nonsense",
        b'{"text": }',
        b'{"text": "\xff"}',
        b"\xff\xfe{}",
        b'{"text": NaN}',
        b'{"text": "a", "min_score": Infinity}',
        b"[" * 5_000,
        b'{"text": ' + b"[" * 5_000,
        b"null",
        b"[]",
        b'"text"',
        b"3",
        b'{"text": null}',
        b'{"text": 3.5e400, "min_score": 1e400}',
        b'{"text": ["zebra"]}',
        b'{"text": {"a": "b"}}',
        b'{"text": true}',
        b"{}",
    ],
)
@pytest.mark.parametrize("address", [SEARCH, INGEST])
def test_bodies_that_are_no_request(
    client: Client, alice: dict[str, str], address: str, body: bytes
) -> None:
    answer = client.post(address, body, content_type="application/json", headers=alice)
    problem = is_problem(answer, 400, "malformed")
    assert "Traceback" not in str(problem)


BAD = ["a\0b", "\ud800", "a\udfffb", "\0"]


@pytest.mark.parametrize("bad", BAD, ids=["nul", "high", "low", "nul alone"])
def test_what_no_text_can_hold_is_refused_in_every_string(
    client: Client, alice: dict[str, str], bad: str
) -> None:
    artifact = str(upload(principal(), NOTE).pk)
    search: dict[str, Any] = {"text": "zebra"}
    change: dict[str, Any]
    for change in (
        {"text": bad},
        {"current_scope": bad},
        {"objective": bad},
        {"entities": [bad]},
        {"aliases": {"a": [bad]}},
        {"aliases": {bad: ["a"]}},
        {"beliefs": [bad]},
        {"beliefs": [{"a": [bad]}]},
        {"beliefs": [{bad: 1}]},
        {"as_of": bad},
        {"format": bad},
        {"origin_trust": bad},
        {bad: 1},
    ):
        answer = _escaped(client, SEARCH, {**search, **change}, alice)
        assert 400 <= answer.status_code < 500, (change, answer.content)
    ingest = {"artifact": artifact, "title": "t", "visibility": "tenant", "origin_trust": "USER"}
    for change in (
        {"artifact": bad},
        {"title": bad},
        {"visibility": bad},
        {"visibility": "project", "project_scope": bad},
        {"sensitivity": bad},
        {"authority": bad},
        {"doc_date": bad},
        {"language": bad},
        {"document_id": bad},
        {"source": {"type": bad, "id": "1"}},
        {"source": {"type": "wiki", "id": bad}},
        {"source": {"type": "wiki", "id": "1", "version": bad}},
        {"source": {bad: "wiki"}},
        {"origin_trust": bad},
        {bad: 1},
    ):
        answer = _escaped(client, INGEST, {**ingest, **change}, bearer(projects=None))
        assert 400 <= answer.status_code < 500, (change, answer.content)


def _escaped(client: Client, address: str, body: Any, headers: dict[str, str]) -> Any:
    """Posts JSON in which every odd character is an escape, as JSON allows."""
    return client.post(
        address, json.dumps(body).encode(), content_type="application/json", headers=headers
    )


@pytest.mark.parametrize("escape", ["%00", "a%00b", "%ed%a0%80", "%ff", "%u0000", "%"])
def test_what_no_text_can_hold_is_refused_in_every_address(
    client: Client, alice: dict[str, str], escape: str
) -> None:
    result = admit(NOTE)
    for address in (
        f"/v1/chunks/{escape}",
        f"/v1/chunks/kc_{escape}",
        f"/v1/chunks/{result.chunk_ids[0]}?current_scope={escape}",
        f"/v1/documents/{escape}",
        f"/v1/documents?current_scope={escape}",
        f"/v1/documents?cursor={escape}",
        f"/v1/documents?page_size={escape}",
        f"/v1/documents?{escape}=1",
        f"/v1/documents/{result.document_id}/versions?current_scope={escape}",
        f"/v1/artifacts/{escape}",
        f"/v1/artifacts/{escape}/content",
    ):
        answer = client.get(address, headers=alice)
        first_page = answer.status_code == 200 and "cursor" in address and escape == "%"
        assert first_page or 400 <= answer.status_code < 500, (address, answer.status_code)
    answer = client.delete(f"/v1/documents/{uuid4()}?reason={escape}", headers=alice)
    assert 400 <= answer.status_code < 500


def test_passages_as_search_results_that_a_model_cites(
    client: Client, alice: dict[str, str]
) -> None:
    admit(
        "# Pumps\n\nThe zebra pump.\n\n\n- By hand.\n\n```\nzebra\n\n  start\n```\n", title="A note"
    )
    asked = {"text": "zebra pump", "min_score": 0, "format": "anthropic_search_results"}
    found = post(client, SEARCH, asked, alice).json()
    assembled = post(
        client, "/v1/context/assemble", {"tokens_left": 5_000, "search": asked}, alice
    ).json()
    for answer in (found, assembled["knowledge"]):
        (passage,), (result,) = answer["passages"], answer["search_results"]
        assert (result["type"], result["citations"]) == ("search_result", {"enabled": True})
        assert (result["source"], result["title"]) == (passage["citation_url"], "A note › Pumps")
        assert len(result["content"]) == 4
        assert "".join(block["text"] for block in result["content"]) == passage["text"]
        assert all(block["type"] == "text" for block in result["content"])
    plain = post(client, SEARCH, {**asked, "format": "block"}, alice).json()
    assert "search_results" not in plain


@pytest.mark.parametrize(
    ("as_of", "status"),
    [
        ("2026-07-28T00:00:00Z", 200),
        ("2026-07-28T00:00:00+02:00", 200),
        ("2026-07-28T00:00:00.123456-08:00", 200),
        ("0001-01-01T00:00:00Z", 200),
        ("9999-12-31T23:59:59Z", 200),
        ("2026-07-28T00:00:00 02:00", 400),
        ("2026-07-28T00:00:00", 400),
        ("2026-07-28", 400),
        ("2026-02-30T00:00:00Z", 400),
        ("yesterday", 400),
        ("", 400),
        (1_700_000_000, 400),
        (True, 400),
        ([], 400),
        ("0001-01-01T00:00:00+14:00", 400),
        ("9999-12-31T23:59:59-14:00", 400),
    ],
)
def test_instants_have_an_offset_or_are_refused(
    client: Client, alice: dict[str, str], as_of: Any, status: int
) -> None:
    admit(NOTE)
    answer = post(client, SEARCH, {"text": "zebra", "as_of": as_of}, alice)
    assert answer.status_code == status, answer.content
    if status == 400:
        assert is_problem(answer, 400, "malformed")["fields"][0]["field"] == "as_of"


@pytest.mark.parametrize(
    "change",
    [
        {"budget_tokens": -1},
        {"budget_tokens": "many"},
        {"max_passages": 0},
        {"max_passages": 51},
        {"max_per_document": 0},
        {"min_score": -0.1},
        {"min_score": 1.1},
        {"entities": "zebra"},
        {"entities": [["zebra"]]},
        {"aliases": []},
        {"aliases": {"a": "b"}},
        {"beliefs": {"a": 1}},
        {"format": "xml"},
        {"text": "x" * 20_001},
        {"tenant_id": "globex"},
        {"principal_id": "bob"},
    ],
)
def test_limits_of_a_search_are_checked(
    client: Client, alice: dict[str, str], change: dict[str, Any]
) -> None:
    is_problem(post(client, SEARCH, {"text": "zebra", **change}, alice), 400, "malformed")


# --- ids that one may not see ----------------------------------------------------------------

Call = Callable[[Client, dict[str, str], "Ids"], Any]


class Ids:
    """What a caller could know or guess of a document."""

    def __init__(self, document: Any, chunk: str, source: Any) -> None:
        self.document, self.chunk, self.source = document, chunk, source


def _new_version(client: Client, headers: dict[str, str], ids: Ids, **given: Any) -> Any:
    who = ApiKey.authenticate(headers["Authorization"].removeprefix("Bearer "))
    assert who is not None
    artifact = upload(who, "# Mine now\n\nThe quagga.\n")
    body = {
        "artifact": str(artifact.pk),
        "title": "Mine",
        "visibility": "tenant",
        "origin_trust": "USER",
        **given,
    }
    return post(client, INGEST, body, headers)


CALLS: dict[str, Call] = {
    "chunk": lambda c, h, i: c.get(f"/v1/chunks/{i.chunk}", headers=h),
    "chunk in a project": lambda c, h, i: c.get(
        f"/v1/chunks/{i.chunk}?current_scope=apollo", headers=h
    ),
    "document": lambda c, h, i: c.get(f"/v1/documents/{i.document}", headers=h),
    "document in a project": lambda c, h, i: c.get(
        f"/v1/documents/{i.document}?current_scope=apollo", headers=h
    ),
    "versions": lambda c, h, i: c.get(f"/v1/documents/{i.document}/versions", headers=h),
    "source": lambda c, h, i: c.get(f"/v1/artifacts/{i.source}", headers=h),
    "source download": lambda c, h, i: c.get(f"/v1/artifacts/{i.source}/content", headers=h),
    "source range": lambda c, h, i: c.get(
        f"/v1/artifacts/{i.source}/content", headers={**h, "Range": "bytes=0-1"}
    ),
    "delete": lambda c, h, i: c.delete(f"/v1/documents/{i.document}", headers=h),
    "delete in a project": lambda c, h, i: c.delete(
        f"/v1/documents/{i.document}?current_scope=apollo", headers=h
    ),
    "new version": lambda c, h, i: _new_version(c, h, i, document_id=str(i.document)),
    "new version in a project": lambda c, h, i: _new_version(
        c,
        h,
        i,
        document_id=str(i.document),
        visibility="project",
        project_scope="apollo",
    ),
    "ingest of the source": lambda c, h, i: post(
        c,
        INGEST,
        {
            "artifact": str(i.source),
            "title": "Mine",
            "visibility": "tenant",
            "origin_trust": "USER",
        },
        h,
    ),
}


def _ids(result: IngestResult) -> Ids:
    with operations_session():
        version = DocumentVersion.objects.get(document_id=result.document_id)
    return Ids(result.document_id, result.chunk_ids[0], version.source_id)


STRANGERS: dict[str, Callable[[], dict[str, str]]] = {
    "another tenant": lambda: bearer("alice", "globex", scopes=list(Scope), projects=None),
    "a colleague": lambda: bearer("bob", scopes=list(Scope)),
    "a low ceiling": lambda: bearer(
        "alice", scopes=list(Scope), sensitivity_ceiling=Sensitivity.PUBLIC
    ),
}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("call", CALLS)
def test_a_hidden_id_and_an_unknown_one_get_the_same_bytes(
    client: Client, blob_root: Path, call: str, stranger: str
) -> None:
    hidden = _ids(admit(NOTE, visibility=Visibility.PRINCIPAL))
    unknown = Ids(uuid4(), "kc_0123456789abcdef", uuid4())
    headers = STRANGERS[stranger]()
    answers = [CALLS[call](client, headers, ids) for ids in (hidden, unknown)]
    is_problem(answers[0], 404, "not_found")
    assert answers[0].content == answers[1].content
    assert _headers(answers[0]) == _headers(answers[1])
    assert answers[0].status_code == answers[1].status_code
    assert ask("zebra").passages, "it is all there still"


def _headers(answer: Any) -> dict[str, str]:
    return {
        name: value
        for name, value in answer.headers.items()
        if name not in {"Date", "X-Request-ID"}
    }


@pytest.mark.parametrize("visibility", list(Visibility))
def test_every_reader_of_a_matrix_sees_what_it_may(
    client: Client, blob_root: Path, visibility: Visibility
) -> None:
    """Two tenants and two projects; each caller asks on every path that reads."""
    ids = _ids(admit(NOTE, visibility=visibility))
    callers = {
        ("alice", "acme", "apollo"): True,
        ("bob", "acme", "apollo"): visibility is not Visibility.PRINCIPAL,
        ("carol", "acme", "borealis"): visibility is Visibility.TENANT,
        ("carol", "acme", None): visibility is Visibility.TENANT,
        ("alice", "globex", "apollo"): False,
    }
    for (who, tenant, project), sees in callers.items():
        headers = bearer(who, tenant, projects=[project] if project else [])
        query = f"?current_scope={project}" if project else ""
        for address in (
            f"/v1/chunks/{ids.chunk}{query}",
            f"/v1/documents/{ids.document}{query}",
            f"/v1/documents/{ids.document}/versions{query}",
            f"/v1/artifacts/{ids.source}{query}",
            f"/v1/artifacts/{ids.source}/content{query}",
        ):
            answer = client.get(address, headers=headers)
            if answer.streaming:
                content(answer)
            assert answer.status_code == (200 if sees else 404), (who, tenant, project, address)
        listed = client.get(f"/v1/documents{query}", headers=headers).json()["results"]
        assert len(listed) == sees
        for as_of in (None, "2100-01-01T00:00:00Z"):
            body = {"text": "zebra", "current_scope": project, "as_of": as_of, "min_score": 0}
            found = post(client, SEARCH, body, headers).json()
            assert len(found["passages"]) == sees
            assert not found["omitted"]


def test_a_key_cannot_name_a_project_that_it_may_not(client: Client, blob_root: Path) -> None:
    ids = _ids(admit(NOTE))
    headers = bearer(projects=["borealis"])
    for address in (
        f"/v1/chunks/{ids.chunk}",
        f"/v1/documents/{ids.document}",
        f"/v1/documents/{ids.document}/versions",
        "/v1/documents",
        f"/v1/artifacts/{ids.source}",
        f"/v1/artifacts/{ids.source}/content",
    ):
        answer = client.get(f"{address}?current_scope=apollo", headers=headers)
        is_problem(answer, 403, "project_forbidden")


def test_a_query_string_that_is_not_ours_is_refused(client: Client, blob_root: Path) -> None:
    ids = _ids(admit(NOTE))
    headers = bearer()
    for address in (
        f"/v1/chunks/{ids.chunk}?asof=2026-01-01T00:00:00Z",
        f"/v1/chunks/{ids.chunk}?current_scope=apollo&current_scope=apollo",
        f"/v1/documents/{ids.document}?project=apollo",
        f"/v1/documents/{ids.document}/versions?scope=apollo",
        "/v1/documents?limit=5",
        f"/v1/artifacts/{ids.source}?currentscope=apollo",
        f"/v1/artifacts/{ids.source}/content?download=1",
    ):
        is_problem(client.get(address, headers=headers), 400, "malformed")


# --- uploads and downloads -------------------------------------------------------------------

HOSTILE_NAMES = [
    "../outside.txt",
    "..\\outside.txt",
    "/etc/passwd",
    "C:\\x.txt",
    "....//x.md",
    "%2e%2e%2fx.md",
    "..%252fx.md",
    "a/../../x.md",
    "./.hidden.md",
    ".md",
    "..",
    ".",
    "con.md",
    "nul.txt",
    "x.md/",
    "x.md\0.pdf",
    "~root.md",
    "$(id).md",
    "`id`.md",
    "x;rm -rf.md",
    "file:///x.md",
    "\\\\host\\share\\x.md",
    "x.md:stream",
    "..\u2215x.md",
    "．．／x.md",
    "x\u202efdp.md",
    " x.md ",
    "x.md.",
    "-rf.md",
    'quo"te.md',
    "two\r\nSet-Cookie: a=b.md",
    "x" * 300 + ".md",
    "<script>alert(1)</script>.md",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_a_hostile_name_is_refused_or_only_text(
    client: Client, alice: dict[str, str], blob_root: Path, tmp_path: Path, name: str
) -> None:
    boundary = "boundary"
    # The parts of a form as an attacker writes them, not as a library would.
    body = (
        (
            f"--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename*=UTF-8''"
            + "".join(f"%{byte:02X}" for byte in name.encode())
            + "\r\nContent-Type: text/markdown\r\n\r\n"
        ).encode()
        + NOTE.encode()
        + f"\r\n--{boundary}--\r\n".encode()
    )
    answer = client.post(
        "/v1/artifacts",
        body,
        content_type=f"multipart/form-data; boundary={boundary}",
        headers=alice,
    )
    assert answer.status_code == 201 or 400 <= answer.status_code < 500, answer.content
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    if answer.status_code != 201:
        assert not files
        return
    assert [path.is_relative_to(blob_root) for path in files] == [True]
    assert re.fullmatch(
        r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{32}", str(files[0].relative_to(blob_root))
    )
    artifact = answer.json()
    download = client.get(f"/v1/artifacts/{artifact['artifact_id']}/content", headers=alice)
    assert content(download) == NOTE.encode()
    disposition = download.headers["Content-Disposition"]
    assert disposition.startswith("attachment")
    assert not {"\r", "\n"} & set(disposition)
    assert "Set-Cookie" not in download.headers


@pytest.mark.parametrize(
    ("name", "claimed", "data", "served"),
    [
        ("page.html", "text/html", b"<script>alert(1)</script>", "application/octet-stream"),
        ("evil.svg", "image/svg+xml", b"<svg onload='alert(1)'/>", "application/octet-stream"),
        ("page.md", "text/html; charset=utf-8", b"<script>1</script>", "application/octet-stream"),
        ("page.xhtml", "application/xhtml+xml", b"<html/>", "application/octet-stream"),
        ("feed.xml", "application/xml", b"<?xml version='1.0'?><a/>", "application/octet-stream"),
        ("app.js", "text/javascript", b"alert(1)", "application/octet-stream"),
        ("note.md", "text/markdown", b"<script>alert(1)</script>", "text/markdown"),
        ("note.txt", "text/plain", b"<html></html>", "text/plain"),
        ("noname", "application/octet-stream", b"\0\1", "application/octet-stream"),
    ],
)
def test_a_download_is_never_a_page_of_ours(  # noqa: PLR0917 - a table's columns
    client: Client, alice: dict[str, str], name: str, claimed: str, data: bytes, served: str
) -> None:
    sent = send(client, alice, SimpleUploadedFile(name, data, content_type=claimed)).json()
    answer = client.get(f"/v1/artifacts/{sent['artifact_id']}/content", headers=alice)
    assert answer.status_code == 200
    assert content(answer) == data
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Type"].partition(";")[0] == served


@pytest.mark.parametrize(
    ("asked", "status", "expected", "told"),
    [
        (None, 200, b"0123456789", None),
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-6", 206, b"456", "bytes 4-6/10"),
        ("bytes=9-9", 206, b"9", "bytes 9-9/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=7-9999", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=10-20", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=a-b", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("items=0-1", 200, b"0123456789", None),
        ("bytes=٣-٤", 200, b"0123456789", None),
        ("nonsense", 200, b"0123456789", None),
        ("bytes=" + "9" * 400 + "-", 200, b"0123456789", None),
    ],
)
def test_byte_ranges(  # noqa: PLR0917 - a table's columns
    client: Client,
    alice: dict[str, str],
    asked: str | None,
    status: int,
    expected: bytes,
    told: str | None,
) -> None:
    artifact = upload(principal(), b"0123456789", "digits.txt")
    headers = {**alice, **({"Range": asked} if asked else {})}
    answer = client.get(f"/v1/artifacts/{artifact.pk}/content", headers=headers)
    assert answer.status_code == status
    assert answer.headers.get("Content-Range") == told
    if status == 416:
        is_problem(answer, 416, "range_not_satisfiable")
    else:
        assert content(answer) == expected
        assert answer.headers["Content-Length"] == str(len(expected))
        assert answer.headers["Accept-Ranges"] == "bytes"


def test_a_range_of_another_file_is_the_whole_of_this_one(
    client: Client, alice: dict[str, str]
) -> None:
    artifact = upload(principal(), b"0123456789", "digits.txt")
    address = f"/v1/artifacts/{artifact.pk}/content"
    etag = f'"{artifact.sha256}"'
    asked = {**alice, "Range": "bytes=0-3"}
    part = client.get(address, headers={**asked, "If-Range": etag})
    assert (part.status_code, content(part), part.headers["ETag"]) == (206, b"0123", etag)
    for other in ('"another"', f"W/{etag}", "Wed, 21 Oct 2015 07:28:00 GMT"):
        for range_ in ("bytes=0-3", "bytes=50-"):
            headers = {**alice, "Range": range_, "If-Range": other}
            whole = client.get(address, headers=headers)
            assert (whole.status_code, content(whole)) == (200, b"0123456789")
    head = client.head(address, headers=asked)
    assert (head.status_code, head.headers["Content-Length"]) == (200, "10")
    assert "Content-Range" not in head.headers
    head.close()


def test_an_empty_file_has_no_ranges(client: Client, alice: dict[str, str]) -> None:
    artifact = send(client, alice, SimpleUploadedFile("empty.txt", b"")).json()
    address = f"/v1/artifacts/{artifact['artifact_id']}/content"
    whole = client.get(address, headers=alice)
    assert (whole.status_code, content(whole), whole.headers["Content-Length"]) == (200, b"", "0")
    for asked in ("bytes=0-", "bytes=0-0", "bytes=-1"):
        answer = client.get(address, headers={**alice, "Range": asked})
        assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */0")


def test_bytes_that_are_gone_are_a_problem(client: Client, alice: dict[str, str]) -> None:
    from artifacts.blobs import blob_store  # noqa: PLC0415 - for this test alone

    artifact = upload(principal(), b"0123456789", "digits.txt")
    blob_store().delete(artifact.storage_key)
    answer = client.get(f"/v1/artifacts/{artifact.pk}/content", headers=alice)
    is_problem(answer, 410, "blob_missing")


@pytest.mark.parametrize(
    "given",
    [
        {"media_type": "text"},
        {"media_type": "text/plain\r\nX: y"},
        {"media_type": "x" * 300},
        {"attribution": "a\0b"},
        {"attribution": "x" * 1_001},
    ],
)
def test_uploads_that_are_malformed(
    client: Client, alice: dict[str, str], given: dict[str, str]
) -> None:
    answer = send(client, alice, SimpleUploadedFile("note.md", NOTE.encode()), **given)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    with operations_session():
        assert not Artifact.objects.exists()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data; boundary=x"),
        (b"", "multipart/form-data"),
        (b"nonsense", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\nno headers\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (
            b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\ntext\r\n--x--\r\n",
            "multipart/form-data; boundary=x",
        ),
        (b"--x", "multipart/form-data; boundary=" + "x" * 300),
    ],
)
def test_forms_without_a_file(
    client: Client, alice: dict[str, str], body: bytes, kind: str
) -> None:
    answer = client.post("/v1/artifacts", body, content_type=kind, headers=alice)
    assert answer.status_code in {400, 415}
    assert is_problem(answer, answer.status_code, answer.json()["code"])


# --- pages -----------------------------------------------------------------------------------


def _pages(client: Client, headers: dict[str, str], address: str) -> Iterator[list[str]]:
    while address:
        page = client.get(address, headers=headers).json()
        assert set(page) == {"next", "previous", "results"}
        yield [document["document_id"] for document in page["results"]]
        address = page["next"]


def test_documents_are_listed_a_page_at_a_time(client: Client, alice: dict[str, str]) -> None:
    made = [
        str(admit(NOTE, source=ConnectorIdentity(type="wiki", id=str(number))).document_id)
        for number in range(7)
    ]
    admit(NOTE, by=principal("bob"), visibility=Visibility.PRINCIPAL)
    pages = list(_pages(client, alice, "/v1/documents?page_size=3"))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [document for page in pages for document in page] == made[::-1], "newest first"
    assert list(_pages(client, alice, "/v1/documents")) == [made[::-1]]
    # A document that comes while one pages moves nothing.
    first = client.get("/v1/documents?page_size=3", headers=alice).json()
    admit(NOTE, source=ConnectorIdentity(type="wiki", id="later"))
    rest = [d for page in _pages(client, alice, first["next"]) for d in page]
    assert rest == made[::-1][3:]


@pytest.mark.parametrize("query", ["page_size=0", "page_size=201", "page_size=x", "page_size="])
def test_the_size_of_a_page_has_limits(client: Client, alice: dict[str, str], query: str) -> None:
    is_problem(client.get(f"/v1/documents?{query}", headers=alice), 400, "malformed")


@pytest.mark.parametrize("cursor", ["x", "cD0yMDI2", "%F0%9F%9A%80", "cD0lMDA=", "bz14"])
def test_a_cursor_that_is_none_of_ours_is_refused(
    client: Client, alice: dict[str, str], cursor: str
) -> None:
    admit(NOTE)
    answer = client.get(f"/v1/documents?cursor={cursor}", headers=alice)
    is_problem(answer, 400, "malformed")


# --- links -----------------------------------------------------------------------------------


def test_a_link_is_of_one_chunk_and_of_a_usable_key(client: Client, blob_root: Path) -> None:
    from urllib.parse import parse_qs, urlsplit  # noqa: PLC0415 - for this test alone

    from knowledge.links import open_link  # noqa: PLC0415

    headers = bearer()
    result = admit(NOTE)
    (passage,) = post(client, SEARCH, {"text": "zebra", "min_score": 0}, headers).json()["passages"]
    signature = parse_qs(urlsplit(passage["citation_url"]).query)["s"][0]
    opened = open_link(result.chunk_ids[0], signature)
    assert opened is not None
    who, project = opened
    assert (who.principal_id, who.tenant_id, project) == ("alice", "acme", None)
    assert open_link("kc_0123456789abcdef", signature) is None
    assert open_link(result.chunk_ids[0], signature[:-1] + "x") is None
    assert open_link(result.chunk_ids[0], "") is None
    with operations_session():
        ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    assert open_link(result.chunk_ids[0], signature) is None
