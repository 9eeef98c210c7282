"""Chunking profiles: named, versioned sets of the chunker's parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from knowledge.core.errors import UnknownProfile

_SMALLEST_TARGET = 16
"""Tokens. One character can take several, and a piece needs room for at least one."""


class Blocks(StrEnum):
    """What is kept together within a section while it fits: the chunker's unit of packing."""

    STRUCTURE = "structure"
    """Paragraphs, list items, fences, tables, quotes."""

    TURNS = "turns"
    """The same, and in a transcript all that one speaker says at a time."""

    ROWS = "rows"
    """The same, but a table is its rows."""


_NUMBER = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True)
class ChunkingProfile:
    """Sizes in tokens: chunks are filled to `target`, never exceed `ceiling`, and sections below
    `floor` are merged upwards where they can be.

    `label` is how a chunker version names it. Another value of anything else needs another
    label, for chunk ids are made of it.
    """

    label: str = "default"
    target: int = 600
    ceiling: int = 1_000
    floor: int = 100
    blocks: Blocks = Blocks.STRUCTURE

    def __post_init__(self) -> None:
        if not (_SMALLEST_TARGET <= self.target <= self.ceiling and self.floor <= self.ceiling):
            raise ValueError("a profile needs 16 <= target <= ceiling and floor <= ceiling")


DEFAULT: Final = ChunkingProfile()
CHAT: Final = ChunkingProfile("chat-1", target=250, ceiling=600, floor=40, blocks=Blocks.TURNS)
# The target of 1,000 is as large as the budget of a search allows: three of them fit into it.
REFERENCE: Final = ChunkingProfile("reference-1", target=1_000, blocks=Blocks.ROWS)

PROFILES: Final[Mapping[str, ChunkingProfile]] = {
    "default": DEFAULT,
    "chat": CHAT,
    "reference": REFERENCE,
}
"""By the name that an ingest chooses it with: the newest of that name."""


def profile_named(name: str) -> ChunkingProfile:
    """The profile of a name, or of the label in a chunker version; raises `UnknownProfile`."""
    every = {**{profile.label: profile for profile in PROFILES.values()}, **PROFILES}
    try:
        return every[name]
    except KeyError:
        known = ", ".join(f"'{each}'" for each in PROFILES)
        raise UnknownProfile(
            f"There is no such chunking profile; choose one of {known}.", profiles=list(PROFILES)
        ) from None


def newest_profile(label: str) -> ChunkingProfile:
    """Today's profile of the name that a label in a chunker version had, whichever its number.

    Raises `UnknownProfile` when there is none of that name any more.
    """
    return profile_named(_NUMBER.sub("", label))
