"""Collections in the BEIR layout: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from knowledge.core.types import KnowledgeQuery
from knowledge.evaluation.collections import (
    Collection,
    CollectionDocument,
    InvalidCollection,
    as_file,
    is_collection,
)

Rows = list[dict[str, Any]]


def written(folder: Path, **files: Rows | str) -> Path:
    """A collection of one document and one question, but for the files that are given."""
    contents: dict[str, Rows | str] = {
        "corpus": [{"_id": "d1", "title": "Valves", "text": "The valve opens at noon."}],
        "queries": [{"_id": "q1", "text": "When does the valve open?"}],
        "qrels": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        **files,
    }
    (folder / "qrels").mkdir(parents=True)
    for name, content in contents.items():
        path = folder / ("qrels/test.tsv" if name == "qrels" else f"{name}.jsonl")
        path.write_text(
            content
            if isinstance(content, str)
            else "".join(f"{json.dumps(row)}\n" for row in content)
        )
    return folder


class TestReading:
    def test_documents_questions_and_what_answers_them(self, tmp_path: Path) -> None:
        folder = written(
            tmp_path / "pumps",
            references=[{"query_id": "q1", "doc_id": "d1", "quote": "opens at noon"}],
        )
        collection = Collection.at(folder)
        assert collection.name == "pumps"
        assert list(collection.documents()) == [
            CollectionDocument(id="d1", title="Valves", text="The valve opens at noon.")
        ]
        (question,) = collection.questions()
        assert question.answers == {"d1": 1}
        assert question.quotes == (("d1", "opens at noon"),)

    def test_titles_and_references_may_be_missing(self, tmp_path: Path) -> None:
        folder = written(tmp_path / "bare", corpus=[{"_id": "d1", "text": "Words."}])
        collection = Collection.at(folder)
        assert [document.title for document in collection.documents()] == [""]
        assert [question.quotes for question in collection.questions()] == [()]

    def test_a_question_that_nothing_answers_is_left_out(self, tmp_path: Path) -> None:
        folder = written(
            tmp_path / "some",
            queries=[{"_id": "q1", "text": "One?"}, {"_id": "q2", "text": "Two?"}],
            qrels="query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\td1\t0\n",
        )
        (question,) = Collection.at(folder).questions()
        assert question.id == "q1"
        assert question.answers == {"d1": 2}

    def test_judgements_may_come_without_a_heading(self, tmp_path: Path) -> None:
        folder = written(tmp_path / "headless", qrels="q1\td1\t1\n")
        assert len(Collection.at(folder).questions()) == 1

    def test_a_folder_is_a_collection_by_its_corpus(self, tmp_path: Path) -> None:
        assert is_collection(written(tmp_path / "yes"))
        assert not is_collection(tmp_path)

    def test_a_question_may_say_more_than_its_text(self, tmp_path: Path) -> None:
        asked = {"_id": "q1", "text": "When?", "objective": "Fill it", "aliases": {"it": ["pump"]}}
        (question,) = Collection.at(written(tmp_path / "said", queries=[asked])).questions()
        assert question.query() == KnowledgeQuery(
            text="When?", objective="Fill it", aliases={"it": ("pump",)}
        )


class TestRefusing:
    @pytest.mark.parametrize(
        "said",
        [
            {"objective": 3},
            {"entities": "pump"},
            {"entities": [1]},
            {"aliases": ["it"]},
            {"aliases": {"it": "pump"}},
        ],
    )
    def test_context_of_another_shape(self, tmp_path: Path, said: dict[str, Any]) -> None:
        asked = [{"_id": "q1", "text": "When?", **said}]
        collection = Collection.at(written(tmp_path / "odd", queries=asked))
        with pytest.raises(InvalidCollection, match="a list of"):
            collection.questions()

    @pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
    def test_a_missing_file_is_named(self, tmp_path: Path, name: str) -> None:
        folder = written(tmp_path / "partial")
        (folder / name).unlink()
        with pytest.raises(InvalidCollection, match=name):
            Collection.at(folder)

    @pytest.mark.parametrize(
        ("corpus", "message"),
        [
            ('{"_id": "d1", "text": "a"}\n{"_id": \n', "line 2"),
            ('["d1"]\n', "no JSON object"),
            ('{"text": "a"}\n', "'_id'"),
            ('{"_id": "d1"}\n', "'text'"),
            ('{"_id": "d1", "text": "a", "title": 3}\n', "'title'"),
            ('{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', "twice"),
        ],
    )
    def test_a_broken_document_is_placed(self, tmp_path: Path, corpus: str, message: str) -> None:
        collection = Collection.at(written(tmp_path / "broken", corpus=corpus))
        with pytest.raises(InvalidCollection, match=message):
            list(collection.documents())

    @pytest.mark.parametrize(
        ("qrels", "message"),
        [("q1\td1\n", "columns"), ("q1\td1\tmuch\n", "no number"), ("q9\td1\t1\n", "No question")],
    )
    def test_broken_judgements(self, tmp_path: Path, qrels: str, message: str) -> None:
        collection = Collection.at(written(tmp_path / "broken", qrels=qrels))
        with pytest.raises(InvalidCollection, match=message):
            collection.questions()


class TestAsFile:
    def test_headings_make_markdown(self) -> None:
        _, request = as_file(CollectionDocument(id="1", title="T", text="# Top\n\nWords."))
        assert request["media_type"] == "text/markdown"

    def test_anything_else_is_plain_text(self) -> None:
        content, request = as_file(CollectionDocument(id="1", title="T", text="#tag\nwörds"))
        assert request["media_type"] == "text/plain"
        assert content == "#tag\nwörds".encode()

    def test_titles_are_one_line_and_never_empty(self) -> None:
        assert as_file(CollectionDocument(id="1", title="a\n b", text=""))[1]["title"] == "a b"
        assert as_file(CollectionDocument(id="1", title=" ", text=""))[1]["title"] == "Untitled"
