"""`evaluate`: known figures on a collection small enough to work out by hand, and nothing left."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from access.errors import Malformed
from knowledge.core.types import KnowledgeQuery
from knowledge.evaluation.collections import Collection, Question
from knowledge.evaluation.harness import (
    Answer,
    Evaluator,
    quotes_an_answer,
    spread,
    summarise,
)
from knowledge.evaluation.throwaway import remove_tenant, settle, throw_away_tenant
from knowledge.evaluation.variants import searchers, without
from knowledge.wiring import store
from tests.support import admit, footprint, principal

pytestmark = pytest.mark.django_db

TEXTS = {
    "valves": "The valve of the feed pump opens at noon and closes at midnight.",
    "gears": "A worm gear turns the screen of the intake once in an hour.",
    "filters": "Sand filters are washed backwards when their pressure rises.",
}


def collection(folder: Path, *, secret: bool = False) -> Collection:
    rows = [{"_id": name, "title": name.title(), "text": text} for name, text in TEXTS.items()]
    if secret:
        token = "ghp_" + "Zr4tQ8LmX2vN6bKc0PsYw7HdJf3GaUe1TiRo"
        rows.append({"_id": "leak", "title": "Leak", "text": f"github_token = {token}"})
    queries = {
        "q1": ("When does the valve of the pump open?", "valves", "opens at noon"),
        "q2": ("What turns the screen?", "gears", "turns the screen"),
        # Judged against the words, so that the right answer is found by no search.
        "q3": ("When are sand filters washed?", "valves", "closes at midnight"),
    }
    (folder / "qrels").mkdir(parents=True)
    files: dict[str, list[dict[str, str]]] = {
        "corpus": rows,
        "queries": [{"_id": number, "text": text} for number, (text, _, _) in queries.items()],
        "references": [
            {"query_id": number, "doc_id": document, "quote": quote}
            for number, (_, document, quote) in queries.items()
        ],
    }
    for name, content in files.items():
        lines = "".join(f"{json.dumps(row)}\n" for row in content)
        (folder / f"{name}.jsonl").write_text(lines)
    judged = "".join(f"{number}\t{document}\t1\n" for number, (_, document, _) in queries.items())
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return Collection.at(folder)


def answered(ranked: tuple[str, ...], *, returned: tuple[str, ...] = ()) -> Answer:
    question = Question(id="q", text="?", answers={"good": 1}, quotes=(("good", "two  words"),))
    return Answer(
        question=question,
        ranked=ranked,
        passages=("kc_other", "kc_good"),
        holders=frozenset({"kc_good"}),
        returned=returned,
        texts=("two\nwords",),
        milliseconds=1.0,
    )


class TestFigures:
    def test_a_collection_has_known_ones(self, tmp_path: Path, blob_root: Path) -> None:
        told = Evaluator(store()).evaluate(collection(tmp_path / "plant"))
        assert (told["collection"], told["documents"], told["queries"]) == ("plant", 3, 3)
        assert told["chunks"] == 3
        assert told["refused"] == []
        lexical = told["arms"]["lexical"]
        assert lexical["hit_at_3"] == pytest.approx(2 / 3, abs=1e-4)
        assert lexical["mrr_at_10"] == pytest.approx(2 / 3, abs=1e-4)
        assert lexical["passage_recall_at_3"] == pytest.approx(2 / 3, abs=1e-4)
        assert lexical["passage_hit_at_3"] == pytest.approx(2 / 3, abs=1e-4)
        assert set(lexical["latency_ms"]) == {"p50", "p95"}

    def test_ranks_are_of_documents(self) -> None:
        told = summarise([answered(("bad", "good"), returned=("bad", "good"))])
        assert told["mrr_at_10"] == 0.5
        assert told["ndcg_at_10"] == pytest.approx(0.6309, abs=1e-4)
        assert told["recall_at_10"] == told["hit_at_3"] == told["hit_at_3_capped"] == 1.0
        assert told["noise_at_3"] == 0.5
        assert told["passage_ndcg_at_10"] == pytest.approx(0.6309, abs=1e-4)

    def test_nothing_found_counts_as_nothing(self) -> None:
        told = summarise([answered(()), answered(("good",), returned=("good",))][:1])
        assert told["ndcg_at_10"] == told["hit_at_3"] == told["hit_at_3_capped"] == 0.0
        assert told["noise_at_3"] == 0.0

    def test_a_quote_is_found_white_space_aside(self) -> None:
        assert quotes_an_answer(answered(("good",)))

    def test_questions_are_spread_evenly(self) -> None:
        questions = [Question(id=str(n), text="?", answers={}, quotes=()) for n in range(10)]
        assert [question.id for question in spread(questions, 2)] == ["0", "5"]
        assert spread(questions, None) == spread(questions, 99) == questions


class TestArms:
    def test_every_arm_and_every_ablation_has_a_name(self) -> None:
        named = searchers(store().searcher)
        assert {"lexical", "lexical-without-recency", "lexical-without-penalty"} <= set(named)

    def test_a_term_that_is_left_out_gives_its_weight_to_the_match(self) -> None:
        policy = without(store().searcher.policy, "recency")
        assert policy.recency == 0.0
        assert policy.match + policy.authority + policy.scope == pytest.approx(1.0)

    def test_what_stands_beside_a_question_can_be_left_out(
        self, tmp_path: Path, blob_root: Path
    ) -> None:
        made = collection(tmp_path / "c")
        asked = {"_id": "q1", "text": "When does it open?", "entities": ["valve of the pump"]}
        (made.folder / "queries.jsonl").write_text(json.dumps(asked) + "\n")
        told = Evaluator(store()).evaluate(made, arms=["all"])["arms"]
        assert "lexical-without-objective" not in told  # no question has one
        assert told["lexical"]["hit_at_3"] == 1.0
        for name in ("entities", "context"):
            assert told[f"lexical-without-{name}"]["mrr_at_10"] <= told["lexical"]["mrr_at_10"]
        query = made.questions()[0].query()
        forgetful = searchers(store().searcher, [query])
        by = principal()
        admit("The valve of the pump is dry.", by=by)
        with_it = store().searcher.search(query, by)
        without_it = forgetful["lexical-without-entities"].search(query, by)
        assert len(with_it.passages + with_it.omitted) == 1
        assert without_it.passages + without_it.omitted == ()

    def test_an_unknown_arm_is_refused_before_anything_is_admitted(
        self, tmp_path: Path, blob_root: Path
    ) -> None:
        with pytest.raises(Malformed, match="lexical"):
            Evaluator(store()).evaluate(collection(tmp_path / "c"), arms=["magic"])


class TestNothingIsLeft:
    def test_after_an_evaluation(self, tmp_path: Path, blob_root: Path) -> None:
        admit("Another tenant's document stays.", by=principal())
        settle()
        before = footprint(blob_root)
        told = Evaluator(store()).evaluate(collection(tmp_path / "c", secret=True), arms=["all"])
        assert told["refused"] == [{"document": "leak", "code": "secret_found"}]
        assert footprint(blob_root) == before

    def test_after_an_interruption(self, blob_root: Path) -> None:
        before = footprint(blob_root)

        def interrupted() -> None:
            with throw_away_tenant("evaluate") as tenant_id:
                by = principal(tenant=tenant_id)
                admit("It was admitted.", by=by)
                store().search(KnowledgeQuery(text="admitted"), by)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert footprint(blob_root) == before

    def test_only_a_measurement_s_tenant_is_ever_removed(self) -> None:
        with pytest.raises(Malformed):
            remove_tenant("acme")


class TestCommand:
    def run(self, *arguments: str) -> str:
        out = StringIO()
        call_command("evaluate", *arguments, stdout=out)
        return out.getvalue()

    def test_json(self, tmp_path: Path, blob_root: Path) -> None:
        folder = collection(tmp_path / "plant").folder
        told: dict[str, Any] = json.loads(self.run(str(folder), "--queries", "2", "--json"))
        assert told["queries"] == 2
        assert set(told["arms"]) == {"lexical"}

    def test_table(self, tmp_path: Path, blob_root: Path) -> None:
        shown = self.run(str(collection(tmp_path / "plant").folder))
        assert "3 documents" in shown
        assert "nDCG@10" in shown

    def test_a_folder_that_is_no_collection(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="invalid_collection"):
            self.run(str(tmp_path))
