"""The identity extractor: text is its own extraction."""

from __future__ import annotations

import regex

from knowledge.adapters.extractors.decoding import decode
from knowledge.core.errors import EmptyExtraction
from knowledge.core.types import ExtractedDocument

_MARKUP = frozenset({"text/html"})

_VISIBLE = regex.compile(r"[^\s\p{Z}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]")


class TextExtractor:
    """Every `text/*` but HTML, and `application/json`; none of them is parsed."""

    version = "text-1"

    def supports(self, media_type: str) -> bool:
        return media_type == "application/json" or (
            media_type.startswith("text/") and media_type not in _MARKUP
        )

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:
        return ExtractedDocument(text=text_of(content, charset=charset), media_type=media_type)


def text_of(content: bytes, *, charset: str | None) -> str:
    """The decoded text; raises `EmptyExtraction` when nothing in it can be seen."""
    text = decode(content, charset=charset)
    if not is_visible(text):
        raise EmptyExtraction
    return text


def is_visible(text: str) -> bool:
    """Whether there is more to a text than white space, controls and invisible characters."""
    return _VISIBLE.search(text) is not None
