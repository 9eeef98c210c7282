"""What `/mcp` makes of answers and errors before a client sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.errors import VerbatimError
from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core.search_results import paragraphs, search_result
from knowledge.mcp.advice import advice
from knowledge.mcp.fitting import AnswerTooLarge, Fitting, spelled

TOKENS = TiktokenCounter()
LIMIT = 4_000


def all_errors(root: type[VerbatimError] = VerbatimError) -> Iterator[type[VerbatimError]]:
    yield root
    for error in root.__subclasses__():
        yield from all_errors(error)


def test_every_error_comes_with_something_to_do() -> None:
    errors = {error.code: error for error in all_errors()}
    assert len(errors) > 40
    for error in errors.values():
        problem = {"code": error.code, "status": error.status}
        told = advice(problem, seconds="7")
        assert told.endswith(".")
        assert "{" not in told
        assert ("7" in told) == (error.status in {429, 503})


def passage(number: int, words: int) -> dict[str, Any]:
    return {"chunk_id": f"kc_{number}", "text": f"word{number} " * words}


def searched(passages: list[dict[str, Any]], omitted: int = 0) -> dict[str, Any]:
    return {
        "block": "".join(one["text"] for one in passages),
        "notes": [],
        "passages": passages,
        "omitted": [{"chunk_id": f"kc_{n}", "reason": "floor"} for n in range(omitted)],
    }


class Corpus:
    """Passages in the order of their rank, of which a search shows so many."""

    def __init__(self, sizes: list[int], omitted: int = 0) -> None:
        self.all = [passage(number, words) for number, words in enumerate(sizes)]
        self.omitted = omitted
        self.asked: list[int] = []

    def __call__(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(asked.get("max_passages", 50))
        return searched(self.all[: self.asked[-1]], self.omitted)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 900), max_size=30), st.integers(0, 300))
def test_a_search_shows_the_first_passages_whole_and_says_what_it_does_not(
    sizes: list[int], omitted: int
) -> None:
    corpus = Corpus(sizes, omitted)
    answer = Fitting(LIMIT, TOKENS).ask("knowledge.search", {"text": "x"}, corpus)
    assert TOKENS.count(spelled(answer)) <= LIMIT
    shown = answer["passages"]
    assert shown == corpus.all[: len(shown)]
    assert answer["block"] == "".join(one["text"] for one in shown)
    assert bool(shown) == bool(sizes)
    if len(shown) < len(sizes):
        assert answer["notes"][0].startswith(f"Only {len(shown)} passages")
    listed = len(answer["omitted"])
    assert answer["omitted"] == searched([], omitted)["omitted"][:listed]
    if listed < omitted:
        assert answer["notes"][-1].startswith(f"{omitted - listed} more")
    assert len(corpus.asked) <= 4


def test_what_fits_is_asked_for_once_and_left_as_it_is() -> None:
    corpus = Corpus([100, 100], omitted=3)
    answer = Fitting(LIMIT, TOKENS).ask("knowledge.search", {}, corpus)
    assert answer == searched(corpus.all, 3)
    assert len(corpus.asked) == 1


def test_a_passage_that_fits_nowhere_is_not_cut() -> None:
    with pytest.raises(AnswerTooLarge):
        Fitting(LIMIT, TOKENS).ask("knowledge.search", {}, Corpus([9_000]))


def test_a_download_gets_shorter_parts() -> None:
    noise = "".join(chr(33 + n * 7 % 90) for n in range(40_000))

    def ask(asked: Mapping[str, Any]) -> dict[str, Any]:
        length = asked.get("length", 32_768)
        offset = asked["offset"]
        end = min(offset + length, len(noise))
        return {
            "content": noise[offset:end],
            "offset": offset,
            "next_offset": end if end < len(noise) else None,
            "size": len(noise),
        }

    fitting = Fitting(LIMIT, TOKENS)
    read, at = "", 0
    while at is not None:
        part = fitting.ask("knowledge.attachment", {"offset": at}, ask)
        assert TOKENS.count(spelled(part)) <= LIMIT
        read += part["content"]
        at = part["next_offset"]
    assert read == noise


def test_chunk_ids_that_are_not_listed_are_counted() -> None:
    ids = [f"kc_{number:016}" for number in range(2_000)]

    def ask(_: Mapping[str, Any]) -> dict[str, Any]:
        return {"chunk_ids": list(ids), "report": {"warnings": ["A page without text."]}}

    answer = Fitting(LIMIT, TOKENS).ask("knowledge.ingest", {}, ask)
    listed = answer["chunk_ids"]
    assert listed == ids[: len(listed)]
    assert 0 < len(listed) < len(ids)
    assert answer["report"]["warnings"][-1].startswith(f"{len(ids) - len(listed)} more chunk ids")


def test_too_many_quotes_are_to_be_asked_for_in_turns() -> None:
    def ask(_: Mapping[str, Any]) -> dict[str, Any]:
        return {"results": [{"found_in": {"text": "word " * 500}} for _ in range(20)]}

    with pytest.raises(AnswerTooLarge, match=r"the first [1-7] quotes, then"):
        Fitting(LIMIT, TOKENS).ask("knowledge.verify_quote", {}, ask)


def test_a_problem_with_many_findings_lists_the_first_ones() -> None:
    findings = [{"rule": "a_rule_of_some_name", "line": line} for line in range(1_000)]
    told = Fitting(LIMIT, TOKENS).problem({"code": "secret_found", "findings": findings})
    assert TOKENS.count(spelled(told)) <= LIMIT
    listed = told["findings"]
    assert listed == findings[: len(listed)]
    assert told["more_findings"] == len(findings) - len(listed)


# --- search results ----------------------------------------------------------------------------


@given(st.text(st.sampled_from("ab \n\t\r\f\u2028é"), max_size=60))
def test_paragraphs_joined_are_the_text(text: str) -> None:
    parts = paragraphs(text)
    assert "".join(parts) == text
    assert all(parts)
    if text.strip():
        assert all(part.strip() for part in parts)
        # Nothing follows a blank line but the white space that ends the paragraph above it.
        lines = [part.rstrip().lstrip("\n").split("\n") for part in parts[1:]]
        assert all(line.strip() for inner in lines for line in inner)


def test_a_passage_as_a_search_result() -> None:
    text = "One.\nStill one.\n\n  Two.\n \n\nThree.\n"
    assert search_result(text, source="https://x.example/c/1", title="T", heading_path=["A"]) == {
        "type": "search_result",
        "source": "https://x.example/c/1",
        "title": "T › A",
        "content": [
            {"type": "text", "text": "One.\nStill one.\n\n"},
            {"type": "text", "text": "  Two.\n \n\n"},
            {"type": "text", "text": "Three.\n"},
        ],
        "citations": {"enabled": True},
    }
