"""Records that cite: their content, their evidence, and the one spelling of a revision.

A revision is JSON by RFC 8785; its SHA-256 is its hash. It names the hash before it, so that a
history is a chain.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import rfc8785

from access.trust import OriginTrust, Sensitivity
from knowledge.core.errors import EvidenceLinesOutOfRange, InvalidRecord, QuoteNotFound
from knowledge.core.types import Visibility
from knowledge.core.wording import TITLE_LIMIT, checked_title

RECORD_SCHEMA: Final = "record-1"
"""What a revision is written in; part of it, and a precondition of `reconcile`."""

BODY_LIMIT: Final = 1_000_000
STATEMENT_LIMIT: Final = 10_000
TERM_LIMIT: Final = 1_000
NOTE_LIMIT: Final = 10_000
QUOTE_LIMIT: Final = 100_000
_SAFE_INTEGER: Final = 2**53 - 1


class RecordKind(StrEnum):
    """What a record is; claims and relationships stand on evidence, a page may."""

    PAGE = "page"
    CLAIM = "claim"
    RELATIONSHIP = "relationship"


class Representation(StrEnum):
    """How a revision writes its evidence: what it cites, or with all that is known of the source."""

    COMPACT = "compact"
    EXPANDED = "expanded"


class RecordChange(StrEnum):
    """What made a revision."""

    CREATED = "created"
    SAVED = "saved"
    CORRECTED = "corrected"
    ANNOTATED = "annotated"
    RECONCILED = "reconciled"


class EvidenceState(StrEnum):
    """Whether a source can be followed: by the caller, now."""

    AVAILABLE = "available"
    SOURCE_DELETED = "source_deleted"
    SOURCE_NOT_VISIBLE = "source_not_visible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One citation: a source, and perhaps lines of it (1-based, inclusive) and words of it.

    `attribution` says whose words these are where that is not who the source is attributed to.
    """

    source: str
    start_line: int | None = None
    end_line: int | None = None
    quote: str | None = None
    attribution: str | None = None

    @property
    def speaks_of_text(self) -> bool:
        return (self.start_line, self.end_line, self.quote) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile:
    """A file to be kept as a source: the receipt of its upload, and what of it is cited."""

    artifact_id: UUID
    sha256: str
    start_line: int | None = None
    end_line: int | None = None
    quote: str | None = None
    attribution: str | None = None

    def cited_as(self, source: str) -> Evidence:
        return Evidence(
            source=source,
            start_line=self.start_line,
            end_line=self.end_line,
            quote=self.quote,
            attribution=self.attribution,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A dated note on a record, with evidence of its own that stays with it for good."""

    id: str
    note: str
    by: str
    at: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """All that the hash of a revision covers. `previous` is empty for the first.

    `sources` are the descriptors, by id, of those that an expanded revision writes out.
    """

    record: UUID
    kind: RecordKind
    revision: int
    previous: str
    change: RecordChange
    by: str
    at: str
    reason: str
    representation: Representation
    content: Mapping[str, Any]
    evidence: tuple[Evidence, ...]
    annotations: tuple[Annotation, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    schema: str = RECORD_SCHEMA

    def canonical(self) -> bytes:
        return rfc8785.dumps(
            {
                "schema": self.schema,
                "record": str(self.record),
                "kind": str(self.kind),
                "revision": self.revision,
                "previous": self.previous,
                "change": str(self.change),
                "by": self.by,
                "at": self.at,
                "reason": self.reason,
                "representation": str(self.representation),
                "content": dict(self.content),
                "evidence": self.written(self.evidence),
                "annotations": [
                    {
                        "id": one.id,
                        "note": one.note,
                        "by": one.by,
                        "at": one.at,
                        "evidence": self.written(one.evidence),
                    }
                    for one in self.annotations
                ],
            }
        )

    @classmethod
    def read(cls, canonical: str) -> Revision:
        """What `canonical` wrote."""
        said = json.loads(canonical)
        written = [*said["evidence"], *(e for one in said["annotations"] for e in one["evidence"])]
        return cls(
            record=UUID(said["record"]),
            kind=RecordKind(said["kind"]),
            revision=said["revision"],
            previous=said["previous"],
            change=RecordChange(said["change"]),
            by=said["by"],
            at=said["at"],
            reason=said["reason"],
            representation=Representation(said["representation"]),
            content=said["content"],
            evidence=_read(said["evidence"]),
            annotations=tuple(
                Annotation(**{**one, "evidence": _read(one["evidence"])})
                for one in said["annotations"]
            ),
            sources={one["source"]: one["descriptor"] for one in written if one.get("descriptor")},
            schema=said["schema"],
        )

    @property
    def cited(self) -> tuple[Evidence, ...]:
        """Its own evidence, then that of its annotations, in order."""
        return (*self.evidence, *(each for one in self.annotations for each in one.evidence))

    @property
    def source_ids(self) -> tuple[str, ...]:
        """Every source that it cites, once each."""
        return tuple(dict.fromkeys(one.source for one in self.cited))

    def written(self, evidence: Iterable[Evidence]) -> list[dict[str, Any]]:
        """Citations as this revision writes them."""
        expanded = self.representation is Representation.EXPANDED
        return [
            _expanded(one, self.sources.get(one.source)) if expanded else compact(one)
            for one in evidence
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCounts:
    """How much evidence a revision has, and how many bytes of it, and of the revision, that is."""

    associations: int
    annotation_associations: int
    sources: int
    evidence_bytes: int
    revision_bytes: int

    @classmethod
    def of(cls, revision: Revision) -> EvidenceCounts:
        said = json.loads(revision.canonical())
        written = [said["evidence"], *(one["evidence"] for one in said["annotations"])]
        return cls(
            associations=len(revision.evidence),
            annotation_associations=len(revision.cited) - len(revision.evidence),
            sources=len(revision.source_ids),
            evidence_bytes=sum(len(rfc8785.dumps(each)) for each in written),
            revision_bytes=len(revision.canonical()),
        )


def revision_hash(canonical: bytes) -> str:
    return hashlib.sha256(canonical).hexdigest()


def compact(evidence: Evidence) -> dict[str, Any]:
    """What it cites, and no member that says nothing."""
    return {name: value for name, value in _members(evidence).items() if value is not None}


def without_repeats(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Each citation once: to cite the same words of the same source again adds nothing."""
    return tuple(dict.fromkeys(evidence))


def label_of(kind: RecordKind, content: Mapping[str, Any]) -> str:
    """One line that tells a record from others in a list."""
    if kind is RecordKind.PAGE:
        told = content["title"]
    elif kind is RecordKind.CLAIM:
        told = content["statement"]
    else:
        told = f"{content['subject']} {content['predicate']} {content['object']}"
    line = " ".join(told.split())
    return line if len(line) <= TITLE_LIMIT else f"{line[: TITLE_LIMIT - 1]}…"


def request_hash(asked: Mapping[str, Any]) -> str:
    """Equal for two requests that ask for the same, however they spell it."""
    return revision_hash(rfc8785.dumps(dict(asked)))


def _members(evidence: Evidence) -> dict[str, Any]:
    return {
        "source": evidence.source,
        "start_line": evidence.start_line,
        "end_line": evidence.end_line,
        "quote": evidence.quote,
        "attribution": evidence.attribution,
    }


def _expanded(evidence: Evidence, descriptor: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**_members(evidence), "descriptor": dict(descriptor) if descriptor else None}


def _read(written: Sequence[Mapping[str, Any]]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            source=one["source"],
            start_line=one.get("start_line"),
            end_line=one.get("end_line"),
            quote=one.get("quote"),
            attribution=one.get("attribution"),
        )
        for one in written
    )


# --- what is asked for ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Who is to find a new record."""

    visibility: Visibility
    project_scope: str | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A record, and the revision of it that whoever writes has seen."""

    record_id: UUID
    revision: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What is said with every write."""

    request_id: UUID
    reason: str = ""
    origin_trust: OriginTrust | None = None
    current_scope: str | None = None


# --- what may be said ----------------------------------------------------------------------------


_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")


def page_content(title: str, body: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a page; raises `InvalidTitle` and `InvalidRecord`."""
    _require_text("body", body, BODY_LIMIT)
    _require_metadata(metadata)
    return {"title": checked_title(title), "body": body, "metadata": dict(metadata)}


def claim_content(statement: str) -> dict[str, Any]:
    """The content of a claim; raises `InvalidRecord`."""
    return {"statement": _said("statement", statement, STATEMENT_LIMIT)}


def relationship_content(subject: str, predicate: str, object_: str) -> dict[str, Any]:
    """The content of a relationship; raises `InvalidRecord`."""
    return {
        "subject": _said("subject", subject, TERM_LIMIT),
        "predicate": _said("predicate", predicate, TERM_LIMIT),
        "object": _said("object", object_, TERM_LIMIT),
    }


def note_of(note: str) -> str:
    """The words of an annotation; raises `InvalidRecord`."""
    return _said("note", note, NOTE_LIMIT)


def require_evidence_text(evidence: Evidence) -> None:
    """Raises `InvalidRecord` for words of a citation that cannot be kept."""
    _require_text("quote", evidence.quote or "", QUOTE_LIMIT)
    _require_text("attribution", evidence.attribution or "", TERM_LIMIT)


def _require_metadata(metadata: Mapping[str, Any]) -> None:
    """Raises `InvalidRecord` for what JSON has no one spelling for."""
    waiting: list[Any] = [metadata]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            _require_text("metadata", value, BODY_LIMIT)
        elif (isinstance(value, int) and abs(value) > _SAFE_INTEGER) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise InvalidRecord(
                "A number of the metadata is beyond what JSON keeps exactly; write it as text.",
                field="metadata",
            )


def _said(name: str, text: str, limit: int) -> str:
    text = text.strip()
    if not text:
        raise InvalidRecord(f"The {name} is empty.", field=name)
    _require_text(name, text, limit)
    return text


def _require_text(name: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise InvalidRecord(f"The {name} has at most {limit:,} characters.", field=name)
    if _NO_TEXT.search(text):
        raise InvalidRecord(f"The {name} holds a NUL or half of a surrogate pair.", field=name)


# --- where a citation leads ----------------------------------------------------------------------


def checked_range(evidence: Evidence) -> Evidence:
    """The citation with both ends of its lines; raises `EvidenceLinesOutOfRange`.

    One line may be given as a start alone.
    """
    start, end = evidence.start_line, evidence.end_line
    if start is None and end is None:
        return evidence
    if start is None:
        raise EvidenceLinesOutOfRange("An end without a start: give `start_line` as well.")
    end = start if end is None else end
    if not 1 <= start <= end:
        raise EvidenceLinesOutOfRange(
            "Lines are counted from 1, and a range ends at or after its start."
        )
    return Evidence(
        source=evidence.source,
        start_line=start,
        end_line=end,
        quote=evidence.quote,
        attribution=evidence.attribution,
    )


def check_against(evidence: Evidence, text: Iterable[str]) -> None:
    """Whether a text has the lines, and in them the quote, letter by letter.

    `text` comes in blocks of any size, so that a source of gigabytes is never held whole; CRLF
    counts as LF in text and quote alike. Raises `EvidenceLinesOutOfRange` and `QuoteNotFound`.
    """
    cited = checked_range(evidence)
    quote = None if cited.quote is None else cited.quote.replace("\r\n", "\n")
    if quote is not None and not quote.strip():
        raise QuoteNotFound("A quote of white space alone is found nowhere.")
    sought = _Sought(quote)
    blocks = _with_line_feeds(text)
    if cited.start_line is None or cited.end_line is None:
        while not sought.found and (block := next(blocks, "")):
            sought.add(block)
        where = "the source"
    else:
        for piece in _lines(blocks, cited.start_line, cited.end_line):
            sought.add(piece)
        where = "these lines"
    if not sought.found:
        raise QuoteNotFound(f"The quote does not stand in {where} letter by letter.")


def _lines(blocks: Iterable[str], start: int, end: int) -> Iterator[str]:
    """The pieces of these lines, without the line end of the last.

    Raises `EvidenceLinesOutOfRange` when the text ends before; what follows its last LF is a line
    only when there is something.
    """
    line, open_line = 1, False
    for block in blocks:
        at = 0
        while at < len(block):
            stop = block.find("\n", at)
            until = len(block) if stop < 0 else stop + 1
            if line >= start:
                yield block[at:stop] if line == end and stop >= 0 else block[at:until]
            if stop >= 0 and line == end:
                return
            line += stop >= 0
            open_line = stop < 0
            at = until
    count = line if open_line else line - 1
    if count < end:
        raise EvidenceLinesOutOfRange(f"The source has {count:,} lines.", lines=count)


class _Sought:
    """A quote that is looked for in a text that comes in pieces."""

    def __init__(self, quote: str | None) -> None:
        self._quote = quote
        self._tail = ""
        self.found = quote is None

    def add(self, piece: str) -> None:
        if self._quote is None or self.found:
            return
        held = self._tail + piece
        self.found = self._quote in held
        keep = len(self._quote) - 1
        self._tail = held[-keep:] if keep else ""


def _with_line_feeds(text: Iterable[str]) -> Iterator[str]:
    """CRLF as LF, also where a block ends between the two; no block is empty."""
    held = ""
    for block in text:
        joined = held + block
        held = "\r" if joined.endswith("\r") else ""
        whole = joined[:-1] if held else joined
        if whole:
            yield whole.replace("\r\n", "\n")
    if held:
        yield held
