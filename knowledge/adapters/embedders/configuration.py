"""What the settings say of an embedder, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LONGEST_VECTOR = 4_000  # that an index of half-precision vectors takes


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfiguration:
    """An OpenAI-compatible server. The key is in no representation of this.

    `window` is how many characters it reads of one text, 0 for as many as a chunk may have.
    `asks_for_dimensions`: the model makes vectors of several lengths and is told which.
    """

    url: str
    model: str
    dimensions: int
    api_key: str = field(default="", repr=False)
    batch: int = 64
    timeout: float = 30.0
    question_timeout: float = 5.0
    window: int = 0
    asks_for_dimensions: bool = False
    passage_prefix: str = ""
    question_prefix: str = ""
    floor: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfiguration:
    """A model in a folder on this machine; without a folder the one that the extra brings."""

    folder: Path | None = None
    threads: int = 0
    passage_prefix: str = ""
    question_prefix: str = ""
    floor: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfiguration:
    """A class that the installation brings along, by its dotted path."""

    path: str
    floor: float = 0.2


EmbedderConfiguration = EndpointConfiguration | LocalConfiguration | ClassConfiguration
