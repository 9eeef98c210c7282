"""JSON schemas of tools, from the OpenAPI description of the views behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from rest_framework.views import APIView

_JSON = "application/json"
_REFERENCE = "#/components/schemas/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """What a view says, what it takes and what it answers when all goes well."""

    description: str
    takes: dict[str, Any]
    gives: dict[str, Any]


def shapes_of(views: Mapping[str, type[APIView]]) -> dict[str, Shapes]:
    """The shapes of views that are posted to, by the names given to them."""
    patterns = [path(name, view.as_view()) for name, view in views.items()]
    generator = SchemaGenerator(patterns=patterns)  # type: ignore[no-untyped-call]
    described = generator.get_schema(public=True)  # type: ignore[no-untyped-call]
    components = described["components"]["schemas"]
    shapes = {}
    for name in views:
        operation = described["paths"][f"/{name}"]["post"]
        answers = [
            answer["content"][_JSON]["schema"]
            for status, answer in sorted(operation["responses"].items())
            if int(status) < HTTPStatus.MULTIPLE_CHOICES
        ]
        shapes[name] = Shapes(
            description=operation["description"],
            takes=_whole(operation["requestBody"]["content"][_JSON]["schema"], components),
            gives=_any_of([_whole(answer, components) for answer in answers]),
        )
    return shapes


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Older revisions of the protocol want an object at the root of what a tool gives."""
    different = [one for number, one in enumerate(schemas) if one not in schemas[:number]]
    return different[0] if len(different) == 1 else {"type": "object", "anyOf": different}


def _whole(schema: Any, components: Mapping[str, Any]) -> Any:
    """The schema with its references filled in: not every client follows them."""
    if isinstance(schema, list):
        return [_whole(one, components) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _whole(components[schema["$ref"].removeprefix(_REFERENCE)], components)
    whole = {key: _whole(value, components) for key, value in schema.items()}
    match whole.pop("allOf", None):
        case None:
            return whole
        case [only]:
            return only | whole
        case several:
            return whole | {"allOf": several}
