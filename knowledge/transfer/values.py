"""What a column holds as JSON and back, in one spelling for each value.

Reading is strict: of a value that could not have been written that way nothing is guessed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models

LONGEST_ROW: Final = 256 * 1024**2
"""In bytes: a proposal holds the passages of a whole document."""
_DEEPEST: Final = 200

Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def line_of(row: dict[str, Any]) -> bytes:
    """A row as its line: keys sorted, no spaces, text as it is."""
    text = json.dumps(
        row, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode() + b"\n"


def row_of(line: bytes) -> dict[str, Any]:
    """Raises `ValueError` for what `line_of` would not have written."""
    try:
        row = json.loads(line.decode(), parse_constant=_no_number)
        if not isinstance(row, dict):
            raise ValueError("it is no object")  # noqa: TRY004 - one kind of refusal
        _require_storable(row, 0)
        spelt = line_of(row)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if spelt != line:
        raise ValueError("it is not spelt in the one way of this format")
    return row


def _no_number(_constant: str) -> float:
    raise ValueError("it holds what is no number")


def _require_storable(value: Any, depth: int) -> None:
    """What PostgreSQL cannot hold: NUL in text. Lone surrogates fail when they are spelt again."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    match value:
        case str():
            if "\x00" in value:
                raise ValueError("it holds a NUL character")
        case dict():
            for key, inner in value.items():
                _require_storable(key, depth)
                _require_storable(inner, depth + 1)
        case list():
            for inner in value:
                _require_storable(inner, depth + 1)


def codec(field: models.Field[Any, Any]) -> Codec:
    """How the values of a field are written and read; `None` stands for itself if it may."""
    write, read = _codec(field)
    words = {word for word, _ in field.flatchoices}
    if words and field.blank:
        words.add("")

    def written(value: Any) -> Any:
        return None if value is None else write(value)

    def read_back(value: Any) -> Any:
        if value is None:
            if not field.null:
                raise ValueError("it cannot be null")
            return None
        found = read(value)
        if words and found not in words:
            raise ValueError("it is no word that may stand there")
        return found

    return written, read_back


def _codec(field: models.Field[Any, Any]) -> Codec:
    kinds: list[tuple[type[models.Field[Any, Any]], Codec]] = [
        (models.JSONField, (_same, _same)),
        (models.BinaryField, (lambda value: base64.b64encode(value).decode(), _bytes)),
        (models.UUIDField, (str, _uuid)),
        (models.DateTimeField, (_instant_written, _instant)),
        (models.DateField, (date.isoformat, _date)),
        (models.BooleanField, (bool, _exactly(bool))),
        (models.FloatField, (float, _number)),
    ]
    if isinstance(field, ArrayField):
        write, read = codec(field.base_field)
        return lambda values: [write(value) for value in values], _list_of(read)
    if isinstance(field, models.IntegerField):
        return int, _integer(field)
    if isinstance(field, models.CharField | models.TextField):
        return str, _text(field)
    return next(found for kind, found in kinds if isinstance(field, kind))


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"it is no {kind.__name__}")
        return value

    return read


def _text(field: models.Field[Any, Any]) -> Callable[[Any], str]:
    limit = field.max_length

    def read(value: Any) -> str:
        if type(value) is not str:
            raise ValueError("it is no text")
        if limit is not None and len(value) > limit:
            raise ValueError(f"it has more than {limit} characters")
        return value

    return read


def _integer(field: models.Field[Any, Any]) -> Callable[[Any], int]:
    least, most = connection.ops.integer_field_range(field.get_internal_type())

    def read(value: Any) -> int:
        if type(value) is not int:
            raise ValueError("it is no whole number")
        if (least is not None and value < least) or (most is not None and value > most):
            raise ValueError("it is out of range")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise ValueError("it is no number with a point")
    return value


def _uuid(value: Any) -> UUID:
    if type(value) is not str or str(found := UUID(value)) != value:
        raise ValueError("it is no UUID")
    return found


def _instant_written(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def _instant(value: Any) -> datetime:
    if type(value) is not str:
        raise ValueError("it is no instant")
    found = datetime.fromisoformat(value)
    if found.tzinfo is None or _instant_written(found) != value:
        raise ValueError("it is no instant of UTC")
    return found


def _date(value: Any) -> date:
    if type(value) is not str or (found := date.fromisoformat(value)).isoformat() != value:
        raise ValueError("it is no date")
    return found


def _bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise ValueError("it is no Base64")
    return base64.b64decode(value, validate=True)


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_all(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ValueError("it is no list")
        return [read(one) for one in value]

    return read_all
