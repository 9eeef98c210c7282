"""The text of a retained original, as citations count its lines.

Of text it is what the bytes say, decoded as an extractor decodes them. Of a document that had to be
parsed (PDF, DOCX, HTML) it is the stored text of the version: its passages where they stand, and
nothing in the places between them that no passage holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import IO, Final

from artifacts.models import Artifact, ArtifactOrigin
from artifacts.store import open_bytes
from knowledge.adapters.extractors.decoding import decoded_blocks
from knowledge.adapters.extractors.media_types import HTML, decide
from knowledge.core.errors import (
    BinaryContent,
    EvidenceWithoutText,
    MediaTypeMismatch,
    UndecodableText,
    UnsupportedMediaType,
)
from knowledge.core.types import ChunkSetState, Verdict
from knowledge.models import Chunk, ChunkSet, DocumentVersion

_BLOCK: Final = 1 << 16


def text_of_source(artifact: Artifact) -> Iterator[str]:
    """The text in blocks of any size, in the caller's session.

    Raises `EvidenceWithoutText`, perhaps after some of it, and `BlobMissing`.
    """
    version = None
    if artifact.origin == ArtifactOrigin.KNOWLEDGE_SOURCE:
        version = DocumentVersion.objects.filter(source=artifact).first()
    if version is not None and not _is_text(version.media_type):
        yield from _stored(version)
        return
    with open_bytes(artifact) as stream:
        yield from _retained(artifact, stream)


def _retained(artifact: Artifact, stream: IO[bytes]) -> Iterator[str]:
    head = stream.read(_BLOCK)
    try:
        kind, charset = _kind(artifact, head)
        if not (_is_text(kind) or kind == HTML or kind.endswith(("+xml", "+json"))):
            raise EvidenceWithoutText
        blocks = chain([head], iter(lambda: stream.read(_BLOCK), b""))
        yield from decoded_blocks(blocks, charset=charset)
    except (BinaryContent, UndecodableText, UnsupportedMediaType) as unread:
        raise EvidenceWithoutText from unread


def _kind(artifact: Artifact, head: bytes) -> tuple[str, str | None]:
    """What the file is; where its bytes and its name disagree, what its bytes are."""
    try:
        kind = decide(head, claimed=artifact.media_type, filename=artifact.filename)
    except MediaTypeMismatch as otherwise:
        return str(otherwise.members["found"]), None
    return kind.type, kind.charset


def _is_text(media_type: str) -> bool:
    """Whether the extractor of such a file gives its text as it stands."""
    essence = media_type.partition(";")[0].strip()
    return essence == "application/json" or (essence.startswith("text/") and essence != HTML)


def _stored(version: DocumentVersion) -> Iterator[str]:
    sets = ChunkSet.objects.filter(version=version).exclude(state=ChunkSetState.INGESTING)
    # The one that is read today, else the last that was.
    newest = sets.order_by("retired_at").last()
    live = sets.filter(retired_at__isnull=True).first() or newest
    line, end = 1, 0
    rows = Chunk.objects.filter(chunk_set=live, verdict=Verdict.ADMIT).order_by("start")
    for text, start, first, last in rows.values_list(
        "text", "start", "line_start", "line_end"
    ).iterator():
        # What stands between is not stored; its line ends are known, and that it is not nothing.
        yield "\n" * (first - line) or " " * min(start - end, 1)
        yield text
        line, end = last, start + len(text)
