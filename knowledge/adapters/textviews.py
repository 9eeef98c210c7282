"""Other readings of a text that can point back to the characters they were read from.

Both scanners look at a text in more than one form: with invisible characters taken out, with
escapes undone, with a wrapped line joined. What they report has to name a place in the text the
caller knows, so every form carries the way back.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field

# Characters that have no width or only steer layout. They can stand inside a word without being
# seen, so a word is read without them.
FORMAT_CHARACTERS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_FORMAT = re.compile(f"[{FORMAT_CHARACTERS}]+")

# Cyrillic and Greek letters that look exactly like Latin ones.
_CONFUSABLES = str.maketrans(
    "аеорсухіјѕԁԛԝһӏԍкАВЕКМНОРСТХІЅЈУοανικΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdqwhlgkABEKMHOPCTXISJYoavikABEZHIKMNOPTYX",
)

_FOLDABLE = re.compile(
    r"\x00"
    r"|&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,24});"
    r"|\\[_\-*.`\#+!|~=&<>@:]"
    r"|[^\x00-\x7f]+"
)


@dataclass(slots=True)
class View:
    """A reading of `parent` (or of the original text when there is none).

    `marks` are offsets in `text` where a stretch begins, `origins` where that stretch begins in
    the parent, and `exact` whether it runs alongside the parent character by character (a decoded
    stretch does not: all of it stands at the place of its encoded form).
    """

    name: str
    text: str = field(repr=False)
    marks: list[int] = field(default_factory=lambda: [0], repr=False)
    origins: list[int] = field(default_factory=lambda: [0], repr=False)
    exact: list[bool] = field(default_factory=lambda: [True], repr=False)
    parent: View | None = None

    def origin(self, offset: int) -> int:
        """The offset in the original text of the character at `offset` of this view."""
        stretch = bisect_right(self.marks, offset) - 1
        place = self.origins[stretch]
        if self.exact[stretch]:
            place += offset - self.marks[stretch]
        return self.parent.origin(place) if self.parent else place

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span of the original text that `text[start:end]` was read from."""
        return self.origin(start), max(self.origin(end - 1), self.origin(start)) + 1


def lowered(text: str) -> str:
    """Lower case with the same offsets: one letter grows when lowered, so it goes first."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.replace("İ", "i").lower()


def unconfused(text: str) -> str:
    """Every letter of another script that looks like a Latin one as that one; same offsets."""
    return text.translate(_CONFUSABLES)


def longest_word(text: str) -> int:
    """The length of the longest stretch without white space: a cheap look before a dear one."""
    return max(map(len, text.split()), default=0)


class ViewBuilder:
    """Writes a view from front to back out of kept and replaced stretches of its parent."""

    def __init__(self, parent: View) -> None:
        self._parent = parent
        self._pieces: list[str] = []
        self._length = 0
        self._marks: list[int] = []
        self._origins: list[int] = []
        self._exact: list[bool] = []

    def __len__(self) -> int:
        return self._length

    def keep(self, start: int, end: int) -> None:
        if start < end:
            self.put(self._parent.text[start:end], at=start, exact=True)

    def put(self, text: str, *, at: int, exact: bool = False) -> None:
        if text:
            self._marks.append(self._length)
            self._origins.append(at)
            self._exact.append(exact)
            self._pieces.append(text)
            self._length += len(text)

    def build(self, name: str) -> View:
        return View(
            name=name,
            text="".join(self._pieces),
            marks=self._marks or [0],
            origins=self._origins or [0],
            exact=self._exact or [True],
            parent=self._parent,
        )


def folded(view: View) -> View:
    """The text as a reader sees it; the same object when it already is.

    Format characters go, NUL becomes a space, compatibility forms become plain (NFKC), HTML
    references and Markdown escapes are undone, and a letter of another script that stands
    against ASCII letters and looks like one becomes that one.
    """
    text = view.text
    if text.isascii() and "&" not in text and "\\" not in text and "\0" not in text:
        return view
    builder = ViewBuilder(view)
    last = 0
    for match in _FOLDABLE.finditer(text):
        start, end = match.span()
        replacement = _fold_run(text, start, end)
        if replacement != match.group():
            builder.keep(last, start)
            builder.put(replacement, at=start, exact=len(replacement) == end - start)
            last = end
    if not last:
        return view
    builder.keep(last, len(text))
    return builder.build("folded")


def _fold_run(text: str, start: int, end: int) -> str:
    run = text[start:end]
    if run == "\x00":
        return " "
    if run[0] == "&":
        return html.unescape(run)
    if run[0] == "\\":
        return run[1:]
    run = _FORMAT.sub("", run)
    if not unicodedata.is_normalized("NFKC", run):
        run = unicodedata.normalize("NFKC", run)
    before, after = text[start - 1 : start], text[end : end + 1]
    beside_latin = (before.isascii() and before.isalnum()) or (after.isascii() and after.isalnum())
    return run.translate(_CONFUSABLES) if beside_latin else run
