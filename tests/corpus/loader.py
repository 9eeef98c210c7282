"""The labelled corpus: the papers of a made-up cold-chain cooperative, and questions about them.

    documents/*.md, *.txt   a document a file; the file's name is its id
    queries.jsonl           {"_id", "text", "kind"}
    qrels/test.tsv          query-id, corpus-id, score        with a heading line
    references.jsonl        {"query_id", "doc_id", "quote"}   the words that answer
    context.jsonl           some of the questions as they are asked amid a conversation: the text
                            alone does not say what they are about, but "objective", "entities" and
                            "aliases" do

The folder is a collection in the BEIR layout but for `corpus.jsonl`, which `write_collection`
makes of the documents. A question may have several quotes; any one of them answers it.
Questions of the kind `unanswerable` have none and no line in `qrels`.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Final

from knowledge.core.structure import front_matter

FOLDER: Final = Path(__file__).parent
WRITTEN: Final = date(2025, 10, 15)
"""The day on which the corpus takes place; no document of it is younger."""

_QUERIES: Final = "queries.jsonl"
IN_CONTEXT: Final = "context.jsonl"
_JUDGEMENTS: Final = "qrels/test.tsv"
_REFERENCES: Final = "references.jsonl"


class Kind(StrEnum):
    FACT = "fact"
    PROCEDURE = "procedure"
    IDENTIFIER = "identifier"
    PARAPHRASE = "paraphrase"
    NAME = "name"
    KEYWORDS = "keywords"
    LONG = "long"
    GERMAN = "german"
    FRENCH = "french"
    TABLE = "table"
    UNANSWERABLE = "unanswerable"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledDocument:
    """`id` is the file's name, `title` what the text calls itself."""

    id: str
    title: str
    text: str
    doc_date: date | None

    @property
    def media_type(self) -> str:
        return "text/markdown" if self.id.endswith(".md") else "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Words of a document that answer a question, from one paragraph or one row of a table."""

    document_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledQuestion:
    id: str
    text: str
    kind: Kind
    quotes: tuple[Quote, ...]
    document_ids: frozenset[str]
    """The documents that `qrels` judges to answer."""

    def is_answered_by(self, passage: str) -> bool:
        return any(contains(passage, quote.text) for quote in self.quotes)


def contains(text: str, quote: str) -> bool:
    """Whether a text has a quote in it, whatever white space stands between the words."""
    return " ".join(quote.split()) in " ".join(text.split())


def documents() -> list[LabelledDocument]:
    """In the order of their ids."""
    return [
        _document(path)
        for path in sorted((FOLDER / "documents").iterdir())
        if path.suffix in {".md", ".txt"}
    ]


def questions() -> list[LabelledQuestion]:
    """In the order of the file."""
    quotes: dict[str, list[Quote]] = {}
    for row in _rows(_REFERENCES):
        quotes.setdefault(row["query_id"], []).append(
            Quote(document_id=row["doc_id"], text=row["quote"])
        )
    judged: dict[str, set[str]] = {}
    for question_id, document_id in judgements():
        judged.setdefault(question_id, set()).add(document_id)
    return [
        LabelledQuestion(
            id=row["_id"],
            text=row["text"],
            kind=Kind(row["kind"]),
            quotes=tuple(quotes.get(row["_id"], ())),
            document_ids=frozenset(judged.get(row["_id"], ())),
        )
        for row in _rows(_QUERIES)
    ]


def references() -> list[tuple[str, Quote]]:
    """Every quote with the id of its question, as the file has them."""
    return [
        (row["query_id"], Quote(document_id=row["doc_id"], text=row["quote"]))
        for row in _rows(_REFERENCES)
    ]


def judgements() -> list[tuple[str, str]]:
    """Pairs of question and answering document, as the file has them."""
    with (FOLDER / _JUDGEMENTS).open(encoding="utf-8", newline="") as lines:
        return [
            (row["query-id"], row["corpus-id"])
            for row in csv.DictReader(lines, delimiter="\t")
            if int(row["score"]) > 0
        ]


def write_collection(folder: Path, *, queries: str = _QUERIES) -> None:
    """The whole corpus in the BEIR layout, for programs that read collections."""
    (folder / _JUDGEMENTS).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(FOLDER / queries, folder / _QUERIES)
    for name in (_JUDGEMENTS, _REFERENCES):
        shutil.copyfile(FOLDER / name, folder / name)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as lines:
        for document in documents():
            row = {"_id": document.id, "title": document.title, "text": document.text}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _document(path: Path) -> LabelledDocument:
    text = path.read_text(encoding="utf-8")
    front = front_matter(text)
    first_line = text[front.end :].lstrip().partition("\n")[0]
    return LabelledDocument(
        id=path.name,
        title=front.title or first_line.removeprefix("# ").strip(),
        text=text,
        doc_date=front.doc_date,
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
