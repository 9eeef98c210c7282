"""Gate: under pressure knowledge yields before in-turn recall, and passages drop whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.assembly import RecallItem, allot
from knowledge.core.rendering import parse_block
from tests.support import admit, bearer

ITEMS = st.lists(st.integers(0, 400), max_size=30).map(
    lambda sizes: [RecallItem(id=str(n), tokens=size) for n, size in enumerate(sizes)]
)


@given(tokens_left=st.integers(0, 6_000), recall=ITEMS)
def test_recall_gives_way_only_when_knowledge_has_nothing(
    tokens_left: int, recall: list[RecallItem]
) -> None:
    allotment = allot(tokens_left=tokens_left, recall=recall)
    assert (*allotment.kept, *allotment.yielded) == tuple(recall), "whole, and in order"
    assert allotment.recall_tokens + allotment.knowledge <= tokens_left
    if allotment.yielded:
        assert allotment.knowledge == 0
        assert allotment.recall_tokens + allotment.yielded[0].tokens > tokens_left
    else:
        assert allotment.knowledge == tokens_left - sum(item.tokens for item in recall)


@pytest.fixture
def corpus(db: Any, blob_root: Path) -> None:
    for number in range(4):
        body = f"The turbine inspection of hall {number} takes place on day {number}. " * 12
        admit(f"# Hall {number}\n\n{body}\n", title=f"Hall {number}")


def assemble(client: Any, tokens_left: int, recall: list[int]) -> dict[str, Any]:
    answer = client.post(
        "/v1/context/assemble",
        {
            "tokens_left": tokens_left,
            "in_turn_recall": [
                {"id": f"belief-{number}", "tokens": tokens} for number, tokens in enumerate(recall)
            ],
            "search": {"text": "when is the turbine inspection?", "min_score": 0},
        },
        content_type="application/json",
        headers=bearer(),
    )
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.usefixtures("corpus")
def test_without_pressure_the_turn_gets_what_a_search_gives(client: Any) -> None:
    assembled = assemble(client, 50_000, [25, 25])
    assert len(assembled["knowledge"]["passages"]) == 3
    assert assembled["in_turn_recall"] == {
        "kept": ["belief-0", "belief-1"],
        "yielded": [],
        "tokens": 50,
    }


@pytest.mark.usefixtures("corpus")
def test_pressure_takes_passages_one_by_one_and_then_beliefs(client: Any) -> None:
    whole = assemble(client, 50_000, [])["knowledge"]
    texts = {passage["chunk_id"]: passage["text"] for passage in whole["passages"]}
    recall = [100] * 5
    counts = []
    for tokens_left in range(500 + whole["block_tokens"], 0, -97):
        assembled = assemble(client, tokens_left, recall)
        kept = assembled["in_turn_recall"]["kept"]
        passages = (assembled["knowledge"] or {"passages": []})["passages"]
        assert assembled["knowledge_tokens"] + assembled["in_turn_recall"]["tokens"] <= tokens_left
        if len(kept) < len(recall):
            assert not passages, "recall gave way while knowledge still had something"
        for passage in passages:
            assert passage["text"] == texts[passage["chunk_id"]], "never truncated"
        if assembled["knowledge"]:
            shown = parse_block(assembled["knowledge"]["block"]).passages
            assert [one.text for one in shown] == [passage["text"] for passage in passages]
            left_out = {one["chunk_id"] for one in assembled["knowledge"]["omitted"]}
            assert not left_out & {passage["chunk_id"] for passage in passages}
        counts.append((len(passages), len(kept)))
    assert counts == sorted(counts, reverse=True)
    assert {passages for passages, _ in counts} == {3, 2, 1, 0}
    assert {kept for _, kept in counts} >= {5, 4, 3, 2, 1, 0}
