"""What people write beside a document: its title, and the reasons for what they do to it."""

from __future__ import annotations

import re
from typing import Final

from knowledge.core.errors import InvalidTitle, ReasonMissing

TITLE_LIMIT: Final = 500
REASON_LIMIT: Final = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def checked_title(title: str) -> str:
    """A title as it will be stored; raises `InvalidTitle`."""
    if _CONTROL.search(title):
        raise InvalidTitle("The title holds a control character.")
    title = title.strip()
    if not title:
        raise InvalidTitle("The title is empty.")
    if len(title) > TITLE_LIMIT:
        raise InvalidTitle(f"The title is longer than {TITLE_LIMIT} characters.")
    return title


def checked_reason(reason: str) -> str:
    """A reason as the event log keeps it; raises `ReasonMissing` when there is none."""
    told = reason.strip()
    if not told:
        raise ReasonMissing
    if len(told) > REASON_LIMIT:
        raise ReasonMissing(f"A reason has at most {REASON_LIMIT} characters.")
    return told
