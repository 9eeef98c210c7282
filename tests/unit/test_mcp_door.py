"""The door at `/mcp` where no key is looked at yet."""

from __future__ import annotations

import json
from typing import Any

import anyio
from pytest_django import Settings

from knowledge.mcp.application import McpApplication


def answered(headers: dict[str, str], *, running: bool = True) -> tuple[int, dict[str, Any], Any]:
    """Status, headers and body of what an application answers to a POST."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        application = McpApplication()
        if running:
            async with application.running():
                await application(scope, receive, send)
        else:
            await application(scope, receive, send)

    anyio.run(ask)
    start, body = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], told, json.loads(body["body"])


def test_it_says_so_when_the_server_that_runs_it_has_no_lifespan() -> None:
    status, headers, problem = answered({"Host": "testserver"}, running=False)
    assert (status, problem["code"]) == (503, "unavailable")
    assert headers["retry-after"] == "5"
    assert headers["content-type"] == "application/problem+json"


def test_a_key_does_not_travel_where_anyone_can_read_it(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    status, _, problem = answered({"Host": "testserver"})
    assert (status, problem["detail"]) == (403, "Call this address with https.")
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    status, headers, _ = answered({"Host": "testserver", "X-Forwarded-Proto": "https"})
    assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="verbatim"')
