"""Normalisation `normal-1`: a closed list of changes, so that "verbatim" has a meaning.

The list, and nothing else: NFC; CRLF to LF; tabs to spaces at the file's own tab width;
trailing spaces stripped; more than two blank lines become two. Lines are split at LF alone.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import regex

from knowledge.core.types import ExtractedDocument, Heading, Structure

NORMALISER_VERSION = "normal-1"

MARKDOWN_TYPES = frozenset({"text/markdown", "text/x-markdown"})
_MARKDOWN_TAB_WIDTH = 4
_PLAIN_TAB_WIDTH = 8
_WIDEST_TAB = 16
_MODELINES_AT_EACH_END = 5
_LONGEST_MODELINE = 1_000
_MOST_BLANK_LINES = 2

# A CR before the end of a line goes with the line end even when there are several of them or
# spaces between: otherwise a second pass would find a new CRLF and change the text again.
_TRAILING = " \r"

_EMACS_TAB_WIDTH = regex.compile(r"-\*-.*?\btab-width:\s*(\d{1,2})\b.*?-\*-", regex.IGNORECASE)
_EMACS_LOCAL_TAB_WIDTH = regex.compile(r"^\W*tab-width:\s*(\d{1,2})\b", regex.IGNORECASE)
_VIM_TAB_WIDTH = regex.compile(
    r"(?:^|\s)(?:vi|vim\d{0,3}|ex)(?=:).*?[\s:](?:ts|tabstop)=(\d{1,2})\b"
)

# CPython sorts a run of combining marks by insertion, which is quadratic; a run that is
# sorted beforehand costs it nothing and is canonically the same text.
_LONG_MARK_RUN = regex.compile(r"\p{M}{64,}")


@dataclass(frozen=True, slots=True)
class NormalisedText:
    """`marks` are offsets in characters into `text`, one for each mark given, in that order."""

    text: str
    marks: tuple[int, ...] = ()


def normalise(text: str, *, media_type: str, marks: Sequence[int] = ()) -> NormalisedText:
    """Apply `normal-1`; offsets into `text` given as `marks` come back as offsets into the result.

    Idempotent, in linear time. A mark inside a combining sequence moves to its end, a mark in
    what was stripped moves to where that was.
    """
    composed, marks_in_order = _compose(text, sorted({_within(text, mark) for mark in marks}))
    lines = composed.split("\n")
    width = _tab_width(lines, media_type) if "\t" in composed else _PLAIN_TAB_WIDTH
    kept, numbers = _collapse_blank_lines([_normal_line(line, width) for line in lines])
    moved = dict(
        zip(
            sorted({_within(text, mark) for mark in marks}),
            _marks_of_lines(marks_in_order, lines, kept, numbers, width),
            strict=True,
        )
    )
    return NormalisedText(
        text="\n".join(kept), marks=tuple(moved[_within(text, mark)] for mark in marks)
    )


def normalised(extracted: ExtractedDocument) -> tuple[str, Structure]:
    """The normalised text, and the structure with its offsets moved along."""
    given = extracted.structure
    marks = [heading.start for heading in given.headings] + list(given.page_starts)
    result = normalise(
        extracted.text, media_type=extracted.text_type or extracted.media_type, marks=marks
    )
    starts = result.marks[: len(given.headings)]
    return result.text, Structure(
        headings=tuple(
            Heading(title=heading.title, level=heading.level, start=start)
            for heading, start in zip(given.headings, starts, strict=True)
        ),
        page_starts=tuple(result.marks[len(given.headings) :]),
    )


def _within(text: str, mark: int) -> int:
    return min(max(mark, 0), len(text))


# --- NFC -------------------------------------------------------------------------------------


def _compose(text: str, marks: Sequence[int]) -> tuple[str, list[int]]:
    """NFC of `text`, and ascending `marks` moved along with it."""
    if text.isascii():
        return text, list(marks)
    borders = [_composition_border(text, mark) for mark in marks]
    pieces = [
        _nfc(text[start:end])
        for start, end in zip([0, *borders], [*borders, len(text)], strict=True)
    ]
    return "".join(pieces), list(accumulate(len(piece) for piece in pieces[:-1]))


def _composition_border(text: str, mark: int) -> int:
    """The first place from `mark` on where the text can be cut without changing its NFC."""
    while mark < len(text) and _may_compose_backwards(text[mark]):
        mark += 1
    return mark


def _may_compose_backwards(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff"


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", _LONG_MARK_RUN.sub(_sorted_marks, text))


def _sorted_marks(match: regex.Match[str]) -> str:
    decomposed = "".join(unicodedata.normalize("NFD", mark) for mark in match.group())
    runs = groupby(decomposed, key=lambda mark: unicodedata.combining(mark) > 0)
    return "".join(
        "".join(sorted(run, key=unicodedata.combining) if reorderable else run)
        for reorderable, run in runs
    )


# --- lines -----------------------------------------------------------------------------------


def _tab_width(lines: Sequence[str], media_type: str) -> int:
    """The width that an Emacs or Vim modeline states, else the habit of the media type."""
    ends = [*lines[:_MODELINES_AT_EACH_END], *lines[-_MODELINES_AT_EACH_END:]]
    for line in ends:
        if len(line) <= _LONGEST_MODELINE:
            stated = (
                _EMACS_TAB_WIDTH.search(line)
                or _EMACS_LOCAL_TAB_WIDTH.search(line)
                or _VIM_TAB_WIDTH.search(line)
            )
            if stated and 1 <= int(stated.group(1)) <= _WIDEST_TAB:
                return int(stated.group(1))
    return _MARKDOWN_TAB_WIDTH if media_type in MARKDOWN_TYPES else _PLAIN_TAB_WIDTH


def _normal_line(line: str, width: int) -> str:
    return (_expand_tabs(line, width) if "\t" in line else line).rstrip(_TRAILING)


def _expand_tabs(line: str, width: int) -> str:
    """Tabs to spaces up to the next stop, columns counted in characters.

    Not `str.expandtabs`, which starts a new column 0 at a lone CR.
    """
    *before, last = line.split("\t")
    column = 0
    out: list[str] = []
    for part in before:
        filled = column + len(part)
        stop = filled + width - filled % width
        out += (part, " " * (stop - filled))
        column = stop
    return "".join([*out, last])


def _collapse_blank_lines(lines: Iterable[str]) -> tuple[list[str], list[int]]:
    """The lines that stay, and for each of them its number among `lines`.

    The empty string after a last LF is no line of its own and always stays.
    """
    every = list(lines)
    kept: list[str] = []
    numbers: list[int] = []
    blank = 0
    last = len(every) - 1
    for number, line in enumerate(every):
        blank = 0 if line else blank + 1
        if blank <= _MOST_BLANK_LINES or number == last:
            kept.append(line)
            numbers.append(number)
    return kept, numbers


def _marks_of_lines(
    marks: Sequence[int],
    lines: Sequence[str],
    kept: Sequence[str],
    numbers: Sequence[int],
    width: int,
) -> list[int]:
    if not marks:
        return []
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    kept_starts = [0, *accumulate(len(line) + 1 for line in kept)]
    moved = []
    for mark in marks:
        number = bisect_right(starts, mark, hi=len(lines)) - 1
        index = bisect_right(numbers, number) - 1
        column = len(kept[index])
        if numbers[index] == number:
            before = lines[number][: mark - starts[number]]
            column = min(column, len(_expand_tabs(before, width)))
        moved.append(kept_starts[index] + column)
    return moved
