"""`/mcp` of a running web process, called with the client of the protocol's own SDK."""

from __future__ import annotations

import base64
import json
import random
import re
import shlex
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import anyio
import httpx2
import jsonschema
import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.test import Client as Browser
from django.utils import timezone
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.tool_name_validation import validate_tool_name
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR

from access.durations import REQUESTS, durations
from access.models import ApiKey
from access.tenancy import operations_session
from access.trust import Scope
from artifacts.uploads import LARGEST_PIECE
from knowledge.core.types import Visibility
from knowledge.mcp.tools import TOOLS
from tests.e2e.conftest import CONCURRENCY
from tests.serving import Serving, serving
from tests.support import admit, bearer, principal, upload

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("same_blobs")]

T = TypeVar("T")
NOTE = "# Pumps\n\nThe zebra pump is started by hand.\n\n## Stopping\n\nPull the red lever.\n"
WORDS = "The zebra pump is started by hand.\n\n## Stopping\n\nPull the red lever."
SEARCH = "/v1/tools/knowledge.search"
# How the SDK speaks the current revision of the protocol, and how the one before it.
REVISIONS = {"2026-07-28": "auto", "2025-11-25": "legacy"}
CURRENT, PREVIOUS = REVISIONS
OLDER = ("2025-06-18", "2025-03-26", "2024-11-05")
both = pytest.mark.parametrize("revision", REVISIONS)


def host(trust: str = "USER", scope: str = "", **key: Any) -> dict[str, str]:
    """What a host sends with every request: a key, and what only it may say of a turn."""
    says = {"Verbatim-Origin-Trust": trust, "Verbatim-Current-Scope": scope}
    return bearer(**key) | {name: value for name, value in says.items() if value}


def spoken(
    server: Serving,
    work: Callable[[Client], Awaitable[T]],
    headers: dict[str, str] | None = None,
    revision: str = CURRENT,
) -> T:
    """What comes of a conversation with the server."""
    sent = headers or bearer()

    async def converse() -> T:
        async with httpx2.AsyncClient(headers=sent, timeout=60) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with Client(transport, mode=REVISIONS[revision]) as client:
                assert client.protocol_version == revision
                return await work(client)

    return anyio.run(converse)


def called(
    server: Serving,
    name: str,
    arguments: dict[str, Any],
    headers: dict[str, str] | None = None,
    revision: str = CURRENT,
) -> Any:
    """What a tool gives; its one text item says the very same."""

    async def once(client: Client) -> Any:
        return await client.call_tool(name, arguments)

    result = spoken(server, once, headers, revision)
    [item] = result.content
    assert item.type == "text"
    assert not result.is_error, item.text
    assert json.loads(item.text) == result.structured_content
    return result.structured_content


def refused(
    server: Serving,
    name: str,
    arguments: dict[str, Any],
    headers: dict[str, str] | None = None,
    revision: str = CURRENT,
) -> dict[str, Any]:
    """The problem that a tool answers with, and what to do about it."""

    async def once(client: Client) -> Any:
        return await client.call_tool(name, arguments)

    result = spoken(server, once, headers, revision)
    assert result.is_error
    assert result.structured_content is None
    [item] = result.content
    problem: dict[str, Any] = json.loads(item.text)
    assert problem["what_to_do"].endswith(".")
    return problem


def posted(
    server: Serving,
    body: Any,
    headers: dict[str, str] | None = None,
    method: str = "POST",
    *,
    also: dict[str, str] | None = None,
) -> httpx2.Response:
    """A request as it is, without a client that would make it right."""
    sent = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": PREVIOUS,
        **(bearer() if headers is None else headers),
        **(also or {}),
    }
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.request(method, f"{server.url}/mcp", content=content, headers=sent, timeout=60)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def connections_of_the_server() -> int:
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


def page_of(address: str) -> str:
    """What a citation's address shows to whoever has it."""
    shown = Browser().get(urlsplit(address)._replace(scheme="", netloc="").geturl())
    assert shown.status_code == 200
    return shown.content.decode()


def wait(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.05)


# --- what there is -----------------------------------------------------------------------------


@both
def test_the_tools_are_the_same_in_the_same_order_for_everybody(
    server: Serving, revision: str
) -> None:
    async def listed(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = spoken(server, listed, revision=revision)
    assert [tool.name for tool in tools] == [
        "search",
        "fetch",
        "knowledge.search",
        "knowledge.verify_quote",
        "knowledge.attachment",
        "knowledge.attach",
        "knowledge.ingest",
        "knowledge.propose_retention",
    ]
    assert spoken(server, listed, bearer("bob", "other", scopes=()), revision) == tools
    assert all(validate_tool_name(tool.name).warnings == [] for tool in tools)
    for tool in tools:
        hints = tool.annotations
        assert (hints.open_world_hint, hints.destructive_hint) == (False, False)
        assert len(tool.description) > 40
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            assert "$ref" not in json.dumps(schema)
        assert tool.input_schema["additionalProperties"] is False
        # Trust is the host's to say, and no model's.
        assert "origin_trust" not in json.dumps(tool.input_schema)
    assert [tool.name for tool in tools if tool.annotations.read_only_hint] == [
        "search",
        "fetch",
        "knowledge.search",
        "knowledge.verify_quote",
        "knowledge.attachment",
    ]
    assert [tool.name for tool in tools if not tool.annotations.idempotent_hint] == [
        "knowledge.propose_retention"
    ]
    pair = {tool.name: tool for tool in tools if tool.name in {"search", "fetch"}}
    assert list(pair["search"].input_schema["properties"]) == ["query"]
    assert pair["search"].input_schema["required"] == ["query"]
    assert list(pair["fetch"].input_schema["properties"]) == ["id"]
    assert set(pair["fetch"].output_schema["required"]) == {
        "id",
        "title",
        "text",
        "url",
        "metadata",
    }


@both
def test_it_says_who_it_is_and_how_to_use_it(server: Serving, revision: str) -> None:
    async def look(client: Client) -> Any:
        return client.server_info, client.instructions, client.server_capabilities

    info, instructions, capabilities = spoken(server, look, revision=revision)
    assert (info.name, info.title) == ("verbatim", "Verbatim")
    assert "knowledge.verify_quote" in instructions
    assert capabilities.tools is not None
    assert capabilities.resources is not None
    assert capabilities.prompts is None


def test_clients_of_older_revisions_are_met_where_they_are(server: Serving) -> None:
    key = bearer()
    for revision in (*OLDER, PREVIOUS):
        spoken_in = {"MCP-Protocol-Version": revision}
        asked = request(
            "initialize",
            protocolVersion=revision,
            capabilities={},
            clientInfo={"name": "old", "version": "1"},
        )
        answer = posted(server, asked, key, also=spoken_in)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert "Mcp-Session-Id" not in answer.headers
        assert answer.json()["result"]["protocolVersion"] == revision
        listed = posted(server, request("tools/list"), key, also=spoken_in)
        assert len(listed.json()["result"]["tools"]) == len(TOOLS)


# --- the pair ----------------------------------------------------------------------------------


@both
def test_search_and_fetch_have_the_exact_shapes(server: Serving, revision: str) -> None:
    chunk_id = admit(NOTE, title="Plant").chunk_ids[0]
    found = called(server, "search", {"query": "zebra pump"}, revision=revision)
    assert list(found) == ["results"]
    [one] = found["results"]
    assert list(one) == ["id", "title", "url"]
    assert (one["id"], one["title"]) == (chunk_id, "Plant › Pumps")
    fetched = called(server, "fetch", {"id": one["id"]}, revision=revision)
    assert set(fetched) == {"id", "title", "text", "url", "metadata"}
    assert (fetched["id"], fetched["title"]) == (chunk_id, "Plant › Pumps")
    assert fetched["text"] == WORDS
    assert fetched["metadata"]["line_start"] == "3"
    assert all(isinstance(value, str) for value in fetched["metadata"].values())
    for address in (one["url"], fetched["url"]):
        assert "The zebra pump is started by hand." in page_of(address)
    assert called(server, "search", {"query": "quokka"}, revision=revision) == {"results": []}


# --- the tools of the API ----------------------------------------------------------------------


@both
def test_a_search_is_the_search_of_the_api(server: Serving, revision: str) -> None:
    admit(NOTE, title="Plant")
    key = bearer()
    asked = {"text": "zebra pump", "max_passages": 1, "format": "anthropic_search_results"}
    told = called(server, "knowledge.search", asked, key, revision)
    same = httpx2.post(f"{server.url}{SEARCH}", json=asked, headers=key, timeout=60).json()
    for answer in (told, same):
        for changing in ("trace_id", "as_of", "block", "block_sha256"):
            del answer[changing]
    # A signature has the second in it at which it was made.
    without = [re.sub(r"\?s=[^\"]*", "", json.dumps(answer)) for answer in (told, same)]
    assert without[0] == without[1]
    [passage] = told["passages"]
    [result] = told["search_results"]
    assert result["source"] == passage["citation_url"]
    assert "".join(block["text"] for block in result["content"]) == passage["text"] == WORDS


@both
def test_a_file_comes_in_by_pieces_is_admitted_and_comes_out_again(
    server: Serving, revision: str
) -> None:
    content = b"# Log\n\n" + b"The wombat counted to a very large number indeed.\n" * 1500
    assert len(content) > LARGEST_PIECE
    request_id, trusted, offset = str(uuid4()), host(), 0
    while True:
        piece = content[offset : offset + LARGEST_PIECE]
        final = offset + len(piece) == len(content)
        sent = {
            "request_id": request_id,
            "offset": offset,
            "content": base64.b64encode(piece).decode(),
            "sha256": sha256(piece).hexdigest(),
            "final": final,
            "filename": "log.md",
        }
        receipt = called(server, "knowledge.attach", sent, trusted, revision)
        assert called(server, "knowledge.attach", sent, trusted, revision) == receipt
        offset = receipt["received"]
        if final:
            break
    artifact = receipt["artifact_id"]
    asked = {"artifact": artifact, "title": "Counts", "visibility": "tenant"}
    ingested = called(server, "knowledge.ingest", asked, trusted, revision)
    assert ingested["state"] == "live"
    assert called(server, "knowledge.ingest", asked, trusted, revision)["already_ingested"]
    assert called(server, "search", {"query": "wombat"}, trusted, revision)["results"]
    parts, at = b"", 0
    while at is not None:
        part = called(
            server,
            "knowledge.attachment",
            {"artifact": artifact, "sha256": sha256(content).hexdigest(), "offset": at},
            trusted,
            revision,
        )
        parts += base64.b64decode(part["content"])
        at = part["next_offset"]
    assert parts == content


def test_a_background_ingest_answers_with_a_job(server: Serving) -> None:
    artifact = upload(principal(), NOTE)
    asked = {
        "artifact": str(artifact.pk),
        "title": "Later",
        "visibility": "tenant",
        "background": True,
    }
    assert called(server, "knowledge.ingest", asked, host())["state"] == "queued"


@both
def test_quotes_are_checked(server: Serving, revision: str) -> None:
    chunk_id = admit(NOTE).chunk_ids[0]
    quotes = ["started by hand", "Started  by hand", "started by foot"]
    checked = called(
        server,
        "knowledge.verify_quote",
        {"quotes": [{"chunk_id": chunk_id, "quote": quote} for quote in quotes]},
        revision=revision,
    )
    assert [one["outcome"] for one in checked["results"]] == ["exact", "normalised", "not_found"]


# --- what only the host says -------------------------------------------------------------------


@both
def test_without_a_word_of_the_host_nothing_is_admitted_and_a_proposal_is(
    server: Serving, revision: str
) -> None:
    artifact = str(upload(principal(), NOTE).pk)
    asked = {"artifact": artifact, "title": "Plant", "visibility": "tenant"}
    for headers in (host(trust=""), host(trust="MODEL")):
        problem = refused(server, "knowledge.ingest", asked, headers, revision)
        assert problem["code"] == "untrusted_origin"
        assert "knowledge.propose_retention" in problem["what_to_do"]
    proposed = called(
        server,
        "knowledge.propose_retention",
        asked | {"reason": "It says how the pump is started."},
        host(trust="MODEL"),
        revision,
    )
    assert (proposed["state"], proposed["origin_trust"]) == ("parked", "MODEL")
    assert called(server, "search", {"query": "zebra"}, revision=revision) == {"results": []}


@both
def test_a_model_cannot_vouch_for_itself(server: Serving, revision: str) -> None:
    asked = {
        "artifact": str(upload(principal(), NOTE).pk),
        "title": "Plant",
        "visibility": "tenant",
        "origin_trust": "USER",
    }
    for headers in (host(trust=""), host()):
        problem = refused(server, "knowledge.ingest", asked, headers, revision)
        assert problem["code"] == "malformed"
        assert problem["fields"] == [
            {"field": "origin_trust", "message": "There is no such member."}
        ]
    wrong = refused(server, "knowledge.search", {"text": "x"}, host(trust="KING"), revision)
    assert wrong["fields"][0]["field"] == "origin_trust"


@both
def test_a_project_is_seen_when_the_host_or_the_model_names_it(
    server: Serving, revision: str
) -> None:
    chunk_id = admit(NOTE, visibility=Visibility.PROJECT, title="Plant").chunk_ids[0]
    apollo = host(trust="", scope="apollo")
    assert called(server, "search", {"query": "zebra"}, revision=revision)["results"] == []
    [found] = called(server, "search", {"query": "zebra"}, apollo, revision)["results"]
    assert called(server, "fetch", {"id": found["id"]}, apollo, revision)["id"] == chunk_id
    assert "zebra" in page_of(found["url"])
    for headers, scope in ((bearer(), {"current_scope": "apollo"}), (apollo, {})):
        told = called(server, "knowledge.search", {"text": "zebra", **scope}, headers, revision)
        assert [one["chunk_id"] for one in told["passages"]] == [chunk_id]
    other = refused(
        server, "knowledge.search", {"text": "zebra", "current_scope": "zeus"}, apollo, revision
    )
    assert (other["code"], other["fields"][0]["field"]) == ("malformed", "current_scope")
    foreign = refused(
        server, "knowledge.search", {"text": "zebra"}, host(trust="", scope="zeus"), revision
    )
    assert foreign["code"] == "project_forbidden"


# --- what one may not see ----------------------------------------------------------------------


def errors_of_resource(server: Serving, uri: str, key: dict[str, str], revision: str) -> Any:
    async def read(client: Client) -> Any:
        with pytest.raises(MCPError) as error:
            await client.read_resource(uri)
        return error.value.code, error.value.message, error.value.data

    return spoken(server, read, key, revision)


@both
def test_what_is_another_tenants_is_what_never_was(server: Serving, revision: str) -> None:
    chunk_id = admit(NOTE, by=principal("mallory", "other")).chunk_ids[0]
    mine = admit(NOTE, visibility=Visibility.PRINCIPAL, by=principal("bob")).chunk_ids[0]
    never, key = "kc_" + "7" * 16, bearer()
    for foreign in (chunk_id, mine):
        told = refused(server, "fetch", {"id": foreign}, key, revision)
        assert told == refused(server, "fetch", {"id": never}, key, revision)
        assert told["code"] == "not_found"
        assert errors_of_resource(
            server, f"knowledge://chunk/{foreign}", key, revision
        ) == errors_of_resource(server, f"knowledge://chunk/{never}", key, revision)
        quoted = [
            called(
                server,
                "knowledge.verify_quote",
                {"quotes": [{"chunk_id": one, "quote": "started by hand"}]},
                key,
                revision,
            )["results"][0]["outcome"]
            for one in (foreign, never)
        ]
        assert quoted == ["not_found", "not_found"]
    assert called(server, "search", {"query": "zebra"}, key, revision) == {"results": []}
    assert called(server, "knowledge.search", {"text": "zebra"}, key, revision)["passages"] == []


# --- resources ---------------------------------------------------------------------------------


@both
def test_a_passage_is_a_resource(server: Serving, revision: str) -> None:
    chunk_id = admit(NOTE, title="Plant").chunk_ids[0]
    uri = f"knowledge://chunk/{chunk_id}"

    async def read(client: Client) -> Any:
        templates = (await client.list_resource_templates()).resource_templates
        listed = (await client.list_resources()).resources
        return templates, listed, (await client.read_resource(uri)).contents

    [template], listed, [content] = spoken(server, read, revision=revision)
    assert template.uri_template == "knowledge://chunk/{id}"
    # There are too many to list: they are found by searching.
    assert listed == []
    assert (content.uri, content.mime_type, content.text) == (uri, "text/plain", WORDS)
    assert content.meta["title"] == "Plant › Pumps"
    assert content.meta["line_start"] == "3"
    assert "zebra" in page_of(content.meta["url"])


@both
def test_other_resources_there_are_not(server: Serving, revision: str) -> None:
    key = bearer()
    for uri in ("knowledge://document/1", "file:///etc/passwd", "knowledge://"):
        code, message, data = errors_of_resource(server, uri, key, revision)
        assert code == (-32002 if revision == PREVIOUS else INVALID_PARAMS)
        assert message == "There is nothing by that name that you may see."
        assert data == {"code": "not_found"}


# --- errors ------------------------------------------------------------------------------------


@both
def test_a_refusal_has_its_code_and_says_what_to_do(server: Serving, revision: str) -> None:
    secret = "AKIA" + "".join(random.Random(3).choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=16))
    value = "".join(random.Random(4).choices("abcdefghijkABCDEFGHIJK0123456789", k=40))
    text = f"# Access\n\naws_access_key_id = {secret}\naws_secret_access_key = {value}\n"
    asked = {"artifact": str(upload(principal(), text).pk), "title": "A", "visibility": "tenant"}
    told = refused(server, "knowledge.ingest", asked, host(), revision)
    assert told["code"] == "secret_found"
    assert {one["line"] for one in told["findings"]} & {3, 4}
    assert "take it out" in told["what_to_do"]
    assert secret not in json.dumps(told)
    assert value not in json.dumps(told)
    unscoped = refused(
        server,
        "knowledge.ingest",
        asked,
        host(scopes=()),
        revision,
    )
    assert unscoped["code"] == "scope_missing"


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("search", {}, "query"),
    ("search", {"query": "x", "limit": 3}, "limit"),
    ("search", {"query": "x", "current_scope": "apollo"}, "current_scope"),
    ("fetch", {"id": "kc_1", "text": "x"}, "text"),
    ("knowledge.search", {"text": "x", "max_passages": 51}, "max_passages"),
    ("knowledge.search", {"text": "x", "as_of": "2026-07-28T00:00:00"}, "as_of"),
    ("knowledge.search", {"text": "x", "beliefs": ["\0"]}, "beliefs.0"),
    ("knowledge.verify_quote", {"quotes": [{"chunk_id": "kc_1"}]}, "quotes.0.quote"),
    ("knowledge.ingest", {"artifact": "x", "title": "x", "visibility": "all"}, "artifact"),
    ("knowledge.attach", {"offset": 0}, "request_id"),
)


@both
def test_wrong_arguments_are_told_to_the_model(server: Serving, revision: str) -> None:
    async def try_all(client: Client) -> list[Any]:
        return [await client.call_tool(tool, arguments) for tool, arguments, _ in WRONG]

    answers = spoken(server, try_all, revision=revision)
    for (_, arguments, field), answer in zip(WRONG, answers, strict=True):
        assert answer.is_error, arguments
        problem = json.loads(answer.content[0].text)
        assert problem["code"] == "malformed"
        assert field in {one["field"] for one in problem["fields"]}


@both
def test_an_unknown_tool_is_an_error_of_the_protocol(server: Serving, revision: str) -> None:
    async def call(client: Client) -> Any:
        with pytest.raises(MCPError) as error:
            await client.call_tool("knowledge.delete_everything", {})
        return error.value

    error = spoken(server, call, revision=revision)
    assert (error.code, error.message) == (INVALID_PARAMS, "There is no tool of that name.")


# --- the door ----------------------------------------------------------------------------------


def keys_that_open_nothing() -> dict[str, dict[str, str]]:
    expired, plain = ApiKey.issue(
        tenant_id="acme", principal_id="alice", expires_at=timezone.now() - timedelta(seconds=1)
    )
    revoked = bearer()
    with operations_session():
        ApiKey.revoke(ApiKey.objects.exclude(pk=expired.pk), revoked_by="test")
    return {
        "none": {},
        "of another kind": {"Authorization": "Basic YTpi"},
        "never issued": {"Authorization": "Bearer vk_" + "a" * 8 + "_" + "b" * 43},
        "no key at all": {"Authorization": "Bearer x"},
        "expired": {"Authorization": f"Bearer {plain}"},
        "revoked": revoked,
    }


def test_a_key_that_opens_nothing_opens_nothing_here(server: Serving) -> None:
    for name, headers in keys_that_open_nothing().items():
        for body in (request("tools/list"), b"{", request("server/discover")):
            answer = posted(server, body, headers)
            same = httpx2.post(
                f"{server.url}{SEARCH}", json={"text": "x"}, headers=headers, timeout=60
            )
            assert answer.status_code == same.status_code == 401, name
            assert answer.headers["WWW-Authenticate"] == same.headers["WWW-Authenticate"]
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json() == same.json(), name


def test_the_client_of_the_sdk_is_told_that_its_key_is_none(server: Serving) -> None:
    async def converse() -> None:
        async with httpx2.AsyncClient(headers={"Authorization": "Bearer x"}) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with Client(transport, mode="legacy") as client:
                await client.list_tools()

    with pytest.raises((MCPError, BaseExceptionGroup)):
        anyio.run(converse)


def test_there_is_no_stream_to_open_and_no_session_to_end(server: Serving) -> None:
    key = bearer()
    for method in ("GET", "DELETE", "PUT", "HEAD", "OPTIONS"):
        for revision in REVISIONS:
            spoken_in = {"MCP-Protocol-Version": revision}
            answer = posted(server, b"", key, method, also=spoken_in)
            assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_only_pages_of_ours_and_only_by_our_name(server: Serving) -> None:
    listed = request("tools/list")
    own = {"Origin": server.url}
    assert posted(server, listed, also=own).status_code == 200
    for origin in (
        "https://evil.example",
        "null",
        f"{server.url}.evil.example",
        "http://localhost",
    ):
        answer = posted(server, listed, also={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    for name in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example"):
        answer = posted(server, listed, also={"Host": name})
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


def test_what_is_no_message_is_refused(server: Serving) -> None:
    key = bearer()
    unreadable = (
        b"",
        b"{",
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"',
        b"[" * 100_000,
        b"\xff\xfe",
    )
    no_request = (
        b"[]",
        json.dumps([request("tools/list")] * 2).encode(),
        b'"a text"',
        b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}',
    )
    for revision in REVISIONS:
        spoken_in = {"MCP-Protocol-Version": revision}
        for body in (*unreadable, *no_request):
            answer = posted(server, body, key, also=spoken_in)
            assert answer.status_code == 400, body[:100]
            told = answer.json()["error"]
            assert (told["code"] == PARSE_ERROR) == (body in unreadable), body[:100]
    assert posted(server, request("tools/list"), key).status_code == 200


def test_what_cannot_be_answered_is_refused(server: Serving) -> None:
    listed = request("tools/list")
    assert posted(server, listed, also={"Accept": "text/html"}).status_code == 406
    assert posted(server, listed, also={"Accept": "application/json"}).status_code == 200
    assert posted(server, listed, also={"Content-Type": "text/plain"}).status_code == 400
    unknown = posted(server, listed, also={"MCP-Protocol-Version": "2031-01-01"})
    assert unknown.status_code == 400
    nothing = posted(server, request("prompts/list"))
    assert nothing.json()["error"]["code"] == METHOD_NOT_FOUND
    notified = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert posted(server, notified).status_code == 202
    assert httpx2.post(f"{server.url}/mcp/", headers=bearer(), timeout=60).status_code == 404


def test_a_body_that_is_too_large_is_not_read(server: Serving) -> None:
    large = request("tools/call", name="search", arguments={"query": "x" * 1_100_000})
    assert posted(server, large).status_code == 413
    within = request("tools/call", name="search", arguments={"query": "x" * 900_000})
    answer = posted(server, within)
    assert answer.status_code == 200
    assert json.loads(answer.json()["result"]["content"][0]["text"])["code"] == "malformed"


def test_a_request_has_an_id_in_its_answer_as_anywhere(server: Serving) -> None:
    key = bearer()
    named = posted(server, request("tools/list"), key, also={"X-Request-ID": "turn-7.a"})
    assert named.headers["X-Request-ID"] == "turn-7.a"
    for wrong in ("", "a b", "x" * 65, 'a"b'):
        made = posted(server, request("tools/list"), key, also={"X-Request-ID": wrong})
        assert re.fullmatch(r"[0-9a-f]{32}", made.headers["X-Request-ID"])
    for answer in (
        posted(server, request("tools/list"), {}, also={"X-Request-ID": "nobody"}),
        posted(server, b"{", key, also={"X-Request-ID": "nobody"}),
        posted(server, b"", key, "GET", also={"X-Request-ID": "nobody"}),
    ):
        assert (answer.status_code, answer.headers["X-Request-ID"]) in (
            (401, "nobody"),
            (400, "nobody"),
            (405, "nobody"),
        )


def test_a_request_is_counted_by_what_came_of_it(server: Serving) -> None:
    def counted() -> dict[str, int]:
        found = durations()[REQUESTS]
        return {
            status: sum(of.buckets)
            for (method, route, status), of in found.items()
            if (method, route) == ("POST", "/mcp")
        }

    before = Counter(counted())
    assert posted(server, request("tools/list")).status_code == 200
    assert posted(server, request("tools/list"), {}).status_code == 401
    # Once it has been answered.
    until = time.monotonic() + 20
    while not all(counted().get(status, 0) > before[status] for status in ("2xx", "4xx")):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_key_over_its_limit_is_told_so_in_the_words_of_the_protocol(server: Serving) -> None:
    limit = 6
    _, plain = ApiKey.issue(tenant_id="acme", principal_id="alice", requests_per_minute=limit)
    key = {"Authorization": f"Bearer {plain}"}
    asked = request("tools/call", name="search", arguments={"query": "zebra"})
    # One request is one, though a tool is a call of the API. The minute may turn in between.
    answers = [posted(server, asked, key).json()["result"] for _ in range(2 * limit + 1)]
    assert [answer["isError"] for answer in answers[:limit]] == [False] * limit
    problem = json.loads(next(a for a in answers if a["isError"])["content"][0]["text"])
    assert (problem["code"], problem["status"]) == ("throttled", 429)
    assert re.search(r"\d+ seconds?", problem["what_to_do"])
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        told = next(
            said["error"]
            for said in (posted(server, request(method), key).json() for _ in range(limit + 1))
            if "error" in said
        )
        assert told["data"]["code"] == "throttled"
        assert 1 <= told["data"]["retry_after_seconds"] <= 60
    read = request("resources/read", uri="knowledge://chunk/kc_0123456789abcdef")
    told = posted(server, read, key).json()["error"]
    assert told["data"]["code"] == "throttled"
    # Another key has a count of its own.
    assert "result" in posted(server, request("tools/list")).json()


# --- many at once ------------------------------------------------------------------------------


def test_calls_at_once_are_all_answered_and_take_few_connections(server: Serving) -> None:
    admit(NOTE)
    before = connections_of_the_server()
    most = before

    def counted_by_another() -> int:
        try:
            return connections_of_the_server() - 1
        finally:
            connection.close()

    async def all_at_once(client: Client) -> list[Any]:
        nonlocal most
        answers: list[Any] = []

        async def one() -> None:
            answers.append(await client.call_tool("search", {"query": "zebra pump"}))

        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(one)
            while len(answers) < 40:
                most = max(most, await anyio.to_thread.run_sync(counted_by_another))
                await anyio.sleep(0.01)
        return answers

    answers = spoken(server, all_at_once)
    assert len({one.structured_content["results"][0]["id"] for one in answers}) == 1
    # One more may be on its way out while the next comes in.
    assert most <= before + 2 * CONCURRENCY
    wait(lambda: connections_of_the_server() <= before)


@both
def test_a_call_that_nobody_waits_for_is_finished_and_lets_go(
    server: Serving, revision: str
) -> None:
    chunk_id, key = admit(NOTE).chunk_ids[0], bearer()
    before = connections_of_the_server()

    async def give_up(client: Client) -> None:
        with anyio.move_on_after(1):
            await client.call_tool("search", {"query": "zebra pump"})
            pytest.fail("the search did not wait for the table")

    with transaction.atomic(), connection.cursor() as cursor:
        # A search leaves a trace; it waits for the table.
        cursor.execute("LOCK TABLE knowledge_recalltrace IN ACCESS EXCLUSIVE MODE")
        for _ in range(CONCURRENCY - 1):
            spoken(server, give_up, key, revision)
        # Others are answered meanwhile.
        assert called(server, "fetch", {"id": chunk_id}, key, revision)["id"] == chunk_id
    wait(lambda: connections_of_the_server() <= before)
    assert called(server, "search", {"query": "zebra pump"}, revision=revision)["results"]


def test_nothing_that_was_said_is_written_down(server: Serving) -> None:
    admit(NOTE)
    called(server, "knowledge.search", {"text": "zebra pump walrus"})
    refused(server, "knowledge.search", {"text": "walrus", "aliases": "walrus"})
    posted(server, request("tools/call", name="walrus", arguments={"walrus": "walrus"}))
    posted(server, b'{"walrus": ')
    posted(server, request("tools/list"), also={"Host": "walrus.example"})
    log = server.log.read_text()
    assert "walrus" not in log
    assert "zebra" not in log
    assert "vk_" not in log


@pytest.fixture
def small(server: Serving) -> Iterator[Serving]:
    """Another process of the same installation, whose answers are short."""
    with serving(server.blobs, MCP_RESULT_TOKENS="4000", MCP_CONCURRENCY="1") as running:
        yield running


def test_any_process_answers_any_request_and_keeps_within_what_clients_take(
    server: Serving, small: Serving
) -> None:
    """One conversation over two processes, for nothing is kept between two requests."""
    sections = "\n\n".join(
        f"## Part {n}\n\n" + f"The zebra pump number {n} is started by hand. " * 40
        for n in range(12)
    )
    admit(f"# Pumps\n\n{sections}\n", title="Plant")
    opened = posted(
        server,
        request(
            "initialize",
            protocolVersion=PREVIOUS,
            capabilities={},
            clientInfo={"name": "x", "version": "1"},
        ),
    )
    assert opened.status_code == 200
    asked = request(
        "tools/call",
        name="knowledge.search",
        arguments={
            "text": "zebra pump",
            "max_passages": 50,
            "max_per_document": 50,
            "budget_tokens": 100_000,
            "min_score": 0,
        },
    )
    key = bearer()
    whole = posted(server, asked, key).json()["result"]["structuredContent"]
    short = posted(small, asked, key).json()["result"]["structuredContent"]
    shown = [one["chunk_id"] for one in short["passages"]]
    assert 0 < len(shown) < len(whole["passages"])
    assert shown == [one["chunk_id"] for one in whole["passages"]][: len(shown)]
    assert [one["text"] for one in short["passages"]] == [one["text"] for one in whole["passages"]][
        : len(shown)
    ]
    assert any("Only" in note for note in short["notes"])
    # What the trace keeps is what was shown.
    trace = httpx2.get(f"{small.url}/v1/traces/{short['trace_id']}", headers=key, timeout=60).json()
    assert [one["chunk_id"] for one in trace["passages"]] == shown
    assert trace["block"] == short["block"]
    left_out = {one["chunk_id"] for one in short["omitted"]}
    assert left_out.isdisjoint(shown)
    artifact = upload(principal(), random.Random(1).randbytes(40_000), "noise.bin")
    part = posted(
        small,
        request(
            "tools/call",
            name="knowledge.attachment",
            arguments={"artifact": str(artifact.pk), "sha256": artifact.sha256},
        ),
    ).json()["result"]["structuredContent"]
    assert 0 < part["next_offset"] < 32 * 1024
    assert len(base64.b64decode(part["content"])) == part["next_offset"]


def test_a_scope_of_a_key_is_needed_here_as_anywhere(server: Serving) -> None:
    sent = {
        "request_id": str(UUID(int=7)),
        "offset": 0,
        "content": "",
        "sha256": sha256(b"").hexdigest(),
        "final": True,
        "filename": "x",
    }
    receipt = called(server, "knowledge.attach", sent, host(scopes=()))
    asked = {"artifact": receipt["artifact_id"], "title": "x", "visibility": "tenant"}
    assert refused(server, "knowledge.ingest", asked, host(scopes=()))["code"] == "scope_missing"
    assert (
        refused(server, "knowledge.ingest", asked, host(scopes=(Scope.WRITE,)))["code"]
        == "empty_extraction"
    )


# --- the page that says how ---------------------------------------------------------------------


def ways_in(snippet: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Each address in a client's configuration, with the headers that the client would send."""
    if isinstance(snippet, list):
        for one in snippet:
            yield from ways_in(one)
    if not isinstance(snippet, dict):
        return
    if "mcp-remote" in snippet.get("args", []):
        *_, address, _, header = snippet["args"]
        name, _, variable = header.partition(":")
        yield address, {name: snippet["env"][variable[2:-1]]}
    elif address := snippet.get("url") or snippet.get("server_url"):
        token = snippet.get("authorization_token") or snippet.get("authorization")
        yield address, snippet.get("headers") or {"Authorization": f"Bearer {token}"}
    for inner in snippet.values():
        yield from ways_in(inner)


def test_the_configurations_of_the_page_lead_here(server: Serving) -> None:
    page = (django_settings.BASE_DIR / "docs" / "mcp.md").read_text()
    snippets = [json.loads(one) for one in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    ways = [way for snippet in snippets for way in ways_in(snippet)]
    assert len(ways) == len(snippets) == 6
    key = bearer()["Authorization"].removeprefix("Bearer ")
    for address, headers in ways:
        sent = {name: re.sub(r"KEY$|\$\{.*\}", key, value) for name, value in headers.items()}
        assert address == "https://verbatim.example.org/mcp"
        assert posted(server, request("tools/list"), sent).status_code == 200
    [command] = re.findall(r"claude mcp add .*?\n\n", page, re.DOTALL)
    told = shlex.split(command.replace("\\\n", ""))
    name, _, value = told[told.index("--header") + 1].partition(": ")
    assert "https://verbatim.example.org/mcp" in told
    assert (
        posted(server, request("tools/list"), {name: value.replace("KEY", key)}).status_code == 200
    )
    # The table of tools is the list of tools.
    named = re.findall(r"^\| `([a-z_.]+)`", page, re.MULTILINE)
    assert named == [tool.name for tool in TOOLS]
