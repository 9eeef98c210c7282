"""Two versions of a document beside each other, with the words that differ."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from knowledge.admin.document_page import (
    opened,
    page_asked,
    positive_number,
    set_to_show,
    version_numbered,
)
from knowledge.core.comparison import Kind, Run, aligned, word_differences
from knowledge.models import Chunk, ChunkSet, Document, DocumentVersion
from knowledge.passage_html import visible_html

_PASSAGES_AT_ONCE: Final = 6
"""On each side of one comparison of words: what is longer is compared piece by piece."""
_CHANGES_ON_PAGE: Final = 10
_CONTEXT: Final = 300
_SECONDS_FOR_PAGE: Final = 2.0
_SECONDS_FOR_CHANGE: Final = 0.5


def comparison_context(request: HttpRequest, document: Document) -> dict[str, Any]:
    """The versions that the address names as `from` and `to`; `Http404` for one that is not."""
    old, new = (
        version_numbered(document, positive_number(request.GET.get(name, "")))
        for name in ("from", "to")
    )
    sides = [_Side(version) for version in (old, new)]
    runs = aligned(sides[0].keys, sides[1].keys)
    pieces = [piece for run in runs for piece in _pieces(run)]
    changes = [piece for piece in pieces if not piece.same]
    pages = max(1, math.ceil(len(changes) / _CHANGES_ON_PAGE))
    page = page_asked(request, pages)
    on_page = changes[(page - 1) * _CHANGES_ON_PAGE : page * _CHANGES_ON_PAGE]
    sides[0].read([range(piece.old_start, piece.old_end) for piece in on_page])
    sides[1].read([range(piece.new_start, piece.new_end) for piece in on_page])
    return {
        "title": f"Versions {old.version} and {new.version} of {document.title}",
        "document": document,
        "versions_compared": (old, new),
        "old": old,
        "new": new,
        "rows": _rows(pieces, on_page, sides),
        "changes": len(changes),
        "unchanged": sum(piece.old_end - piece.old_start for piece in pieces if piece.same),
        "query": f"from={old.version}&to={new.version}",
        "page": page,
        "pages": pages,
    }


class _Side:
    """The passages of one version. Their text is read only where it is compared."""

    def __init__(self, version: DocumentVersion) -> None:
        self.chunk_set: ChunkSet | None = set_to_show(version)
        rows = Chunk.objects.filter(chunk_set=self.chunk_set).order_by("ordinal")
        self.ordinals: list[int] = []
        self.keys: list[tuple[tuple[str, ...], str]] = []
        for ordinal, path, sha256 in rows.values_list("ordinal", "heading_path", "content_sha256"):
            self.ordinals.append(ordinal)
            self.keys.append((tuple(path), sha256))
        self._texts: dict[int, str] = {}

    def read(self, ranges: Sequence[range]) -> None:
        wanted = [self.ordinals[index] for each in ranges for index in each]
        rows = Chunk.objects.filter(chunk_set=self.chunk_set, ordinal__in=wanted)
        self._texts = dict(rows.values_list("ordinal", "text"))

    def text(self, start: int, end: int) -> str:
        """Passages with the headings that open before them, a blank line between."""
        parts: list[str] = []
        above = self.keys[start - 1][0] if start else ()
        for index in range(start, end):
            path = self.keys[index][0]
            parts += [f"{'#' * depth} {title}" for depth, title in opened(above, path)]
            parts.append(self._texts.get(self.ordinals[index], ""))
            above = path
        return "\n\n".join(parts)


def _pieces(run: Run) -> list[Run]:
    """A long replaced run in pieces of a bounded size, each side cut in proportion."""
    old, new = run.old_end - run.old_start, run.new_end - run.new_start
    count = math.ceil(max(old, new) / _PASSAGES_AT_ONCE)
    if run.same or count <= 1:
        return [run]
    return [
        Run(
            False,
            run.old_start + old * number // count,
            run.old_start + old * (number + 1) // count,
            run.new_start + new * number // count,
            run.new_start + new * (number + 1) // count,
        )
        for number in range(count)
    ]


def _rows(
    pieces: Sequence[Run], on_page: Sequence[Run], sides: Sequence[_Side]
) -> list[dict[str, Any]]:
    """What the page shows from top to bottom: changes, and how much stayed between them."""
    if not on_page:
        return []
    first, last = pieces.index(on_page[0]), pieces.index(on_page[-1])
    deadline = time.monotonic() + _SECONDS_FOR_PAGE
    rows: list[dict[str, Any]] = []
    for piece in pieces[max(first - 1, 0) : last + 2]:
        if piece.same:
            rows.append({"unchanged": piece.old_end - piece.old_start})
        elif piece in on_page:
            old = sides[0].text(piece.old_start, piece.old_end)
            new = sides[1].text(piece.new_start, piece.new_end)
            left = min(_SECONDS_FOR_CHANGE, deadline - time.monotonic())
            differences = word_differences(old, new, seconds=left)
            rows.append(
                {
                    "old": side_html(differences, Kind.REMOVED),
                    "new": side_html(differences, Kind.ADDED),
                    "path": (sides[1].keys[piece.new_start : piece.new_end] or [((), "")])[0][0]
                    or (sides[0].keys[piece.old_start : piece.old_end] or [((), "")])[0][0],
                }
            )
    return rows


_SHOWN = {
    # Said as well as coloured, for whoever hears the page.
    Kind.REMOVED: '<del><span class="said">[removed: </span>{}<span class="said">]</span></del>',
    Kind.ADDED: '<ins><span class="said">[added: </span>{}<span class="said">]</span></ins>',
}


def side_html(differences: Sequence[tuple[Kind, str]], changed: Kind) -> SafeString:
    last = len(differences) - 1
    return format_html_join(
        "",
        "{}",
        (
            (
                _same_html(text, first=place == 0, last=place == last)
                if kind is Kind.SAME
                else format_html(_SHOWN[kind], visible_html(text)),
            )
            for place, (kind, text) in enumerate(differences)
            if kind in {Kind.SAME, changed}
        ),
    )


def _same_html(text: str, *, first: bool, last: bool) -> SafeString:
    """What stayed, as far as it stands near something that did not."""
    before = 0 if first else _CONTEXT
    after = 0 if last else _CONTEXT
    left_out = len(text) - before - after
    if left_out <= _CONTEXT:
        return visible_html(text)
    return format_html(
        '{}<span class="left-out">… {} characters that are the same …</span>{}',
        visible_html(text[:before]),
        f"{left_out:,}",
        visible_html(text[len(text) - after :]),
    )
