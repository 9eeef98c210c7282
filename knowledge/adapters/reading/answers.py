"""What a reader gives back, and how it refuses. Plain data: it crosses a pipe as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why there is no text; the parent has an error for each."""

    ENCRYPTED = "encrypted"
    UNREADABLE = "unreadable"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    MEMORY = "memory"


class NoText(Exception):
    """A reader refuses a file. `detail` is a sentence for a person, without any of its content."""

    def __init__(self, reason: Reason, detail: str, /, **members: Any) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.members = members


@dataclass(slots=True, kw_only=True)
class Reading:
    """The text of a file and what is known of it.

    `headings` are (title, level, offset into `text`), `page_starts` offsets into `text`.
    `metadata` is what the file says of itself; `unshown` is text of the file that a reader of
    it would not see and that is not in `text`: it is scanned and then forgotten. `hidden` is the
    part of that which was made invisible.
    """

    text: str
    headings: Sequence[tuple[str, int, int]] = ()
    page_starts: Sequence[int] = ()
    warnings: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    unshown: str = ""
    hidden: str = ""


# What no text of a document holds: it comes from broken character maps.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")
REPLACEMENT = "\ufffd"


def repaired(text: str) -> str:
    """`text` with surrogate pairs joined and lone ones, NULs and other controls as U+FFFD."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub(REPLACEMENT, joined)


def named(warning: str, numbers: Iterable[int]) -> list[str]:
    """A warning about pages, such as `pages_without_text: 2, 4-7`; none when there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs]
    return [f"{warning}: {', '.join(shown)}"] if shown else []
