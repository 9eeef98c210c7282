"""How fast ingest and search are, in one run beside what bounds them. Times live here, not in tests."""

from __future__ import annotations

import contextlib
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from django.db import connection

from access.errors import VerbatimError
from access.principal import Principal
from access.tenancy import tenant_session
from artifacts.files import open_regular
from knowledge.adapters.extractors import Extractors
from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core.errors import NoEmbedder
from knowledge.core.normalising import normalise
from knowledge.core.scope import resolve_scope
from knowledge.core.types import KnowledgeQuery
from knowledge.evaluation import generate
from knowledge.evaluation.collections import Collection, as_file, documents_of, is_collection
from knowledge.evaluation.http import key_of, served
from knowledge.evaluation.processes import pool
from knowledge.evaluation.progress import Track
from knowledge.evaluation.throwaway import member, throw_away_tenant, uploaded
from knowledge.ingest.admission import admit
from knowledge.ingest.commit import commit
from knowledge.ingest.pipeline import Ingestor
from knowledge.models import Chunk
from knowledge.retrieval.arms import SearchView
from knowledge.retrieval.lexical import CANDIDATE_BUDGET, LexicalArm
from knowledge.store import KnowledgeStore
from knowledge.wiring import store as wired_store

Part = TypeVar("Part")
File = tuple[bytes, dict[str, str]]

TOP: Final = 10
WHOLE: Final = "tenant_wide"
EVERY_CHUNK: Final = 1_000_000_000
BUDGETS: Final = (3_000, 6_000, CANDIDATE_BUDGET, 24_000, 48_000)
_SEED: Final = 7
_SHORTEST_QUESTION, _LONGEST_QUESTION, _MEAN_BEYOND = 3, 25, 5
_MEGABYTE: Final = 1e6
_QUESTIONS: Final = 20
_READY: Final = "A sentence of plain words, so that everything is loaded before the clock starts."


# --- ingest ----------------------------------------------------------------------------------


class Stopwatch:
    """Seconds by the name of a step."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @contextlib.contextmanager
    def measure(self, step: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] += time.perf_counter() - started  # type: ignore[assignment]


class _Timed:
    """A part of the pipeline whose one method is measured."""

    def __init__(self, part: Any, method: str, step: str, watch: Stopwatch) -> None:
        self._part = part
        self._method = method
        self._step = step
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name != self._method:
            return found

        def measured(*given: Any, **named: Any) -> Any:
            with self._watch.measure(self._step):
                return found(*given, **named)

        return measured


def _timed(part: Part, method: str, step: str, watch: Stopwatch) -> Part:
    return cast("Part", _Timed(part, method, step, watch))


class _TimedExtractors(Extractors):
    def __init__(self, inner: Extractors, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch

    def for_type(self, media_type: str) -> Any:
        return _timed(self._inner.for_type(media_type), "extract", "extract", self._watch)


def _measured(ingestor: Ingestor, watch: Stopwatch) -> Ingestor:
    return replace(
        ingestor,
        extractors=_TimedExtractors(ingestor.extractors, watch),
        chunker=_timed(ingestor.chunker, "chunk", "chunk", watch),
        secret_scanner=_timed(ingestor.secret_scanner, "scan", "scan for secrets", watch),
        instruction_scanner=_timed(
            ingestor.instruction_scanner, "scan", "scan for instructions", watch
        ),
        language_detector=_timed(ingestor.language_detector, "detect", "language", watch),
        stemmer=_timed(ingestor.stemmer, "lexemes", "stem", watch),
    )


_WITHIN_PLAN: Final = (
    *("extract", "chunk", "scan for secrets", "scan for instructions", "language", "stem"),
    "normalise",
)


def bench_ingest(store: KnowledgeStore, paths: Sequence[Path], track: Track) -> dict[str, Any]:
    """Admits files, folders and collections into a throw-away tenant, one after the other."""
    watch, alone = Stopwatch(), Stopwatch()
    ingestor, tokens = _measured(store.ingestor, watch), TiktokenCounter()
    # Loading encoding, rules and models is nobody's step: a worker does it once.
    tokens.count(_READY)
    store.ingestor.secret_scanner.scan(_READY)
    store.ingestor.instruction_scanner.scan(_READY)
    store.ingestor.language_detector.detect(_READY)
    documents, chunks, size = 0, 0, 0
    refused: Counter[str] = Counter()
    with throw_away_tenant("bench") as tenant_id:
        principal = member(tenant_id)
        for content, request in track(files_of(paths), "Admitting", None):
            try:
                chunks += _admit(ingestor, principal, content, request, watch)
            except VerbatimError as error:
                refused[error.code] += 1
                continue
            documents += 1
            size += len(content)
            text = content.decode("utf-8", "replace")
            with alone.measure("tokenise"):
                tokens.count(text)
            with alone.measure("normalise"):
                normalise(text, media_type=request["media_type"])
    watch.seconds["normalise"] = alone.seconds["normalise"]
    planned = watch.seconds.pop("plan", 0)
    within = sum(watch.seconds[step] for step in _WITHIN_PLAN)
    watch.seconds["analyse"] = max(planned - within, 0)
    total = watch.seconds.total()
    return {
        "documents": documents,
        "refused": dict(refused),
        "chunks": chunks,
        "megabytes": round(size / _MEGABYTE, 2),
        "seconds": round(total, 2),
        "mb_per_second": _rate(size / _MEGABYTE, total),
        "chunks_per_second": _rate(chunks, total),
        "peak_rss_mb": peak_rss_mb(),
        "tokenising_alone_mb_per_second": _rate(size / _MEGABYTE, alone.seconds["tokenise"]),
        "steps": {
            step: {
                "seconds": round(seconds, 3),
                "share": _rate(seconds, total),
                "mb_per_second": _rate(size / _MEGABYTE, seconds),
            }
            for step, seconds in watch.seconds.most_common()
        },
    }


def _admit(
    ingestor: Ingestor,
    principal: Principal,
    content: bytes,
    request: dict[str, str],
    watch: Stopwatch,
) -> int:
    """The steps of `Ingestor.ingest`, each by itself. Returns how many chunks there are now."""
    with contextlib.ExitStack() as upload:
        with watch.measure("upload"):
            asked = upload.enter_context(uploaded(principal, content, **request))
        with watch.measure("admit"):
            admitted = admit(asked, principal, max_bytes=ingestor.max_bytes)
        with watch.measure("plan"):
            plan = ingestor.plan(admitted)
        with watch.measure("commit"):
            result = commit(admitted, plan, titles=ingestor.titles)
    return 0 if result.already_ingested else result.report.chunks


def files_of(paths: Iterable[Path]) -> Iterator[File]:
    """What is to be admitted: a collection's documents, or every file below a folder."""
    for path in paths:
        if is_collection(path):
            for document in documents_of(path / "corpus.jsonl"):
                yield as_file(document)
        elif path.is_dir():
            yield from files_of(
                sorted(child for child in path.iterdir() if not child.name.startswith("."))
            )
        else:
            with open_regular(path) as content:
                media_type = "text/markdown" if path.suffix == ".md" else ""
                yield (
                    content.read(),
                    {"filename": path.name, "media_type": media_type, "title": path.stem},
                )


def peak_rss_mb() -> float:
    """The most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (_MEGABYTE if sys.platform == "darwin" else 1_024), 1)


def _rate(amount: float, of: float) -> float:
    return round(amount / of, 3) if of > 0 else 0.0


# --- search ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who searches, and on behalf of which project."""

    principal: Principal
    project: str | None = None

    def query(self, text: str) -> KnowledgeQuery:
        return KnowledgeQuery(text=text, current_scope=self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is measured beside the warm search.

    `cold`: every question for the first time, right after whoever measures has emptied the caches.
    `http`: through a web process. `curve`: the overlap at several budgets of candidates. `peers`:
    what a user would pick instead, in the same run. `meaning`: with the semantic arm as well, once
    every passage is embedded, which takes as long as it takes.
    """

    cold: bool = False
    http: bool = False
    curve: bool = False
    peers: bool = False
    meaning: bool = False


NOTHING_ELSE: Final = Conditions()


def viewers(tenant_id: str) -> dict[str, Viewer]:
    return {
        WHOLE: Viewer(principal=generate.tenant_wide(tenant_id)),
        "one_percent": Viewer(principal=generate.one_percent(tenant_id), project=generate.PROJECT),
    }


def bench_search(
    store: KnowledgeStore,
    tenant_id: str,
    *,
    questions: int,
    clients: int = 1,
    also: Conditions = NOTHING_ELSE,
    sources: Sequence[Path] = (),
    track: Track,
) -> dict[str, Any]:
    """The whole search, and how much of the exhaustive top ten it finds.

    Questions are those of the collections among `sources`, in turn with runs of words out of the
    viewer's own passages; the latter alone when there is no collection. Times are warm and without
    HTTP: every question was asked before.
    """
    people = people_s_questions(sources)
    told: dict[str, Any] = {"tenant": tenant_id, "questions": questions, "clients": clients}
    if also.meaning:
        told["embedding"] = _embedded(store, tenant_id)
    told["viewers"] = {}
    for name, viewer in viewers(tenant_id).items():
        asked = mixed(people, questions_of(viewer, questions), questions)
        measured: dict[str, Any] = {
            "words": {
                "median": sorted(len(text.split()) for text in asked)[len(asked) // 2],
                "most": max(len(text.split()) for text in asked),
            }
        }
        # First, or nothing is unread any more; in later runs too, to warm all caches.
        unread = spread_of(latencies(store, viewer, asked))
        if also.cold:
            measured["cold_ms"] = unread
        measured["latency_ms"] = spread_of(_of_clients(store, viewer, asked, clients))
        if also.meaning:
            both = replace(store, searcher=replace(store.searcher, switched=frozenset()))
            latencies(both, viewer, asked)
            measured["meaning_ms"] = spread_of(latencies(both, viewer, asked))
        if also.http:
            measured["http_ms"] = _over_http(viewer, asked, clients)
        overlaps = {}
        for budget in BUDGETS if also.curve else (CANDIDATE_BUDGET,):
            overlaps[budget] = _overlap(store, viewer, asked, budget, track)
        measured[f"overlap_at_{TOP}"] = overlaps[CANDIDATE_BUDGET]
        if also.curve:
            measured["overlap_by_budget"] = overlaps
        if also.peers and name == WHOLE:
            measured["peers_ms"] = _of_peers(viewer, asked, track)
        told["viewers"][name] = {"chunks": _visible(viewer), **measured}
    return told


def _embedded(store: KnowledgeStore, tenant_id: str) -> dict[str, float]:
    """Gives every passage a vector; how many a second, what a question takes, and the graph's bytes.

    Raises `NoEmbedder`.
    """
    if store.ingestor.embedding is None:
        raise NoEmbedder
    from knowledge.semantic import spaces  # noqa: PLC0415 - an app that is installed now

    embedder = store.ingestor.embedding.current()
    embedder.embed([_READY])  # the model is read
    started = time.perf_counter()
    report = store.embed(Principal.for_operator(tenant_id, "bench"))[0]
    seconds = time.perf_counter() - started
    times = []
    for _ in range(_QUESTIONS):
        started = time.perf_counter()
        embedder.embed_question(_READY)
        times.append((time.perf_counter() - started) * 1_000)
    live = spaces.live()
    return {
        "passages": report.embedded,
        "missing": report.missing,
        "seconds": round(seconds, 1),
        "passages_per_second": _rate(report.embedded, seconds),
        "question_ms": spread_of(times)["p50"],
        "graph_bytes": spaces.bytes_of_graph(live.number) if live else 0,
    }


def _over_http(viewer: Viewer, questions: Sequence[str], clients: int) -> dict[str, float]:
    with served() as web, key_of(viewer.principal) as key:
        web.ask(key, viewer.project, questions, clients)  # every worker of it loads what it needs
        return spread_of(web.ask(key, viewer.project, questions, clients))


def _of_peers(viewer: Viewer, questions: Sequence[str], track: Track) -> dict[str, Any]:
    """The same questions to what a user would pick instead, over the same passages."""
    from knowledge.evaluation import peers  # noqa: PLC0415 - an extra

    told = {}
    with peers.timed_peers(viewer.principal) as found:
        for name, peer in found.items():
            times = []
            for text in track(questions, f"Asking {name}", len(questions)):
                started = time.perf_counter()
                peer(text)
                times.append((time.perf_counter() - started) * 1_000)
            told[name] = spread_of(times)
    return told


def people_s_questions(sources: Sequence[Path]) -> list[str]:
    """The questions of the collections among paths and right below them."""
    folders = [child for path in sources for child in (path, *sorted(path.glob("*/")))]
    found = [
        question.text
        for folder in folders
        if is_collection(folder)
        for question in Collection.at(folder).questions()
    ]
    random.Random(_SEED).shuffle(found)  # noqa: S311 - an order, not a secret
    return found


def mixed(people: Sequence[str], runs: Sequence[str], count: int) -> list[str]:
    """One of each in turn, `count` in all."""
    in_turn = [text for both in zip_longest(people, runs) for text in both if text is not None]
    return in_turn[:count]


def questions_of(viewer: Viewer, count: int) -> list[str]:
    """Runs of 3 to 25 neighbouring words out of passages that the viewer may read."""
    rng = random.Random(_SEED)  # noqa: S311 - questions, not secrets
    with _session(viewer):
        readable = Chunk.objects.searchable(_scope(viewer))
        numbers = list(readable.order_by("id").values_list("id", flat=True))
        chosen = rng.choices(numbers, k=count) if numbers else []
        texts = dict(readable.filter(id__in=chosen).values_list("id", "text"))
    asked = []
    for number in chosen:
        words = texts[number].split()
        length = min(_SHORTEST_QUESTION + int(rng.expovariate(1 / _MEAN_BEYOND)), _LONGEST_QUESTION)
        start = rng.randrange(max(len(words) - length, 0) + 1)
        asked.append(" ".join(words[start : start + length]))
    return asked


def _session(viewer: Viewer) -> contextlib.AbstractContextManager[None]:
    return tenant_session(viewer.principal.tenant_id)


def _scope(viewer: Viewer) -> Any:
    return resolve_scope(viewer.principal, viewer.project)


def _visible(viewer: Viewer) -> int:
    with _session(viewer):
        return Chunk.objects.searchable(_scope(viewer)).count()


def latencies(store: KnowledgeStore, viewer: Viewer, questions: Sequence[str]) -> list[float]:
    times = []
    for text in questions:
        started = time.perf_counter()
        store.search(viewer.query(text), viewer.principal)
        times.append((time.perf_counter() - started) * 1_000)
    return times


def _of_clients(
    store: KnowledgeStore, viewer: Viewer, questions: Sequence[str], clients: int
) -> list[float]:
    """Milliseconds of every question; several clients are processes that ask at the same time."""
    if clients == 1:
        return latencies(store, viewer, questions)
    with pool(clients, database=connection.settings_dict["NAME"]) as workers:
        # Once to warm every process, once to measure.
        for _ in range(2):
            told = list(workers.map(_client, [viewer] * clients, [list(questions)] * clients))
    return [milliseconds for times in told for milliseconds in times]


def _client(viewer: Viewer, questions: list[str]) -> list[float]:
    return latencies(wired_store(), viewer, questions)


def _overlap(
    store: KnowledgeStore, viewer: Viewer, questions: Sequence[str], budget: int, track: Track
) -> float:
    """Of the ten best by scoring every chunk with a word of the question, the share found."""
    stemmer = store.ingestor.stemmer
    quick = LexicalArm(stemmer, budget=budget)
    exhaustive = LexicalArm(stemmer, budget=EVERY_CHUNK, small_view=EVERY_CHUNK)
    shares = []
    for text in track(questions, f"Comparing with every chunk scored ({budget:,})", len(questions)):
        asked = viewer.query(text)
        with _session(viewer):
            view = SearchView.of(_scope(viewer))
            best = set(exhaustive.search(view, asked, TOP).scores)
            found = set(quick.search(view, asked, TOP).scores)
        if best:
            shares.append(len(best & found) / len(best))
    return round(sum(shares) / len(shares), 4) if shares else 1.0


def spread_of(milliseconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile and maximum, by nearest rank."""
    ordered = sorted(milliseconds)
    if not ordered:
        return {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}

    def rank(percent: int) -> float:
        return round(ordered[min(len(ordered) * percent // 100, len(ordered) - 1)], 2)

    return {"p50": rank(50), "p95": rank(95), "p99": rank(99), "max": round(ordered[-1], 2)}


def explain(store: KnowledgeStore, viewer: Viewer, text: str) -> dict[str, Any]:
    """What the database does for a search: time of every statement, and the plan of the ranking."""
    statements: list[dict[str, Any]] = []
    plans: list[str] = []

    def watching(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "<#>" in sql and not sql.startswith("EXPLAIN"):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", params)
                plans.extend(line for (line,) in cursor.fetchall())
        started = time.perf_counter()
        done = execute(sql, params, many, context)
        statements.append(
            {
                "milliseconds": round((time.perf_counter() - started) * 1_000, 2),
                "statement": " ".join(sql.split())[:160],
            }
        )
        return done

    store.search(viewer.query(text), viewer.principal)
    with connection.execute_wrapper(watching):
        store.search(viewer.query(text), viewer.principal)
    return {
        "query": text,
        "statements": [told for told in statements if not told["statement"].startswith("EXPLAIN")],
        "plan": plans,
    }
