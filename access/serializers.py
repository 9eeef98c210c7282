"""Base shapes of requests: what is not named is refused, and instants have an offset."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers


class StrictSerializer(serializers.Serializer[Any]):
    """A request body in which an unknown member is an error, never ignored in silence."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = sorted(str(name) for name in set(data) - set(self.fields))
            if unknown:
                raise serializers.ValidationError(
                    {name[:100]: ["There is no such member."] for name in unknown}
                )
        return super().to_internal_value(data)


class ReadQuerySerializer(StrictSerializer):
    """The query string of every call that reads."""

    current_scope = serializers.CharField(
        max_length=200,
        required=False,
        default=None,
        help_text="The project on whose behalf you read; absent means no project.",
    )


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
        return instant

    def to_representation(self, value: datetime) -> str:
        return value.isoformat()
