"""From bytes to text: the built-in extractors and the registry that picks one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from knowledge.adapters.extractors.markdown import MarkdownExtractor
from knowledge.adapters.extractors.media_types import MediaType, decide
from knowledge.adapters.extractors.parsed import DocxExtractor, HtmlExtractor, PdfExtractor
from knowledge.adapters.extractors.text import TextExtractor
from knowledge.core.errors import (
    ExtractionBusy,
    ExtractionInterrupted,
    ExtractionTimeout,
    UnsupportedMediaType,
)
from knowledge.core.ports import Extractor, Inspector, InstructionScanner

__all__ = [
    "DocxExtractor",
    "Extractors",
    "HtmlExtractor",
    "MarkdownExtractor",
    "MediaType",
    "PdfExtractor",
    "TextExtractor",
    "decide",
]


class Extractors:
    """Which extractor reads which media type. The first that supports it wins, and those that an
    installation registers come before the built-in ones. The scanner is for text that a document
    hides from its readers."""

    def __init__(
        self,
        registered: Sequence[Extractor] = (),
        *,
        instruction_scanner: InstructionScanner | None = None,
    ) -> None:
        self._extractors: tuple[Extractor, ...] = (
            *registered,
            MarkdownExtractor(),
            TextExtractor(),
            PdfExtractor(),
            HtmlExtractor(instruction_scanner),
            DocxExtractor(instruction_scanner),
        )

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(extractor.version for extractor in self._extractors)

    def for_type(self, media_type: str) -> Extractor:
        for extractor in self._extractors:
            if extractor.supports(media_type):
                return extractor
        raise UnsupportedMediaType(
            f"Files of the type {media_type} cannot be admitted.", media_type=media_type
        )

    def inspect(self, content: bytes, media_type: str) -> None:
        """A first look at a file that is to be read later; raises what is clear at once.

        A look that takes too long says nothing: reading has more time.
        """
        extractor = self.for_type(media_type)
        if isinstance(extractor, Inspector):
            with suppress(ExtractionBusy, ExtractionInterrupted, ExtractionTimeout):
                extractor.inspect(content)
