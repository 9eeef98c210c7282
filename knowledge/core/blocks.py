"""The blocks of a section as a profile wants them: the turns of a transcript, the rows of a table.

Blocks are only grouped or cut at the beginnings of lines, so every non-blank line stays in exactly
one of them and order is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from knowledge.core.profiles import Blocks
from knowledge.core.structure import Block, Kind, Lines, Section

RECORD_TYPES = frozenset({"text/csv", "text/tab-separated-values"})

_DAY = r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}"
_INSTANT = rf"(?:{_DAY},?[T ])?\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?Z?"
_NAME = r"[^\W\d_][\w.'’-]*(?: [\w.'’()-]+){0,2}"
# A line that opens a turn, as people's and programs' transcripts write it: a speaker and a colon
# (`Alice: `, `**Alice:** `, `Alice (10:02): `), a time before them (`[10:02] Alice: `,
# `12/03/24, 10:15 - Alice: `), a time and no colon (`[10:02] hello`), a name in angle brackets
# (`<alice> `), or an object of its own (`{"role": ...`).
_OPENS_TURN = re.compile(
    r" {0,3}(?:[-*+>] )?(?:"
    rf"(?:[\[(]?{_INSTANT}[\])]?,? ?(?:[-–—|] )?)?(?:"
    rf"(?:\*\*|__)?{_NAME}(?: [\[(]{_INSTANT}[\])])?(?:\*\*|__)?:(?:\*\*|__)?(?: |$)"
    r"|<[^<>\s/]{1,39}> )"
    rf"|[\[(]{_INSTANT}[\])] "
    r"| {0,8}\{)"
)
_LONGEST_OPENING = 200

# A line in columns: fields apart by a bar, or by a gap that is not the one after a sentence.
_COLUMNS = re.compile(r"\s*\||.*?(?:[^\s.!?:] {2,}|\S\s*\|\s*)\S")


def arranged(
    outline: Iterable[Section], lines: Lines, *, media_type: str, blocks: Blocks
) -> list[Section]:
    """The sections with their blocks grouped or cut as `blocks` says."""
    match blocks:
        case Blocks.STRUCTURE:
            return list(outline)
        case Blocks.TURNS:
            return [_with(section, _turns(section.blocks, lines)) for section in outline]
        case Blocks.ROWS:
            rows = _records if media_type in RECORD_TYPES else _rows
            return [_with(section, rows(section.blocks, lines)) for section in outline]


def _with(section: Section, blocks: Iterable[Block]) -> Section:
    return replace(section, blocks=tuple(blocks))


# --- turns -----------------------------------------------------------------------------------


def _turns(blocks: Iterable[Block], lines: Lines) -> Iterator[Block]:
    """Blocks grouped so that each turn is one; what comes before the first turn stays as it is."""
    turn: Block | None = None
    for block in blocks:
        for part in _cut_before(block, lines, _opens_turn):
            if _opens_turn(lines, lines.number_at(part.start)):
                if turn:
                    yield turn
                turn = part
            elif turn:
                turn = _joined(turn, part)
            else:
                yield part
    if turn:
        yield turn


def _opens_turn(lines: Lines, number: int) -> bool:
    return _OPENS_TURN.match(lines.content(number)[:_LONGEST_OPENING]) is not None


def _joined(turn: Block, block: Block) -> Block:
    # Depth 0: a turn that is too large is cut between its blocks before it is cut inside one.
    return replace(turn, end=block.end, cuts=(*turn.cuts, (0, block.start), *block.cuts))


# --- rows ------------------------------------------------------------------------------------


def _rows(blocks: Iterable[Block], lines: Lines) -> Iterator[Block]:
    for block in blocks:
        if block.kind is Kind.TABLE:
            yield from _cut_before(block, lines, _BelowHeader(lines.number_at(block.start)))
        elif _is_in_columns(block, lines):
            yield from _cut_before(block, lines, _every_line)
        else:
            yield block


def _records(blocks: Sequence[Block], lines: Lines) -> Iterator[Block]:
    """The records of a CSV, over several lines where a quoted field holds line ends.

    After a quote that is never closed there is one last block, which is cut like any other that
    is too large.
    """
    if blocks:
        whole = Block(blocks[0].start, blocks[-1].end, kind=Kind.PARAGRAPH)
        yield from _cut_before(whole, lines, _BeginsRecord())


class _BeginsRecord:
    def __init__(self) -> None:
        self._quotes = 0

    def __call__(self, lines: Lines, number: int) -> bool:
        self._quotes += lines.content(number - 1).count('"')
        return self._quotes % 2 == 0


@dataclass(frozen=True, slots=True)
class _BelowHeader:
    """Whether a line of a Markdown table begins a row; the header and the line below it are one."""

    header: int

    def __call__(self, lines: Lines, number: int) -> bool:  # noqa: ARG002 - as of the others
        return number > self.header + 1


def _every_line(lines: Lines, number: int) -> bool:  # noqa: ARG001 - as of the others
    return True


def _is_in_columns(block: Block, lines: Lines) -> bool:
    if block.kind is not Kind.PARAGRAPH:
        return False
    numbers = range(lines.number_at(block.start), lines.number_at(block.end) + 1)
    return len(numbers) > 1 and all(_COLUMNS.match(lines.content(number)) for number in numbers)


# --- both ------------------------------------------------------------------------------------


def _cut_before(
    block: Block, lines: Lines, begins: Callable[[Lines, int], bool]
) -> Iterator[Block]:
    """A paragraph or a table cut before each of its lines but the first for which `begins` holds;
    any other block as it is."""
    first, last = lines.number_at(block.start), lines.number_at(block.end)
    borders = [number for number in range(first + 1, last + 1) if begins(lines, number)]
    if block.kind is Kind.OTHER or not borders:
        yield block
        return
    for start, end in pairwise([first, *borders, last + 1]):
        trimmed = lines.trimmed(start, end)
        if trimmed is None:
            continue
        offset, stop = lines.span(*trimmed)
        cuts = tuple(cut for cut in block.cuts if offset < cut[1] < stop)
        yield replace(block, start=offset, end=stop, cuts=cuts)
