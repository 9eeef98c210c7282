"""Every answer of the API that a test sees, held against the API's own description.

So the whole suite shows that the description is true: an undocumented status, code or member, or a
value of another type, fails whichever test met it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator


@cache
def described() -> dict[str, Any]:
    """The description as a caller gets it at `/openapi.json`."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    whole: dict[str, Any] = json.loads(json.dumps(schema, default=str))
    return whole


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """`(path, method, operation)` of every call."""
    for path, item in described()["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def validator(schema: dict[str, Any]) -> Validator:
    return Draft202012Validator({"components": described()["components"], "allOf": [schema]})


class ConformanceMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if request.path.startswith("/v1/"):
            conforms(request.method or "", request.path, response)
        return response


def conforms(method: str, path: str, response: Any) -> None:
    """Fails when the answer is not one that the description tells of."""
    operation = _operation(method.lower(), path)
    if operation is None:
        # No such address, or no such method at it: no call of ours, so none is described.
        assert response.status_code in {404, 405, 401, 301}, (method, path, response.status_code)
        return
    where = f"{method} {path} -> {response.status_code}"
    answer = operation["responses"].get(str(response.status_code))
    assert answer is not None, f"{where} is not described: {getattr(response, 'content', b'')!r}"
    media_type = response.headers.get("Content-Type", "").partition(";")[0]
    if method == "HEAD" or getattr(response, "streaming", False):
        return
    assert media_type in answer["content"], f"{where} {media_type} is not described"
    body = json.loads(response.content)
    problems = [
        f"{error.json_path}: {error.message}"
        for error in validator(answer["content"][media_type]["schema"]).iter_errors(body)
    ]
    assert not problems, f"{where}: {problems[:3]}"


@cache
def _by_route() -> dict[tuple[str, str], dict[str, Any]]:
    return {(path, method): operation for path, method, operation in operations()}


def _operation(method: str, path: str) -> dict[str, Any] | None:
    try:
        match = resolve(path)
    except Resolver404:
        return None
    route = "/" + match.route
    for name in match.kwargs:
        for converter in ("uuid", "str", "path", "int"):
            route = route.replace(f"<{converter}:{name}>", f"{{{name}}}")
    return _by_route().get((route, "get" if method == "head" else method))
