"""Byte ranges (RFC 9110, section 14): a single range, or the whole."""

from __future__ import annotations

import re

from artifacts.errors import RangeNotSatisfiable

_SINGLE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))\s*", re.ASCII)


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The first and last offset, both inclusive, or `None` for the whole.

    A header that is malformed, of another unit or of several ranges is ignored, as the standard
    lets a server do; one that lies outside raises `RangeNotSatisfiable`.
    """
    match = _SINGLE.fullmatch(header) if header else None
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        wanted = int(suffix)
        if wanted == 0 or size == 0:
            raise RangeNotSatisfiable(size=size)
        return max(0, size - wanted), size - 1
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable(size=size)
    return start, end
