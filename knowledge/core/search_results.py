"""Passages as Anthropic's `search_result` blocks, which a model cites by itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any


class AnswerFormat(StrEnum):
    """How a search shows what it found, besides the list of passages."""

    BLOCK = "block"
    ANTHROPIC_SEARCH_RESULTS = "anthropic_search_results"


def search_result(
    text: str, *, source: str, title: str, heading_path: Sequence[str]
) -> dict[str, Any]:
    """One passage. The texts of its blocks, joined, are the passage letter by letter."""
    return {
        "type": "search_result",
        "source": source,
        "title": titled(title, heading_path),
        "content": [{"type": "text", "text": paragraph} for paragraph in paragraphs(text)],
        "citations": {"enabled": True},
    }


def titled(title: str, heading_path: Sequence[str]) -> str:
    """A document's title and the way to a passage in it."""
    return " › ".join((title, *heading_path))


def paragraphs(text: str) -> list[str]:
    """A text cut before each paragraph, so that joined it is the same again.

    Blank lines stay with what is above them. Each part has something to read in it, for an empty
    block is refused; only a text of nothing but white space is one part as it is.
    """
    parts: list[str] = []
    begun, at = 0, 0
    readable = blank = False
    for line in text.split("\n"):
        if line.strip():
            if readable and blank:
                parts.append(text[begun:at])
                begun = at
            readable, blank = True, False
        else:
            blank = True
        at += len(line) + 1
    return [*parts, text[begun:]] if text else []
