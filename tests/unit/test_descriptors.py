"""Descriptors: one spelling, one hash, and whatever differs is another source."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.descriptors import canonical, descriptor_id

TOLD: dict[str, Any] = {
    "path": "artifacts/7d0f6f0e-5a51-4f0b-8f7e-0d0f7f3e9a11",
    "sha256": "0" * 64,
    "attribution": "",
    "filename": '€ "o"\\\u20282.md',
    "media_type": "text/markdown",
    "size": 12,
}


def test_it_is_spelt_as_the_standard_says() -> None:
    assert canonical(**TOLD).decode() == (
        '{"attribution":"","filename":"€ \\"o\\"\\\\\u20282.md","media_type":"text/markdown",'
        '"path":"artifacts/7d0f6f0e-5a51-4f0b-8f7e-0d0f7f3e9a11",'
        f'"sha256":"{"0" * 64}","size":12}}'
    )


@pytest.mark.parametrize("member", TOLD)
def test_any_member_makes_it_another_source(member: str) -> None:
    other = {**TOLD, member: 13 if member == "size" else "other"}
    assert descriptor_id(canonical(**other)) != descriptor_id(canonical(**TOLD))


@given(attribution=st.text(), filename=st.text(), size=st.integers(0, 2**53 - 1))
def test_it_says_what_was_told_and_its_id_is_its_hash(
    attribution: str, filename: str, size: int
) -> None:
    told = {**TOLD, "attribution": attribution, "filename": filename, "size": size}
    described = canonical(**told)
    assert json.loads(described) == told
    assert canonical(**dict(reversed(told.items()))) == described
    assert descriptor_id(described) == hashlib.sha256(described).hexdigest()
