"""The embedders of an installation: the one in use, and the one that is to take its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knowledge.adapters.embedding import Embedding
from knowledge.core.ports import Embedder
from knowledge.semantic import spaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """An embedder and the cosine that two texts about different things have in its space."""

    embedder: Embedder
    floor: float


@dataclass(frozen=True, slots=True)
class Embedders:
    """All that are configured, the one for an installation without vectors first."""

    configured: Sequence[Configured]

    def of(self, model: str) -> Embedder | None:
        return next((one.embedder for one in self.configured if one.embedder.model == model), None)

    def floor(self, model: str) -> float:
        return next((one.floor for one in self.configured if one.embedder.model == model), 0.0)

    def current(self) -> Embedder:
        """That of the live space, else the first."""
        space = spaces.live()
        of_space = self.of(space.model) if space else None
        return of_space or self.configured[0].embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchingEmbedding(Embedding):
    """Embeds by the model of the live space, whichever that is by now."""

    embedders: Embedders

    def current(self) -> Embedder:
        return self.embedders.current()
