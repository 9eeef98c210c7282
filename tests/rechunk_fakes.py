"""Chunkers, extractors and scanners of a later release, and a store that has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from knowledge.adapters.extractors import Extractors
from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core.chunking import StructureChunker
from knowledge.core.profiles import ChunkingProfile
from knowledge.core.types import ChunkDraft, ExtractedDocument, SecretFinding, Structure
from knowledge.store import KnowledgeStore
from knowledge.wiring import store


class FinerChunker:
    """Cuts where `structure-1` does, and a few times more: as different as a next one may be."""

    def __init__(self, version: str = "structure-2", target: int = 60) -> None:
        self.version = version
        self._sizes = {"target": target, "ceiling": target + 20, "floor": 0}
        self._inner = StructureChunker(TiktokenCounter())

    def chunk(
        self,
        text: str,
        *,
        title: str,
        media_type: str,
        structure: Structure,
        profile: ChunkingProfile,
    ) -> list[ChunkDraft]:
        return self._inner.chunk(
            text,
            title=title,
            media_type=media_type,
            structure=structure,
            profile=replace(profile, **self._sizes),  # type: ignore[arg-type]
        )


class LaterMarkdown:
    """Reads Markdown as ever, and a word of it better than before."""

    version = "markdown-2"

    def supports(self, media_type: str) -> bool:
        return media_type == "text/markdown"

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:
        text = content.decode(charset or "utf-8").replace("hom0e", "home")
        return ExtractedDocument(text=text, media_type=media_type, warnings=("read_better",))


class WordIsSecret:
    """Rules that have moved on: a word that nobody minded before."""

    version = "moved-on-2"

    def __init__(self, word: str) -> None:
        self._word = word

    def scan(self, text: str) -> list[SecretFinding]:
        found = []
        for number, line in enumerate(text.split("\n"), start=1):
            if (at := line.find(self._word)) >= 0:
                found.append(
                    SecretFinding(
                        rule="new-rule",
                        layer="context",
                        view="raw",
                        line=number,
                        column=at + 1,
                        length=len(self._word),
                        fingerprint="0" * 16,
                    )
                )
        return found


def later(**parts: Any) -> KnowledgeStore:
    """The store of a release with other parts: a finer chunker, when nothing is said."""
    parts = parts or {"chunker": FinerChunker()}
    return replace(store(), ingestor=replace(store().ingestor, **parts))


def reading_better() -> KnowledgeStore:
    return later(extractors=Extractors([LaterMarkdown()]))
