"""Document versions, their chunk sets with every passage, and the rows that searches read."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from artifacts import store as artifacts
from artifacts.errors import BlobDamaged, BlobMissing
from artifacts.models import ArtifactOrigin, SourceDescriptor
from knowledge.adapters.embedding import digest_of, embedded_text
from knowledge.adapters.extractors import Extractors
from knowledge.adapters.extractors.media_types import decide
from knowledge.core import fingerprint
from knowledge.core.errors import Refused
from knowledge.core.normalising import NORMALISER_VERSION, normalised
from knowledge.core.ports import VectorSink
from knowledge.core.types import ChunkSetState, KeptVector, Verdict
from knowledge.lifecycle.corpus.findings import Check, Problem
from knowledge.models import Chunk, ChunkIndex, ChunkSet, DocumentVersion

_CHUNKS_AT_ONCE: Final = 500


def checks(
    extractors: Extractors, vectors: VectorSink | None, unchecked: Counter[str]
) -> tuple[Check, ...]:
    """`unchecked` counts the chunk sets whose extractor is not installed."""
    passages = _Passages(extractors, vectors, unchecked)
    return (
        Check(
            kind="version",
            rows=lambda: DocumentVersion.objects.select_related("source"),
            look=_version,
        ),
        Check(
            kind="chunk set",
            # What is being ingested changes while it is looked at, and nobody reads it yet.
            rows=lambda: ChunkSet.objects.exclude(state=ChunkSetState.INGESTING).select_related(
                "version__document", "version__source"
            ),
            look=passages.look,
        ),
    )


def _version(version: DocumentVersion) -> Iterator[Problem]:
    source = version.source
    if source.tenant_id != version.tenant_id or source.origin != ArtifactOrigin.KNOWLEDGE_SOURCE:
        yield Problem(problem="source is none of its own", of=str(source.pk))
    if source.expires_at is not None:
        yield Problem(problem="source is to be swept", of=str(source.pk))
    if not SourceDescriptor.objects.filter(artifact=source).exists():
        yield Problem(problem="source has no descriptor", of=str(source.pk))
    if not version.chunk_sets.filter(state=ChunkSetState.LIVE).exists():
        yield Problem(problem="no live chunk set")


@dataclass(frozen=True, slots=True)
class _Text:
    """The normalised text of a version, made anew from its original."""

    text: str
    line_ends: Sequence[int]

    @classmethod
    def of(cls, text: str) -> _Text:
        return cls(text, [place for place, one in enumerate(text) if one == "\n"])

    def line_of(self, offset: int) -> int:
        return bisect_left(self.line_ends, offset) + 1

    def has(self, chunk: Chunk) -> bool:
        return self.text[chunk.start : chunk.end] == chunk.text

    def has_lines_of(self, chunk: Chunk) -> bool:
        there = (self.line_of(chunk.start), self.line_of(chunk.end - 1))
        return there == (chunk.line_start, chunk.line_end)


@dataclass(frozen=True, slots=True)
class _Passages:
    extractors: Extractors
    vectors: VectorSink | None
    unchecked: Counter[str]

    def look(self, chunk_set: ChunkSet) -> Iterator[Problem]:
        version = chunk_set.finalized_version
        text, told = self._text_of(chunk_set, version)
        yield from told
        live = chunk_set.state == ChunkSetState.LIVE and version.superseded_at is None
        counted: Counter[str] = Counter()
        last = -1
        for chunk in chunk_set.chunks.order_by("ordinal").iterator(_CHUNKS_AT_ONCE):
            counted[chunk.verdict] += 1
            yield from _chunk(chunk, chunk_set, version)
            if text is not None and not text.has(chunk):
                yield Problem(problem="passage is not its slice", of=chunk.chunk_id)
            elif text is not None and not text.has_lines_of(chunk):
                yield Problem(problem="passage is on other lines", of=chunk.chunk_id)
            if chunk.start < last:
                yield Problem(problem="passages overlap", of=chunk.chunk_id)
            last = chunk.end
        yield from _counts(chunk_set, version, counted)
        yield from _index(chunk_set, version, live=live)
        if self.vectors is not None:
            yield from _vectors(self.vectors.kept(chunk_set.pk), chunk_set, version, live=live)

    def _text_of(
        self, chunk_set: ChunkSet, version: DocumentVersion
    ) -> tuple[_Text | None, list[Problem]]:
        """The text by what divided it, when that is installed and the original can be read."""
        source = version.source
        try:
            content = artifacts.read_bytes(source)
            kind = decide(content, claimed=source.media_type, filename=source.filename)
            extractor = self.extractors.for_type(kind.type)
            made_by = f"{extractor.version}/{NORMALISER_VERSION}/"
            if not chunk_set.chunker_version.startswith(made_by):
                self.unchecked["chunk set"] += 1
                return None, []
            extracted = extractor.extract(content, media_type=kind.type, charset=kind.charset)
        except (BlobDamaged, BlobMissing):
            # Said of the artifact already, whose bytes they are.
            self.unchecked["chunk set"] += 1
            return None, []
        except Refused as refused:
            return None, [Problem(problem=f"original cannot be read: {refused.code}")]
        return _Text.of(normalised(extracted)[0]), []


def _chunk(chunk: Chunk, chunk_set: ChunkSet, version: DocumentVersion) -> Iterator[Problem]:
    if fingerprint.content_sha256(chunk.text) != chunk.content_sha256:
        yield Problem(problem="passage of another hash", of=chunk.chunk_id)
    if len(chunk.text) != chunk.end - chunk.start:
        yield Problem(problem="passage of another length", of=chunk.chunk_id)
    key = fingerprint.chunk_key(
        chunk_set.chunker_version, chunk.ordinal, chunk.heading_path, chunk.text
    )
    if fingerprint.chunk_id(version.document_id, version.version, key) != chunk.chunk_id:
        yield Problem(problem="passage of another id", of=chunk.chunk_id)
    if chunk.tenant_id != chunk_set.tenant_id:
        yield Problem(problem="passage of another tenant", of=chunk.chunk_id)


def _counts(
    chunk_set: ChunkSet, version: DocumentVersion, counted: Counter[str]
) -> Iterator[Problem]:
    told = {
        Verdict.ADMIT: chunk_set.admitted_count(),
        Verdict.QUARANTINE: chunk_set.quarantined_count,
    }
    if any(counted[verdict] != count for verdict, count in told.items()):
        yield Problem(problem="passages are not as many as it says")
    if chunk_set.tenant_id != version.tenant_id:
        yield Problem(problem="of another tenant than its version")


def _index(chunk_set: ChunkSet, version: DocumentVersion, *, live: bool) -> Iterator[Problem]:
    admitted = Chunk.objects.filter(chunk_set=chunk_set, verdict=Verdict.ADMIT)
    for chunk_id in admitted.filter(index_row__isnull=True).values_list("chunk_id", flat=True):
        yield Problem(problem="no index row", of=chunk_id)
    rows = ChunkIndex.objects.filter(chunk__chunk_set=chunk_set).select_related("chunk")
    if version.superseded_at is None or live:
        wrong_live = rows.exclude(live=live)
    else:
        wrong_live = rows.filter(live=True)
    for row in wrong_live.only("chunk__chunk_id"):
        yield Problem(problem="index row that is live or not, wrongly", of=row.chunk.chunk_id)
    space = version.document.space_id
    for row in rows.exclude(space=space).only("chunk__chunk_id"):
        yield Problem(problem="index row in another space", of=row.chunk.chunk_id)


def _vectors(
    kept: Sequence[KeptVector], chunk_set: ChunkSet, version: DocumentVersion, *, live: bool
) -> Iterator[Problem]:
    """One that is missing is no problem: it is made in time, by what gives vectors to what has none."""
    document = version.document
    chunks = Chunk.objects.filter(chunk_set=chunk_set).in_bulk([one.chunk for one in kept])
    for one in kept:
        chunk = chunks[one.chunk]
        if one.live != live:
            yield Problem(problem="vector that is live or not, wrongly", of=chunk.chunk_id)
        if one.space != document.space_id:
            yield Problem(problem="vector in another space", of=chunk.chunk_id)
        text = embedded_text(document.title, chunk)
        if one.digest and one.digest != digest_of(document.tenant_id, text):
            yield Problem(problem="vector of other words", of=chunk.chunk_id)
