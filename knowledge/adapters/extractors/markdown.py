"""Markdown: the text as it is, and what its front matter says of it."""

from __future__ import annotations

from knowledge.adapters.extractors.text import is_visible, text_of
from knowledge.core.errors import EmptyExtraction
from knowledge.core.normalising import MARKDOWN_TYPES
from knowledge.core.structure import FrontMatter, front_matter
from knowledge.core.types import ExtractedDocument


class MarkdownExtractor:
    """Keeps the markup, for it is part of what is quoted; the front matter stays in the text and
    is left out by the chunker."""

    version = "markdown-1"

    def supports(self, media_type: str) -> bool:
        return media_type in MARKDOWN_TYPES

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:
        """`metadata` has `title` and `date` (ISO 8601) where the front matter states them."""
        text = text_of(content, charset=charset)
        front = front_matter(text)
        if not is_visible(text[front.end :]):
            raise EmptyExtraction("There is nothing after the front matter of this document.")
        return ExtractedDocument(
            text=text,
            media_type=media_type,
            metadata=_metadata(front),
            warnings=() if front.readable else ("front_matter_unreadable",),
        )


def _metadata(front: FrontMatter) -> dict[str, str]:
    stated = {
        "title": front.title,
        "date": front.doc_date.isoformat() if front.doc_date else None,
    }
    return {name: value for name, value in stated.items() if value}
