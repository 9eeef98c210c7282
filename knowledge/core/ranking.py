"""The order of passages: four terms less a penalty, under a versioned policy.

    score = match * m + authority * a + scope * s + recency * r - penalty * p

Every term is 0..1 before its weight and is returned with the result. There is no term for
confidence, reinforcement or use: a passage is quoted, not believed, and does not become truer for
having been cited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from types import MappingProxyType
from typing import Final

from knowledge.core.likeness import SKETCH_SIZE, resemblance
from knowledge.core.types import Authority, Candidate, KnowledgeQuery, RankedPassage, ScoreTerms

# How the document was obtained, never what it says.
_AUTHORITY: Final[Mapping[Authority, float]] = MappingProxyType(
    {
        Authority.PRINCIPAL_AUTHORED: 1.0,
        Authority.PRINCIPAL_SUPPLIED: 0.5,
        Authority.FETCHED: 0.0,
    }
)
_UNDATED: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPolicy:
    """Hand-set weights under a version that the trace records.

    The four weights sum to 1, so a score is 0..1. `match` outweighs the rest together by far: the
    other terms order passages that answer equally well and cannot lift one that does not over
    the floor `min_score` from nothing.

    `min_score` is the highest floor that keeps 95 % of the answerable questions of six collections
    in the mean (`manage.py compare --floor`): nine in ten that a corpus cannot answer find nothing.
    Automatic recall is stricter: most turns ask for nothing, and one of a word or two ("What time
    is it?") matches some passage whole, however high the floor.
    """

    version: str = "knowledge-v1"
    match: float = 0.90
    authority: float = 0.03
    scope: float = 0.04
    recency: float = 0.03
    penalty: float = 0.05
    min_score: float = 0.28
    preturn_min_score: float = 0.45
    preturn_least_words: int = 3
    half_life_days: float = 730.0
    tiny_tokens: int = 16
    repetition: float = 0.7

    def __post_init__(self) -> None:
        weights = (self.match, self.authority, self.scope, self.recency)
        if min(*weights, self.penalty) < 0 or not math.isclose(math.fsum(weights), 1.0):
            raise ValueError("The weights of the four terms are not negative and sum to 1.")
        if self.half_life_days <= 0:
            raise ValueError("A half-life is longer than nothing.")

    def weights(self) -> dict[str, float]:
        """What each term counts, by its name; that of `penalty` is subtracted."""
        return {
            "match": self.match,
            "authority": self.authority,
            "scope": self.scope,
            "recency": self.recency,
            "penalty": self.penalty,
        }

    def floor(self, query: KnowledgeQuery) -> float:
        """The lowest score that the query accepts."""
        return self.min_score if query.min_score is None else query.min_score


def _recency(doc_date: date | None, today: date, half_life_days: float) -> float:
    """By the document's own date: 1 today and in the future, half of it each half-life."""
    if doc_date is None:
        return _UNDATED
    age = max((today - doc_date).days, 0)
    return math.pow(0.5, age / half_life_days)


def _penalty(candidate: Candidate, tiny_tokens: int) -> float:
    """How little a passage has to say: 1 for nothing, 0 for an ordinary paragraph.

    A passage shorter than `tiny_tokens`, or one of boilerplate (`likeness.boilerplate`).
    """
    tiny = 1.0 - candidate.tokens / tiny_tokens if candidate.tokens < tiny_tokens else 0.0
    return min(max(tiny, candidate.boilerplate, 0.0), 1.0)


def _terms(
    candidate: Candidate, query: KnowledgeQuery, policy: RankingPolicy, today: date
) -> ScoreTerms:
    in_scope = query.current_scope is not None and candidate.project_scope == query.current_scope
    return ScoreTerms(
        match=min(max(candidate.match, 0.0), 1.0),
        authority=_AUTHORITY[candidate.authority],
        scope=1.0 if in_scope else 0.0,
        recency=_recency(candidate.doc_date, today, policy.half_life_days),
        penalty=_penalty(candidate, policy.tiny_tokens),
    )


def _score(terms: ScoreTerms, policy: RankingPolicy) -> float:
    score = (
        policy.match * terms.match
        + policy.authority * terms.authority
        + policy.scope * terms.scope
        + policy.recency * terms.recency
        - policy.penalty * terms.penalty
    )
    return min(max(score, 0.0), 1.0)


def rank(
    candidates: Iterable[Candidate], query: KnowledgeQuery, policy: RankingPolicy, today: date
) -> list[RankedPassage]:
    """All candidates, best first; equal scores by chunk id, so the order is one.

    `today` is the day of the query's `as_of`, or of now.
    """
    ranked = []
    for candidate in candidates:
        terms = _terms(candidate, query, policy, today)
        ranked.append(RankedPassage(candidate=candidate, score=_score(terms, policy), terms=terms))
    ranked.sort(key=_order)
    return sorted(_less_repetition(ranked, policy), key=_order)


def _order(passage: RankedPassage) -> tuple[float, str]:
    return -passage.score, passage.candidate.chunk_id


def _less_repetition(
    ranked: Sequence[RankedPassage], policy: RankingPolicy
) -> Iterator[RankedPassage]:
    """Passages that nearly repeat a higher one pay for it; equal texts are `select`'s business."""
    holders: dict[int, list[int]] = {}
    for place, passage in enumerate(ranked):
        runs = passage.candidate.sketch[1:]
        shared: dict[int, int] = {}
        for run in runs:
            higher_ones = holders.setdefault(run, [])
            for higher in higher_ones:
                shared[higher] = shared.get(higher, 0) + 1
            higher_ones.append(place)
        likest = 0.0
        for higher, in_common in sorted(shared.items(), key=lambda item: -item[1]):
            # The share is of a union that holds at least as many runs as either sketch.
            if in_common < policy.repetition * len(runs):
                break
            other = ranked[higher].candidate.sketch
            union = len(runs) + len(other) - 1 - in_common
            if in_common / min(SKETCH_SIZE, union) > likest:
                likest = max(likest, resemblance(passage.candidate.sketch, other))
        if likest < policy.repetition or likest <= passage.terms.penalty:
            yield passage
            continue
        terms = replace(passage.terms, penalty=likest)
        yield replace(passage, terms=terms, score=_score(terms, policy))
