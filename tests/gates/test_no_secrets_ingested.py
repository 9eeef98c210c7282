"""Gate: a source that holds a credential is refused and nothing of the attempt survives.

The caller's own artifact stays as it was: the bytes are the caller's to keep or to delete, so its
blob is the one place where the value may stand.
"""

from __future__ import annotations

import logging
import re
import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from access.trust import OriginTrust
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from config.logs import JsonFormatter
from knowledge.core.errors import SecretFound
from knowledge.core.types import ConnectorIdentity, IngestRequest, Visibility
from knowledge.wiring import store
from tests.factories import make_operator
from tests.inspection import REFUSALS, every_row, forge_secret, refusals
from tests.support import bearer, footprint, principal, upload, work

pytestmark = pytest.mark.django_db

PLAIN = "# Pumps\n\nThe night pump is started by hand.\n"
LONG = " ".join(["Plain words about pumps and valves."] * 80)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document with a secret in one place; `field` is what the refusal calls that place."""

    content: str = PLAIN
    title: str = "Pumps"
    filename: str = "pumps.md"
    source: ConnectorIdentity | None = None
    place: str = "text"
    rows_may_hold: frozenset[str] = field(default_factory=frozenset)


def _pem(_: str) -> str:
    alphabet = string.ascii_letters + string.digits
    body = "\n".join("".join(secrets.choice(alphabet) for _ in range(64)) for _ in range(12))
    kind = "RSA PRIVATE " + "KEY"
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


WHERE: dict[str, Callable[[str], Source]] = {
    "body": lambda value: Source(content=f"{PLAIN}\nThe token is {value} today.\n"),
    "code fence": lambda value: Source(content=f"{PLAIN}\n```\nexport TOKEN={value}\n```\n"),
    "heading": lambda value: Source(content=f"{PLAIN}\n## {value}\n\nIs the token.\n"),
    "heading of a long section": lambda value: Source(
        content=f"{PLAIN}\n## Token {value}\n\n{LONG}\n\n### Below\n\n{LONG}\n{value}\n"
    ),
    "table": lambda value: Source(content=f"{PLAIN}\n| a | b |\n| - | - |\n| x | {value} |\n"),
    "split over lines": lambda value: Source(
        content=f"{PLAIN}\nThe token is {value[:20]}\\\n{value[20:]}\n"
    ),
    "plain text": lambda value: Source(content=f"Notes\n\n{value}\n", filename="notes.txt"),
    "title": lambda value: Source(title=f"How to use {value}", place="title"),
    # The caller named its own file so, and its artifact says so still.
    "file name": lambda value: Source(
        filename=f"{value}.md", place="file_name", rows_may_hold=frozenset({"artifacts_artifact"})
    ),
    "front matter": lambda value: Source(content=f"---\nauthor: {value}\n---\n{PLAIN}"),
    "front matter's title": lambda value: Source(content=f"---\ntitle: {value}\n---\n{PLAIN}"),
    "connector's id": lambda value: Source(
        source=ConnectorIdentity(type="wiki", id=f"page/{value}"), place="source"
    ),
    "connector's version": lambda value: Source(
        source=ConnectorIdentity(type="wiki", id="page", version=value), place="source"
    ),
}


def refused(case: Source) -> tuple[Artifact, IngestRequest]:
    artifact = upload(principal(), case.content, case.filename)
    request = IngestRequest(
        artifact_id=artifact.pk,
        title=case.title,
        visibility=Visibility.TENANT,
        source=case.source,
        origin_trust=OriginTrust.USER,
    )
    return artifact, request


@pytest.mark.parametrize("where", WHERE)
def test_a_secret_anywhere_leaves_nothing_but_the_counter(
    blob_root: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    value = forge_secret()
    case = WHERE[where](value)
    _, request = refused(case)
    counted, rows = footprint(blob_root, without=[REFUSALS]), every_row(without=[REFUSALS])
    with caplog.at_level(logging.DEBUG), pytest.raises(SecretFound) as found:
        store().ingest(request, principal())

    assert footprint(blob_root, without=[REFUSALS]) == counted
    assert every_row(without=[REFUSALS]) == rows
    assert refusals() == {("acme", "secret_found"): 1}
    assert case.place in {finding["field"] for finding in found.value.members["findings"]}
    nowhere(value, case, caplog, str(found.value.problem()), repr(found.value))


@pytest.mark.parametrize("where", WHERE)
def test_the_value_is_in_no_answer_log_or_row(
    client: Client, blob_root: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    value = forge_secret()
    case = WHERE[where](value)
    artifact, _ = refused(case)
    body: dict[str, Any] = {
        "artifact": str(artifact.pk),
        "title": case.title,
        "visibility": "tenant",
        "origin_trust": "USER",
    }
    if case.source:
        body["source"] = {
            "type": case.source.type,
            "id": case.source.id,
            "version": case.source.version,
        }
    with caplog.at_level(logging.DEBUG):
        answer = client.post(
            "/v1/tools/knowledge.ingest", body, content_type="application/json", headers=bearer()
        )
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "secret_found")
    for finding in problem["findings"]:
        assert set(finding) >= {
            "rule",
            "layer",
            "line",
            "column",
            "chunk_ordinal",
            "heading_path",
            "length",
        }
    headers = str(dict(answer.headers))
    nowhere(value, case, caplog, answer.content.decode(), headers)


OF_A_FILE = sorted(set(WHERE) - {"title", "connector's id", "connector's version"})


@pytest.mark.parametrize("where", OF_A_FILE)
def test_an_attached_file_with_a_secret_becomes_no_document(
    client: Client, blob_root: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    value = forge_secret()
    case = WHERE[where](value)
    headers = bearer()
    with caplog.at_level(logging.DEBUG):
        sent = client.post(
            "/v1/attachments",
            {
                "file": SimpleUploadedFile(case.filename, case.content.encode()),
                "conversation_id": "c-1",
                "actor": "principal",
            },
            headers=headers,
        )
        work()
        told = client.get(f"/v1/attachments/{sent.json()['attachment_id']}", headers=headers)
    assert (told.json()["state"], told.json()["reason"]) == ("refused", "secret_found")
    left = footprint(blob_root)
    assert left["knowledge_document"] == left["knowledge_chunk"] == 0
    # Its sender is told the name that they gave it.
    nowhere(value, case, caplog, told.content.decode() if where != "file name" else "")


@pytest.mark.parametrize("where", [*OF_A_FILE, "title", "reason"])
def test_a_proposal_with_a_secret_is_not_parked(
    client: Client, blob_root: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    value = forge_secret()
    case = WHERE[where](value) if where != "reason" else Source(place="reason")
    artifact, _ = refused(case)
    headers = bearer(scopes=[], max_origin_trust=OriginTrust.TOOL)
    without = [REFUSALS, "access_apikey"]
    counted, rows = footprint(blob_root, without=[REFUSALS]), every_row(without=without)
    with caplog.at_level(logging.DEBUG):
        answer = client.post(
            "/v1/tools/knowledge.propose_retention",
            {
                "artifact": str(artifact.pk),
                "title": case.title,
                "visibility": "tenant",
                "reason": f"It has {value}." if where == "reason" else "Useful.",
            },
            content_type="application/json",
            headers=headers,
        )
    assert (answer.status_code, answer.json()["code"]) == (422, "secret_found")
    assert case.place in {finding["field"] for finding in answer.json()["findings"]}
    assert footprint(blob_root, without=[REFUSALS]) == counted
    assert every_row(without=without) == rows
    nowhere(value, case, caplog, answer.content.decode())


@pytest.mark.parametrize("where", [*OF_A_FILE, "title"])
def test_a_file_that_an_operator_adds_with_a_secret_leaves_nothing(
    blob_root: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """Not even the upload: it is handed in for this ingest alone."""
    value = forge_secret()
    case = WHERE[where](value)
    operator = Client()
    operator.force_login(make_operator("acme", "olga"))
    with caplog.at_level(logging.DEBUG):
        answer = operator.post(
            "/admin/knowledge/document/add/one/",
            {
                "upload": SimpleUploadedFile(case.filename, case.content.encode()),
                "visibility": "tenant",
                "sensitivity": "internal",
                "authority": "principal_supplied",
                "naming": "given",
                "title": case.title,
            },
        )
        said = answer.content.decode()
        work()
        polled = re.search(r'hx-get="([^"]*)"', said)
        told = operator.get(polled[1]).content.decode() if polled else said
    assert answer.status_code == 200
    assert "secret_found" in told
    assert "••••" in told
    assert refusals() == {("acme", "secret_found"): 1}
    sweep()
    left = footprint(blob_root)
    assert left["knowledge_document"] == left["knowledge_chunk"] == left["artifacts_artifact"] == 0
    assert left["blobs"] == []
    # The file's own name is shown back to whoever chose it, in the answer to that and nowhere else.
    nowhere(
        value,
        replace(case, rows_may_hold=frozenset()),
        caplog,
        told if polled else "",
        said.replace(case.filename, "") if where == "file name" else said,
    )


def nowhere(value: str, case: Source, caplog: pytest.LogCaptureFixture, *said: str) -> None:
    """Neither the value nor a telling half of it, in what was said, logged or stored."""
    halves = (value, value[4:22], value[22:])
    formatter = JsonFormatter()
    logged = "\n".join(
        f"{formatter.format(record)} {record.getMessage()} {vars(record)}"
        for record in caplog.records
    )
    stored = "\n".join(
        row
        for table, rows in every_row().items()
        if table not in case.rows_may_hold
        for row in rows
    )
    for part in halves:
        for text in (*said, logged, stored):
            assert part not in text


def test_the_refusal_says_where_the_secret_stands(blob_root: Path) -> None:
    value = forge_secret()
    content = (
        f"# Pumps\n\n{LONG}\n\n## Access\n\n{LONG}\n\n### Tokens\n\n{LONG}\n\nIt is {value}.\n"
    )
    _, request = refused(Source(content=content))
    with pytest.raises(SecretFound) as found:
        store().ingest(request, principal())
    (finding,) = found.value.members["findings"]
    assert finding["rule"]
    assert finding["layer"]
    assert finding["field"] == "text"
    assert finding["line"] == content[: content.index(value)].count("\n") + 1
    assert finding["column"] == len("It is ") + 1
    assert finding["length"] == len(value)
    assert finding["heading_path"] == ["Pumps", "Access", "Tokens"]
    assert finding["chunk_ordinal"] is not None
    assert value not in finding["preview"]
    assert f"line {finding['line']}" in found.value.detail
    # The place can be looked up: the same document without the value has that very chunk.
    clean = upload(principal(), content.replace(value, "gone"), "pumps.md")
    result = store().ingest(
        IngestRequest(
            artifact_id=clean.pk,
            title="Pumps",
            visibility=Visibility.TENANT,
            origin_trust=OriginTrust.USER,
        ),
        principal(),
    )
    chunk = store().get_chunk(result.chunk_ids[finding["chunk_ordinal"]], principal())
    assert "It is gone." in chunk.text


def test_every_secret_of_a_document_is_told(blob_root: Path) -> None:
    values = [forge_secret() for _ in range(3)]
    content = PLAIN + "".join(f"\nOne is {value}.\n" for value in values)
    _, request = refused(Source(content=content))
    with pytest.raises(SecretFound) as found:
        store().ingest(request, principal())
    assert [finding["line"] for finding in found.value.members["findings"]] == [5, 7, 9]
    assert "2 more" in found.value.detail


def test_a_private_key_block_is_refused(blob_root: Path) -> None:
    _, request = refused(Source(content=f"{PLAIN}\n{_pem('')}\n"))
    rows = every_row(without=[REFUSALS])
    with pytest.raises(SecretFound):
        store().ingest(request, principal())
    assert every_row(without=[REFUSALS]) == rows


def test_the_callers_artifact_can_still_be_read_and_used(blob_root: Path, client: Client) -> None:
    value = forge_secret()
    artifact, request = refused(Source(content=f"{PLAIN}\n{value}\n"))
    with pytest.raises(SecretFound):
        store().ingest(request, principal())
    kept = client.get(f"/v1/artifacts/{artifact.pk}", headers=bearer()).json()
    assert kept["expires_at"] is not None
    assert kept["origin"] == "UPLOAD"
    download = client.get(f"/v1/artifacts/{artifact.pk}/content", headers=bearer())
    assert b"".join(download).decode() == f"{PLAIN}\n{value}\n"


def test_a_new_version_with_a_secret_leaves_the_old_one_live(blob_root: Path) -> None:
    first = upload(principal(), PLAIN, "pumps.md")
    source = ConnectorIdentity(type="wiki", id="pumps")
    request = IngestRequest(
        artifact_id=first.pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        source=source,
        origin_trust=OriginTrust.USER,
    )
    admitted = store().ingest(request, principal())
    _, worse = refused(Source(content=f"{PLAIN}\n{forge_secret()}\n", source=source))
    rows = every_row(without=[REFUSALS])
    with pytest.raises(SecretFound):
        store().ingest(worse, principal())
    assert every_row(without=[REFUSALS]) == rows
    assert store().get_chunk(admitted.chunk_ids[0], principal()).live  # type: ignore[attr-defined]


def test_placeholders_and_checksums_are_no_secrets(blob_root: Path) -> None:
    content = (
        "# Setup\n\nSet `API_KEY=<your-api-key>` and `password: changeme`, then check\n"
        f"`sha256:{'0123456789abcdef' * 4}`.\n"
    )
    _, request = refused(Source(content=content))
    assert store().ingest(request, principal()).version == 1
