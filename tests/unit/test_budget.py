"""Floor, duplicates, caps and tokens."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.budget import Selection, select
from knowledge.core.types import OmittedReason, RankedPassage
from tests.unit.retrieval_fakes import ranked


def pick(passages: list[RankedPassage], **limits: float) -> Selection:
    values = {"floor": 0.0, "max_per_document": 2, "max_passages": 3, "budget_tokens": 3_000}
    return select(passages, **(values | limits))  # type: ignore[arg-type]


def reasons(selection: Selection) -> dict[str, str]:
    return {omitted.chunk_id: omitted.reason for omitted in selection.omitted}


def other(number: int) -> UUID:
    return UUID(int=100 + number)


def test_passages_are_taken_whole_while_they_fit_and_later_ones_may_enter() -> None:
    selection = pick(
        [
            ranked("kc_1", tokens=600, document_id=other(1)),
            ranked("kc_2", tokens=600, document_id=other(2)),
            ranked("kc_3", tokens=400, document_id=other(3)),
        ],
        budget_tokens=1_000,
    )
    assert [passage.candidate.chunk_id for passage in selection.passages] == ["kc_1", "kc_3"]
    assert selection.tokens == 1_000
    assert reasons(selection) == {"kc_2": "budget"}
    assert selection.omitted[0].tokens == 600


def test_each_reason_has_its_place() -> None:
    selection = pick(
        [
            ranked("kc_1", 0.9, text="the same words"),
            ranked("kc_2", 0.8, text="The  same\nwords", document_id=other(2)),
            ranked("kc_3", 0.8),
            ranked("kc_4", 0.7),
            ranked("kc_5", 0.6, document_id=other(5), tokens=5_000),
            ranked("kc_6", 0.6, document_id=other(6)),
            ranked("kc_7", 0.5, document_id=other(7), tokens=5_000),
            ranked("kc_8", 0.1, text="the same words"),
        ],
        floor=0.2,
    )
    assert [passage.candidate.chunk_id for passage in selection.passages] == [
        "kc_1",
        "kc_3",
        "kc_6",
    ]
    assert reasons(selection) == {
        "kc_2": OmittedReason.DUPLICATE,
        "kc_4": OmittedReason.CAP,
        "kc_5": OmittedReason.BUDGET,
        "kc_7": OmittedReason.PASSAGES,
        "kc_8": OmittedReason.FLOOR,
    }


def test_a_twin_of_a_passage_that_was_not_taken_may_enter() -> None:
    selection = pick(
        [
            ranked("kc_1"),
            ranked("kc_2", text="twin"),
            ranked("kc_3", text="twin", document_id=other(3)),
        ],
        max_per_document=1,
    )
    assert [passage.candidate.chunk_id for passage in selection.passages] == ["kc_1", "kc_3"]


def test_a_score_at_the_floor_is_above_it() -> None:
    assert len(pick([ranked("kc_1", 0.2)], floor=0.2).passages) == 1


passages = st.lists(
    st.builds(
        lambda i, score, tokens, document, text: ranked(
            f"kc_{i}", score, tokens=tokens, document_id=other(document), text=text
        ),
        st.integers(0, 999),
        st.floats(0, 1),
        st.integers(0, 1_000),
        st.integers(0, 3),
        st.sampled_from(["one", "two", "three", "four", "ONE", ""]),
    ),
    max_size=15,
)


@given(
    passages,
    st.floats(0, 1),
    st.integers(0, 4),
    st.integers(0, 5),
    st.integers(0, 3_000),
)
def test_sums_add_up_and_never_exceed(
    given_passages: list[RankedPassage], floor: float, cap: int, most: int, budget: int
) -> None:
    selection = select(
        given_passages,
        floor=floor,
        max_per_document=cap,
        max_passages=most,
        budget_tokens=budget,
    )
    taken = [passage.candidate for passage in selection.passages]
    assert selection.tokens == sum(one.tokens for one in taken) <= budget
    assert len(taken) <= most
    assert all(n <= cap for n in Counter(one.document_id for one in taken).values())
    assert all(passage.score >= floor for passage in selection.passages)
    assert len({one.content_sha256 for one in taken}) == len(taken)
    left = [(omitted.chunk_id, omitted.score) for omitted in selection.omitted]
    chosen = [(p.candidate.chunk_id, p.score) for p in selection.passages]
    assert Counter(left + chosen) == Counter(
        (p.candidate.chunk_id, p.score) for p in given_passages
    )
