"""The four terms, the penalty and the order."""

from __future__ import annotations

import random
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.ranking import RankingPolicy, rank
from knowledge.core.types import Authority, Candidate, KnowledgeQuery, ScoreTerms
from tests.unit.retrieval_fakes import candidate

TODAY = date(2026, 7, 28)
QUERY = KnowledgeQuery(text="kettle", current_scope="boilers")
POLICY = RankingPolicy()


def terms(changed: Candidate) -> ScoreTerms:
    return rank([changed], QUERY, POLICY, TODAY)[0].terms


def test_the_score_is_the_weighted_sum_less_the_penalty() -> None:
    passage = rank(
        [
            candidate(
                match=0.8,
                authority=Authority.PRINCIPAL_AUTHORED,
                project_scope="boilers",
                doc_date=TODAY - timedelta(days=730),
                tokens=8,
            )
        ],
        QUERY,
        POLICY,
        TODAY,
    )[0]
    assert passage.terms == ScoreTerms(
        match=0.8, authority=1.0, scope=1.0, recency=0.5, penalty=0.5
    )
    assert passage.score == pytest.approx(0.9 * 0.8 + 0.03 + 0.04 + 0.015 - 0.025)


def test_authority_is_a_ladder() -> None:
    steps = [terms(candidate(authority=step)).authority for step in Authority]
    assert steps == sorted(steps)
    assert len(set(steps)) == 3


def test_scope_is_affinity_to_the_current_project() -> None:
    assert terms(candidate(project_scope="boilers")).scope == 1
    assert terms(candidate(project_scope="pumps")).scope == 0
    assert terms(candidate()).scope == 0
    nowhere = KnowledgeQuery(text="kettle")
    assert rank([candidate()], nowhere, POLICY, TODAY)[0].terms.scope == 0


@pytest.mark.parametrize(
    ("doc_date", "recency"),
    [
        (None, 0.5),
        (TODAY, 1.0),
        (date.max, 1.0),
        (TODAY - timedelta(days=1460), 0.25),
        (date.min, pytest.approx(0.0, abs=1e-9)),
    ],
)
def test_recency_reads_the_documents_own_date(doc_date: date | None, recency: float) -> None:
    assert terms(candidate(doc_date=doc_date)).recency == recency


def test_tiny_and_wordless_passages_are_penalised() -> None:
    assert terms(candidate()).penalty == 0
    assert terms(candidate(tokens=4)).penalty == pytest.approx(0.75)
    assert terms(candidate(text="| --- | --- | === » » » | a")).penalty > 0.8
    assert terms(candidate(text="铜账本检查完毕后阀门开启并记录时间戳")).penalty == 0
    assert terms(candidate(text="")).penalty == 1


def test_no_other_term_lifts_a_passage_that_hardly_matches_over_a_good_answer() -> None:
    best_of_the_rest = candidate(
        "kc_a",
        match=0.3,
        authority=Authority.PRINCIPAL_AUTHORED,
        project_scope="boilers",
        doc_date=TODAY,
    )
    answer = candidate("kc_b", match=0.5, authority=Authority.FETCHED, doc_date=date(1999, 1, 1))
    assert rank([best_of_the_rest, answer], QUERY, POLICY, TODAY)[0].candidate is answer


def test_what_does_not_match_stays_under_the_floor() -> None:
    everything_else = candidate(
        match=0.0,
        authority=Authority.PRINCIPAL_AUTHORED,
        project_scope="boilers",
        doc_date=TODAY,
    )
    assert rank([everything_else], QUERY, POLICY, TODAY)[0].score < POLICY.floor(QUERY)


def test_the_floor_is_the_policys_unless_the_query_has_its_own() -> None:
    assert POLICY.floor(QUERY) == POLICY.min_score
    assert POLICY.floor(KnowledgeQuery(text="x", min_score=0.0)) == 0.0


@given(st.lists(st.floats(-1, 2), max_size=12), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_candidates(
    matches: list[float], shuffle: random.Random
) -> None:
    candidates = [candidate(f"kc_{i}", match=match) for i, match in enumerate(matches)]
    shuffled = list(candidates)
    shuffle.shuffle(shuffled)
    ranked = rank(candidates, QUERY, POLICY, TODAY)
    assert ranked == rank(shuffled, QUERY, POLICY, TODAY)
    assert all(0 <= passage.score <= 1 for passage in ranked)
    assert len(ranked) == len(matches)


def test_equal_scores_are_ordered_by_chunk_id() -> None:
    ranked = rank([candidate("kc_b"), candidate("kc_a")], QUERY, POLICY, TODAY)
    assert [passage.candidate.chunk_id for passage in ranked] == ["kc_a", "kc_b"]


def test_a_policy_that_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        RankingPolicy(match=1.5)
    with pytest.raises(ValueError, match="half-life"):
        RankingPolicy(half_life_days=0)


def test_a_passage_that_nearly_repeats_a_higher_one_pays_for_it() -> None:
    words = [f"word{number}" for number in range(60)]
    first = candidate("kc_1", text=" ".join(words), match=0.8)
    echo = candidate("kc_2", text=" ".join([*words[:-1], "changed"]), match=0.79)
    other = candidate("kc_3", text="another matter entirely, told in other words", match=0.78)
    order = rank([echo, other, first], QUERY, POLICY, TODAY)
    assert [passage.candidate.chunk_id for passage in order] == ["kc_1", "kc_3", "kc_2"]
    assert order[2].terms.penalty > 0.7
    assert order[0].terms.penalty == order[1].terms.penalty == 0
