"""Revisions of records as they are spelt, and citations against the text of their source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knowledge.adapters.extractors.decoding import decode, decoded_blocks
from knowledge.core.errors import (
    BinaryContent,
    EvidenceLinesOutOfRange,
    InvalidRecord,
    QuoteNotFound,
    UndecodableText,
)
from knowledge.core.records import (
    Annotation,
    Evidence,
    EvidenceCounts,
    RecordChange,
    RecordKind,
    Representation,
    Revision,
    check_against,
    label_of,
    page_content,
    request_hash,
    revision_hash,
    without_repeats,
)

SOURCE, OTHER = "a" * 64, "b" * 64
CITED = Evidence(source=SOURCE, start_line=2, end_line=3, quote="by hand")
DESCRIPTOR = {
    "path": "artifacts/00000000-0000-0000-0000-000000000001",
    "sha256": "c" * 64,
    "attribution": "The field team",
    "filename": "note.md",
    "media_type": "text/markdown",
    "size": 12,
}
FIRST = Revision(
    record=UUID(int=7),
    kind=RecordKind.PAGE,
    revision=1,
    previous="",
    change=RecordChange.CREATED,
    by="alice",
    at="2026-11-30T07:00:00.000000Z",
    reason="",
    representation=Representation.COMPACT,
    content={"title": "Pumps", "body": "Started by hand.", "metadata": {"b": 1, "a": [1.5, "ß"]}},
    evidence=(CITED, Evidence(source=OTHER)),
    annotations=(
        Annotation(
            id="1",
            note="Seen again.",
            by="bob",
            at="2026-11-30T07:01:00.000000Z",
            evidence=(Evidence(source=SOURCE, attribution="Bob"),),
        ),
    ),
    sources={SOURCE: DESCRIPTOR},
)


def test_a_revision_has_one_spelling() -> None:
    said = FIRST.canonical().decode()
    assert said == json.dumps(
        json.loads(said), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    assert json.loads(said)["evidence"] == [
        {"source": SOURCE, "start_line": 2, "end_line": 3, "quote": "by hand"},
        {"source": OTHER},
    ]
    turned = replace(FIRST, content=dict(reversed(list(FIRST.content.items()))))
    assert turned.canonical() == FIRST.canonical()


@pytest.mark.parametrize("representation", Representation)
def test_what_is_written_is_read_back(representation: Representation) -> None:
    written = replace(FIRST, representation=representation)
    read = Revision.read(written.canonical().decode())
    assert read.canonical() == written.canonical()
    assert read.cited == written.cited
    assert read.annotations == written.annotations


def test_expanded_says_what_the_sources_are_and_compact_does_not() -> None:
    expanded = json.loads(replace(FIRST, representation=Representation.EXPANDED).canonical())
    assert expanded["evidence"] == [
        {
            "source": SOURCE,
            "start_line": 2,
            "end_line": 3,
            "quote": "by hand",
            "attribution": None,
            "descriptor": DESCRIPTOR,
        },
        {
            "source": OTHER,
            "start_line": None,
            "end_line": None,
            "quote": None,
            "attribution": None,
            "descriptor": None,
        },
    ]
    assert expanded["annotations"][0]["evidence"][0]["descriptor"] == DESCRIPTOR


CHANGES: dict[str, Callable[[Revision], Revision]] = {
    "record": lambda r: replace(r, record=UUID(int=8)),
    "kind": lambda r: replace(r, kind=RecordKind.CLAIM),
    "revision": lambda r: replace(r, revision=2),
    "previous": lambda r: replace(r, previous="d" * 64),
    "change": lambda r: replace(r, change=RecordChange.SAVED),
    "by": lambda r: replace(r, by="bob"),
    "at": lambda r: replace(r, at="2026-11-30T07:00:00.000001Z"),
    "reason": lambda r: replace(r, reason="typo"),
    "representation": lambda r: replace(r, representation=Representation.EXPANDED),
    "content": lambda r: replace(r, content={**r.content, "body": "Started by hand"}),
    "evidence": lambda r: replace(r, evidence=r.evidence[::-1]),
    "annotations": lambda r: replace(r, annotations=()),
    "schema": lambda r: replace(r, schema="record-2"),
}


@pytest.mark.parametrize("part", CHANGES)
def test_the_hash_covers_all_of_a_revision(part: str) -> None:
    changed = CHANGES[part](FIRST)
    assert revision_hash(changed.canonical()) != revision_hash(FIRST.canonical())


def test_counts() -> None:
    counts = EvidenceCounts.of(FIRST)
    assert (counts.associations, counts.annotation_associations, counts.sources) == (2, 1, 2)
    said = json.loads(FIRST.canonical())
    lists = [said["evidence"], said["annotations"][0]["evidence"]]
    spelt = [
        json.dumps(each, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for each in lists
    ]
    assert counts.evidence_bytes == sum(len(each.encode()) for each in spelt)
    assert counts.revision_bytes == len(FIRST.canonical())


def test_a_citation_is_counted_once() -> None:
    other = Evidence(source=SOURCE)
    assert without_repeats([CITED, other, CITED]) == (CITED, other)


def test_labels_are_one_line() -> None:
    assert label_of(RecordKind.CLAIM, {"statement": "a\n b"}) == "a b"
    assert (
        label_of(
            RecordKind.RELATIONSHIP, {"subject": "pump", "predicate": "feeds", "object": "tank"}
        )
        == "pump feeds tank"
    )
    long = label_of(RecordKind.CLAIM, {"statement": "x" * 501})
    assert (len(long), long[-1]) == (500, "…")


def test_a_request_is_told_by_what_it_asks() -> None:
    assert request_hash({"a": 1, "b": [2]}) == request_hash({"b": [2], "a": 1})
    assert request_hash({"a": 1, "b": [2]}) != request_hash({"a": 1, "b": [2, 3]})


@pytest.mark.parametrize(
    "metadata",
    [
        {"n": 2**53},
        {"n": [{"m": -(2**53)}]},
        {"n": float("nan")},
        {"n": float("inf")},
        {"n": "\ud800"},
        {"\0": 1},
    ],
)
def test_metadata_that_has_no_one_spelling_is_refused(metadata: dict[str, object]) -> None:
    with pytest.raises(InvalidRecord):
        page_content("Pumps", "", metadata)


# --- lines and quotes ----------------------------------------------------------------------------

TEXT = "one\ntwo\r\nthree\n\nfive"


def cite(**given: Any) -> Evidence:
    return Evidence(source=SOURCE, **given)


def blocks(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "evidence",
    [
        cite(start_line=1),
        cite(start_line=1, end_line=5),
        cite(start_line=5, end_line=5, quote="five"),
        cite(start_line=2, end_line=3, quote="two\nthree"),
        cite(start_line=2, end_line=3, quote="two\r\nthree"),
        cite(start_line=4),
        cite(start_line=3, end_line=5, quote="three\n\nfive"),
        cite(quote="o\nthree"),
        cite(quote="five"),
        cite(quote=TEXT),
        cite(),
    ],
)
def test_what_stands_there(evidence: Evidence, size: int) -> None:
    check_against(evidence, blocks(TEXT, size))


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    "evidence",
    [
        cite(start_line=0),
        cite(start_line=-1, end_line=2),
        cite(start_line=3, end_line=2),
        cite(end_line=2),
        cite(start_line=6),
        cite(start_line=1, end_line=6, quote="one"),
    ],
)
def test_lines_that_are_not_there(evidence: Evidence, size: int) -> None:
    with pytest.raises(EvidenceLinesOutOfRange):
        check_against(evidence, blocks(TEXT, size))


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    "evidence",
    [
        cite(quote="Two"),
        cite(quote="two three"),
        cite(quote=" \n"),
        cite(quote=""),
        cite(start_line=1, end_line=1, quote="two"),
        cite(start_line=1, end_line=2, quote="two\n"),
        cite(start_line=2, end_line=2, quote="one"),
    ],
)
def test_words_that_are_not_there(evidence: Evidence, size: int) -> None:
    with pytest.raises(QuoteNotFound):
        check_against(evidence, blocks(TEXT, size))


def test_no_line_follows_the_last_line_end() -> None:
    check_against(cite(start_line=2), ["a\nb\n"])
    with pytest.raises(EvidenceLinesOutOfRange) as refused:
        check_against(cite(start_line=3), ["a\nb\n"])
    assert refused.value.members == {"lines": 2}
    with pytest.raises(EvidenceLinesOutOfRange):
        check_against(cite(start_line=1), [""])


@given(
    text=st.text(alphabet="ab\r\n", max_size=30),
    start=st.integers(1, 8),
    length=st.integers(0, 4),
    quote=st.text(alphabet="ab\n", min_size=1, max_size=4),
    size=st.integers(1, 9),
)
@example(text="a\r", start=1, length=0, quote="a", size=1)
def test_blocks_say_what_the_whole_says(
    text: str, start: int, length: int, quote: str, size: int
) -> None:
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    end = start + length
    there = end <= len(lines)
    said = there and bool(quote.strip()) and quote in "\n".join(lines[start - 1 : end])
    try:
        check_against(cite(start_line=start, end_line=end, quote=quote), blocks(text, size))
    except EvidenceLinesOutOfRange:
        assert not there
    except QuoteNotFound:
        assert not said
    else:
        assert said


@given(
    text=st.text(alphabet="aß漢😀\r\n", max_size=20),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    size=st.integers(5, 9),
)
def test_blocks_decode_as_the_whole_does(text: str, encoding: str, size: int) -> None:
    content = text.encode(encoding)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert "".join(decoded_blocks(pieces, charset=None)) == decode(content, charset=None)


def test_what_is_no_text_is_refused_wherever_it_stands() -> None:
    with pytest.raises(UndecodableText):
        list(decoded_blocks([b"abc", b"\xff"], charset=None))
    with pytest.raises(UndecodableText):
        list(decoded_blocks([b"abc", b"\xc3"], charset=None))
    with pytest.raises(BinaryContent):
        list(decoded_blocks([b"abc", b"a\0"], charset=None))
