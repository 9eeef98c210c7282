"""The examples of the API's description are a run of the API: this one.

`VERBATIM_RECORD_EXAMPLES=1` writes down anew what the run shows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings

from access.trust import Scope
from config.examples import RECORDED, examples
from tests.conformance import described, operations, validator
from tests.support import bearer, work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

RUNBOOK = (
    "# Runbook\n\n## Restarting a node\n\nDrain the node first, then restart it.\n\n"
    "## Rolling back\n\nOpen the release page and choose **Roll back**.\n"
)
QUOTE = "Drain the node first, then restart it."


@pytest.fixture(autouse=True)
def _workspace(settings: Settings, tmp_path: Path) -> None:
    settings.WORKSPACE_ROOT = tmp_path / "workspace"
    (settings.WORKSPACE_ROOT / "reports").mkdir(parents=True)
    (settings.WORKSPACE_ROOT / "reports" / "runbook.md").write_text(RUNBOOK)


class Run:
    """Calls of the API, each by its operation id, and what was said on both sides."""

    def __init__(self) -> None:
        self._client = Client()
        self._headers = bearer(scopes=[Scope.WRITE, Scope.DELETE, Scope.AUDIT])
        self._where = {one["operationId"]: (path, method) for path, method, one in operations()}
        self.said: dict[str, dict[str, Any]] = {}

    def __call__(self, operation: str, body: Any = None, **given: Any) -> Any:
        path, method = self._where[operation]
        file = given.pop("file", None)
        address = path.format(**given)
        call = getattr(self._client, method)
        if file is not None:
            sent = {**body, "file": SimpleUploadedFile("runbook.md", file.encode())}
            answer = call(address, sent, headers=self._headers)
        elif body is not None:
            answer = call(address, body, content_type="application/json", headers=self._headers)
        else:
            answer = call(address, headers=self._headers)
        assert answer.status_code < 300, (operation, answer.content)
        said: dict[str, Any] = {"status": answer.status_code}
        if body is not None:
            said["request"] = body | ({"file": "(the bytes of runbook.md)"} if file else {})
        if not answer.streaming:
            said["response"] = answer.json()
        self.said.setdefault(operation, said)
        if answer.streaming:
            assert b"".join(answer.streaming_content)
            return None
        return answer.json()


def a_run() -> dict[str, dict[str, Any]]:
    run = Run()
    files(run)
    made = documents(run)
    searching(run, made)
    conversations(run)
    proposals(run)
    records(run, made)
    run("documents_delete", document_id=made["document_id"])
    gone = run.said["documents_delete"]["response"]
    run("deletions_retrieve", deletion_id=gone["deletion_id"])
    return run.said


def files(run: Run) -> None:
    sent = run("artifacts_create", {"attribution": "the operations team"}, file=RUNBOOK)
    run("artifacts_retrieve", artifact_id=sent["artifact_id"])
    run("artifacts_content", artifact_id=sent["artifact_id"])
    content = RUNBOOK.encode()
    piece = {
        "request_id": "0190f1c2-6d5e-7c3a-9b1e-2f6a8c4d7e10",
        "offset": 0,
        "content": base64.b64encode(content).decode(),
        "sha256": hashlib.sha256(content).hexdigest(),
        "final": True,
        "filename": "runbook.md",
        "media_type": "text/markdown",
        "attribution": "the operations team",
    }
    whole = run("knowledge_attach", piece)
    run(
        "knowledge_attach_file",
        {
            "file_path": "reports/runbook.md",
            "sha256": piece["sha256"],
            "request_id": "0190f1c2-6d5e-7c3a-9b1e-2f6a8c4d7e11",
            "filename": "runbook.md",
            "attribution": "the operations team",
        },
    )
    run(
        "knowledge_attachment",
        {"artifact": whole["artifact_id"], "sha256": whole["sha256"], "offset": 0},
    )


def documents(run: Run) -> dict[str, Any]:
    artifact = run.said["artifacts_create"]["response"]["artifact_id"]
    asked = {
        "artifact": artifact,
        "title": "Runbook",
        "visibility": "tenant",
        "doc_date": "2026-07-01",
        "origin_trust": "USER",
    }
    made: dict[str, Any] = run("knowledge_ingest", asked)
    other = run("artifacts_create", {}, file="# Contacts\n\nThe duty phone is in the hall.\n")
    job = run(
        "knowledge_ingest",
        asked | {"artifact": other["artifact_id"], "title": "Contacts", "background": True},
    )
    work()
    run("jobs_retrieve", job_id=job["job_id"])
    run("documents_list")
    run("documents_retrieve", document_id=made["document_id"])
    run("documents_versions", document_id=made["document_id"])
    run(
        "documents_update",
        {"title": "Runbook for nodes", "origin_trust": "USER"},
        document_id=made["document_id"],
    )
    return made


def searching(run: Run, made: dict[str, Any]) -> None:
    question = {"text": "How do I restart a node?", "budget_tokens": 1000}
    found = run("knowledge_search", question)
    chunk = found["passages"][0]["chunk_id"]
    assert chunk in made["chunk_ids"]
    run("chunks_retrieve", chunk_id=chunk)
    run("traces_retrieve", trace_id=found["trace_id"])
    run("knowledge_verify_quote", {"quotes": [{"chunk_id": chunk, "quote": QUOTE}]})
    run(
        "citations_create",
        {
            "trace_id": found["trace_id"],
            "answered": True,
            "citations": [{"chunk_id": chunk, "quote": QUOTE}],
        },
    )
    run("context_preturn", question)
    belief = {"id": "belief-1", "tokens": 40}
    run("context_assemble", {"tokens_left": 2000, "in_turn_recall": [belief], "search": question})
    run("guards_belief_provenance", {"provenance": [{"kind": "episode", "id": "episode-17"}]})


def conversations(run: Run) -> None:
    asked = {"conversation_id": "conversation-7", "actor": "principal"}
    sent = run("attachments_create", asked, file=RUNBOOK)
    work()
    run("attachments_retrieve", attachment_id=sent["attachment_id"])
    run("conversations_delete", conversation_id="conversation-7")


def proposals(run: Run) -> None:
    artifact = run("artifacts_create", {}, file="# Limits\n\nA page has at most 200 rows.\n")
    proposed = run(
        "knowledge_propose_retention",
        {
            "artifact": artifact["artifact_id"],
            "title": "Limits of the API",
            "visibility": "tenant",
            "reason": "Asked about three times today.",
        },
    )
    run("proposals_retrieve", proposal_id=proposed["proposal_id"])


def records(run: Run, made: dict[str, Any]) -> None:
    chunk = run("chunks_retrieve", chunk_id=made["chunk_ids"][0])
    cited = {"source": chunk["source"]["descriptor_id"], "quote": QUOTE}
    upload = run.said["knowledge_attach"]["response"]
    attached = {"artifact": upload["artifact_id"], "sha256": upload["sha256"]}

    def asked(number: int, **given: Any) -> dict[str, Any]:
        named = f"0190f1c2-6d5e-7c3a-9b1e-2f6a8c4d7f{number:02}"
        return {"request_id": named, "origin_trust": "USER", **given}

    def seen(record: dict[str, Any]) -> dict[str, Any]:
        return {"expected_revision": record["revision"], "expected_hash": record["hash"]}

    page = run(
        "records_save_page",
        asked(
            1,
            title="Restarting a node",
            body="Drain, then restart.",
            visibility="tenant",
            attachments=[attached],
        ),
    )
    statement = "A node is drained before it is restarted."
    claim = run(
        "records_make_claim",
        asked(2, statement=statement, visibility="tenant", evidence=[cited]),
    )
    run(
        "records_make_relationship",
        asked(
            3,
            subject="the runbook",
            predicate="describes",
            object="the restart of a node",
            visibility="tenant",
            evidence=[{"source": cited["source"]}],
        ),
    )
    one = claim["record_id"]
    noted = run(
        "records_annotate",
        asked(4, **seen(claim), note="Still so in July.", evidence=[cited]),
        record_id=one,
    )
    run(
        "records_correct",
        asked(
            5,
            **seen(noted),
            reason="It is drained by hand.",
            statement="A node is drained by hand before it is restarted.",
            evidence=[cited],
        ),
        record_id=one,
    )
    run(
        "records_reconcile",
        asked(
            6,
            **seen(page),
            reason="The second source says no more.",
            schema="record-1",
            representation="expanded",
            dry_run=True,
        ),
        record_id=page["record_id"],
    )
    run("records_list")
    run("records_retrieve", record_id=one)
    run("records_revisions", record_id=one)
    run("records_evidence", record_id=one)
    run(
        "records_update",
        {"sensitivity": "confidential", "origin_trust": "USER", "reason": "It names hosts."},
        record_id=one,
    )
    run("records_delete", record_id=one)


def fit_to_be_shown(said: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without signatures, and without the addresses of a test's server."""
    text = json.dumps(said, ensure_ascii=False)
    text = re.sub(r"(/c/kc_[0-9a-z]+)\?s=[^\"\\]+", r"\1", text)
    shown: dict[str, dict[str, Any]] = json.loads(
        text.replace("http://testserver", "https://verbatim.example.org")
    )
    return shown


def shape(value: Any, path: str = "") -> set[str]:
    """Which members there are, and where."""
    if isinstance(value, dict):
        return {f"{path}.{name}" for name in value} | {
            inner for name, one in value.items() for inner in shape(one, f"{path}.{name}")
        }
    if isinstance(value, list):
        return {inner for one in value for inner in shape(one, f"{path}[]")}
    return set()


def test_the_examples_are_what_a_run_of_the_api_shows() -> None:
    said = fit_to_be_shown(a_run())
    if os.environ.get("VERBATIM_RECORD_EXAMPLES"):
        Path(RECORDED).write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
        return
    assert set(said) == set(examples())
    for operation, recorded in examples().items():
        assert said[operation]["status"] == recorded["status"], operation
        assert shape(said[operation]) == shape(recorded), operation


def test_every_call_has_an_example_of_its_shape() -> None:
    for _, _, operation in operations():
        told = examples().get(operation["operationId"])
        assert told is not None, operation["operationId"]
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content["example"] == told["request"]
            if media_type == "application/json":
                assert list(validator(content["schema"]).iter_errors(told["request"])) == []
        answer = operation["responses"][str(told["status"])]["content"]
        if "response" in told:
            schema = answer["application/json"]["schema"]
            assert list(validator(schema).iter_errors(told["response"])) == []
    assert described()["openapi"].startswith("3.1")
