"""Errors to `application/problem+json` (RFC 9457), in one place."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import set_rollback

from access.errors import (
    Forbidden,
    Internal,
    Malformed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    VerbatimError,
    kind_and_place,
)

logger = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5


class ProblemRenderer(JSONRenderer):
    """JSON whose errors are labelled as problems."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> Any:
        response = (renderer_context or {}).get("response")
        if response is not None and response.status_code >= HTTPStatus.BAD_REQUEST:
            response.content_type = CONTENT_TYPE
            response["Content-Type"] = CONTENT_TYPE
        return super().render(data, accepted_media_type, renderer_context)


class NotAllowed(VerbatimError):
    """This address does not take that method."""

    code = "method_not_allowed"
    status = 405


class NotAcceptable(VerbatimError):
    """The answer cannot be given in a media type that the request accepts."""

    code = "not_acceptable"
    status = 406


class TooLargeBody(VerbatimError):
    """The request is larger than this installation takes."""

    code = "body_too_large"
    status = 413


class UnsupportedBody(VerbatimError):
    """The request's body is of a media type that this address does not take."""

    code = "unsupported_body"
    status = 415


class Throttled(VerbatimError):
    """Too many requests; slow down."""

    code = "throttled"
    status = 429


def problem_handler(exc: Exception, context: dict[str, Any]) -> Response:  # noqa: ARG001
    """REST framework's exception handler: any exception to a problem with a stable code."""
    set_rollback()
    error = as_verbatim_error(exc)
    headers = _headers(error, getattr(exc, "wait", None))
    return Response(error.problem(), status=error.status, headers=headers)


def problem_response(error: VerbatimError) -> HttpResponse:
    """The same, byte for byte, for addresses that are not REST framework's."""
    return JsonResponse(
        error.problem(),
        status=error.status,
        content_type=CONTENT_TYPE,
        headers=_headers(error),
        json_dumps_params={"ensure_ascii": False, "separators": (",", ":")},
    )


def _headers(error: VerbatimError, wait: float | None = None) -> dict[str, str]:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="verbatim"'}
    if error.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        return {"Retry-After": str(wait or RETRY_AFTER_SECONDS)}
    return {}


def as_verbatim_error(exc: Exception) -> VerbatimError:  # noqa: PLR0911, PLR0912 - a table
    match exc:
        case VerbatimError():
            return exc
        case Http404() | exceptions.NotFound():
            return NotFound()
        case PermissionDenied() | exceptions.PermissionDenied():
            return Forbidden()
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return NotAuthenticated(
                "Send an API key as 'Authorization: Bearer vk_<prefix>_<secret>'."
            )
        case exceptions.ValidationError():
            fields = _fields(exc.detail)
            first = fields[0] if fields else {"field": "", "message": "invalid"}
            named = f"{first['field']}: " if first["field"] else ""
            return Malformed(f"{named}{first['message']}", fields=fields)
        case exceptions.ParseError():
            return Malformed("The body of the request cannot be parsed.")
        case exceptions.MethodNotAllowed():
            return NotAllowed()
        case exceptions.NotAcceptable():
            return NotAcceptable()
        case exceptions.UnsupportedMediaType():
            return UnsupportedBody()
        case exceptions.Throttled():
            return Throttled()
        case RequestDataTooBig():
            return TooLargeBody()
        case SuspiciousOperation():
            return Malformed("The request is not one that a program of good will sends.")
        case OperationalError() | InterfaceError():
            _log("database_unavailable", exc)
            return Unavailable()
        case _:
            _log("unhandled_error", exc)
            return Internal()


def _fields(detail: Any, path: str = "") -> list[dict[str, str]]:
    """REST framework's nested messages as a flat list of `{field, message}`."""
    if isinstance(detail, dict):
        found: list[dict[str, str]] = []
        for name, inner in detail.items():
            part = "" if name == "non_field_errors" else str(name)
            found += _fields(inner, f"{path}.{part}" if path and part else path or part)
        return found
    if isinstance(detail, list):
        return [one for inner in detail for one in _fields(inner, path)]
    return [{"field": path, "message": str(detail)}]


def _log(event: str, exc: Exception) -> None:
    logger.error(event, extra=kind_and_place(exc))
