"""What a user would pick instead of ours, on the very chunks that ours ranks.

Every system ranks the same passages and has a passage's title and heading path to read besides
its text. A document is ranked by its best passage. Whatever a peer's own users would do about
words (stop words, stems) is the peer's business.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import ir_measures
from django.db import connection
from ir_measures import Success, nDCG

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.scope import resolve_scope
from knowledge.core.types import KnowledgeQuery
from knowledge.evaluation.collections import Collection, Question
from knowledge.evaluation.harness import Evaluator, spread
from knowledge.evaluation.throwaway import member, settle, throw_away_tenant
from knowledge.models import Chunk
from knowledge.retrieval.search import CANDIDATES

OURS: Final = "ours"
OR_TS_RANK: Final = "OR + ts_rank"
TANTIVY: Final = "tantivy"
ALL: Final = "all"
TUNED_ON: Final = "tuned on"
HELD_OUT: Final = "held out"
DOCUMENTS: Final = "documents"
PASSAGES: Final = "passages"
NDCG: Final = "ndcg_at_10"
RECALL: Final = "recall_at_3"
# `Success` is the share of questions with something that answers among the first three.
_MEASURES: Final = {NDCG: nDCG @ 10, RECALL: Success @ 3}

_OFF_TOPIC: Final = Path(__file__).with_name("off_topic.txt")
_FOREIGN_QUESTIONS: Final = 150
_STEP: Final = 0.01
_FLOORS: Final = tuple(round(number * _STEP, 2) for number in range(5, 61))
# What a floor may cost: one answerable question in twenty.
KEPT: Final = 0.95
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A chunk of ours as its words: `head` is the title and the headings it stands under."""

    chunk_id: str
    document: UUID
    head: str
    text: str

    @property
    def words(self) -> str:
        return f"{self.head}\n{self.text}"


class Peer(Protocol):
    """A search over the passages that it was made with."""

    def __call__(self, question: str) -> Sequence[int]:
        """Numbers of passages, best first, `CANDIDATES` at most."""
        ...


# --- the peers -------------------------------------------------------------------------------


@contextmanager
def stock_django(passages: Sequence[Passage]) -> Iterator[dict[str, Peer]]:
    """`SearchVector`, `SearchQuery` and `SearchRank` of Django, in the SQL that they make.

    As its documentation has it: all words of the question must occur, `ts_rank` orders. Beside it
    the same with any word, ranked with normalisation 1. The vectors are stored, as in a
    `SearchVectorField`.
    """
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE peer_passage (number integer, vector tsvector)")
        try:
            cursor.executemany(
                "INSERT INTO peer_passage VALUES (%s, to_tsvector('english', %s))",
                [
                    (number, passage.words.replace("\0", " "))
                    for number, passage in enumerate(passages)
                ],
            )
            cursor.execute("CREATE INDEX ON peer_passage USING gin (vector)")
            cursor.execute("ANALYZE peer_passage")
            # The words of a plain query are joined by " & ", and none of them holds a space.
            either = "replace(plainto_tsquery('english', %s)::text, ' & ', ' | ')::tsquery"
            yield {
                "Django, AND": _full_text("plainto_tsquery('english', %s)", normalisation=0),
                OR_TS_RANK: _full_text(either, normalisation=1),
            }
        finally:
            cursor.execute("DROP TABLE peer_passage")


def _full_text(query: str, *, normalisation: int) -> Peer:
    statement = f"""
        SELECT number FROM peer_passage, (SELECT {query} AS query) AS asked
        WHERE vector @@ query
        ORDER BY ts_rank(vector, query, {normalisation}) DESC, number LIMIT {CANDIDATES}
    """  # noqa: S608 - constants

    def search(question: str) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(statement, [question])
            return [number for (number,) in cursor.fetchall()]

    return search


def bm25s(passages: Sequence[Passage]) -> Peer:
    """BM25 as most people would set it up in Python: stop words dropped, English stems."""
    import bm25s as library  # noqa: PLC0415 - optional
    import Stemmer  # noqa: PLC0415 - optional

    # It tells its progress at a level of its own, whatever an installation logs.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    stemmer = Stemmer.Stemmer("english")

    def tokens(texts: list[str]) -> Any:
        return library.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    index = library.BM25(k1=1.5, b=0.75)
    index.index(tokens([passage.words for passage in passages]), show_progress=False)
    count = min(CANDIDATES, len(passages))

    def search(question: str) -> list[int]:
        asked = tokens([question])
        if not any(asked.ids):
            return []
        found, scores = index.retrieve(asked, k=count, show_progress=False)
        pairs = zip(found[0], scores[0], strict=True)
        return [int(number) for number, score in pairs if score > 0]

    return search


def tantivy(passages: Sequence[Passage]) -> Peer:
    """The search engine library, with a title field and a body field, English stems."""
    import tantivy as library  # noqa: PLC0415 - optional

    builder = library.SchemaBuilder()
    builder.add_integer_field("number", stored=True)
    for field in ("title", "body"):
        builder.add_text_field(field, tokenizer_name="en_stem")
    index = library.Index(builder.build())
    writer = index.writer(num_threads=1)
    for number, passage in enumerate(passages):
        writer.add_document(library.Document(number=number, title=passage.head, body=passage.text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(question: str) -> list[int]:
        # In lower case and without punctuation a question is words, never operators.
        words = " ".join(_WORD.findall(question.lower()))
        if not words:
            return []
        hits = searcher.search(index.parse_query(words, ["title", "body"]), CANDIDATES).hits
        return [int(searcher.doc(address)["number"][0]) for _, address in hits]

    return search


LIBRARIES: Final[Mapping[str, Callable[[Sequence[Passage]], Peer]]] = {
    "bm25s": bm25s,
    TANTIVY: tantivy,
}


@contextmanager
def peers(passages: Sequence[Passage]) -> Iterator[tuple[dict[str, Peer], dict[str, str]]]:
    """The peers by name, and those that are missing with the module that they lack."""
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        found = stack.enter_context(stock_django(passages))
        for name, make in LIBRARIES.items():
            try:
                found[name] = make(passages)
            except ModuleNotFoundError as error:
                missing[name] = error.name or name
        yield found, missing


@contextmanager
def timed_peers(principal: Principal) -> Iterator[dict[str, Peer]]:
    """Those whose times are worth knowing, over all passages that a principal may read."""
    passages = _passages(principal)
    with stock_django(passages) as found:
        yield {OR_TS_RANK: found[OR_TS_RANK], TANTIVY: tantivy(passages)}


# --- the comparison --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What counts as right for a question: documents, and passages that hold words that answer.

    `passages` is `None` for a question without such words. A quote that no passage holds whole is
    answered by nothing, which is the chunker's miss and everybody's.
    """

    id: str
    documents: Mapping[str, int]
    passages: frozenset[int] | None


class Comparer(Evaluator):
    """Ranks a collection by ours and by the peers, in a tenant that is gone afterwards."""

    def compare(
        self,
        collection: Collection,
        *,
        queries: int | None = None,
        foreign: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """The object that `manage.py compare --json` prints for a collection.

        With `foreign`, questions that the collection does not answer, it has the best scores of
        both kinds of questions under `best_scores`.
        """
        questions = spread(collection.questions(), queries)
        with throw_away_tenant("evaluate") as tenant_id:
            principal = member(tenant_id)
            corpus = self._admit(collection, principal)
            settle()
            passages = _passages(principal)
            asked = [
                self._ours(question.text, principal)
                for question in self._track(questions, f"Asking {OURS}", len(questions))
            ]
            numbers = {passage.chunk_id: number for number, passage in enumerate(passages)}
            ours = [[numbers[chunk_id] for chunk_id in one.ranked] for one in asked]
            ranked: dict[str, Sequence[Sequence[int]]] = {}
            with peers(passages) as (found, missing):
                for name, peer in found.items():
                    ranked[name] = [
                        peer(question.text)
                        for question in self._track(questions, f"Asking {name}", len(questions))
                    ]
            ranked[OURS] = ours  # last, as the row that is held against the others
            judged = judge(questions, passages)
            told: dict[str, Any] = {
                "collection": collection.name,
                "documents": corpus.documents,
                "chunks": len(passages),
                "queries": len(questions),
                "refused": corpus.refused,
                "missing": missing,
                "systems": {
                    name: figures_of(judged, passages, corpus.ids, order)
                    for name, order in ranked.items()
                },
            }
            if foreign is not None:
                told["best_scores"] = {
                    "answerable": [one.best for one in asked],
                    "foreign": [
                        self._ours(text, principal).best
                        for text in self._track(foreign, "Asking foreign questions", len(foreign))
                    ],
                }
        return told

    def _ours(self, text: str, principal: Principal) -> _Asked:
        result = self._store.search(KnowledgeQuery(text=text, min_score=0.0), principal)
        ranked = [(-one.score, one.candidate.chunk_id) for one in result.passages]
        ranked += [(-left.score, left.chunk_id) for left in result.omitted]
        ranked.sort()
        return _Asked(
            ranked=[chunk_id for _, chunk_id in ranked], best=-ranked[0][0] if ranked else 0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """All that ours ranked, as chunk ids, and the score of the best one."""

    ranked: Sequence[str]
    best: float


def _passages(principal: Principal) -> list[Passage]:
    with tenant_session(principal.tenant_id):
        rows = (
            Chunk.objects.searchable(resolve_scope(principal, None))
            .order_by("pk")
            .values_list(
                "chunk_id",
                "chunk_set__version__document_id",
                "chunk_set__version__document__title",
                "heading_path",
                "text",
            )
        )
        return [
            Passage(chunk_id=chunk_id, document=document, head=" ".join((title, *path)), text=text)
            for chunk_id, document, title, path, text in rows
        ]


def judge(questions: Sequence[Question], passages: Sequence[Passage]) -> list[Judged]:
    """The right answers to each question; quotes are looked for white space aside."""
    holders: dict[str, set[int]] = {
        _squeezed(quote): set() for question in questions for _, quote in question.quotes
    }
    if holders:
        for number, passage in enumerate(passages):
            text = _squeezed(passage.text)
            for quote, found in holders.items():
                if quote in text:
                    found.add(number)
    return [
        Judged(
            id=question.id,
            documents=question.answers,
            passages=frozenset(
                number for _, quote in question.quotes for number in holders[_squeezed(quote)]
            )
            if question.quotes
            else None,
        )
        for question in questions
    ]


def _squeezed(text: str) -> str:
    return "".join(text.split())


def half_of(question: str) -> str:
    """The half of the questions that one with this id belongs to, for good."""
    return HELD_OUT if sha256(question.encode()).digest()[-1] % 2 else TUNED_ON


def figures_of(
    judged: Sequence[Judged],
    passages: Sequence[Passage],
    ids: Mapping[UUID, Sequence[str]],
    ranked: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Figures of documents, each at the rank of its best passage, and of passages where judged.

    `ids` are the collection's names of a document of ours: several when they have equal bytes.
    """
    documents = {}
    for one, order in zip(judged, ranked, strict=True):
        found = dict.fromkeys(passages[number].document for number in order)
        documents[one.id] = [id_ for document in found for id_ in ids.get(document, ())]
    told = {DOCUMENTS: _figures({one.id: one.documents for one in judged}, documents)}
    quoted = {
        one.id: {str(number): 1 for number in one.passages} or {"nothing": 1}
        for one in judged
        if one.passages is not None
    }
    if quoted:
        orders = {one.id: list(map(str, order)) for one, order in zip(judged, ranked, strict=True)}
        told[PASSAGES] = _figures(quoted, orders)
    return told


def _figures(
    judgements: Mapping[str, Mapping[str, int]], ranked: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """nDCG@10 and recall@3 over all questions and over either half; nothing found counts as 0."""
    run = {
        question: {found: 1.0 / rank for rank, found in enumerate(ranked[question], start=1)}
        for question in judgements
    }
    values = {
        (metric.query_id, metric.measure): float(metric.value)
        for metric in ir_measures.iter_calc(list(_MEASURES.values()), judgements, run)
    }
    told: dict[str, dict[str, Any]] = {}
    for part in (ALL, TUNED_ON, HELD_OUT):
        asked = [question for question in judgements if part in {ALL, half_of(question)}]
        told[part] = {
            "queries": len(asked),
            **{
                name: _mean([values.get((question, measure), 0.0) for question in asked])
                for name, measure in _MEASURES.items()
            },
        }
    return told


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


# --- the floor -------------------------------------------------------------------------------


def foreign_questions(collection: Collection, others: Sequence[Collection]) -> list[str]:
    """Questions that a collection has no answer to: off-topic ones, and some of every other's."""
    texts = [line for line in _OFF_TOPIC.read_text(encoding="utf-8").splitlines() if line]
    theirs = [other for other in others if other.folder != collection.folder]
    each = _FOREIGN_QUESTIONS // max(len(theirs), 1)
    asked = (spread(other.questions(), each) for other in theirs)
    return texts + [question.text for question in chain.from_iterable(asked)]


def floor_of(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """The curve of floors, given each collection's best scores, and the default it speaks for.

    The default is the highest floor that keeps `KEPT` of the answerable questions in the mean of
    the collections.
    """
    curve: list[dict[str, Any]] = []
    default: float | None = None
    for floor in _FLOORS:
        by_collection = {
            name: {
                "kept": _share(score >= floor for score in best["answerable"]),
                "dropped": _share(score < floor for score in best["foreign"]),
            }
            for name, best in scores.items()
        }
        kept, dropped = (
            _share(one[key] for one in by_collection.values()) for key in ("kept", "dropped")
        )
        if kept >= KEPT:
            default = floor
        curve.append(
            {"floor": floor, "kept": kept, "dropped": dropped, "collections": by_collection}
        )
    return {
        "default": default,
        "separation": {
            name: separation(best["answerable"], best["foreign"]) for name, best in scores.items()
        },
        "curve": curve,
    }


def separation(answerable: Sequence[float], foreign: Sequence[float]) -> float | None:
    """How often an answerable question's score is above a foreign one's: the area under the ROC."""
    if not (answerable and foreign):
        return None
    wins = sum((one > other) + (one == other) / 2 for one in answerable for other in foreign)
    return round(wins / (len(answerable) * len(foreign)), 4)


def _share(outcomes: Iterable[float]) -> float:
    told = list(outcomes)
    return round(sum(told) / len(told), 4) if told else 0.0
