"""PDF through pypdf: text page by page, headings from the outline, warnings for what is missing."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from statistics import median
from typing import Any

from pypdf import PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError, PyPdfError
from pypdf.generic import Destination

from knowledge.adapters.reading.answers import (
    REPLACEMENT,
    NoText,
    Reading,
    Reason,
    named,
    repaired,
)

_BETWEEN_PAGES = "\n\n"
_MOST_HEADINGS = 10_000
_LITTLE_TEXT = 20
"""Characters. A page with less than that may be a scan with a stamp on it."""

_PARAGRAPH_GAP = 1.35
"""How much larger than usual the distance between two lines is where a paragraph ends."""

_FEWEST_ROWS = 3
_FEWEST_WORDS = 3
_FULL_LINE = 0.6
_SAME_PLACE = 2.0
"""Points."""

_INFO = ("title", "author", "subject", "keywords", "creator", "producer")


def inspect(content: bytes) -> dict[str, Any]:
    """What can be said without reading the text: `{pages}`. Refuses what `extract` refuses for
    being encrypted or broken."""
    return {"pages": len(_opened(content).pages)}


def extract(content: bytes) -> Reading:
    reader = _opened(content)
    pages, unreadable = _pages(reader)
    if len(unreadable) == len(pages):
        if any(unreadable.values()):
            raise NoText(Reason.TOO_LARGE, "No page of this PDF unpacks to a size that is read.")
        raise NoText(Reason.UNREADABLE, "No page of this PDF can be read.")
    texts = [repaired(page.text) for page in pages]
    seen = [len("".join(text.split())) for text in texts]
    if not any(seen):
        raise NoText(
            Reason.EMPTY,
            f"No page of this PDF ({len(pages)} in all) has a text layer; a scan needs OCR first.",
            reason="no_text_layer",
            pages=len(pages),
        )
    starts = _starts(texts)
    numbered = list(enumerate(pages, 1))
    warnings = [
        *named("pages_unreadable", unreadable),
        *named(
            "pages_without_text",
            (n for n, _ in numbered if not seen[n - 1] and n not in unreadable),
        ),
        *named(
            "pages_with_little_text",
            (n for n, _ in numbered if 0 < seen[n - 1] < _LITTLE_TEXT),
        ),
        *named("columns_reordered", (n for n, page in numbered if page.columns)),
        *named(
            "characters_replaced",
            (n for n, page in numbered if _was_broken(page.text, texts[n - 1])),
        ),
    ]
    headings, outline_read = _headings(reader, pages, texts, starts)
    if not outline_read:
        warnings.append("outline_unreadable")
    return Reading(
        text=_BETWEEN_PAGES.join(texts),
        headings=headings,
        page_starts=starts,
        warnings=warnings,
        metadata=_metadata(reader),
        # A title of the outline need not stand on any page.
        unshown=repaired(
            "\n".join([*(title for title, *_ in headings), *_beside_the_text(reader)])
        ),
    )


def _was_broken(before: str, after: str) -> bool:
    return after.count(REPLACEMENT) > before.count(REPLACEMENT)


def _opened(content: bytes) -> PdfReader:
    try:
        reader = PdfReader(io.BytesIO(content.lstrip(b" \t\r\n\f\0")), strict=False)
        # Also one that opens without a password: its owner restricted what may be done with it.
        if reader.is_encrypted:
            raise NoText(Reason.ENCRYPTED, "")
        if not len(reader.pages):
            raise NoText(Reason.UNREADABLE, "This PDF has no pages.")
    except (FileNotDecryptedError, DependencyError):
        # Ciphers come with a library that is not installed: nothing here is to be decrypted.
        raise NoText(Reason.ENCRYPTED, "") from None
    except LimitReachedError:
        raise NoText(Reason.TOO_LARGE, "") from None
    return reader


def _starts(texts: Sequence[str]) -> list[int]:
    starts, at = [], 0
    for text in texts:
        starts.append(at)
        at += len(text) + len(_BETWEEN_PAGES)
    return starts


# --- pages -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Line:
    """A line as it was drawn: its pieces with where each begins, and its height on the page."""

    pieces: list[tuple[float, str]] = field(default_factory=list)
    y: float | None = None

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self.pieces)


@dataclass(slots=True)
class _Page:
    text: str = ""
    heights: dict[int, float] = field(default_factory=dict)
    """Offset of a line's start in `text` -> its height on the page, in points."""
    columns: bool = False


def _pages(reader: PdfReader) -> tuple[list[_Page], dict[int, bool]]:
    """The pages, and the numbers of those that cannot be read, with whether for their size."""
    pages: list[_Page] = []
    unreadable: dict[int, bool] = {}
    for number, page in enumerate(reader.pages, 1):
        try:
            pages.append(_page(page))
        except Exception as error:  # noqa: BLE001 - one damaged page is no reason to lose the others
            _raise_exhaustion(error)
            unreadable[number] = any(isinstance(e, LimitReachedError) for e in _causes(error))
            pages.append(_Page())
    return pages, unreadable


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from, for pypdf wraps what it meets."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _raise_exhaustion(error: BaseException) -> None:
    """Raise a `MemoryError` however it was wrapped: that is not mere damage."""
    for cause in _causes(error):
        if isinstance(cause, MemoryError):
            raise cause


def _page(page: Any) -> _Page:
    lines = [_Line()]
    drawn: list[str] = []

    def note(text: str, cm: list[float], tm: list[float], _font: Any, _size: float) -> None:
        drawn.append(text)
        x = tm[4] * cm[0] + tm[5] * cm[2] + cm[4]
        y = tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
        for number, part in enumerate(text.split("\n")):
            if number:
                lines.append(_Line())
            if part:
                lines[-1].pieces.append((x, part))
                if part.strip() and lines[-1].y is None:
                    lines[-1].y = y

    text = page.extract_text(visitor_text=note)
    if "".join(drawn) != text:
        # Then the pieces say nothing about the lines of this text.
        return _Page(text=text)
    ordered = _columns_apart(lines)
    return _laid_out(ordered, columns=ordered is not lines)


def _laid_out(lines: Sequence[_Line], *, columns: bool) -> _Page:
    """The lines as text, with a blank line where the distance between two is larger than usual."""
    gaps = [
        before.y - after.y
        for before, after in pairwise(lines)
        if before.y is not None and after.y is not None and before.y > after.y
    ]
    usual = median(gaps) if gaps else 0.0
    page = _Page(columns=columns)
    parts: list[str] = []
    at = 0
    for before, line in zip([None, *lines], lines, strict=False):
        if before is not None:
            apart = (
                before.y is not None
                and line.y is not None
                and (before.y - line.y > usual * _PARAGRAPH_GAP or line.y > before.y)
            )
            parts.append("\n\n" if apart else "\n")
            at += len(parts[-1])
        if line.y is not None:
            page.heights[at] = line.y
        parts.append(line.text)
        at += len(line.text)
    page.text = "".join(parts)
    return page


# --- columns ---------------------------------------------------------------------------------


def _columns_apart(lines: list[_Line]) -> list[_Line]:
    """The lines with two columns of prose that were drawn row by row put one after the other.

    Only where it is plain: at least three rows in a row whose right part begins at one place,
    both parts of several words, and the left lines about equally full. A table's cells are not.
    The same list when there is nothing to do.
    """
    place = _second_column(lines)
    if place is None:
        return lines
    ordered: list[_Line] = []
    changed = False
    for is_split, run in _runs(lines, place):
        halves = [_split(line, place) for line in run]
        if is_split and _is_prose([left.text for left, _ in halves], [r.text for _, r in halves]):
            ordered += [left for left, _ in halves]
            ordered += [right for _, right in halves if right.pieces]
            changed = True
        else:
            ordered += run
    return ordered if changed else lines


def _second_column(lines: Sequence[_Line]) -> float | None:
    """Where most lines begin anew after their first piece."""
    begins = Counter(
        place
        for line in lines
        for place in {round(x / _SAME_PLACE) for x, piece in line.pieces[1:] if piece.strip()}
    )
    if not begins:
        return None
    place, count = min(begins.items(), key=lambda item: (-item[1], item[0]))
    return place * _SAME_PLACE if count >= _FEWEST_ROWS else None


def _runs(lines: Sequence[_Line], place: float) -> Iterator[tuple[bool, list[_Line]]]:
    run: list[_Line] = []
    for line in lines:
        if run and _begins_at(line, place) != _begins_at(run[0], place):
            yield _begins_at(run[0], place), run
            run = []
        run.append(line)
    if run:
        yield _begins_at(run[0], place), run


def _begins_at(line: _Line, place: float) -> bool:
    return any(
        abs(x - place) <= _SAME_PLACE and piece.strip() for x, piece in line.pieces[1:]
    ) and any(x < place - _SAME_PLACE and piece.strip() for x, piece in line.pieces)


def _split(line: _Line, place: float) -> tuple[_Line, _Line]:
    cut = next(
        (n for n, (x, piece) in enumerate(line.pieces) if n and piece.strip() and x >= place - 2),
        len(line.pieces),
    )
    right = line.pieces[cut:]
    if right:
        right = [(right[0][0], right[0][1].lstrip()), *right[1:]]
    return _Line(line.pieces[:cut], line.y), _Line(right, line.y)


def _is_prose(left: Sequence[str], right: Sequence[str]) -> bool:
    if len(left) < _FEWEST_ROWS:
        return False
    longest = max(len(line.strip()) for line in left)
    full = sum(len(line.strip()) >= longest * _FULL_LINE for line in left)
    return full * 3 >= len(left) * 2 and all(
        median(len(line.split()) for line in side) >= _FEWEST_WORDS for side in (left, right)
    )


# --- headings --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    title: str
    level: int
    page: int
    top: float | None


def _headings(
    reader: PdfReader, pages: Sequence[_Page], texts: Sequence[str], starts: Sequence[int]
) -> tuple[list[tuple[str, int, int]], bool]:
    """The outline's headings, and whether it could be read to its end."""
    entries: list[_Entry] = []
    complete = True
    try:
        entries.extend(islice(_outline(reader, reader.outline, 1), _MOST_HEADINGS))
    except Exception as error:  # noqa: BLE001 - the text is good without its outline
        _raise_exhaustion(error)
        complete = False
    headings = []
    before: dict[int, int] = {}
    for entry in entries:
        page, text = pages[entry.page], texts[entry.page]
        # Repairs keep offsets unless they joined surrogates.
        heights = page.heights if len(text) == len(page.text) else {}
        at = _place(entry, text, heights, before.get(entry.page, 0))
        before[entry.page] = at
        headings.append((repaired(entry.title), entry.level, starts[entry.page] + at))
    return headings, complete


def _outline(reader: PdfReader, items: Sequence[Any], level: int) -> Iterator[_Entry]:
    for item in items:
        if isinstance(item, list):
            yield from _outline(reader, item, level + 1)
        elif isinstance(item, Destination) and item.title:
            number = reader.get_destination_page_number(item)
            if number is not None and number >= 0:
                top = item.top
                yield _Entry(
                    str(item.title), level, number, float(top) if top is not None else None
                )


def _place(entry: _Entry, text: str, heights: dict[int, float], least: int) -> int:
    """The offset in the page's text of the line that says the title, else of where it points."""
    pointed = _pointed_at(entry.top, heights)
    title = _folded(entry.title)
    exact, similar = [], []
    at = 0
    for line in text.split("\n"):
        folded = _folded(line)
        if folded == title:
            exact.append(at)
        elif folded and _is_like(folded, title):
            similar.append(at)
        at += len(line) + 1
    for found in (exact, similar):
        later = [place for place in found if place >= least] or found
        if later:
            wanted = least if pointed is None else pointed
            return min(later, key=lambda place: abs(place - wanted))
    return least if pointed is None else pointed


def _pointed_at(top: float | None, heights: dict[int, float]) -> int | None:
    """The first line that is not above `top`."""
    if top is None or not heights:
        return None
    return next((at for at, y in sorted(heights.items()) if y <= top), None)


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_like(line: str, title: str) -> bool:
    """The title with its number, or the first line of a title over several."""
    numbered = line.endswith(title) and not any(c.isalpha() for c in line[: -len(title)])
    return numbered or (len(line) * 2 >= len(title) and title.startswith(line))


# --- what it says of itself ------------------------------------------------------------------

_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")


def _metadata(reader: PdfReader) -> dict[str, str]:
    """The information dictionary; `date` is when it was last changed, else made."""
    found: dict[str, str] = {}
    try:
        info: Any = reader.metadata or {}
        for name in _INFO:
            if value := info.get(f"/{name.capitalize()}"):
                found[name] = repaired(str(value)).strip()
        for name in ("/ModDate", "/CreationDate"):
            if "date" not in found and (date := _DATE.match(str(info.get(name, "")))):
                found["date"] = "-".join(date.groups())
        if language := reader.root_object.get("/Lang"):
            found["language"] = repaired(str(language))
    except PyPdfError:
        pass
    return {name: value for name, value in found.items() if value}


def _beside_the_text(reader: PdfReader) -> Iterator[str]:
    """Notes, link addresses, form values and names of attachments: in the file, not on a page."""
    try:
        for name, value in (reader.get_fields() or {}).items():
            yield f"{name}: {value.get('/V', '')}"
        yield from reader.attachments
        for page in reader.pages:
            for reference in page.get("/Annots") or ():
                note = reference.get_object()
                yield str(note.get("/Contents", ""))
                yield str((note.get("/A") or {}).get("/URI", ""))
    except Exception as error:  # noqa: BLE001 - what cannot be reached cannot be read by others
        _raise_exhaustion(error)
