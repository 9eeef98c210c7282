"""Texts that are longer than a model reads: in windows of equal length, and the mean of their
vectors.

Measured on the collections of `docs/semantic.md`: one vector a passage, the mean, answers as well
as the nearest of its windows, at half the vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T", str, list[int])


def windows(whole: T, limit: int) -> list[T]:
    """Consecutive parts of at most `limit` items, as equal as can be; an empty whole is one."""
    count = max(math.ceil(len(whole) / limit), 1)
    size = max(math.ceil(len(whole) / count), 1)
    return [whole[start : start + size] for start in range(0, max(len(whole), 1), size)]


def mean_of(vectors: Sequence[Sequence[float]]) -> list[float]:
    """The direction that vectors of equal length have in common."""
    if len(vectors) == 1:
        return list(vectors[0])
    return unit([math.fsum(values) / len(vectors) for values in zip(*vectors, strict=True)])


def unit(vector: Sequence[float]) -> list[float]:
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else list(vector)
