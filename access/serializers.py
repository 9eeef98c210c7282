"""Base shapes of requests: what is not named is refused, and instants have an offset."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import JSONParser

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class StrictJSONParser(JSONParser):
    """JSON whose every string is text that can be stored: no NUL and no half of a pair.

    A value of ours is checked by its field anyway; this covers the names of members and what is
    opaque to us, and says where it stands.
    """

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        try:
            data = super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError from error
        waiting: list[tuple[str, Any]] = [("", data)]
        while waiting:
            path, value = waiting.pop()
            if isinstance(value, dict):
                waiting += [(path, name) for name in value]
                waiting += [(_below(path, name), inner) for name, inner in value.items()]
            elif isinstance(value, list):
                waiting += [(_below(path, number), inner) for number, inner in enumerate(value)]
            elif isinstance(value, str) and _NO_TEXT.search(value):
                raise ValidationError(
                    {path or "body": ["A string holds a NUL or half of a surrogate pair."]}
                )
        return data


def _below(path: str, name: object) -> str:
    shown = _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", str(name))[:100]
    return f"{path}.{shown}" if path else shown


class StrictSerializer(serializers.Serializer[Any]):
    """A request body in which an unknown member is an error, never ignored in silence."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = sorted(str(name) for name in set(data) - set(self.fields))
            if unknown:
                raise serializers.ValidationError(
                    {name[:100]: ["There is no such member."] for name in unknown}
                )
        values: Any = super().to_internal_value(data)
        # The framework takes a number for its digits, and even `false` for an id.
        if wrong := [name for name, value in data.items() if self._no_text(name, value)]:
            raise serializers.ValidationError({name: ["Give a string."] for name in wrong})
        return values

    def _no_text(self, name: str, value: Any) -> bool:
        field = self.fields[name]
        textual = isinstance(field, serializers.CharField | serializers.UUIDField)
        return textual and not isinstance(value, str | UUID | None)


class StrictSerializerExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """The description of the API says so, too."""

    target_class = StrictSerializer
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        mapped: dict[str, Any] = auto_schema._map_serializer(  # noqa: SLF001 - the documented way
            self.target, direction, bypass_extensions=True
        )
        if "__doc__" not in vars(type(self.target)) or type(self.target).__doc__ is None:
            mapped.pop("description", None)
        return {**mapped, "additionalProperties": False}


class ReadQuerySerializer(StrictSerializer):
    """The query string of every call that reads."""

    current_scope = serializers.CharField(
        max_length=200,
        required=False,
        default=None,
        help_text="The project on whose behalf you read; absent means no project.",
    )


@extend_schema_field(OpenApiTypes.DATETIME)
class InstantField(serializers.Field[datetime, str, str, Any]):
    """An ISO 8601 timestamp with an offset. A naive one is refused, for nobody's clock is ours."""

    default_error_messages = {  # noqa: RUF012 - the framework's shape
        "invalid": "Give a timestamp such as 2026-07-28T00:00:00Z (in a query string, write"
        " the + of an offset as %2B).",
        "naive": "Give the timestamp an offset, such as Z or +02:00.",
    }

    def to_internal_value(self, data: str) -> datetime:
        try:
            instant = datetime.fromisoformat(data)
        except (TypeError, ValueError):
            self.fail("invalid")
        if instant.tzinfo is None:
            self.fail("naive")
        try:
            # The first and the last day of the calendar have instants that UTC has not.
            return instant.astimezone(UTC)
        except OverflowError:
            self.fail("invalid")

    def to_representation(self, value: datetime) -> str:
        return value.isoformat()
