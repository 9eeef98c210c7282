"""`bench search --meaning` at a small size: the shape of what it tells. No times here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.db.test_bench import sources as sources  # noqa: PLC0414 - a fixture
from tests.db.test_bench import told
from tests.semantic.conftest import Semantic
from tests.support import footprint


@pytest.mark.long
def test_everything_is_embedded_and_then_searched_by_meaning(
    semantic: Semantic, sources: Path, blob_root: Path
) -> None:
    before = footprint(blob_root)
    answer = told(
        *("search", "--chunks", "60", "--questions", "3", "--processes", "1", "--meaning"),
        *("--from", str(sources)),
    )
    embedding = answer["embedding"]
    assert (embedding["passages"], embedding["missing"]) == (60, 0)
    assert embedding["passages_per_second"] > 0
    assert embedding["graph_bytes"] > 0
    for viewer in answer["viewers"].values():
        assert set(viewer["meaning_ms"]) == {"p50", "p95", "p99", "max"}
    assert len(semantic.embedder.asked) >= 2 * 2 * 3
    assert footprint(blob_root) == before
