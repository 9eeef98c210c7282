"""Fusing the arms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.core.fusion import CalibratedFusion, Fusion, ReciprocalRankFusion

STRATEGIES: list[Fusion] = [CalibratedFusion(), ReciprocalRankFusion()]
scores = st.dictionaries(st.sampled_from("abcdef"), st.floats(-1, 2), max_size=6)


def test_the_lexical_arm_alone_is_its_own_score() -> None:
    assert CalibratedFusion().fuse({"lexical": {"a": 0.7, "b": 0.1}}) == {"a": 0.7, "b": 0.1}


def test_two_arms_are_a_weighted_mean() -> None:
    fused = CalibratedFusion().fuse(
        {"lexical": {"a": 0.5, "b": 1.0}, "semantic": {"a": 1.0, "c": 0.5, "b": -0.3}}
    )
    assert fused == pytest.approx({"a": 0.7, "b": 0.6, "c": 0.2})


def test_an_arm_that_ran_and_found_nothing_counts() -> None:
    assert CalibratedFusion().fuse({"lexical": {"a": 1.0}, "semantic": {}}) == {"a": 0.6}


def test_reciprocal_ranks_are_scaled_to_one() -> None:
    fused = ReciprocalRankFusion().fuse(
        {"lexical": {"a": 0.9, "b": 0.2}, "semantic": {"a": 0.8, "c": 0.7}}
    )
    assert fused["a"] == pytest.approx(1.0)
    assert fused["a"] > fused["b"] > fused["c"] > 0


@pytest.mark.parametrize("fusion", STRATEGIES)
@given(lexical=scores, semantic=scores)
def test_every_found_chunk_has_a_match_between_0_and_1(
    fusion: Fusion, lexical: dict[str, float], semantic: dict[str, float]
) -> None:
    fused = fusion.fuse({"lexical": lexical, "semantic": semantic})
    assert fused.keys() == lexical.keys() | semantic.keys()
    assert all(0.0 <= match <= 1.0 for match in fused.values())
    backwards = {"semantic": dict(reversed(semantic.items())), "lexical": lexical}
    assert fusion.fuse(backwards) == fused


@pytest.mark.parametrize("fusion", STRATEGIES)
def test_nothing_and_unknown_arms_are_no_error(fusion: Fusion) -> None:
    assert fusion.fuse({}) == {}
    assert fusion.fuse({"astrology": {"a": 1.0}}) == {"a": 0.0}
