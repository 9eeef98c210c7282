"""`verbatim_client` against a running web process, blocking and not, call by call."""

from __future__ import annotations

import asyncio
import base64
import http.server
import io
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client as Browser

import verbatim_client
from access.tenancy import operations_session
from access.trust import Scope
from knowledge.models import Citation, CitedAnswer
from tests.serving import Serving
from tests.support import admit, bearer, principal, work
from verbatim_client import (
    CALLS,
    PIECE,
    AsyncClient,
    Busy,
    Client,
    Conflict,
    Corrupted,
    Deleted,
    Forbidden,
    Malformed,
    NotAuthenticated,
    NotFound,
    Refused,
    SecretFound,
    ServerError,
    Unreachable,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("same_blobs")]

NOTE = b"# Pumps\n\nThe zebra pump is started by hand.\n\n## Stopping\n\nPull the red lever.\n"
WORDS = "The zebra pump is started by hand."


class OfALoop:
    """An `AsyncClient` that a test can call like the blocking one; its loop runs in a thread."""

    def __init__(self, base_url: str, api_key: str, **given: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = AsyncClient(base_url, api_key, **given)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            result = getattr(self._client, name)(*given, **named)
            return self._listed(result) if hasattr(result, "__anext__") else self._done(result)

        return called

    def _done(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=120)

    def _listed(self, found: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(found, None)

        while (one := self._done(following())) is not None:
            yield one

    def __enter__(self) -> OfALoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._done(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


KINDS: dict[str, Callable[..., Any]] = {"blocking": Client, "awaited": OfALoop}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return KINDS[request.param]


@pytest.fixture
def connect(kind: Callable[..., Any], server: Serving) -> Iterator[Callable[..., Any]]:
    """Makes clients of a key for a principal; all are closed afterwards."""
    opened: list[Any] = []

    def made(who: str = "alice", tenant: str = "acme", **key: Any) -> Any:
        key.setdefault("scopes", tuple(Scope))
        plain = bearer(who, tenant, **key)["Authorization"].removeprefix("Bearer ")
        opened.append(kind(server.url, plain).__enter__())
        return opened[-1]

    yield made
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def alice(connect: Callable[..., Any]) -> Any:
    return connect()


# --- the way of a document ---------------------------------------------------------------------


def test_from_a_file_to_a_checked_quote_and_gone(alice: Any, tmp_path: Path) -> None:
    content = NOTE + b"\n## Counts\n\n" + b"The wombat counted to a large number.\n" * 2_000
    path = tmp_path / "pumps.md"
    path.write_bytes(content)
    artifact = alice.upload(path, "pumps.md", attribution="the field team")
    assert (artifact["byte_size"], artifact["attribution"]) == (len(content), "the field team")
    assert artifact["byte_size"] > PIECE
    ingested = alice.ingest(
        artifact["artifact_id"], "Pumps", "tenant", origin_trust="USER", doc_date="2026-07-01"
    )
    assert (ingested["state"], ingested["already_ingested"]) == ("live", False)
    again = alice.ingest(artifact["artifact_id"], "Pumps", "tenant", origin_trust="USER")
    assert again["already_ingested"]

    found = alice.search("zebra pump", max_passages=1, as_of=datetime.now(UTC))
    [passage] = found["passages"]
    chunk = alice.chunk(passage["chunk_id"])
    assert chunk["text"] == passage["text"]
    assert WORDS in chunk["text"]
    checked = alice.verify_quotes(
        [
            {"chunk_id": passage["chunk_id"], "quote": WORDS},
            {"chunk_id": passage["chunk_id"], "quote": "started by foot"},
        ]
    )
    assert [one["outcome"] for one in checked] == ["exact", "not_found"]
    assert chunk["text"][checked[0]["start"] : checked[0]["end"]] == WORDS
    told = alice.record_answer(
        found["trace_id"],
        answered=True,
        citations=[{"chunk_id": passage["chunk_id"], "quote": WORDS}],
    )
    assert told["citations"][0]["verdict"] == "exact"
    assert alice.trace(found["trace_id"])["block"] == found["block"]
    results = alice.search("zebra pump", format="anthropic_search_results")["search_results"]
    assert results[0]["type"] == "search_result"
    assert alice.preturn("zebra pump")["reason"] == "disabled"
    assembled = alice.assemble(
        "zebra pump", tokens_left=4_000, in_turn_recall=[{"id": "b1", "tokens": 10}]
    )
    assert assembled["in_turn_recall"]["kept"] == ["b1"]

    source = chunk["source"]
    assert b"".join(alice.download(source["artifact_id"])) == content
    assert alice.artifact_content(source["artifact_id"], start=2, end=7) == content[2:7]
    assert alice.artifact_content(source["artifact_id"]) == content
    part = alice.attachment_part(source["artifact_id"], source["sha256"], offset=3, length=5)
    assert base64.b64decode(part["content"]) == content[3:8]

    document_id = ingested["document_id"]
    assert alice.document(document_id)["title"] == "Pumps"
    assert [one["version"] for one in alice.versions(document_id)] == [1]
    renamed = alice.update_document(document_id, title="Pumps of the plant", origin_trust="USER")
    assert renamed["title"] == "Pumps of the plant"
    with pytest.raises(Refused) as refused:
        alice.check_belief_provenance([{"kind": "document", "id": document_id}])
    assert refused.value.code == "belief_from_document"
    assert alice.check_belief_provenance([{"kind": "turn", "id": "t1"}])["checked"] == 1

    receipt = alice.delete_document(document_id, reason="no longer needed")
    assert receipt["versions"] == 1
    assert alice.deletion(receipt["deletion_id"])["document_id"] == document_id
    with pytest.raises(Deleted):
        alice.chunk(passage["chunk_id"])


def test_lists_are_followed_to_their_end_and_no_further(alice: Any) -> None:
    made = [
        admit(f"# Note {n}\n\nThe quokka {n} runs.\n", title=f"Note {n}").document_id
        for n in range(5)
    ]
    listed = [one["document_id"] for one in alice.documents(page_size=2)]
    assert listed == [str(one) for one in reversed(made)]
    some = alice.documents(page_size=2)
    assert next(some)["document_id"] == str(made[-1])
    assert next(alice.documents(current_scope="apollo", page_size=200))["title"] == "Note 4"
    before = datetime(2020, 1, 1, tzinfo=UTC)
    assert list(alice.documents(as_of=before)) == []


def test_a_job_is_waited_for(alice: Any) -> None:
    artifact = alice.upload_whole(NOTE, "pumps.md", media_type="text/markdown")
    job = alice.ingest_later(artifact["artifact_id"], "Pumps", "tenant", origin_trust="USER")
    assert alice.job(job["job_id"])["state"] == "queued"
    with pytest.raises(TimeoutError):
        alice.wait_for_job(job["job_id"], seconds=0.2, every=0.1)
    work()
    done = alice.wait_for_job(job["job_id"], every=0.1)
    assert (done["state"], done["result"]["state"]) == ("done", "live")
    offered = alice.propose_retention(
        artifact["artifact_id"], "Pumps", "tenant", "Worth keeping.", origin_trust="MODEL"
    )
    assert alice.proposal(offered["proposal_id"])["state"] == "parked"


def test_files_of_a_conversation(alice: Any) -> None:
    sent = alice.attach_to_conversation(
        NOTE, "pumps.md", conversation_id="c/1 ?", actor="principal", media_type="text/markdown"
    )
    work()
    kept = alice.attachment(sent["attachment_id"])
    assert (kept["state"], kept["conversation_id"]) == ("ingested", "c/1 ?")
    gone = alice.delete_conversation("c/1 ?", reason="over")
    assert [one["outcome"] for one in gone["documents"]] == ["deleted"]


def test_records_and_what_they_stand_on(alice: Any) -> None:
    chunk_id = admit(NOTE.decode()).chunk_ids[0]
    source = alice.chunk(chunk_id)["source"]["descriptor_id"]
    cited = {"source": source, "start_line": 3, "end_line": 3, "quote": WORDS}
    asked = {"origin_trust": "USER", "evidence": [cited]}
    name = uuid4()
    claim = alice.make_claim("The pump is manual.", "tenant", request_id=name, **asked)
    assert alice.make_claim("The pump is manual.", "tenant", request_id=name, **asked) == claim
    seen = {"expected_revision": claim["revision"], "expected_hash": claim["hash"]}
    noted = alice.annotate_record(claim["record_id"], "Seen again.", **seen, **asked)
    seen = {"expected_revision": noted["revision"], "expected_hash": noted["hash"]}
    corrected = alice.correct_record(
        claim["record_id"], **seen, statement="The pump has no motor.", **asked, reason="clearer"
    )
    assert corrected["content"]["statement"] == "The pump has no motor."
    with pytest.raises(Conflict) as conflict:
        alice.correct_record(claim["record_id"], **seen, statement="It has.", **asked, reason="x")
    assert conflict.value.code == "revision_conflict"
    related = alice.make_relationship("pump", "has", "lever", "tenant", **asked)
    page = alice.save_page("Pumps", "By hand.", visibility="tenant", **asked)
    assert {one["record_id"] for one in alice.records(page_size=1)} == {
        one["record_id"] for one in (claim, related, page)
    }
    assert [one["kind"] for one in alice.records(kind="page", source=source)] == ["page"]
    history = [one["revision"] for one in alice.record_revisions(claim["record_id"], page_size=2)]
    assert history == [3, 2, 1]
    assert alice.record(claim["record_id"], revision=1)["hash"] == claim["hash"]
    evidence = alice.record_evidence(page["record_id"])["evidence"]
    assert [one["quote"] for one in evidence] == [WORDS]
    settling = {
        "expected_revision": page["revision"],
        "expected_hash": page["hash"],
        "schema": page["schema"],
        "representation": "compact",
        "dry_run": True,
        "origin_trust": "USER",
        "reason": "tidy",
    }
    # Evidence that is not named stays; none at all is another thing.
    assert alice.reconcile_record(page["record_id"], **settling)["removed"] == 0
    settled = alice.reconcile_record(page["record_id"], **settling, evidence=[])
    assert settled["removed"] == 1
    removed = alice.delete_record(related["record_id"], reason="wrong")
    assert removed["record_id"] == related["record_id"]


# --- uploads that stop on the way --------------------------------------------------------------


class Failing(io.BytesIO):
    """A file that cannot be read any more after so many reads."""

    def __init__(self, content: bytes, reads: int) -> None:
        super().__init__(content)
        self.left = reads

    def read(self, size: int | None = -1) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise OSError("the disk is gone")
        return super().read(size)


@pytest.mark.parametrize(
    "reads",
    [pytest.param(0, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.long), 3],
)
def test_an_upload_goes_on_where_it_stopped(alice: Any, reads: int) -> None:
    for size in (0, PIECE, 3 * PIECE + 17):
        content, name = random.Random(size).randbytes(size), uuid4()
        stopped = Failing(content, reads)
        pieces = max(-(-size // PIECE), 1)
        # The first read of several asks how far it is.
        if reads < pieces + (pieces > 1):
            with pytest.raises(OSError, match="the disk is gone"):
                alice.upload(stopped, "log.bin", request_id=name)
        else:
            alice.upload(stopped, "log.bin", request_id=name)
        going_on = Failing(content, 2 + pieces - max(reads - 1, 0))
        artifact = alice.upload(going_on, "log.bin", request_id=name)
        assert artifact["sha256"] == sha256(content).hexdigest()
        # Once whole, the last piece is enough to know it.
        assert alice.upload(Failing(content, 1), "log.bin", request_id=name) == artifact
        assert b"".join(alice.download(artifact["artifact_id"])) == content


def test_another_file_under_the_name_of_an_upload_is_a_conflict(alice: Any) -> None:
    name = uuid4()
    alice.upload(b"x" * PIECE * 2, "log.bin", request_id=name)
    with pytest.raises(Conflict) as conflict:
        alice.upload(b"y" * PIECE * 2, "log.bin", request_id=name)
    assert conflict.value.code == "upload_conflict"


# --- problems ----------------------------------------------------------------------------------


def test_problems_are_exceptions_that_say_what_they_are(
    connect: Callable[..., Any], alice: Any
) -> None:
    with pytest.raises(NotFound) as missing:
        alice.chunk("kc_" + "7" * 16)
    assert (missing.value.status, missing.value.code) == (404, "not_found")
    with pytest.raises(Malformed) as malformed:
        alice.search("x", max_passages=99)
    assert malformed.value.members["fields"][0]["field"] == "max_passages"
    secret = "AKIA" + "".join(random.Random(3).choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=16))
    value = "".join(random.Random(4).choices("abcdefghijkABCDEFGHIJK0123456789", k=40))
    text = f"aws_access_key_id = {secret}\naws_secret_access_key = {value}\n"
    artifact = alice.upload(text.encode(), "keys.md")
    with pytest.raises(SecretFound) as found:
        alice.ingest(artifact["artifact_id"], "Keys", "tenant", origin_trust="USER")
    assert found.value.findings[0]["line"] in {1, 2}
    assert value not in str(found.value)
    with pytest.raises(Forbidden) as untrusted:
        alice.ingest(artifact["artifact_id"], "Keys", "tenant")
    assert untrusted.value.code == "untrusted_origin"
    told = {"request_id": uuid4(), "filename": "x", "attribution": ""}
    with pytest.raises(NotFound) as nowhere:
        alice.attach_file("notes/x.md", "0" * 64, **told)
    assert nowhere.value.code == "no_workspace"
    # Another tenant's, to whom there is nothing.
    with pytest.raises(NotFound):
        connect("mallory", "other").artifact(artifact["artifact_id"])


def test_a_key_that_is_none(kind: Callable[..., Any], server: Serving) -> None:
    with kind(server.url, "vk_" + "a" * 8 + "_" + "b" * 43) as nobody:
        with pytest.raises(NotAuthenticated):
            nobody.search("x")
        with pytest.raises(NotAuthenticated):
            list(nobody.documents())


# --- a server that does not always answer ------------------------------------------------------

Scripted = list[tuple[int, dict[str, str], bytes] | None]


class Scripts(http.server.BaseHTTPRequestHandler):
    """Answers by a script; `None` hangs up without a word."""

    script: ClassVar[Scripted] = []
    seen: ClassVar[list[str]] = []

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.headers.get("Idempotency-Key")
        self.seen.append(f"{self.command} {self.path}" + (f" key {key}" if key else ""))
        told = self.script.pop(0)
        if told is None:
            self.close_connection = True
            return
        status, headers, body = told
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names of the library

    def log_message(self, *_: object) -> None:
        pass


LATER = (503, {"Retry-After": "0"}, b'{"code": "unavailable", "status": 503}')
SLOWER = (429, {"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT"}, b'{"code": "throttled"}')
IN_PROGRESS = (409, {"Retry-After": "0"}, b'{"code": "request_in_progress", "status": 409}')
FOUND = (200, {"Content-Type": "application/json"}, b'{"passages": []}')
GATEWAY = (502, {"Content-Type": "text/html"}, b"<h1>Bad Gateway</h1>")


@pytest.fixture
def scripted(kind: Callable[..., Any]) -> Iterator[Callable[[Scripted], tuple[Any, list[str]]]]:
    Scripts.seen = []
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripts)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    with kind(f"http://127.0.0.1:{running.server_port}", "k", attempts=3, timeout=5) as client:

        def follow(script: Scripted) -> tuple[Any, list[str]]:
            Scripts.script, Scripts.seen = list(script), []
            return client, Scripts.seen

        yield follow
    running.shutdown()
    running.server_close()


SEARCH = "POST /v1/tools/knowledge.search"


def test_what_is_to_be_sent_again_is(scripted: Callable[..., Any]) -> None:
    for script in ([LATER, LATER, FOUND], [SLOWER, FOUND], [None, FOUND], [FOUND]):
        client, seen = scripted(script)
        assert client.search("x") == {"passages": []}
        assert seen == [SEARCH] * len(script)
    client, seen = scripted([LATER, (201, {}, b'{"artifact_id": "a"}')])
    assert client.upload_whole(b"abc", "x")["artifact_id"] == "a"
    assert len(seen) == 2


def test_after_all_attempts_it_says_what_it_was(scripted: Callable[..., Any]) -> None:
    client, seen = scripted([LATER] * 3)
    with pytest.raises(Busy) as busy:
        client.search("x")
    assert (busy.value.code, len(seen)) == ("unavailable", 3)
    client, seen = scripted([None] * 3)
    with pytest.raises(Unreachable):
        client.search("x")
    assert len(seen) == 3
    client, seen = scripted([GATEWAY])
    with pytest.raises(ServerError) as gateway:
        client.search("x")
    assert (gateway.value.code, len(seen)) == ("http_502", 1)


def test_a_write_is_one_however_often_it_is_sent(scripted: Callable[..., Any]) -> None:
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("delete_document", ("d",)),
        ("upload_whole", (b"abc", "x")),
        ("ingest", ("a", "x", "tenant")),
        ("ingest_later", ("a", "x", "tenant")),
        ("propose_retention", ("a", "x", "tenant", "why")),
        ("update_document", ("d",)),
        ("delete_conversation", ("c",)),
    )
    for name, given in calls:
        client, seen = scripted([None, IN_PROGRESS, FOUND])
        getattr(client, name)(*given)
        keys = [one.partition(" key ")[2] for one in seen]
        assert len(seen) == 3
        assert keys[0]
        assert len(set(keys)) == 1, name
    # This one takes no key: whether it was carried out is for the caller to find out.
    client, seen = scripted([None])
    with pytest.raises(Unreachable):
        client.delete_record("r", reason="wrong")
    assert len(seen) == 1


def test_a_download_of_other_bytes_is_not_taken(scripted: Callable[..., Any]) -> None:
    known = b'{"byte_size": 3, "sha256": "00"}'
    client, _ = scripted([(200, {}, known), (206, {}, b"abc")])
    with pytest.raises(Corrupted):
        list(client.download("a"))


def test_where_nobody_listens(kind: Callable[..., Any]) -> None:
    with kind("http://127.0.0.1:9", "k", attempts=1) as client, pytest.raises(Unreachable):
        client.delete_document("d")


# --- that the types are true -------------------------------------------------------------------


def plain(hint: Any) -> list[Any]:
    """The shapes in a type, without what may be missing."""
    if get_origin(hint) in (Union, UnionType):
        return [one for inner in get_args(hint) for one in plain(inner)]
    if get_origin(hint) is list:
        return [one for inner in get_args(hint) for one in plain(inner)]
    return [hint] if is_typeddict(hint) else []


def whole(schema: Any, components: dict[str, Any]) -> Any:
    """A schema's object, behind references, lists and alternatives."""
    if "$ref" in schema:
        return whole(components[schema["$ref"].rpartition("/")[2]], components)
    if "items" in schema:
        return whole(schema["items"], components)
    for alternatives in ("oneOf", "allOf"):
        for one in schema.get(alternatives, ()):
            if "properties" in (found := whole(one, components)):
                return found
    return schema


def compare(hint: Any, schema: Any, components: dict[str, Any], path: str) -> int:
    """Compares a shape with the API's, and those inside it. Returns how many."""
    compared = 0
    for shape in plain(hint):
        described = whole(schema, components)
        hints = get_type_hints(shape)
        assert set(hints) == set(described["properties"]), path
        compared += 1
        for name, inner in hints.items():
            compared += compare(inner, described["properties"][name], components, f"{path}.{name}")
    return compared


def test_every_call_of_the_api_is_there_and_answers_what_its_type_says() -> None:
    described = Browser().get("/openapi.json").json()
    components = described["components"]["schemas"]
    operations = {
        operation["operationId"]: operation
        for path in described["paths"].values()
        for operation in path.values()
    }
    assert set(CALLS) == set(operations)
    compared = 0
    for name, operation in operations.items():
        method = vars(verbatim_client._Calls)[CALLS[name]].described
        hint = get_type_hints(method)["return"]
        answers = [
            content["schema"]
            for status, answer in sorted(operation["responses"].items())
            if status.startswith("2")
            for content in answer["content"].values()
        ]
        if name == "knowledge_verify_quote":
            hint = verbatim_client.CheckedQuotes
        schema = answers[0]
        if get_origin(hint) is not None and get_origin(hint) is not list:
            hint = get_args(hint)[0]  # what a listing lists
            schema = whole(schema, components)["properties"]["results"]
        compared += compare(hint, schema, components, name)
    assert compared > 60


def taken(hints: dict[str, Any]) -> set[str]:
    """The names of a call's arguments, its options included."""
    names = set(hints) - {"return"}
    options = hints.get("options") or hints.get("changes")
    if options is not None:
        names = names - {"options", "changes"} | set(get_type_hints(get_args(options)[0]))
    return names


# Said in another way: bytes for their base64 and hash, a method of its own, a whole for its parts.
OTHERWISE = {
    "knowledge_attach": {"sha256"},
    "knowledge_ingest": {"background"},
    "context_assemble": {"search"},
    "artifacts_create": {"file"},
    "attachments_create": {"file"},
    "documents_list": {"cursor"},
    "records_list": {"cursor"},
    "records_revisions": {"cursor"},
}
OURS = {
    "artifacts_create": {"content", "filename"},
    "attachments_create": {"content", "filename"},
    "artifacts_content": {"start", "end"},
}


def test_every_call_takes_what_the_api_takes() -> None:
    described = Browser().get("/openapi.json").json()
    components = described["components"]["schemas"]
    for path in described["paths"].values():
        for operation in path.values():
            name = operation["operationId"]
            method = vars(verbatim_client._Calls)[CALLS[name]].described
            hints = get_type_hints(method, include_extras=True)
            asked = {
                one["name"] for one in operation.get("parameters", ()) if one["in"] != "header"
            }
            for content in operation.get("requestBody", {}).get("content", {}).values():
                asked |= set(whole(content["schema"], components)["properties"])
            ours = taken(hints) - OURS.get(name, set())
            if name == "context_assemble":
                search = components["SearchRequestRequest"]["properties"]
                ours -= set(search)
            assert ours == asked - OTHERWISE.get(name, set()), name


def test_vocabularies_are_those_of_the_api() -> None:
    components = Browser().get("/openapi.json").json()["components"]["schemas"]
    for ours, theirs in (
        (verbatim_client.Trust, "OriginTrustEnum"),
        (verbatim_client.Visibility, "VisibilityEnum"),
        (verbatim_client.Sensitivity, "SensitivityEnum"),
    ):
        assert get_origin(ours) is Literal
        assert set(get_args(ours)) == set(components[theirs]["enum"])


def test_the_demo_of_the_page_runs(server: Serving) -> None:
    """The one in the module's own words."""
    admit(NOTE.decode(), by=principal())
    key = bearer()["Authorization"].removeprefix("Bearer ")
    text = verbatim_client.__doc__ or ""
    for address in ("https://verbatim.example.org",):
        text = text.replace(address, server.url)
    blocking, waiting = (part for part in text.split("\n\n") if "with " in part and "found" in part)
    space: dict[str, Any] = {"Client": Client, "AsyncClient": AsyncClient, "api_key": key}
    exec("\n".join(line[4:] for line in blocking.splitlines()), space)
    assert space["found"]["trust"] == "KNOWLEDGE"
    body = "\n".join(f"    {line[4:]}" for line in waiting.splitlines())
    exec(f"async def main():\n{body}\n    return found", space)
    assert asyncio.run(space["main"]())["trust"] == "KNOWLEDGE"


# --- the example -------------------------------------------------------------------------------


def run_example(server: Serving, *question: str) -> list[str]:
    """What the agent of the example prints, as the page says to run it."""
    page = (settings.BASE_DIR / "docs" / "agent-loop.md").read_text()
    assert "PYTHONPATH=. .venv/bin/python docs/agent_loop.py" in page
    ran = subprocess.run(
        [sys.executable, "docs/agent_loop.py", *question],
        cwd=settings.BASE_DIR,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ".",
            "VERBATIM_URL": server.url,
            "VERBATIM_KEY": bearer()["Authorization"].removeprefix("Bearer "),
        },
        capture_output=True,
        check=True,
        timeout=120,
        text=True,
    )
    return ran.stdout.splitlines()


def test_an_agent_searches_quotes_checks_and_reports(server: Serving) -> None:
    chunk_id = admit(NOTE.decode(), title="Plant").chunk_ids[0]
    said, link, verdict = run_example(server, "How is the zebra pump started?")
    assert said == f"According to Plant › Pumps: “{WORDS}”"
    assert link.startswith(f"[1] {server.url}/c/{chunk_id}?s=")
    assert verdict == f"{chunk_id}: exact"
    with operations_session():
        answered, citations = CitedAnswer.objects.get(), Citation.objects.all()
        assert answered.answered
        assert [(one.chunk_id, one.verdict) for one in citations] == [(chunk_id, "exact")]


def test_an_agent_that_finds_nothing_says_so(server: Serving) -> None:
    admit(NOTE.decode())
    assert run_example(server, "quokka") == ["There is nothing about this in the documents."]
    with operations_session():
        assert not CitedAnswer.objects.get().answered
