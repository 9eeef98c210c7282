"""The door at `/mcp`: who may come in, before the protocol is spoken."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request

from access.authentication import ApiKeyAuthentication, Caller, principal_of
from access.errors import Forbidden, Unavailable
from access.problems import NotAllowed, as_verbatim_error, problem_response
from access.throttling import seconds_to_wait
from knowledge.mcp.server import server
from knowledge.mcp.tools import Host

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

PATH: Final = "/mcp"
# What the program around a model says of a request; no argument of any tool says it.
_HOST_SAYS: Final = {
    "origin_trust": "Verbatim-Origin-Trust",
    "current_scope": "Verbatim-Current-Scope",
}


class McpApplication:
    """An ASGI application for one address. It answers while `running`."""

    def __init__(self) -> None:
        # Each call takes one database connection for as long as it lasts, and there are no more
        # calls at once than threads; the others wait.
        self._threads = ThreadPoolExecutor(settings.MCP_CONCURRENCY, "mcp")
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the lifetime of the process. What is being worked on is finished."""
        manager = StreamableHTTPSessionManager(
            server(self._run),
            json_response=True,
            stateless=True,
            max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None
        self._threads.shutdown(wait=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ASGIRequest(scope, io.BytesIO())
        manager = self._manager
        try:
            if manager is None:  # the server that runs us speaks no lifespan, or is ending
                raise Unavailable  # noqa: TRY301 - answered like any other
            scope["verbatim.host"] = await self._run(lambda: _let_in(request))
        except Exception as error:  # noqa: BLE001 - of any, as of any of a view's, a problem is made
            response = problem_response(as_verbatim_error(error))
            if isinstance(error, NotAllowed):
                response["Allow"] = "POST"
            await _respond(response, send)
            return
        await manager.handle_request(scope, receive, send)

    async def _run(self, work: Callable[[], Any]) -> Any:
        def alone() -> Any:
            try:
                return work()
            finally:
                connections.close_all()

        return await sync_to_async(alone, thread_sensitive=False, executor=self._threads)()


def _let_in(request: HttpRequest) -> Host:
    """The host of a request, by the same key and the same check as anywhere in the API.

    Raises what the authentication raises; `SuspiciousOperation` for a host name that is not ours,
    `Forbidden` for a page of another origin or a connection that anyone can listen to, and
    `NotAllowed`: there are no streams to open and no sessions to end.
    """
    request.get_host()
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        raise Forbidden("Call this address with https.")
    origin = request.headers.get("Origin")
    if origin is not None and origin not in settings.MCP_ALLOWED_ORIGINS:
        raise Forbidden("Pages of this origin may not call this address.")
    asked = Request(request, authenticators=[ApiKeyAuthentication()])
    if asked.auth is None:
        raise NotAuthenticated
    principal = principal_of(asked)
    if request.method != "POST":
        raise NotAllowed
    says = {name: request.headers.get(header, "") for name, header in _HOST_SAYS.items()}
    return Host(
        caller=(Caller(principal), principal),
        says={name: value for name, value in says.items() if value},
        scheme=request.scheme or "http",
        wait=seconds_to_wait(principal),
    )


async def _respond(response: HttpResponse, send: Send) -> None:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.items()
    ]
    length = (b"content-length", str(len(response.content)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": [*headers, length],
        }
    )
    await send({"type": "http.response.body", "body": response.content})
