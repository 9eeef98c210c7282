"""One id for a request, in its answer and in every line that is logged on the way."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from django.http import HttpRequest, HttpResponseBase

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
        given = request.headers.get(HEADER, "")
        request_id = given if _TAKEN.fullmatch(given) else uuid.uuid4().hex
        token = _current.set(request_id)
        try:
            response = self._get_response(request)
        finally:
            _current.reset(token)
        response.headers[HEADER] = request_id
        return response
