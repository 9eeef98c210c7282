"""A question's way: form, arms, fuse, rank, floor and budget, render, trace."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import DEFAULT_DB_ALIAS

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.adapters import database
from knowledge.core.budget import Selection, select
from knowledge.core.fusion import LEXICAL, Fusion
from knowledge.core.ports import TokenCounter
from knowledge.core.query import form_query
from knowledge.core.ranking import RankingPolicy, rank
from knowledge.core.rendering import BlockPassage, render
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.core.types import (
    Candidate,
    KnowledgeQuery,
    RankedPassage,
    RenderedBlock,
    SearchResult,
)
from knowledge.models import ArmSwitch
from knowledge.retrieval.arms import ArmFailed, Asked, Found, SearchArm, SearchView, Speller
from knowledge.retrieval.candidates import load_candidates, with_text
from knowledge.retrieval.replica import Replica
from knowledge.retrieval.trace import record_trace

logger = logging.getLogger(__name__)

CANDIDATES = 50
_LOOKS = 3
NOTHING_FOUND = "Nothing that you may see matches these words."
TOO_FEW_WORDS = "The text says too little to recall anything by."
ARM_AWAY = "The {} arm cannot answer at the moment; passages were found without it."
YIELDED = "Knowledge yielded: the turn had no room left for it."


# What each arm found, and the passages behind it.
Looked = tuple[Mapping[str, Found], Sequence[Candidate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """Retrieval with its parts. Read-only but for the trace.

    Passages are looked for on the replica, when there is one that has what the primary has. What is
    shown is read from the primary all the same, where it cannot be deleted before it is recorded.
    """

    arms: Sequence[SearchArm]
    fusion: Fusion
    policy: RankingPolicy
    tokens: TokenCounter
    # Those of the arms that a tenant has only when they were switched on for it.
    switched: frozenset[str] = frozenset()
    # One of the arms, or none: the others are asked what it takes the text for.
    speller: Speller | None = None
    replica: Replica | None = None

    def search(self, query: KnowledgeQuery, principal: Principal) -> SearchResult:
        """Raises `InvalidQuery` for what is not a text and `ProjectForbidden`; never for words."""
        started = time.perf_counter()
        form_query(query)  # raises before anything is read or written
        scope = resolve_scope(principal, query.current_scope)
        asked, failed = self._prepared(query, principal, scope)
        look = partial(self._look, scope, query, asked)
        looked, answered = self._on_replica(principal.tenant_id, look)
        with tenant_session(principal.tenant_id):
            now = database.now()
            as_of = query.as_of or now
            found, candidates = looked or look()
            ranked = rank(candidates, query, self.policy, as_of.date())
            said = max(one.words for one in found.values())
            floor = self.policy.floor(query) if said >= query.least_words else math.inf
            selection, block = self._selected(ranked, query, as_of, floor)
            notes = dict.fromkeys(note for arm in found.values() for note in arm.notes)
            notes |= dict.fromkeys(ARM_AWAY.format(name) for name in failed)
            if not candidates and not notes:
                notes[NOTHING_FOUND] = None
            if said < query.least_words:
                notes[TOO_FEW_WORDS] = None
            result = SearchResult(
                policy=self.policy.version,
                as_of=as_of,
                trace_id=uuid4(),
                block=block,
                passages=selection.passages,
                omitted=selection.omitted,
                notes=tuple(notes),
                words=next((one.taken for one in found.values() if one.taken), ()),
            )
            record_trace(
                query,
                principal,
                result,
                created_at=now,
                duration_ms=(time.perf_counter() - started) * 1_000,
                ranking={
                    **self._ranking(query),
                    "arms": list(asked),
                    "arms_away": failed,
                    **answered,
                },
            )
        return result

    def _on_replica(
        self, tenant_id: str, look: Callable[[str], Looked]
    ) -> tuple[Looked | None, dict[str, str]]:
        """What was found there, if anybody looked, and what a trace says of it."""
        if self.replica is None:
            return None, {}
        looked, answered = self.replica.look(tenant_id, look)
        return looked, {"replica": answered}

    def _look(
        self,
        scope: ReadScope,
        query: KnowledgeQuery,
        asked: Mapping[str, Asked],
        using: str = DEFAULT_DB_ALIAS,
    ) -> Looked:
        """In a session of the tenant in that database."""
        view = SearchView.of(scope, as_of=query.as_of, using=using)
        for _ in range(_LOOKS):
            found = {name: ask(view, CANDIDATES) for name, ask in asked.items()}
            scores = _scored_by_all(found)
            match = self.fusion.fuse(scores)
            candidates = load_candidates(view, match, scores)
            # What was found and is gone was superseded in between: the new version is there to be
            # found, and a reader sees all of the old one or all of the new.
            if len(candidates) == len(match):
                break
        return found, candidates

    def _prepared(
        self, query: KnowledgeQuery, principal: Principal, scope: ReadScope
    ) -> tuple[dict[str, Asked], list[str]]:
        """The arms that the tenant has, ready to look, and the names of those that cannot.

        What an arm waits for outside is waited for before the transaction of the search is open.
        """
        asked, failed = dict[str, Asked](), list[str]()
        arms, respelled = self._begun(query, principal, scope)
        for arm in arms:
            try:
                asked[arm.name] = arm.prepare(query if arm is self.speller else respelled)
            except ArmFailed as away:
                logger.warning("arm_failed", extra={"arm": arm.name, "reason": away.reason})
                failed.append(arm.name)
        return asked, failed

    def _begun(
        self, query: KnowledgeQuery, principal: Principal, scope: ReadScope
    ) -> tuple[list[SearchArm], KnowledgeQuery]:
        """The arms that the tenant has, and the question as the others are to take it."""
        if all(arm is self.speller for arm in self.arms):
            return list(self.arms), query
        with tenant_session(principal.tenant_id):
            switches = ArmSwitch.objects.filter(tenant_id=principal.tenant_id, enabled=True)
            on = set(switches.values_list("arm", flat=True)) if self.switched else set[str]()
            arms = [arm for arm in self.arms if arm.name not in self.switched - on]
            if self.speller is None or all(arm is self.speller for arm in arms):
                return arms, query
            view = SearchView.of(scope, as_of=query.as_of)
            return arms, replace(query, text=self.speller.respelled(view, query))

    def give_way(self, query: KnowledgeQuery, principal: Principal) -> None:
        """Records that a turn had no room for knowledge, so that nothing was looked for.

        Raises what `search` raises.
        """
        form_query(query)
        resolve_scope(principal, query.current_scope)
        with tenant_session(principal.tenant_id):
            now = database.now()
            as_of = query.as_of or now
            result = SearchResult(
                policy=self.policy.version,
                as_of=as_of,
                trace_id=uuid4(),
                block=self._block((), as_of),
                passages=(),
                omitted=(),
                notes=(YIELDED,),
            )
            record_trace(
                query,
                principal,
                result,
                created_at=now,
                duration_ms=0.0,
                ranking=self._ranking(query),
                yielded=True,
            )

    def _ranking(self, query: KnowledgeQuery) -> dict[str, Any]:
        """How scores are made, so that a trace can show what each is made of."""
        return {
            "floor": self.policy.floor(query),
            "weights": self.policy.weights(),
            "fusion": self.fusion.version,
        }

    def _selected(
        self,
        ranked: Sequence[RankedPassage],
        query: KnowledgeQuery,
        as_of: datetime,
        floor: float,
    ) -> tuple[Selection, RenderedBlock]:
        """The passages that fit, and their block; the budget shrinks until the block fits too."""
        budget = query.budget_tokens
        while True:
            selection = select(
                ranked,
                floor=floor,
                max_per_document=query.max_per_document,
                max_passages=query.max_passages,
                budget_tokens=budget,
            )
            selection = replace(selection, passages=with_text(selection.passages))
            block = self._block(selection.passages, as_of)
            limit = query.block_tokens
            if limit is None or block.tokens <= limit or not selection.passages:
                return selection, block
            budget = min(selection.tokens - 1, limit - (block.tokens - selection.tokens))

    def _block(self, passages: Sequence[RankedPassage], as_of: datetime) -> RenderedBlock:
        shown = [BlockPassage.of(passage.candidate) for passage in passages]
        text = render(shown, as_of=as_of, policy=self.policy.version)
        return RenderedBlock(
            text=text,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            tokens=self.tokens.count(text),
        )


def _scored_by_all(found: Mapping[str, Found]) -> dict[str, Mapping[int, float]]:
    """Every chunk that any arm found, scored by each: what one of them left out for want of room
    is no worse for it. A question without a word to search for has no meaning to search for."""
    if LEXICAL in found and not found[LEXICAL].words:
        return {name: {} for name in found}
    if len(found) == 1:
        return {name: one.scores for name, one in found.items()}
    union = {number for one in found.values() for number in one.scores}
    return {
        name: {**one.score(sorted(union - one.scores.keys())), **one.scores}
        for name, one in found.items()
    }
