"""Gate: live retrieval returns the new passages and never the old; an `as_of` query the old ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from access.tenancy import tenant_session
from knowledge.core.types import ConnectorIdentity, IngestResult
from knowledge.models import DocumentVersion
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, principal

pytestmark = pytest.mark.django_db

SOURCE = ConnectorIdentity(type="wiki", id="pumps")
TICK = timedelta(microseconds=1)
FILLER = " ".join(["The pump at the harbour runs at night and rests by day."] * 12)


def text(word: str, parts: int = 3) -> str:
    return "# Pumps\n\n" + "".join(
        f"## Part {number}\n\nThe {word} of part {number}. {FILLER}\n\n" for number in range(parts)
    )


@dataclass(frozen=True, slots=True)
class Admitted:
    word: str
    result: IngestResult
    since: datetime
    until: datetime | None


def history(*words: str, by_id: bool, batch_size: int) -> list[Admitted]:
    """Versions one after the other, each with a word that no other text has unless it is the same."""
    results: list[IngestResult] = []
    for word in words:
        named: dict[str, Any] = (
            {"document_id": results[0].document_id}
            if by_id and results
            else {"source": None if by_id else SOURCE}
        )
        results.append(admit(text(word), batch_size=batch_size, **named))
    assert [result.version for result in results] == list(range(1, len(words) + 1))
    assert {result.document_id for result in results} == {results[0].document_id}
    with tenant_session("acme"):
        versions = DocumentVersion.objects.order_by("version")
        instants = list(versions.values_list("ingested_at", "superseded_at"))
    return [
        Admitted(word, result, *since)
        for word, result, since in zip(words, results, instants, strict=True)
    ]


def found(question: str, as_of: datetime | None = None) -> set[str]:
    """Every passage that a search finds, those that it leaves out of the block included."""
    answer = ask(question, as_of=as_of, max_passages=50, max_per_document=50, budget_tokens=100_000)
    return {one.candidate.chunk_id for one in answer.passages} | {
        one.chunk_id for one in answer.omitted
    }


@pytest.mark.parametrize("by_id", [False, True], ids=["connector", "document id"])
@pytest.mark.parametrize("batch_size", [64, 1], ids=["at once", "in batches"])
@pytest.mark.parametrize(
    "words",
    [("zebra", "quagga", "okapi"), ("zebra", "quagga", "zebra")],
    ids=["three texts", "the first text again"],
)
def test_only_the_newest_is_live_and_each_is_found_as_of_its_time(
    blob_root: Path, words: tuple[str, ...], batch_size: int, by_id: bool
) -> None:
    versions = history(*words, by_id=by_id, batch_size=batch_size)
    newest = versions[-1]
    assert found("pump harbour") == found(newest.word) == set(newest.result.chunk_ids)
    for old in versions[:-1]:
        if old.word != newest.word:
            assert not found(old.word)
        assert not found("pump harbour") & set(old.result.chunk_ids)
    for version in versions:
        ends = [] if version.until is None else [version.until - TICK]
        for instant in (version.since, version.since + TICK, *ends):
            ids = set(version.result.chunk_ids)
            assert found("pump harbour", instant) == found(version.word, instant) == ids
    assert not found("pump harbour", versions[0].since - TICK)
    # Equal texts of two versions are two sets of passages, and every one of them resolves.
    every = [chunk_id for version in versions for chunk_id in version.result.chunk_ids]
    assert len(every) == len(set(every)) == 9
    for version in versions:
        for chunk_id in version.result.chunk_ids:
            chunk: Any = store().get_chunk(chunk_id, principal())
            assert version.word in chunk.text
            assert chunk.live is (version is newest)
            assert chunk.superseded_by_version == (None if version is newest else 3)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.parametrize("by_id", [False, True], ids=["connector", "document id"])
def test_the_current_text_again_is_a_no_op_that_says_so(blob_root: Path, by_id: bool) -> None:
    versions = history("zebra", "quagga", by_id=by_id, batch_size=64)
    named: dict[str, Any] = (
        {"document_id": versions[0].result.document_id} if by_id else {"source": SOURCE}
    )
    again = admit(text("quagga"), title="Another title", **named)
    assert (again.already_ingested, again.version) == (True, 2)
    assert (again.chunk_ids, again.title) == (versions[1].result.chunk_ids, "A note")
    with tenant_session("acme"):
        assert DocumentVersion.objects.count() == 2
