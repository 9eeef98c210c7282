"""The lines that a citation speaks of, where they stand in their source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.utils.safestring import SafeString

from artifacts.errors import BlobDamaged, BlobMissing
from artifacts.models import Artifact
from knowledge.adapters.source_texts import text_of_source
from knowledge.core.errors import EvidenceWithoutText
from knowledge.core.records import Evidence
from knowledge.passage_html import passage_html

LARGEST_SHOWN: Final = 4 * 1024**2
"""Bytes of a source that a page reads; a larger one is to be downloaded."""
_AROUND: Final = 2
_MOST_LINES: Final = 40
_LAST_LINES: Final = 5
_LONGEST_LINE: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine:
    """A line of a source; without a number it stands for lines that are left out."""

    number: int | None
    html: SafeString | str
    cited: bool


class SourceTexts:
    """The texts of the sources of one page, each read once."""

    def __init__(self) -> None:
        self._known: dict[object, str | None] = {}

    def of(self, artifact: Artifact) -> str | None:
        """`None` for what has no text, is too large for a page, or whose bytes are gone or wrong."""
        if artifact.byte_size > LARGEST_SHOWN:
            return None
        if artifact.pk not in self._known:
            try:
                text = "".join(text_of_source(artifact)).replace("\r\n", "\n")
            except (BlobDamaged, BlobMissing, EvidenceWithoutText):
                text = None
            self._known[artifact.pk] = text
        return self._known[artifact.pk]


def cited_lines(cited: Evidence, text: str) -> list[ShownLine]:
    """The cited lines with a few around them; of a quote the lines that it stands in first.

    Nothing for a citation of the whole, and for one that is not there any more.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    quote = (cited.quote or "").replace("\r\n", "\n")
    first, last = cited.start_line, cited.end_line
    if first is None or last is None:
        at = text.find(quote) if quote else -1
        if at < 0:
            return []
        first = text.count("\n", 0, at) + 1
        last = first + quote.count("\n")
    if last > len(lines):
        return []
    spans = _spans(lines, first, last, quote)
    numbers = range(max(1, first - _AROUND), min(len(lines), last + _AROUND) + 1)
    left_out = len(numbers) - _MOST_LINES
    shown: list[ShownLine] = []
    for place, number in enumerate(numbers):
        cut = _MOST_LINES - _LAST_LINES
        if left_out > 0 and cut <= place < cut + left_out:
            if place == cut:
                told = f"… {left_out:,} lines that are not shown …"
                shown.append(ShownLine(number=None, html=told, cited=True))
            continue
        line = lines[number - 1]
        long = f"{line[:_LONGEST_LINE]}…" if len(line) > _LONGEST_LINE else line
        spoken = [span for span in spans.get(number, ()) if span["end"] <= len(long)]
        html = passage_html(long, spoken, says="")
        shown.append(ShownLine(number=number, html=html, cited=first <= number <= last))
    return shown


def _spans(lines: list[str], first: int, last: int, quote: str) -> dict[int, list[dict[str, Any]]]:
    """Where the quote stands in each of its lines, as marks of a passage."""
    whole = "\n".join(lines[first - 1 : last])
    start = whole.find(quote) if quote else -1
    if start < 0:
        return {}
    return dict(_spans_of(lines, first, start, start + len(quote)))


def _spans_of(
    lines: list[str], first: int, start: int, end: int
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    at = 0
    for number in range(first, len(lines) + 1):
        length = len(lines[number - 1])
        begin, stop = max(start - at, 0), min(end - at, length)
        if begin < stop:
            yield number, [{"start": begin, "end": stop, "family": "quote"}]
        at += length + 1
        if at >= end:
            return
