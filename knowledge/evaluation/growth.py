"""How tables, indexes and the time of a search grow with the corpus: what a sizing page is made of."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.db import connection

from access.errors import Malformed
from knowledge.evaluation import bench
from knowledge.evaluation.generate import generate
from knowledge.evaluation.progress import Track
from knowledge.evaluation.throwaway import throw_away_tenant
from knowledge.store import KnowledgeStore

_APPS: Final = ("knowledge", "artifacts", "access")
_SIZES: Final = """
    SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relname = ANY (%s) AND relnamespace = current_schema()::regnamespace
"""

# Bytes of a table, what it keeps aside for long values included, and of its indexes.
Sizes = Mapping[str, tuple[int, int]]


def bench_growth(
    store: KnowledgeStore,
    sizes: Sequence[int],
    *,
    sources: Sequence[Path] = (),
    questions: int,
    processes: int,
    track: Track,
) -> dict[str, Any]:
    """A throw-away tenant of each size, the smallest first: what it adds, and how it is searched.

    All stay until the last is measured, so that none moves into the room of one before it. Space
    that deletions had left free before is filled first, and is missing from the figures.
    """
    if not sizes or list(sizes) != sorted(set(sizes)):
        raise Malformed("Name each size once, the smallest first.")
    told = []
    with contextlib.ExitStack() as tenants:
        for size in sizes:
            tenant_id = tenants.enter_context(throw_away_tenant("bench"))
            before = _sizes()
            made = generate(tenant_id, size, sources, processes=processes, track=track)
            written = _sizes()
            told.append(
                {
                    "chunks": size,
                    "text_bytes": round(made["megabytes"] * 1_000_000),
                    "chunks_per_second": made["chunks_per_second"],
                    "tables": _growth(before, written),
                    **_searched(store, tenant_id, questions),
                    "peak_rss_mb": bench.peak_rss_mb(),
                }
            )
    return {"questions": questions, "sizes": told}


def _searched(store: KnowledgeStore, tenant_id: str, questions: int) -> dict[str, Any]:
    times: dict[str, Any] = {}
    before, asked = _sizes(), 0
    for name, viewer in bench.viewers(tenant_id).items():
        texts = bench.questions_of(viewer, questions)
        bench.latencies(store, viewer, texts)  # warm
        times[name] = bench.spread_of(bench.latencies(store, viewer, texts))
        asked += 2 * len(texts)
    left = sum(sum(one.values()) for one in _growth(before, _sizes()).values())
    return {"latency_ms": times, "bytes_left_by_a_search": round(left / asked) if asked else 0}


def _sizes() -> Sizes:
    tables = [
        model._meta.db_table  # noqa: SLF001 - Django's documented interface
        for name in _APPS
        for model in apps.get_app_config(name).get_models()
    ]
    with connection.cursor() as cursor:
        cursor.execute(_SIZES, [tables])
        return {name: (table, indexes) for name, table, indexes in cursor.fetchall()}


def _growth(before: Sizes, after: Sizes) -> dict[str, dict[str, int]]:
    """What grew, the most first."""
    grown = {
        name: {"table": table - before[name][0], "indexes": indexes - before[name][1]}
        for name, (table, indexes) in after.items()
    }
    ordered = sorted(grown.items(), key=lambda item: -sum(item[1].values()))
    return {name: by_kind for name, by_kind in ordered if sum(by_kind.values()) > 0}
