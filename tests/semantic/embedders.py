"""Embedders whose meaning a test can foresee."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

from knowledge.core.errors import EmbedderError

_SAME = {"automobile": "car", "vehicle": "car", "sofa": "couch", "physician": "doctor"}


class WordsEmbedder:
    """Adds up a direction for each word, equal ones for words of one meaning.

    Another `model` has other directions, so that vectors of two models say nothing together.
    """

    def __init__(self, model: str = "words-1", dimensions: int = 256) -> None:
        self.model = model
        self.dimensions = dimensions
        self.down = False
        self.embedded: list[str] = []
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self.down:
            raise EmbedderError("the endpoint answered 503")
        self.embedded += texts
        return [self.vector(text) for text in texts]

    def embed_question(self, text: str) -> Sequence[float]:
        if self.down:
            raise EmbedderError("the endpoint answered 503")
        self.asked.append(text)
        return self.vector(text)

    def vector(self, text: str) -> list[float]:
        words = ["".join(c for c in word if c.isalnum()).lower() for word in text.split()]
        directions = [self._direction(_SAME.get(word, word)) for word in words if word]
        total = [math.fsum(values) for values in zip(*directions, strict=True)]
        return total if any(total) else [1.0] * self.dimensions

    def _direction(self, word: str) -> list[float]:
        seed = hashlib.sha256(f"{self.model} {word}".encode()).digest()
        dice = random.Random(seed)
        return [dice.gauss(0, 1) for _ in range(self.dimensions)]
