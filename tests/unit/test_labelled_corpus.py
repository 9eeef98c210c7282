"""The labelled corpus keeps the promises that the corpus gate builds on."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from knowledge.evaluation.collections import Collection
from tests.corpus.loader import (
    FOLDER,
    IN_CONTEXT,
    WRITTEN,
    Kind,
    contains,
    documents,
    judgements,
    questions,
    references,
    write_collection,
)

FEWEST_OF_A_KIND = {
    Kind.FACT: 24,
    Kind.PROCEDURE: 16,
    Kind.IDENTIFIER: 16,
    Kind.PARAPHRASE: 16,
    Kind.NAME: 8,
    Kind.KEYWORDS: 12,
    Kind.LONG: 12,
    Kind.GERMAN: 5,
    Kind.FRENCH: 5,
    Kind.TABLE: 12,
    Kind.UNANSWERABLE: 24,
}


def blocks(text: str) -> list[str]:
    """Paragraphs, and each line of a table or a list for itself."""
    return [
        piece
        for paragraph in re.split(r"\n\s*\n", text)
        for piece in (paragraph.splitlines() if paragraph.lstrip().startswith("|") else [paragraph])
    ]


def test_documents_are_many_titled_and_small() -> None:
    found = documents()
    assert len(found) >= 44
    for document in found:
        assert document.title, document.id
        assert 150 <= len(document.text.split()) <= 900, document.id
        assert document.doc_date is None or document.doc_date <= WRITTEN, document.id
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 1 << 20


def test_ids_are_unique_and_known() -> None:
    asked = questions()
    assert max(Counter(question.id for question in asked).values()) == 1
    assert max(Counter(question.text.casefold() for question in asked).values()) == 1
    question_ids = {question.id for question in asked}
    document_ids = {document.id for document in documents()}
    quoted = references()
    assert len(set(quoted)) == len(quoted)
    for question_id, quote in quoted:
        assert question_id in question_ids
        assert quote.document_id in document_ids


def test_every_quote_stands_in_exactly_the_document_it_names() -> None:
    texts = {document.id: document.text for document in documents()}
    for question_id, quote in references():
        found = [id_ for id_, text in texts.items() if contains(text, quote.text)]
        assert found == [quote.document_id], (question_id, quote.text)
        assert any(contains(block, quote.text) for block in blocks(texts[quote.document_id])), (
            f"{question_id}: {quote.text!r} runs over the end of a paragraph or a row"
        )


def test_every_question_but_the_unanswerable_has_a_reference() -> None:
    for question in questions():
        assert bool(question.quotes) is (question.kind is not Kind.UNANSWERABLE), question.id


def test_judgements_say_the_same_as_the_references() -> None:
    quoted = {(question_id, quote.document_id) for question_id, quote in references()}
    judged = judgements()
    assert len(set(judged)) == len(judged)
    assert set(judged) == quoted


def test_every_kind_is_asked_often_enough() -> None:
    asked = questions()
    assert len(asked) >= 132
    counted = Counter(question.kind for question in asked)
    for kind, fewest in FEWEST_OF_A_KIND.items():
        assert counted[kind] >= fewest, kind


def test_questions_have_the_form_of_their_kind() -> None:
    for question in questions():
        words = len(question.text.split())
        if question.kind is Kind.LONG:
            assert 15 <= words <= 30, question.id
        if question.kind is Kind.KEYWORDS:
            assert question.text == question.text.lower(), question.id
            assert 2 <= words <= 6, question.id


def test_the_corpus_is_a_collection(tmp_path: Path) -> None:
    write_collection(tmp_path)
    collection = Collection.at(tmp_path)
    assert [document.id for document in collection.documents()] == [
        document.id for document in documents()
    ]
    answerable = {question.id for question in questions() if question.quotes}
    assert {question.id for question in collection.questions()} == answerable


def test_questions_in_context_are_questions_of_the_corpus_asked_in_fewer_words(
    tmp_path: Path,
) -> None:
    write_collection(tmp_path, queries=IN_CONTEXT)
    whole = {question.id: question.text for question in questions()}
    asked = Collection.at(tmp_path).questions()
    assert len(asked) >= 20
    for question in asked:
        assert question.quotes, question.id
        assert question.context, question.id
        assert question.text != whole[question.id]
    said = {name for question in asked for name in question.context}
    assert said == {"objective", "entities", "aliases"}
