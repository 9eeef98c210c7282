"""How one call goes about its ingest, whoever makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from knowledge.core.types import IngestProgress


def ignore_progress(progress: IngestProgress) -> None:
    """Nobody wants to know how far it is."""


def _free() -> None:
    """Nothing stands in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Who works on it, who wants to know how far it is, and what must still be so.

    `holder` names a background job: its next attempt takes the lease of one whose worker died at
    once. `guard` is called under the document's lock in every transaction that writes, and raises
    when the reason for the ingest is gone (a job cancelled, a conversation deleted).
    """

    holder: str = ""
    on_progress: Callable[[IngestProgress], None] = ignore_progress
    guard: Callable[[], None] = _free
