"""Other ways of searching, beside the one that is set up: what each part of it is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from access.principal import Principal
from knowledge.core.fusion import ReciprocalRankFusion
from knowledge.core.ranking import RankingPolicy
from knowledge.core.types import KnowledgeQuery, SearchResult
from knowledge.retrieval.search import Searcher

FUSED: Final = "fused"
ABLATED_TERMS: Final = ("authority", "scope", "recency", "penalty")
WITHOUT: Final = "-without-"
RANKS: Final = "reciprocal ranks"
# What a question may say beside its text, and what it is when it says nothing.
_CONTEXT: Final[Mapping[str, Any]] = {"objective": None, "entities": (), "aliases": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetfulSearcher(Searcher):
    """The search without some of what a question says beside its text."""

    forgets: tuple[str, ...]

    def search(self, query: KnowledgeQuery, principal: Principal) -> SearchResult:
        changed: dict[str, Any] = {name: _CONTEXT[name] for name in self.forgets}
        return Searcher.search(self, replace(query, **changed), principal)


def searchers(searcher: Searcher, queries: Iterable[KnowledgeQuery] = ()) -> dict[str, Searcher]:
    """Each arm by itself, all of them fused, and the whole without one of its parts.

    Parts are the terms of the ranking and, where `queries` have them, what stands beside a
    question's text: objective, entities, aliases, and all of these (`context`). No arm waits for a
    tenant's switch here: whether it is worth one is what is asked.
    """
    searcher = replace(searcher, switched=frozenset())
    named = {arm.name: replace(searcher, arms=(arm,)) for arm in searcher.arms}
    whole = next(iter(named))
    if len(named) > 1:
        named[FUSED] = searcher
        named[RANKS] = _by_rank(searcher)
        whole = FUSED
    for term in ABLATED_TERMS:
        named[f"{whole}{WITHOUT}{term}"] = replace(searcher, policy=without(searcher.policy, term))
    said = tuple(name for name in _CONTEXT if any(getattr(query, name) for query in queries))
    forgotten = {name: (name,) for name in said} | ({"context": said} if said else {})
    for name, forgets in forgotten.items():
        named[f"{whole}{WITHOUT}{name}"] = ForgetfulSearcher(
            arms=searcher.arms,
            fusion=searcher.fusion,
            policy=searcher.policy,
            tokens=searcher.tokens,
            switched=searcher.switched,
            speller=searcher.speller,
            forgets=forgets,
        )
    return named


def without(policy: RankingPolicy, term: str) -> RankingPolicy:
    """The policy with a term's weight gone; the weight of a term that adds goes to `match`."""
    weight = 0.0 if term == "penalty" else getattr(policy, term)
    changed: dict[str, Any] = {term: 0.0, "match": policy.match + weight}
    return replace(policy, version=f"{policy.version}{WITHOUT}{term}", **changed)


def with_fusions(searcher: Searcher, queries: Iterable[KnowledgeQuery] = ()) -> dict[str, Searcher]:
    """`searchers`, and the whole with its arms fused by rank instead of by calibrated score."""
    return {
        **searchers(searcher, queries),
        RANKS: _by_rank(replace(searcher, switched=frozenset())),
    }


def _by_rank(searcher: Searcher) -> Searcher:
    fusion = ReciprocalRankFusion()
    version = f"{searcher.policy.version}-{fusion.version}"
    return replace(searcher, fusion=fusion, policy=replace(searcher.policy, version=version))
