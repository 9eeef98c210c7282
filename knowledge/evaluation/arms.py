"""A labelled collection through the search without an arm and with it."""

from __future__ import annotations

from typing import Any

from knowledge.core.arms import ArmTrial
from knowledge.core.fusion import LEXICAL
from knowledge.core.types import KnowledgeQuery
from knowledge.evaluation.collections import Collection
from knowledge.evaluation.harness import Evaluator, find_quotes, spread, summarise
from knowledge.evaluation.preturn import turns_without_answer
from knowledge.evaluation.throwaway import member, settle, throw_away_tenant
from knowledge.evaluation.variants import FUSED, searchers

_FIGURES = ("ndcg_at_10", "hit_at_3", "recall_at_10", "mrr_at_10")


class ArmEvaluator(Evaluator):
    """Tries an arm on a collection: one tenant per call of `trial`, gone afterwards."""

    def trial(self, arm: str, collection: Collection, *, queries: int | None = None) -> ArmTrial:
        """`queries` takes that many of the questions, spread evenly."""
        questions = spread(collection.questions(), queries)
        ways = searchers(self._store.searcher)
        turns = [turn for _, turn in turns_without_answer(collection)]
        with throw_away_tenant("evaluate") as tenant_id:
            principal = member(tenant_id)
            corpus = self._admit(collection, principal)
            find_quotes(corpus, questions, tenant_id)
            settle()
            measured: dict[str, dict[str, Any]] = {}
            disturbed: dict[str, int] = {}
            for name in (LEXICAL, FUSED):
                told = summarise(list(self._ask(ways[name], questions, corpus, principal, name)))
                measured[name] = {key: told[key] for key in _FIGURES}
                disturbed[name] = sum(
                    bool(ways[name].search(KnowledgeQuery(text=turn), principal).passages)
                    for turn in self._track(turns, f"Turns without an answer: {name}", len(turns))
                )
        return ArmTrial(
            arm=arm,
            model=_model_of(self._store.ingestor.embedding),
            collection=collection.name,
            policy=self._store.searcher.policy.version,
            fusion=self._store.searcher.fusion.version,
            questions=len(questions),
            without=measured[LEXICAL],
            with_arm=measured[FUSED],
            unanswerable=len(turns),
            disturbed_without=disturbed[LEXICAL],
            disturbed_with=disturbed[FUSED],
        )


def _model_of(embedding: Any) -> str:
    return str(embedding.current().model) if embedding else ""
