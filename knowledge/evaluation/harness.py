"""A labelled collection through the real pipeline and the real search, and what came of it.

Passages are ranked, and the first passage of a document gives the document its rank: nDCG@10,
recall@10, MRR@10 and hit@3 (the share of questions with an answering document among the first
three) are measured on all that a search ranked, without floor, cap or budget. Where the
collection quotes the words that answer, `passage_ndcg_at_10` and `passage_hit_at_3` are the same
for passages: one answers when it holds a quote whole, white space aside. What a caller is really
handed, with the defaults of a search, gives `hit_at_3_capped`, `noise_at_3` and
`passage_recall_at_3`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import ir_measures
from ir_measures import RR, R, Success, nDCG

from access.errors import Malformed, VerbatimError
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.types import SearchResult
from knowledge.evaluation.collections import Collection, Question, as_file
from knowledge.evaluation.progress import Track, untracked
from knowledge.evaluation.throwaway import member, settle, throw_away_tenant, uploaded
from knowledge.evaluation.variants import WITHOUT, searchers
from knowledge.models import Chunk
from knowledge.retrieval.search import Searcher
from knowledge.store import KnowledgeStore

ALL: Final = "all"
_MEASURES: Final = {
    "ndcg_at_10": nDCG @ 10,
    "recall_at_10": R @ 10,
    "mrr_at_10": RR @ 10,
    "hit_at_3": Success @ 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one search came to: documents in rank order, and what the caller was handed."""

    question: Question
    ranked: tuple[str, ...]
    # Chunk ids in rank order, and those that hold a quote.
    passages: tuple[str, ...]
    holders: frozenset[str]
    returned: tuple[str, ...]
    texts: tuple[str, ...]
    milliseconds: float


@dataclass(slots=True, kw_only=True)
class Corpus:
    """What became of a collection's documents in the throw-away tenant."""

    documents: int = 0
    chunks: int = 0
    refused: list[dict[str, str]] = field(default_factory=list)
    # Documents of equal bytes are one document of ours and several of the collection's.
    ids: dict[UUID, list[str]] = field(default_factory=dict)
    # The chunks that hold a quote whole, by quote without its white space.
    holders: dict[str, set[str]] = field(default_factory=dict)


class Evaluator:
    """Evaluates a collection with a store: one tenant per call of `evaluate`, gone afterwards."""

    def __init__(self, store: KnowledgeStore, track: Track = untracked) -> None:
        self._store = store
        self._track = track

    def evaluate(
        self, collection: Collection, *, arms: Sequence[str] = (), queries: int | None = None
    ) -> dict[str, Any]:
        """The object that `manage.py evaluate --json` prints.

        `arms` are names out of `searchers`, or `all`; none means every arm by itself and, when
        there are several, all of them fused. `queries` takes that many questions, spread evenly.
        """
        questions = spread(collection.questions(), queries)
        chosen = self._chosen(arms, questions)
        with throw_away_tenant("evaluate") as tenant_id:
            principal = member(tenant_id)
            corpus = self._admit(collection, principal)
            find_quotes(corpus, questions, tenant_id)
            settle()
            measured = {
                name: summarise(list(self._ask(searcher, questions, corpus, principal, name)))
                for name, searcher in chosen.items()
            }
        return {
            "collection": collection.name,
            "documents": corpus.documents,
            "chunks": corpus.chunks,
            "queries": len(questions),
            "refused": corpus.refused,
            "arms": measured,
        }

    def _chosen(self, arms: Sequence[str], questions: Sequence[Question]) -> dict[str, Searcher]:
        known = searchers(self._store.searcher, [question.query() for question in questions])
        if ALL in arms:
            return known
        wanted = arms or [name for name in known if WITHOUT not in name]
        if unknown := [name for name in wanted if name not in known]:
            raise Malformed(f"There is no arm {unknown[0]!r}; there are: {', '.join(known)}.")
        return {name: known[name] for name in wanted}

    def _admit(self, collection: Collection, principal: Principal) -> Corpus:
        corpus = Corpus()
        for document in self._track(collection.documents(), "Admitting", None):
            try:
                content, request = as_file(document)
                with uploaded(principal, content, **request) as asked:
                    result = self._store.ingest(asked, principal)
            except VerbatimError as refused:
                corpus.refused.append({"document": document.id, "code": refused.code})
                continue
            corpus.documents += 1
            corpus.chunks += 0 if result.already_ingested else result.report.chunks
            corpus.ids.setdefault(result.document_id, []).append(document.id)
        return corpus

    def _ask(
        self,
        searcher: Searcher,
        questions: Sequence[Question],
        corpus: Corpus,
        principal: Principal,
        name: str,
    ) -> Iterator[Answer]:
        store = replace(self._store, searcher=searcher)
        for question in self._track(questions, f"Asking {name}", len(questions)):
            started = time.perf_counter()
            result = store.search(question.query(), principal)
            yield answer(
                question, result, corpus, milliseconds=(time.perf_counter() - started) * 1_000
            )


def spread(questions: list[Question], count: int | None) -> list[Question]:
    """At most `count` of the questions, evenly spread; the same ones every time."""
    if count is None or count >= len(questions):
        return questions
    if count < 1:
        raise Malformed("At least one question is needed.")
    return [questions[number * len(questions) // count] for number in range(count)]


def answer(
    question: Question,
    result: SearchResult,
    corpus: Corpus,
    *,
    milliseconds: float = 0.0,
) -> Answer:
    """Passages and what was omitted are together all that was ranked, without floor and cap."""
    ranked = [
        (-passage.score, passage.candidate.chunk_id, passage.candidate.document_id)
        for passage in result.passages
    ]
    ranked += [(-left.score, left.chunk_id, left.document_id) for left in result.omitted]
    ranked.sort()
    ids = corpus.ids
    documents = dict.fromkeys(document for _, _, document in ranked)
    return Answer(
        question=question,
        ranked=tuple(id_ for document in documents for id_ in ids.get(document, ())),
        passages=tuple(chunk_id for _, chunk_id, _ in ranked),
        holders=frozenset().union(
            *(corpus.holders.get(_squeezed(quote), ()) for _, quote in question.quotes)
        ),
        returned=tuple(
            _told(question, ids.get(passage.candidate.document_id, ()))
            for passage in result.passages
        ),
        texts=tuple(passage.candidate.text for passage in result.passages),
        milliseconds=milliseconds,
    )


def find_quotes(corpus: Corpus, questions: Sequence[Question], tenant_id: str) -> None:
    """Which passages hold the words that answer, into `corpus.holders`."""
    wanted = {_squeezed(quote) for question in questions for _, quote in question.quotes}
    if not wanted:
        return
    with tenant_session(tenant_id):
        for chunk_id, text in Chunk.objects.values_list("chunk_id", "text").iterator():
            squeezed = _squeezed(text)
            for quote in wanted:
                if quote in squeezed:
                    corpus.holders.setdefault(quote, set()).add(chunk_id)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _told(question: Question, ids: Sequence[str]) -> str:
    """Of several documents of equal bytes the one that answers, when one does."""
    return next((id_ for id_ in ids if id_ in question.answers), ids[0] if ids else "")


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """The figures of one arm over all questions, those that found nothing included."""
    found = _measured(
        {answer.question.id: answer.question.answers for answer in answers},
        {answer.question.id: answer.ranked for answer in answers},
    )
    returned = sum(len(answer.returned) for answer in answers)
    noise = sum(
        document not in answer.question.answers
        for answer in answers
        for document in answer.returned
    )
    quoted = [answer for answer in answers if answer.question.quotes]
    # A quote that no chunk holds whole is answered by nothing, which is the chunker's miss.
    passages = _measured(
        {a.question.id: dict.fromkeys(a.holders or {"nothing"}, 1) for a in quoted},
        {a.question.id: a.passages for a in quoted},
    )
    times = [answer.milliseconds for answer in answers]
    return {
        **found,
        "hit_at_3_capped": _share(
            any(document in answer.question.answers for document in answer.returned)
            for answer in answers
        ),
        "noise_at_3": round(noise / returned, 4) if returned else 0.0,
        "passage_recall_at_3": _share(map(quotes_an_answer, quoted)) if quoted else None,
        **{
            f"passage_{name}": passages[name] if quoted else None
            for name in ("ndcg_at_10", "hit_at_3")
        },
        "latency_ms": {"p50": percentile(times, 50), "p95": percentile(times, 95)},
    }


def _measured(
    judgements: Mapping[str, Mapping[str, int]], ranked: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    if not judgements:
        return {}
    run = {
        question: {found: 1.0 / rank for rank, found in enumerate(order, start=1)}
        for question, order in ranked.items()
    }
    measured = ir_measures.calc_aggregate(list(_MEASURES.values()), judgements, run)
    return {name: round(float(measured[measure]), 4) for name, measure in _MEASURES.items()}


def quotes_an_answer(answer: Answer) -> bool:
    """Whether a passage that was handed out contains words that answer, white space aside."""
    texts = [_squeezed(text) for text in answer.texts]
    return any(_squeezed(quote) in text for _, quote in answer.question.quotes for text in texts)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` of the values do not exceed, to a hundredth."""
    if len(values) < 2:  # noqa: PLR2004 - quantiles need two
        return round(values[0], 2) if values else 0.0
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 2)


def _share(outcomes: Iterable[bool]) -> float:
    told = list(outcomes)
    return round(sum(told) / len(told), 4) if told else 0.0
