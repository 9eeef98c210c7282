"""What Prometheus scrapes: read from the database and from Valkey, so it is the same from every process.

Counts and ages only; the labels are tenants, routes, and words out of our own vocabularies.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from itertools import accumulate
from typing import Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from access.durations import REQUESTS, durations, observe
from config.request_ids import Application, Message, Receive, Send
from knowledge.lifecycle.figures import Figures, Totals, totals
from knowledge.models.figures import LATENCY_MS

_LOOPBACK = frozenset({"127.0.0.1", "::1"})
_FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR")
# Asked by machines, all the time; a process has to answer that it is alive whatever is away.
_NOT_TIMED: Final = frozenset({"/livez", "/readyz", "/metrics"})
# Anyone may send any word for a method.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class DurationsMiddleware:
    """Counts how long answers took, by the route that gave them: never by an address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path in _NOT_TIMED:
            return self._get_response(request)
        began = time.monotonic()
        response = self._get_response(request)
        route = f"/{request.resolver_match.route}" if request.resolver_match else "unknown"
        _count(request.method or "", route, response.status_code, time.monotonic() - began)
        return response


def with_duration(route: str, application: Application) -> Application:
    """The same for an ASGI application that is not Django's and has one address."""

    async def timed(scope: Message, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        answered: tuple[int, float] | None = None

        async def send_timed(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"], time.monotonic() - began
            await send(message)

        try:
            await application(scope, receive, send_timed)
        finally:
            # An application that fails before it answers is answered for, by the server.
            failed = HTTPStatus.INTERNAL_SERVER_ERROR
            status, seconds = answered or (failed, time.monotonic() - began)
            # Nobody else of this process waits for the counting.
            await sync_to_async(_count, thread_sensitive=False)(
                scope["method"], route, status, seconds
            )

    return timed


def _count(method: str, route: str, status: int, seconds: float) -> None:
    named = method if method in _METHODS else "other"
    observe(REQUESTS, named, route, f"{status // 100}xx", seconds=seconds)


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """For whoever holds METRICS_TOKEN; without one, for this machine alone when we run embedded."""
    token = settings.METRICS_TOKEN
    if token:
        given = request.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {token}".encode()):
            refused = HttpResponse(status=HTTPStatus.UNAUTHORIZED)
            refused["WWW-Authenticate"] = "Bearer"
            return refused
    elif not (settings.METRICS_ON_LOOPBACK and _from_this_machine(request)):
        raise Http404
    registry = CollectorRegistry()
    registry.register(_Collector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _from_this_machine(request: HttpRequest) -> bool:
    """By its own connection: whoever comes through a proxy comes from elsewhere."""
    own = request.META.get("REMOTE_ADDR") in _LOOPBACK
    return own and not any(name in request.META for name in _FORWARDED)


class _Collector(Collector):
    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        read = totals()
        yield from _of_corpus(read)
        yield from _of_searches(read)
        yield from _of_answers(read)
        yield from _of_golden_sets(read)
        yield from _of_work(read)
        yield from _of_durations()


def _counter(read: Totals, name: str, says: str, of: str) -> CounterMetricFamily:
    family = CounterMetricFamily(name, says, labels=("tenant",))
    for tenant, figures in read.tenants.items():
        family.add_metric((tenant,), getattr(figures, of))
    return family


def _of_corpus(read: Totals) -> Iterable[Metric]:
    for name, says, of in (
        ("verbatim_documents", "Documents.", "documents"),
        ("verbatim_chunks", "Passages of live versions.", "chunks"),
        ("verbatim_chunks_instruction_like", "Those that read like instructions.", "flagged"),
        ("verbatim_chunks_quarantined", "Those that wait in quarantine.", "quarantined"),
        ("verbatim_source_bytes", "Bytes of the originals.", "source_bytes"),
    ):
        gauge = GaugeMetricFamily(name, says, labels=("tenant",))
        for tenant, figures in read.tenants.items():
            gauge.add_metric((tenant,), getattr(figures, of))
        yield gauge
    yield _counter(read, "verbatim_ingested", "Versions admitted.", "ingested")
    refused = CounterMetricFamily(
        "verbatim_refusals", "Ingests refused, by cause.", labels=("tenant", "reason")
    )
    for tenant, figures in read.tenants.items():
        for reason, times in figures.refused.items():
            refused.add_metric((tenant, reason), times)
    yield refused


def _of_searches(read: Totals) -> Iterable[Metric]:
    searches = CounterMetricFamily(
        "verbatim_searches", "Searches, by what asked.", labels=("tenant", "kind")
    )
    duration = HistogramMetricFamily(
        "verbatim_search_duration_seconds", "How long searches took.", labels=("tenant",)
    )
    for tenant, figures in read.tenants.items():
        searches.add_metric((tenant, "search"), figures.searches)
        searches.add_metric((tenant, "assemble"), figures.assembles)
        searches.add_metric((tenant, "preturn"), figures.preturns)
        duration.add_metric((tenant,), _buckets(figures), figures.duration_ms / 1_000)
    yield searches
    yield duration
    for name, says, of in (
        ("verbatim_searches_empty", "Searches that showed nothing.", "empty"),
        ("verbatim_searches_pressed", "Searches that left out for want of room.", "pressed"),
        (
            "verbatim_searches_without_arm",
            "Searches that did without an arm that could not answer.",
            "without_arm",
        ),
        ("verbatim_searches_on_replica", "Searches that looked at the replica.", "on_replica"),
        (
            "verbatim_searches_fell_back",
            "Searches of the primary because the replica was behind or away.",
            "fell_back",
        ),
        ("verbatim_passages_shown", "Passages shown.", "passages"),
        ("verbatim_block_tokens", "Tokens of the blocks that were shown.", "block_tokens"),
    ):
        yield _counter(read, name, says, of)


def _buckets(figures: Figures) -> list[tuple[str, float]]:
    bounds = [*(f"{bound / 1_000:g}" for bound in LATENCY_MS), "+Inf"]
    return list(zip(bounds, figures.latency, strict=True))


def _of_answers(read: Totals) -> Iterable[Metric]:
    for name, says, of in (
        ("verbatim_answers", "Answers that hosts told of.", "answers"),
        ("verbatim_answers_drawn", "Those that were drawn from passages.", "drawn"),
        ("verbatim_answers_citing", "Drawn ones that cite a passage of theirs.", "citing"),
    ):
        yield _counter(read, name, says, of)
    verdicts = CounterMetricFamily(
        "verbatim_citations", "Citations, by verdict.", labels=("tenant", "verdict")
    )
    for tenant, figures in read.tenants.items():
        for verdict, times in figures.citations.items():
            verdicts.add_metric((tenant, verdict), times)
    yield verdicts


def _of_golden_sets(read: Totals) -> Iterable[Metric]:
    recall = GaugeMetricFamily(
        "verbatim_golden_recall",
        "Passage recall at 3 of the tenant's golden set that fared worst, each by its last run.",
        labels=("tenant",),
    )
    noise = GaugeMetricFamily(
        "verbatim_golden_noise",
        "Noise at 3 of the tenant's golden set that fared worst, each by its last run.",
        labels=("tenant",),
    )
    for tenant, worst in read.golden.items():
        recall.add_metric((tenant,), worst.recall)
        noise.add_metric((tenant,), worst.noise)
    yield recall
    yield noise


def _of_durations() -> Iterable[Metric]:
    for histogram, by_labels in durations().items():
        family = HistogramMetricFamily(histogram.name, histogram.says, labels=histogram.labels)
        bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
        for labels, counted in by_labels.items():
            reached = accumulate(counted.buckets)
            family.add_metric(labels, list(zip(bounds, reached, strict=True)), counted.seconds)
        yield family


def _of_work(read: Totals) -> Iterable[Metric]:
    jobs = GaugeMetricFamily(
        "verbatim_jobs",
        "Background ingests by state; attachments are those of files that"
        " were sent in conversations.",
        labels=("kind", "state"),
    )
    for (kind, state), count in read.jobs.items():
        jobs.add_metric((kind, state), count)
    yield jobs
    yield GaugeMetricFamily(
        "verbatim_jobs_oldest_waiting_seconds",
        "Age of the oldest job that no worker has taken although it is due.",
        value=read.oldest_waiting_seconds,
    )
    traces = GaugeMetricFamily("verbatim_traces", "Traces by tier.", labels=("tier",))
    for tier, count in read.traces.items():
        traces.add_metric((tier,), count)
    yield traces
    if read.sweep is not None:
        for name, says, value in (
            ("age_seconds", "Since the last sweep came to its end.", read.sweep.age_seconds),
            ("swept", "Artifacts that it removed.", read.sweep.swept),
            ("failed", "What it could not remove yet.", read.sweep.failed),
            ("orphans", "Blobs without a row that it removed.", read.sweep.orphans),
        ):
            yield GaugeMetricFamily(f"verbatim_last_sweep_{name}", says, value=value)
    yield GaugeMetricFamily(
        "verbatim_figures_age_seconds",
        "Since what is counted by day was last counted.",
        value=read.age_seconds,
    )
