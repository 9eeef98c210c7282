from __future__ import annotations

import hashlib
import re
from uuid import UUID

from hypothesis import assume, given
from hypothesis import strategies as st

from knowledge.core.fingerprint import (
    Part,
    chunk_id,
    chunk_key,
    chunker_version,
    content_sha256,
    document_id_for_attachment,
    document_id_for_bytes,
    document_id_for_source,
    frame,
)

parts = st.lists(
    st.one_of(st.text(), st.binary(), st.integers(), st.lists(st.text()).map(tuple)), max_size=5
)
words = st.tuples(st.text(), st.text(), st.text())
DOCUMENT = UUID(int=7)


@given(parts, parts)
def test_different_parts_have_different_frames(one: list[Part], other: list[Part]) -> None:
    assume(one != other)
    assert frame(*one) != frame(*other)


def test_a_frame_tells_kinds_and_borders_apart() -> None:
    assert len({frame("1"), frame(1), frame(b"1"), frame(["1"]), frame("1", "")}) == 5
    assert frame("ab", "c") != frame("a", "bc")
    assert frame(["a"], ["b"]) != frame(["a", "b"])
    assert frame("é") == b"s2:\xc3\xa9"


@given(words, words)
def test_no_two_names_make_the_same_document(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assume(one != other)
    assert document_id_for_source(*one) != document_id_for_source(*other)
    assert document_id_for_attachment(*one) != document_id_for_attachment(*other)


def test_the_ways_to_name_a_document_never_meet() -> None:
    ids = {
        document_id_for_source("t", "p", "s"),
        document_id_for_bytes("t", "p", "s", "text/plain"),
        document_id_for_bytes("t", "p", "s", "text/markdown"),
        document_id_for_attachment("t", "p", "s"),
    }
    assert len(ids) == 4
    assert {each.version for each in ids} == {5}


def test_ids_are_the_ones_that_were_handed_out_before() -> None:
    assert document_id_for_source("acme", "file", "a.md") == UUID(
        "b56d64c2-c386-5777-82b7-e0e876486813"
    )
    key = chunk_key("text-1/normal-1/structure-1/default", 0, ("Guide",), "Quote me.")
    assert key == "6c856ae6797af2ae0f6472f5a07b3a48c61e3dcd679f25624078e70c05fc8752"
    assert chunk_id(DOCUMENT, 1, key) == "kc_trd7mg95w957eh8s"


def test_a_chunk_id_is_eighty_bits_of_crockford_base32() -> None:
    assert re.fullmatch(r"kc_[0-9a-hjkmnp-tv-z]{16}", chunk_id(DOCUMENT, 1, "key"))
    digest = hashlib.sha256(frame(str(DOCUMENT), 1, "key")).digest()
    number = 0
    for character in chunk_id(DOCUMENT, 1, "key").removeprefix("kc_"):
        number = number * 32 + "0123456789abcdefghjkmnpqrstvwxyz".index(character)
    assert number.to_bytes(10) == digest[:10]


def test_place_document_and_version_change_the_id() -> None:
    keys = [chunk_key("v", ordinal, (), "same words") for ordinal in range(2)]
    ids = {chunk_id(UUID(int=n), v, key) for n in (1, 2) for v in (1, 2) for key in keys}
    assert len(ids) == 8


def test_a_heading_path_is_not_its_joined_words() -> None:
    assert chunk_key("v", 0, ("a", "b"), "x") != chunk_key("v", 0, ("a b",), "x")
    assert chunk_key("v", 0, ["a"], "x") == chunk_key("v", 0, ("a",), "x")


def test_the_chunker_version_names_all_four() -> None:
    name = chunker_version("markdown-1", "normal-1", "structure-1", "default")
    assert name == "markdown-1/normal-1/structure-1/default"


def test_content_is_hashed_as_utf_8() -> None:
    assert content_sha256("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()
