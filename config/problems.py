"""What is answered outside the API's own views: problems to programs, pages to people."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from access.errors import Forbidden, Internal, Malformed, NotFound, VerbatimError
from access.problems import problem_response

_FOR_PROGRAMS = ("/v1/", "/openapi.json", "/livez", "/readyz", "/mcp")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return _answer(request, Malformed())


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return _answer(request, Forbidden())


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    """The same words for an address that never was and for what the caller may not see."""
    return _answer(request, NotFound())


def server_error(request: HttpRequest, *_: Any) -> HttpResponse:
    return _answer(request, Internal())


def _answer(request: HttpRequest, error: VerbatimError) -> HttpResponse:
    if request.path.startswith(_FOR_PROGRAMS):
        return problem_response(error)
    page = {"title": error.meaning(), "detail": error.detail, "status": HTTPStatus(error.status)}
    return render(request, "problem.html", page, status=error.status)
