"""Values as JSON and back: one spelling for each, whatever the text, the instant or the number."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.contrib.postgres.fields import ArrayField
from django.db import models
from hypothesis import example, given
from hypothesis import strategies as st

from knowledge.transfer.rows import Read
from knowledge.transfer.tables import TABLES
from knowledge.transfer.values import codec, line_of, row_of

# What PostgreSQL can hold: any character but NUL and half a pair.
TEXT = st.text(st.characters(exclude_characters="\x00", codec="utf-8"))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


@given(st.dictionaries(TEXT, JSON_VALUES, max_size=6))
@example({"text": "\u2028\u2029\x85\r\n\t\x7f\ufeff"})
@example({"title": "\u202eright to left\u202c שלום مرحبا", "quote": '"\\/\b\f'})
@example({"emoji": "👩‍👩‍👧‍👦🇨🇭\U0010ffff", "combining": "e\u0301é"})
@example({"numbers": [0, -0.0, 1e-300, 1.7976931348623157e308, 2**64, 0.1]})
def test_a_row_is_one_line_and_the_same_again(row: dict[str, Any]) -> None:
    line = line_of(row)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1, "lines can be told apart by LF alone"
    assert row_of(line) == row
    assert line_of(row_of(line)) == line


@given(st.dictionaries(TEXT, JSON_VALUES, min_size=1, max_size=4))
def test_another_spelling_of_a_row_is_refused(row: dict[str, Any]) -> None:
    for spelt in (
        json.dumps(row, ensure_ascii=False, sort_keys=True).encode() + b"\n",
        json.dumps(row, ensure_ascii=False, sort_keys=True, indent=1).encode() + b"\n",
        b" " + line_of(row),
        line_of(row)[:-1],
    ):
        if spelt == line_of(row):
            continue  # so small that there is but one way
        with pytest.raises(ValueError, match=r"."):
            row_of(spelt)


@given(st.binary(max_size=80))
def test_no_line_whatever_raises_anything_else(line: bytes) -> None:
    try:
        row = row_of(line)
    except ValueError:
        return
    assert line_of(row) == line


@given(st.sampled_from(sorted(TABLES)), JSON_VALUES, st.data())
def test_no_value_whatever_raises_anything_else(name: str, value: Any, data: st.DataObject) -> None:
    """In any column of any table: read, or refused with its place."""
    for column in TABLES[name].columns:
        for candidate in (value, [value], [value] * len(column.codecs)):
            try:
                column.read(candidate)
            except (ValueError, OverflowError):
                continue


def written_and_read(field: models.Field[Any, Any], value: Any) -> Any:
    write, read = codec(field)
    return read(row_of(line_of({"value": write(value)}))["value"])


@given(st.datetimes(timezones=ZONES).filter(lambda at: 1 < at.year < 9999))
@example(datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC))
@example(datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC))
def test_instants_keep_their_microseconds(at: datetime) -> None:
    assert written_and_read(models.DateTimeField(), at) == at
    assert codec(models.DateTimeField())[0](at).endswith("+00:00")


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.1 + 0.2)
@example(sys.float_info.min)
def test_floats_are_the_very_same(number: float) -> None:
    assert written_and_read(models.FloatField(), number) == number


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.dates(), st.uuids(), st.binary(), TEXT)
def test_everything_else_comes_back(
    sketch: list[int], day: Any, name: Any, content: bytes, text: str
) -> None:
    assert written_and_read(ArrayField(models.BigIntegerField()), sketch) == sketch
    assert written_and_read(models.DateField(), day) == day
    assert written_and_read(models.UUIDField(), name) == name
    assert written_and_read(models.BinaryField(), content) == content
    assert written_and_read(models.TextField(), text) == text
    assert written_and_read(models.TextField(null=True), None) is None


def test_a_refusal_names_the_place_and_never_the_content() -> None:
    row = dict.fromkeys(TABLES["documents"].names)
    with pytest.raises(Exception, match="Line 7 of documents") as refusal:
        Read("documents", 7, line_of({**row, "title": "hunter2", "tenant_id": ["hunter2"]}))
    assert "hunter2" not in str(refusal.value)
