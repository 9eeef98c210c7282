"""One id for a request, in its answer and in every line that is logged on the way."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from django.http import HttpRequest, HttpResponseBase

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

HEADER: Final = "X-Request-ID"
# What a proxy or a caller names is taken over when it can do no harm in a log.
_TAKEN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return _current.get()


class RequestIdMiddleware:
    """Takes the caller's `X-Request-ID` or makes one, and gives it back with the answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with _named(request.headers.get(HEADER, "")) as request_id:
            response = self._get_response(request)
        response.headers[HEADER] = request_id
        return response


def with_request_id(application: Application) -> Application:
    """The same for an ASGI application that is not Django's."""
    header = HEADER.lower().encode()

    async def named(scope: Message, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == header), b"")
        with _named(given.decode("latin-1")) as request_id:

            async def send_named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (header, request_id.encode())]
                await send(message)

            await application(scope, receive, send_named)

    return named


@contextmanager
def _named(given: str) -> Iterator[str]:
    """The id of what is answered in the block: the one that is given, when it is as one may be."""
    request_id = given if _TAKEN.fullmatch(given) else uuid.uuid4().hex
    token = _current.set(request_id)
    try:
        yield request_id
    finally:
        _current.reset(token)
