"""`compare`: every system ranks the same passages, the table is whole, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command

from knowledge.evaluation import peers
from knowledge.evaluation.collections import Collection, Question
from knowledge.evaluation.peers import (
    HELD_OUT,
    TUNED_ON,
    Comparer,
    Judged,
    Passage,
    figures_of,
    floor_of,
    foreign_questions,
    half_of,
    judge,
    separation,
)
from knowledge.wiring import store
from tests.support import footprint

pytestmark = pytest.mark.django_db

TEXTS = {
    "Valves": "The valve of the feed pump opens at noon and closes at midnight.",
    "Gears": "A worm gear turns the screen of the intake once in an hour.",
    "Filters": "Sand filters are washed backwards when their pressure rises.",
}
QUESTIONS = {
    "When does the valve of the pump open?": "Valves",
    "What turns the screen of the intake?": "Gears",
    "When are sand filters washed?": "Filters",
    "Which gear is a worm?": "Gears",
}


def collection(folder: Path) -> Collection:
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": name, "title": name, "text": text} for name, text in TEXTS.items()]
    asked = [{"_id": f"q{number}", "text": text} for number, text in enumerate(QUESTIONS)]
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    judged = "".join(f"q{number}\t{name}\t1\n" for number, name in enumerate(QUESTIONS.values()))
    quotes = [
        {"query_id": f"q{number}", "doc_id": name, "quote": TEXTS[name]}
        for number, name in enumerate(QUESTIONS.values())
    ]
    (folder / "references.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in quotes))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return Collection.at(folder)


@pytest.fixture
def passages() -> list[Passage]:
    return [
        Passage(chunk_id=name, document=uuid4(), head=name, text=text)
        for name, text in TEXTS.items()
    ]


@pytest.fixture
def stock(passages: list[Passage]) -> Iterator[dict[str, peers.Peer]]:
    with peers.stock_django(passages) as found:
        yield found


class TestPeers:
    @pytest.mark.parametrize("name", list(peers.LIBRARIES))
    def test_a_library_finds_the_obvious_passage_first(
        self, name: str, passages: list[Passage]
    ) -> None:
        pytest.importorskip(name, reason=f"the peer {name} is not installed")
        search = peers.LIBRARIES[name](passages)
        for text, title in QUESTIONS.items():
            assert passages[search(text)[0]].head == title

    @pytest.mark.parametrize("name", list(peers.LIBRARIES))
    @pytest.mark.parametrize("text", ["", "?!", "zebra", "NOT valve", 'title:"', "+(", "the of"])
    def test_a_library_is_asked_words_and_never_syntax(
        self, name: str, text: str, passages: list[Passage]
    ) -> None:
        pytest.importorskip(name, reason=f"the peer {name} is not installed")
        found = peers.LIBRARIES[name](passages)(text)
        assert len(set(found)) == len(found)
        assert ("valve" in text) == (0 in found and bool(found)) or "the" in text

    def test_stock_search_wants_every_word(self, stock: dict[str, peers.Peer]) -> None:
        assert stock["Django, AND"]("sand filters") == [2]
        assert stock["Django, AND"]("sand filters of zebras") == []
        assert stock["OR + ts_rank"]("sand filters of zebras") == [2]
        assert stock["OR + ts_rank"]("") == []

    def test_a_library_that_is_not_installed_is_named(
        self, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lacking(_passages: object) -> peers.Peer:
            raise ModuleNotFoundError("No module named 'magic'", name="magic")

        monkeypatch.setattr(peers, "LIBRARIES", {"wand": lacking})
        with peers.peers(passages) as (found, missing):
            assert list(found) == ["Django, AND", "OR + ts_rank"]
            assert missing == {"wand": "magic"}


class TestComparison:
    def test_the_table_is_whole_and_the_tenant_gone(self, tmp_path: Path, blob_root: Path) -> None:
        before = footprint(blob_root)
        told = Comparer(store()).compare(
            collection(tmp_path / "plant"), foreign=["Why do cats purr?"]
        )
        assert footprint(blob_root) == before
        assert (told["documents"], told["chunks"], told["queries"]) == (3, 3, 4)
        systems = {"Django, AND", "OR + ts_rank", *peers.LIBRARIES, "ours"}
        assert set(told["systems"]) | set(told["missing"]) == systems
        perfect = {"queries": 4, "ndcg_at_10": 1.0, "recall_at_3": 1.0}
        assert told["systems"]["ours"]["documents"]["all"] == perfect
        assert told["systems"]["ours"]["passages"]["all"] == perfect
        for system in told["systems"].values():
            figures = system["documents"]
            assert set(figures) == {"all", TUNED_ON, HELD_OUT}
            assert figures[TUNED_ON]["queries"] + figures[HELD_OUT]["queries"] == 4
        assert min(told["best_scores"]["answerable"]) > max(told["best_scores"]["foreign"])

    def test_the_command_prints_a_table(self, tmp_path: Path, blob_root: Path) -> None:
        folder = collection(tmp_path / "plant").folder
        shown = StringIO()
        call_command("compare", str(folder), "--markdown", "--floor", stdout=shown)
        assert "| ours | 1.000 / 1.000 |" in shown.getvalue()
        assert "Default: " in shown.getvalue()

    def test_the_command_prints_json(self, tmp_path: Path, blob_root: Path) -> None:
        folders = [str(collection(tmp_path / name).folder) for name in ("one", "two")]
        shown = StringIO()
        call_command("compare", *folders, "--floor", "--queries", "2", "--json", stdout=shown)
        one, two, floor = map(json.loads, shown.getvalue().splitlines())
        assert (one["collection"], two["collection"]) == ("one", "two")
        assert one["queries"] == 2
        assert set(floor) == {"default", "separation", "curve"}
        assert set(floor["curve"][0]["collections"]) == {"one", "two"}


class TestFigures:
    def test_a_question_belongs_to_one_half_for_good(self) -> None:
        halves = [half_of(str(number)) for number in range(200)]
        assert halves == [half_of(str(number)) for number in range(200)]
        assert 70 < halves.count(HELD_OUT) < 130

    def test_a_document_ranks_by_its_best_passage(self, passages: list[Passage]) -> None:
        first, second = passages[0], replace(passages[1], document=passages[0].document)
        told = figures_of(
            [Judged(id="a", documents={"y": 1}, passages=frozenset({2}))],
            [first, second, passages[2]],
            {first.document: ["x"], passages[2].document: ["y"]},
            [[0, 1, 2]],
        )
        assert told["documents"]["all"]["ndcg_at_10"] == pytest.approx(0.6309, abs=1e-4)
        assert told["passages"]["all"]["ndcg_at_10"] == 0.5

    def test_nothing_found_counts(self, passages: list[Passage]) -> None:
        judged = [Judged(id=id_, documents={"x": 1}, passages=None) for id_ in "ab"]
        told = figures_of(judged, passages, {passages[0].document: ["x"]}, [[0], []])
        assert set(told) == {"documents"}
        assert told["documents"]["all"] == {"queries": 2, "ndcg_at_10": 0.5, "recall_at_3": 0.5}

    def test_an_empty_half_has_no_figures(self, passages: list[Passage]) -> None:
        told = figures_of([Judged(id="a", documents={"x": 1}, passages=None)], passages, {}, [[]])
        empty = next(part for part in told["documents"].values() if not part["queries"])
        assert empty == {"queries": 0, "ndcg_at_10": None, "recall_at_3": None}

    def test_a_quote_is_found_white_space_aside(self, passages: list[Passage]) -> None:
        quotes = (("Valves", "opens\nat  noon"), ("Gears", "no such words"))
        asked = Question(id="a", text="?", answers={"Valves": 1}, quotes=quotes)
        assert judge([asked], passages)[0].passages == frozenset({0})


class TestFloor:
    def test_the_default_is_the_highest_that_keeps_nineteen_in_twenty(self) -> None:
        best = {"answerable": [0.5] * 19 + [0.1], "foreign": [0.05, 0.3, 0.1, 0.1]}
        told = floor_of({"one": best})
        assert told["default"] == 0.5
        point: dict[str, Any] = next(one for one in told["curve"] if one["floor"] == 0.2)
        assert point["kept"] == 0.95
        assert point["dropped"] == 0.75

    def test_separation_is_the_share_of_pairs_in_order(self) -> None:
        assert separation([0.5, 0.6], [0.1, 0.2]) == 1.0
        assert separation([0.1], [0.1]) == 0.5
        assert separation([0.1], []) is None

    def test_foreign_questions_are_off_topic_or_of_others(self, tmp_path: Path) -> None:
        one, two = collection(tmp_path / "one"), collection(tmp_path / "two")
        alone = foreign_questions(one, [one])
        assert len(alone) >= 40
        assert not set(alone) & set(QUESTIONS)
        assert foreign_questions(one, [one, two]) == [*alone, *QUESTIONS]
