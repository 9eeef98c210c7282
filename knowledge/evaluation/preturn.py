"""A labelled collection through automatic recall, and turns that have no answer in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Final

from access.principal import Principal
from knowledge.core.preturn import Trial
from knowledge.core.types import KnowledgeQuery, SearchResult
from knowledge.evaluation.collections import Collection, Question
from knowledge.evaluation.harness import (
    Corpus,
    Evaluator,
    answer,
    find_quotes,
    quotes_an_answer,
    spread,
)
from knowledge.evaluation.throwaway import member, settle, throw_away_tenant
from knowledge.retrieval.preturn import Recalled, recall

OWN: Final = "collection"
# Turns that no corpus answers: questions about other things, and turns that ask for nothing.
ELSEWHERE: Final = ("off_topic", "small_talk")


class PreturnEvaluator(Evaluator):
    """Tries automatic recall on a collection: one tenant per call of `trial`, gone afterwards."""

    def trial(self, collection: Collection, *, queries: int | None = None) -> Trial:
        """Questions without a judgement are turns without an answer, beside our own lists.

        `queries` takes that many of the questions with an answer, spread evenly.
        """
        questions = spread(collection.questions(), queries)
        turns = list(turns_without_answer(collection))
        with throw_away_tenant("evaluate") as tenant_id:
            principal = member(tenant_id)
            corpus = self._admit(collection, principal)
            find_quotes(corpus, questions, tenant_id)
            settle()
            found = list(self._recalled(questions, principal))
            disturbed, tokens = Counter[str](), 0
            for kind, turn in self._track(turns, "Turns without an answer", len(turns)):
                told = recall(self._store.searcher, KnowledgeQuery(text=turn), principal)
                disturbed[kind] += told.reason is None
                tokens += told.block_tokens
        return Trial(
            collection=collection.name,
            floor=self._store.searcher.policy.preturn_min_score,
            policy=self._store.searcher.policy.version,
            answerable=len(questions),
            recalled=sum(told.reason is None for _, told in found),
            answered=sum(
                told.result is not None and answers(question, told.result, corpus)
                for question, told in found
            ),
            unanswerable=dict(Counter(kind for kind, _ in turns)),
            disturbed=dict(disturbed),
            tokens=tokens,
        )

    def _recalled(
        self, questions: list[Question], principal: Principal
    ) -> Iterator[tuple[Question, Recalled]]:
        for question in self._track(questions, "Questions", len(questions)):
            yield question, recall(self._store.searcher, question.query(), principal)


def answers(question: Question, result: SearchResult, corpus: Corpus) -> bool:
    """Whether a passage holds the words that answer or, where none are named, is of a document
    that does."""
    told = answer(question, result, corpus)
    if question.quotes:
        return quotes_an_answer(told)
    return any(document in question.answers for document in told.returned)


def turns_without_answer(collection: Collection) -> Iterator[tuple[str, str]]:
    """Each with where it comes from."""
    yield from zip(repeat(OWN), collection.unanswered(), strict=False)
    yield from chain.from_iterable(
        zip(repeat(name), _lines(name), strict=False) for name in ELSEWHERE
    )


def _lines(name: str) -> list[str]:
    file = Path(__file__).with_name(f"{name}.txt")
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line]
