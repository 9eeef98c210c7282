"""What the layers hand to the scanner: a place in a view, never the characters there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """`view.text[start:end]` looks like a credential to `rule` of `layer`."""

    rule: str
    layer: str
    start: int
    end: int
