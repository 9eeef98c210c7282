"""A normalised text as sections and blocks: what may be cut from what, and under which heading.

Every non-blank line after the front matter is in exactly one block or is the heading line of
exactly one section. Offsets are in characters into the whole text, ends are exclusive, and
neither blocks nor heading lines hold the line end that follows them.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from itertools import accumulate, pairwise

import yaml
from markdown_it.token import Token

from knowledge.core.markdown_blocks import block_tokens
from knowledge.core.normalising import MARKDOWN_TYPES
from knowledge.core.types import Structure

LONGEST_HEADING = 500
"""Characters. What is longer is text: a heading path is shown with every passage below it."""

LONGEST_FRONT_MATTER = 65_536
"""Characters. What is longer is text: nothing of that size may vanish as metadata."""

ROOT = 0
"""The number of the section that holds what comes before the first heading; its path is empty."""


# --- front matter ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """What a Markdown file says of itself before its text; `end` is 0 when it says nothing.

    `end` is the offset at which the text begins. `readable` is false when there is front matter
    and it is no plain YAML mapping; then it has neither title nor date.
    """

    title: str | None = None
    doc_date: date | None = None
    end: int = 0
    readable: bool = True


# A thematic break may stand in the first line too, so the first line below it must look like a
# key, directly or after comments.
_FRONT_MATTER = re.compile(
    r"---[ \t\r]*\n"
    r"(?P<yaml>(?:#[^\n]*\n)*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s#\-\[\]{}>|*&!%@`\"',?:][^\n]*?):(?=[ \t\r\n])"
    r"[^\n]*\n(?:(?!(?:---|\.\.\.)[ \t\r]*(?:\n|\Z))[^\n]*\n)*)"
    r"(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)"
)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt ]\s*\d{1,2}:\d{2}.*)?", re.DOTALL)


def front_matter(text: str) -> FrontMatter:
    """The front matter at the very start of `text`, normalised or not. Never fails.

    The date is `date` as written: a plain date is itself, a date and time its calendar day in
    the offset it is written in, whatever the time zone of this process; an impossible one is
    none.
    """
    found = _front_matter_match(text)
    if not found:
        return FrontMatter()
    try:
        values = dict(_top_level_scalars(found["yaml"]))
    except (yaml.YAMLError, RecursionError):
        return FrontMatter(end=found.end(), readable=False)
    return FrontMatter(
        title=" ".join(values.get("title", "").split()) or None,
        doc_date=_calendar_day(values.get("date", "")),
        end=found.end(),
    )


def front_matter_end(text: str) -> int:
    """Where the text begins after front matter, without reading what that says."""
    found = _front_matter_match(text)
    return found.end() if found else 0


def _front_matter_match(text: str) -> re.Match[str] | None:
    return _FRONT_MATTER.match(text[:LONGEST_FRONT_MATTER]) if text.startswith("---") else None


class _PlainLoader(yaml.BaseLoader):
    """Composes nodes without building objects, and refuses aliases, which can grow without end."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def _top_level_scalars(source: str) -> Iterator[tuple[str, str]]:
    root = yaml.compose(source, Loader=_PlainLoader)
    if not isinstance(root, yaml.MappingNode):
        raise yaml.YAMLError("not a mapping")
    for key, value in root.value:
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
            yield str(key.value).lower(), str(value.value)


def _calendar_day(written: str) -> date | None:
    found = _DATE.fullmatch(written.strip())
    if not found:
        return None
    try:
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return None


# --- the outline -----------------------------------------------------------------------------


class Kind(StrEnum):
    """What a block is, as far as anyone asks: whether its lines are the author's own."""

    PARAGRAPH = "paragraph"
    TABLE = "table"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, fence, table, quote, HTML block or other run of lines.

    `cuts` are the places where a block inside it begins, as (depth, offset of a line start), in
    the order of the text; the best places to cut it when it is too large.
    """

    start: int
    end: int
    cuts: tuple[tuple[int, int], ...] = ()
    kind: Kind = Kind.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The blocks between one heading and the next.

    `heading` is the span of the heading's lines; `None` when no line of the text is the heading
    (an outline's title that the page does not repeat) or when the section goes on with its
    parent's text. `parent` is the parent's number among the sections, `None` for the root.
    """

    path: tuple[str, ...]
    parent: int | None
    blocks: tuple[Block, ...]
    heading: Block | None = None
    continues_parent: bool = False


@dataclass(slots=True)
class _Entry:
    """A heading or a block while sections are being built. Lines are 0-based, ends exclusive."""

    first: int
    last: int
    title: str | None = None
    level: int = 0
    cuts: tuple[tuple[int, int], ...] = ()
    kind: Kind = Kind.OTHER


@dataclass(slots=True)
class _Open:
    level: int
    title: str
    parent: int | None
    heading: Block | None
    blocks: list[Block] = field(default_factory=list)
    children: int = 0


class Lines:
    """The lines of a text by number; split at LF alone."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self._lines)]

    def __len__(self) -> int:
        return len(self._lines)

    def is_blank(self, number: int) -> bool:
        line = self._lines[number]
        return not line or line.isspace()

    def number_at(self, offset: int) -> int:
        """The 0-based number of the line that the character at `offset` is in."""
        return bisect_right(self.starts, offset, hi=len(self)) - 1

    def content(self, number: int) -> str:
        return self._lines[number]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Offsets of the lines `first` to `last` (exclusive), without the final line end."""
        return self.starts[first], self.starts[last] - 1

    def trimmed(self, first: int, last: int) -> tuple[int, int] | None:
        """The line range without blank lines at either end; `None` when nothing else is in it."""
        while first < last and self.is_blank(first):
            first += 1
        while first < last and self.is_blank(last - 1):
            last -= 1
        return (first, last) if first < last else None


def sections(lines: Lines, *, media_type: str, structure: Structure) -> list[Section]:
    """The sections of a text in order, the root first.

    A heading with neither text nor another heading below it is text of its parent. A heading
    longer than `LONGEST_HEADING` and one without words are text. Headings of `structure` count
    for every media type but Markdown, which has its own.
    """
    if media_type in MARKDOWN_TYPES:
        entries = _markdown_entries(lines)
    else:
        entries = _plain_entries(lines, structure)
    return _closed(_opened(lines, entries))


def _opened(lines: Lines, entries: Iterable[_Entry]) -> list[_Open]:
    opened = [_Open(level=0, title="", parent=None, heading=None)]
    chain = [ROOT]
    for entry in entries:
        block = (
            Block(*lines.span(entry.first, entry.last), entry.cuts, entry.kind)
            if entry.last > entry.first
            else None
        )
        if entry.title is None:
            if block:
                opened[-1].blocks.append(block)
            continue
        while opened[chain[-1]].level >= entry.level:
            chain.pop()
        opened[chain[-1]].children += 1
        chain.append(len(opened))
        opened.append(_Open(level=entry.level, title=entry.title, parent=chain[-2], heading=block))
    return opened


def _closed(opened: Sequence[_Open]) -> list[Section]:
    """Sections with their paths, where headings above nothing have become their parent's text."""
    paths: list[tuple[str, ...]] = []
    numbers: list[int] = []
    built: list[Section] = []
    for each in opened:
        above = paths[each.parent] if each.parent is not None else ()
        parent = numbers[each.parent] if each.parent is not None else None
        is_text = parent is not None and not each.blocks and not each.children
        paths.append(above if is_text else (*above, each.title) if each.title else above)
        numbers.append(len(built))
        if not is_text:
            built.append(
                Section(
                    path=paths[-1],
                    parent=parent,
                    blocks=tuple(each.blocks),
                    heading=each.heading,
                )
            )
        elif each.heading:
            built.append(
                Section(path=above, parent=parent, blocks=(each.heading,), continues_parent=True)
            )
    return built


# --- Markdown --------------------------------------------------------------------------------


def _markdown_entries(lines: Lines) -> Iterator[_Entry]:
    body = front_matter_end(lines.text)
    first = lines.number_at(body)
    tokens = block_tokens(lines.text[body:])
    yield from _without_gaps(lines, first, _entries_of_tokens(lines, first, tokens))


def _entries_of_tokens(lines: Lines, offset: int, tokens: Sequence[Token]) -> Iterator[_Entry]:
    """An entry for each block at the top level, and for each item of a list there."""
    entry: _Entry | None = None
    cuts: list[tuple[int, int]] = []
    for index, token in enumerate(tokens):
        if token.map is None:
            continue
        first, last = token.map[0] + offset, token.map[1] + offset
        in_list_of_top_level = token.level == 1 and token.type == "list_item_open"
        if token.level and not in_list_of_top_level:
            if token.nesting >= 0 and token.type != "inline":
                cuts.append((token.level, lines.starts[first]))
            continue
        if entry:
            yield _with_cuts(entry, cuts)
        cuts = []
        if token.type in {"bullet_list_open", "ordered_list_open"}:
            entry = None
        elif token.type == "heading_open":
            entry = _heading(first, last, int(token.tag[1:]), tokens[index + 1].content)
        else:
            entry = _Entry(first, last, kind=_KINDS.get(token.type, Kind.OTHER))
    if entry:
        yield _with_cuts(entry, cuts)


_KINDS = {"paragraph_open": Kind.PARAGRAPH, "table_open": Kind.TABLE}


def _with_cuts(entry: _Entry, cuts: Sequence[tuple[int, int]]) -> _Entry:
    entry.cuts = tuple(cuts)
    return entry


def _heading(first: int, last: int, level: int, content: str) -> _Entry:
    title = " ".join(line.strip() for line in content.split("\n")).strip()
    if not title or len(title) > LONGEST_HEADING:
        return _Entry(first, last)
    return _Entry(first, last, title, level)


def _without_gaps(lines: Lines, first: int, entries: Iterable[_Entry]) -> Iterator[_Entry]:
    """The entries, grown so that they hold every non-blank line from `first` on.

    Link definitions have no token of their own: they go with the block before them, or stand
    alone where there is none.
    """
    held: _Entry | None = None
    done = first
    for entry in [*entries, _Entry(len(lines), len(lines))]:
        start = max(entry.first, done)
        gap = lines.trimmed(done, start)
        if gap and held and held.title is None:
            held.last = gap[1]
        elif gap:
            if held:
                yield held
            held = _Entry(*gap)
        own = lines.trimmed(start, entry.last)
        if own:
            if held:
                yield held
            entry.first, entry.last = own
            held = entry
        done = max(done, entry.last, start)
    if held:
        yield held


# --- text without markup ---------------------------------------------------------------------


def _plain_entries(lines: Lines, structure: Structure) -> Iterator[_Entry]:
    """Paragraphs, and the headings that came with the text, each at the line it points into."""
    done = 0
    for heading in sorted(structure.headings, key=lambda heading: heading.start):
        title = unicodedata.normalize("NFC", " ".join(heading.title.split()))
        if not title or len(title) > LONGEST_HEADING:
            continue
        first = max(lines.number_at(min(heading.start, len(lines.text))), done)
        yield from _paragraphs(lines, done, first)
        repeated = _line_that_says(lines, title, first)
        last = first if repeated is None else repeated + 1
        yield _Entry(first if repeated is None else repeated, last, title, max(heading.level, 1))
        done = last
    yield from _paragraphs(lines, done, len(lines))


def _line_that_says(lines: Lines, title: str, first: int) -> int | None:
    """The number of the first non-blank line from `first` on when it is the title itself.

    Only then is it a heading line; a title that the page words otherwise leaves the line text.
    """
    found = next((n for n in range(first, len(lines)) if not lines.is_blank(n)), None)
    if found is None or " ".join(lines.content(found).split()) != title:
        return None
    return found


def _paragraphs(lines: Lines, first: int, last: int) -> Iterator[_Entry]:
    borders = [
        first - 1,
        *(number for number in range(first, last) if lines.is_blank(number)),
        last,
    ]
    for before, after in pairwise(borders):
        if after > before + 1:
            yield _Entry(before + 1, after, kind=Kind.PARAGRAPH)


__all__ = [
    "LONGEST_FRONT_MATTER",
    "LONGEST_HEADING",
    "ROOT",
    "Block",
    "FrontMatter",
    "Kind",
    "Lines",
    "Section",
    "front_matter",
    "front_matter_end",
    "sections",
]
