"""Chunker `structure-1`: structure first, size second, no overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import regex

from knowledge.core.blocks import arranged
from knowledge.core.errors import EmptyExtraction
from knowledge.core.ports import TokenCounter
from knowledge.core.profiles import DEFAULT, ChunkingProfile
from knowledge.core.structure import ROOT, Block, Lines, Section, sections
from knowledge.core.types import ChunkDraft, Structure

# A character that joins the one before it would be torn off by a cut between the two.
_NOT_A_JOINER = r"(?![\s\p{M}\p{Cf}])"
_SENTENCE_END = regex.compile(
    r"(?:[.!?…]+[\"'’”»)\]]*\s+|[。！？｡][\"'’”）」』】]*\s*)" + _NOT_A_JOINER
)
_WORD_END = regex.compile(r"\s+" + _NOT_A_JOINER)
_GRAPHEME = regex.compile(r"\X")
_SPACES = regex.compile(r"\s+")
_LONGEST_TAIL = 200
_REMEMBERED_JOINS = 16_384
_LONGEST_REMEMBERED_JOIN = 40


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is never cut any more: a block, or a piece of one that was above the ceiling.

    An `apart` unit never joins the one before it: the two are pieces of one line, or a lone CR at
    the start of the line would make the joint count differ from the sum.
    """

    start: int
    end: int
    tokens: int
    apart: bool = False


@dataclass(slots=True)
class _Draft:
    """A chunk while it grows: its units, and the sections whose text it holds, first one first."""

    path: tuple[str, ...]
    units: list[_Unit]
    tokens: int
    members: list[int] = field(default_factory=list)


def require_chunks(drafts: list[ChunkDraft]) -> list[ChunkDraft]:
    """The drafts; raises `EmptyExtraction` when there are none, for there is nothing to quote."""
    if not drafts:
        raise EmptyExtraction
    return drafts


class _JoinCost:
    """Tokens that line ends add after the text before them.

    Remembered for short texts: the same few words end paragraphs in every document.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._remembered = lru_cache(_REMEMBERED_JOINS)(self._counted)

    def __call__(self, tail: str, line_ends: str) -> int:
        if len(tail) + len(line_ends) > _LONGEST_REMEMBERED_JOIN:
            return self._counted(tail, line_ends)
        return self._remembered(tail, line_ends)

    def _counted(self, tail: str, line_ends: str) -> int:
        joined, alone = self._counter.counts([tail + line_ends, tail])
        return joined - alone


class StructureChunker:
    """Cuts normalised text by the six rules of `structure-1`.

    Pure and deterministic. The counter must cut lines and words before it merges anything into
    tokens, as every GPT-style tokenizer does: then a count is additive where a line begins, and
    the tokens of a chunk are known exactly without counting its text a second time.
    """

    version = "structure-1"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._join_cost = _JoinCost(counter)

    def chunk(
        self,
        text: str,
        *,
        title: str,  # noqa: ARG002 - the port offers it; boundaries depend on the text alone
        media_type: str,
        structure: Structure,
        profile: ChunkingProfile = DEFAULT,
    ) -> list[ChunkDraft]:
        """The chunks in order; none when there is no text but front matter and blank lines."""
        lines = Lines(text)
        outline = arranged(
            sections(lines, media_type=media_type, structure=structure),
            lines,
            media_type=media_type,
            blocks=profile.blocks,
        )
        packer = _Packer(lines, outline, self._counter, profile, self._join_cost)
        return [
            _chunk_draft(ordinal, draft, lines, structure.page_starts)
            for ordinal, draft in enumerate(packer.pack())
        ]


def _chunk_draft(
    ordinal: int, draft: _Draft, lines: Lines, page_starts: Sequence[int]
) -> ChunkDraft:
    start, end = draft.units[0].start, draft.units[-1].end
    return ChunkDraft(
        ordinal=ordinal,
        heading_path=draft.path,
        text=lines.text[start:end],
        start=start,
        end=end,
        line_start=lines.number_at(start) + 1,
        line_end=lines.number_at(end - 1) + 1,
        page_start=_page(page_starts, start),
        page_end=_page(page_starts, end - 1),
        tokens=draft.tokens,
    )


def _page(page_starts: Sequence[int], offset: int) -> int | None:
    """The 1-based page of an offset; what stands before the first page start is on page 1."""
    return max(bisect_right(page_starts, offset), 1) if page_starts else None


class _Packer:
    """Rules 2 to 5 over the sections of one text."""

    def __init__(
        self,
        lines: Lines,
        outline: Sequence[Section],
        counter: TokenCounter,
        profile: ChunkingProfile,
        join_cost: _JoinCost,
    ) -> None:
        self._lines = lines
        self._text = lines.text
        self._outline = outline
        self._profile = profile
        self._counter = counter
        self._cutter = _Cutter(lines, counter, profile)
        self._join_cost = join_cost
        self._small: set[int] = set()

    def pack(self) -> list[_Draft]:
        counted = iter(self._counted(block for each in self._outline for block in each.blocks))
        drafts: list[_Draft] = []
        for number, section in enumerate(self._outline):
            units = [
                unit
                for block in section.blocks
                for unit in self._cutter.units(block, next(counted).tokens)
            ]
            if not units:
                continue
            owner = section.parent if section.continues_parent else None
            own = self._filled(section.path, number if owner is None else owner, units)
            if not self._merged(section, number, own, drafts):
                drafts += own
        return drafts

    def _counted(self, blocks: Iterator[Block]) -> list[_Unit]:
        every = list(blocks)
        counts = self._counter.counts([self._text[block.start : block.end] for block in every])
        return [
            _Unit(block.start, block.end, tokens)
            for block, tokens in zip(every, counts, strict=True)
        ]

    def _filled(self, path: tuple[str, ...], number: int, units: Sequence[_Unit]) -> list[_Draft]:
        """The units of one section in chunks of at most the target, or of one unit."""
        drafts: list[_Draft] = []
        for unit in units:
            if drafts:
                cost = self._cost_of_joining(drafts[-1].units[-1], unit)
                tokens = drafts[-1].tokens + cost + unit.tokens
                if tokens <= self._profile.target and not unit.apart:
                    drafts[-1].units.append(unit)
                    drafts[-1].tokens = tokens
                    continue
            drafts.append(_Draft(path, [unit], unit.tokens, [number]))
        return drafts

    def _merged(
        self, section: Section, number: int, own: Sequence[_Draft], drafts: list[_Draft]
    ) -> bool:
        """Rule 4: put a section below the floor into the chunk right before it, if it may."""
        if len(own) > 1 or own[0].tokens >= self._profile.floor:
            return False
        if not section.continues_parent:
            self._small.add(number)
        into = self._upwards(section, drafts[-1]) if drafts else None
        heading = self._counted(iter([section.heading])) if section.heading else []
        if not into or not self._append(into, [*heading, *own[0].units]):
            return False
        into.members.append(number)
        drafts[-1] = into
        return True

    def _upwards(self, section: Section, before: _Draft) -> _Draft | None:
        """The chunk that a small section may merge into, if the one before it is such a chunk.

        A section whose heading is no line of the text never merges: its title would be lost. The
        text before the first heading is no section that others could belong to.
        """
        if section.continues_parent:
            return before if section.parent in before.members else None
        if section.parent == ROOT or not section.heading:
            return None
        return before if section.parent in before.members else self._opened_parent(section, before)

    def _opened_parent(self, section: Section, before: _Draft) -> _Draft | None:
        """The chunk before, as if its section had been merged into a parent without text.

        A heading that goes straight on to small subsections has no chunk that they could merge
        into; the first two of them make one.
        """
        first = before.members[0]
        child = self._outline[first]
        if (
            section.parent is None
            or child.parent != section.parent
            or not child.heading
            or first not in self._small
            or first != section.parent + 1
            or self._outline[section.parent].blocks
        ):
            return None
        opened = _Draft(
            path=self._outline[section.parent].path,
            units=self._counted(iter([child.heading])),
            tokens=0,
            members=[section.parent, *before.members],
        )
        opened.tokens = opened.units[0].tokens
        return opened if self._append(opened, before.units) else None

    def _append(self, draft: _Draft, units: Sequence[_Unit]) -> bool:
        """Put units at the end of a chunk, unless that takes it above the ceiling."""
        tokens, last = draft.tokens, draft.units[-1]
        for unit in units:
            tokens += self._cost_of_joining(last, unit) + unit.tokens
            last = unit
            if unit.apart or tokens > self._profile.ceiling:
                return False
        draft.units += units
        draft.tokens = tokens
        return True

    def _cost_of_joining(self, before: _Unit, after: _Unit) -> int:
        """Tokens that the line ends between two units add to the sum of theirs.

        They depend on the last word before them alone, so that is all that is counted.
        """
        return self._join_cost(self._tail(before), self._text[before.end : after.start])

    def _tail(self, unit: _Unit) -> str:
        """The end of a unit from a place on where counts are additive: a single space before a
        word, else the whole unit."""
        text = self._text
        space = text.rfind(" ", max(unit.start, unit.end - _LONGEST_TAIL), unit.end)
        alone = space > unit.start and not (text[space - 1].isspace() or text[space + 1].isspace())
        return text[space if alone else unit.start : unit.end]


class _Cutter:
    """Rule 3: a block above the ceiling as pieces that are not."""

    def __init__(self, lines: Lines, counter: TokenCounter, profile: ChunkingProfile) -> None:
        self._lines = lines
        self._text = lines.text
        self._counter = counter
        self._profile = profile
        self._has_lone_cr = "\r" in lines.text

    def units(self, block: Block, tokens: int) -> list[_Unit]:
        """The block itself, or where it is above the ceiling the blocks inside it, its lines, or
        pieces of its lines; the largest of these that fit."""
        if tokens <= self._profile.ceiling:
            return [self._unit(block.start, block.end, tokens)]
        parts = self._parts(block)
        if not parts:
            return self._pieces(block.start, block.end)
        counts = self._counter.counts([self._text[part.start : part.end] for part in parts])
        return [
            unit
            for part, count in zip(parts, counts, strict=True)
            for unit in self.units(part, count)
        ]

    def _unit(self, start: int, end: int, tokens: int) -> _Unit:
        return _Unit(start, end, tokens, apart=self._has_lone_cr and self._starts_with_cr(start))

    def _starts_with_cr(self, start: int) -> bool:
        space = _SPACES.match(self._text, start)
        return space is not None and "\r" in space.group()

    def _parts(self, block: Block) -> list[Block]:
        """The block cut where the outermost blocks inside it begin, else at each line."""
        inner = [(depth, offset) for depth, offset in block.cuts if offset > block.start]
        if not inner:
            return self._single_lines(block)
        outermost = min(depth for depth, _ in inner)
        borders = sorted({offset for depth, offset in inner if depth == outermost})
        return [
            part
            for start, end in pairwise([block.start, *borders, block.end + 1])
            if (part := self._part(block, start, end)) is not None
        ]

    def _part(self, block: Block, start: int, end: int) -> Block | None:
        kept = len(self._text[start:end].rstrip())
        cuts = tuple((depth, offset) for depth, offset in block.cuts if start < offset < end)
        return Block(start, start + kept, cuts) if kept else None

    def _single_lines(self, block: Block) -> list[Block]:
        first, last = self._lines.number_at(block.start), self._lines.number_at(block.end)
        if first == last:
            return []
        return [
            Block(*self._lines.span(number, number + 1))
            for number in range(first, last + 1)
            if not self._lines.is_blank(number)
        ]

    # --- one line ----------------------------------------------------------------------------

    def _pieces(self, start: int, end: int) -> list[_Unit]:
        """One line in pieces of about the target, which together are the whole line.

        White space stays at the end of the piece before the cut; a run of it that a cut would
        fall into lies between the pieces, as blank lines lie between chunks.
        """
        pieces: list[_Unit] = []
        at = start
        while at < end:
            stop, tokens = self._reach(at, end)
            following = stop
            if stop < end:
                stop, following = self._best_cut(at, stop)
                tokens = self._count(at, stop)
            while tokens > self._profile.ceiling:
                following = stop = at + max((stop - at) // 2, 1)
                tokens = self._count(at, stop)
            if not self._text[at:stop].isspace() and stop > at:
                pieces.append(_Unit(at, stop, tokens, apart=bool(pieces)))
            at = following
        return pieces

    def _count(self, start: int, end: int) -> int:
        return self._counter.count(self._text[start:end])

    def _reach(self, start: int, end: int) -> tuple[int, int]:
        """How far from `start` the target goes, nearly, and the tokens up to there.

        All the way to `end` when what is left is within the ceiling.
        """
        target, left = self._profile.target, end - start
        size = min(left, 4 * target)
        shrunk = False
        while True:
            tokens = self._count(start, start + size)
            if size == left and tokens <= self._profile.ceiling:
                break
            enough = tokens * 10 >= target * 9
            if tokens <= target and (shrunk or enough):
                break
            scaled = size * target * 19 // (20 * max(tokens, 1))
            if tokens > target:
                shrunk = True
                size = max(min(scaled, size - 1), 1)
            else:
                size = min(max(scaled, size + 1), 8 * size, left)
        return start + size, tokens

    def _best_cut(self, start: int, stop: int) -> tuple[int, int]:
        """Where to end a piece that may reach to `stop`, and where the next one begins."""
        text = self._text
        if text[stop - 1].isspace() and text[stop].isspace():
            space = _SPACES.match(text, stop)
            return (
                start + len(text[start:stop].rstrip()),
                space.end() if space else stop,
            )
        for border in (_SENTENCE_END, _WORD_END):
            ends = [
                match.end()
                for match in border.finditer(text, start, stop + 1)
                if match.end() <= stop and not text[start : match.end()].isspace()
            ]
            if ends:
                return ends[-1], ends[-1]
        return self._last_grapheme_border(start, stop)

    def _last_grapheme_border(self, start: int, stop: int) -> tuple[int, int]:
        """The last border between grapheme clusters, else `stop` inside one that is too large."""
        last = start
        for match in _GRAPHEME.finditer(self._text, start):
            if match.end() > stop:
                break
            last = match.end()
        return (last, last) if last > start else (stop, stop)
