"""The measurement of writers at once: its shape, and that it leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from knowledge.evaluation.contention import bench_writers
from tests.support import footprint


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_writers_are_counted_and_gone(tmp_path: Path, blob_root: Path) -> None:
    (tmp_path / "text.md").write_text(
        "\n\n".join(
            f"The {n}th harbour pump of the northern quay runs at night." for n in range(40)
        )
    )
    before = footprint(blob_root)
    told = bench_writers([tmp_path], writers=[2], documents=3)
    run = told["writers"][2]
    assert run["documents_a_second"] > 0
    assert 0 <= run["looks_with_a_writer_waiting"] <= run["looks"]
    assert run["merged"]["deltas"] >= run["merged"]["statistics"] > 0
    after = footprint(blob_root)
    assert {name: after[name] for name in before if name != "blobs"} == {
        name: before[name] for name in before if name != "blobs"
    }
