"""The API's description of itself: what each call answers when it refuses, code by code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter

from access.errors import (
    Internal,
    Malformed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    VerbatimError,
)
from access.idempotency import ERRORS, HEADER
from access.problems import (
    CONTENT_TYPE,
    NotAcceptable,
    Throttled,
    TooLargeBody,
    UnsupportedBody,
)

Direction = Literal["request", "response"]
Method = TypeVar("Method", bound=Callable[..., Any])

# What any call may answer, and what any may that has a body, or is about one thing by its id.
_ANY = (Malformed, NotAuthenticated, NotAcceptable, Throttled, Internal, Unavailable)
_WITH_BODY = (TooLargeBody, UnsupportedBody)
_OF_ONE = (NotFound,)

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. Programs go by `code`; some codes have members of their own.",
    "properties": {
        "type": {"type": "string", "example": "urn:verbatim:problem:not_found"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string", "description": "A sentence that says what to do."},
    },
    "required": ["type", "title", "status", "code", "detail"],
    "additionalProperties": True,
}


_IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "pattern": "^[!-~]{1,200}$"},
    OpenApiParameter.HEADER,
    description="Of your own choice, fresh for each write. The same request sent again with the same"
    " key is not carried out again, and is answered as it was.",
)


def refuses(*errors: type[VerbatimError]) -> Callable[[Method], Method]:
    """Says of a view's method with which errors of its own it may answer."""

    def said(method: Method) -> Method:
        method.refuses = errors  # type: ignore[attr-defined]
        return method

    return said


class ApiSchema(AutoSchema):
    """drf-spectacular's description, with every problem that a call may answer."""

    def _get_response_bodies(self, direction: Direction = "response") -> dict[str, Any]:
        answers: dict[str, Any] = super()._get_response_bodies(direction)
        for status, errors in sorted(self._problems().items()):
            answer = answers.setdefault(str(status), {})
            said = [f"`{error.code}`: {error.meaning()}" for error in errors]
            answer["description"] = "\n".join([*filter(None, [answer.get("description")]), *said])
            answer.setdefault("content", {}).setdefault(CONTENT_TYPE, self._content(errors))
        return answers

    def get_override_parameters(self) -> list[Any]:
        named: list[Any] = [*super().get_override_parameters()]
        if getattr(self._handler(), "idempotent", False):
            named.append(_IDEMPOTENCY_KEY)
        return named

    def _handler(self) -> Any:
        return getattr(self.view, self.method.lower())

    def _problems(self) -> Mapping[int, list[type[VerbatimError]]]:
        handler = self._handler()
        possible: set[type[VerbatimError]] = {*_ANY, *getattr(handler, "refuses", ())}
        if self.method in {"POST", "PUT", "PATCH"}:
            possible.update(_WITH_BODY)
        if getattr(handler, "idempotent", False):
            possible.update(ERRORS)
        if "{" in self.path:
            possible.update(_OF_ONE)
        by_status: dict[int, list[type[VerbatimError]]] = {}
        for error in sorted(possible, key=lambda error: error.code):
            by_status.setdefault(error.status, []).append(error)
        return by_status

    def _content(self, errors: list[type[VerbatimError]]) -> dict[str, Any]:
        problem = ResolvedComponent(  # type: ignore[no-untyped-call]
            name="Problem", type=ResolvedComponent.SCHEMA, schema=_PROBLEM, object="Problem"
        )
        self.registry.register_on_missing(problem)
        said: dict[str, Any] = {"code": {"enum": [error.code for error in errors]}}
        for error in errors:
            said.update(error.own_members)
        return {
            "schema": {"allOf": [problem.ref, {"properties": said}]},
            "example": _example(errors[0]),
        }


def _example(error: type[VerbatimError]) -> dict[str, Any]:
    return {
        "type": f"urn:verbatim:problem:{error.code}",
        "title": error.meaning(),
        "status": error.status,
        "code": error.code,
        "detail": error.meaning(),
    }
