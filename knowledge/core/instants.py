"""Instants that are one for everybody."""

from __future__ import annotations

from datetime import datetime

from access.errors import Malformed


def checked_instant(as_of: datetime | None) -> datetime | None:
    """The instant as it is; raises `Malformed` for one without an offset, which is nobody's."""
    if as_of is not None and as_of.utcoffset() is None:
        raise Malformed("as_of: Give the timestamp an offset, such as Z or +02:00.")
    return as_of
