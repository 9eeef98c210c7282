"""Labelled collections in the BEIR layout: documents, questions, and which answer which.

    corpus.jsonl      {"_id", "title"?, "text"}             a document a line
    queries.jsonl     {"_id", "text", "objective"?, "entities"?, "aliases"?}
    qrels/test.tsv    query-id, corpus-id, score            with a heading line; scores above 0 count
    references.jsonl  {"query_id", "doc_id", "quote"}       optional: the words that answer

After Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information
Retrieval Models" (2021). `references.jsonl` is an addition of ours.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from access.errors import VerbatimError
from knowledge.core.types import KnowledgeQuery

CORPUS: Final = "corpus.jsonl"
QUERIES: Final = "queries.jsonl"
JUDGEMENTS: Final = "qrels/test.tsv"
REFERENCES: Final = "references.jsonl"
UNTITLED: Final = "Untitled"
_COLUMNS: Final = 3
_TITLE_LIMIT: Final = 500
# What JSON can spell and no text holds: a NUL and half of a surrogate pair.
_NO_TEXT: Final = re.compile("[\x00\ud800-\udfff]")


class InvalidCollection(VerbatimError):
    """This folder is no collection in the BEIR layout."""

    code = "invalid_collection"
    status = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionDocument:
    """A document as the collection has it; `title` may be empty."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, the documents that answer it (id to grade), and the words that do: per id.

    `context` is what it says beside its text, as a search takes it.
    """

    id: str
    text: str
    answers: dict[str, int]
    quotes: tuple[tuple[str, str], ...]
    context: Mapping[str, Any] = field(default_factory=dict)

    def query(self) -> KnowledgeQuery:
        return KnowledgeQuery(text=self.text, **self.context)


@dataclass(frozen=True, slots=True)
class Collection:
    """A folder in the BEIR layout. Documents are read as they are asked for, a line at a time."""

    folder: Path

    @classmethod
    def at(cls, folder: Path, needs: Sequence[str] = (CORPUS, QUERIES, JUDGEMENTS)) -> Collection:
        """The collection in a folder; raises `InvalidCollection` when a file of it is missing."""
        found = cls(folder)
        for name in needs:
            if not (folder / name).is_file():
                raise InvalidCollection(f"There is no {name} in {found.name}.")
        return found

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def documents(self) -> Iterator[CollectionDocument]:
        """Every document in the order of the file; an id that comes twice is an error."""
        yield from documents_of(self.folder / CORPUS)

    def questions(self) -> list[Question]:
        """The questions that some document answers, in the order of the file."""
        judged = _judgements(self.folder / JUDGEMENTS)
        quoted = _quotes(self.folder / REFERENCES)
        questions = [
            Question(
                id=number,
                text=_field(row, "text", place),
                answers=answers,
                quotes=tuple(quoted.get(number, ())),
                context=_context(row, place),
            )
            for number, place, row in self._asked()
            if (answers := judged.get(number))
        ]
        if not questions:
            raise InvalidCollection(f"No question of {self.name} has a document that answers it.")
        return questions

    def unanswered(self) -> list[str]:
        """The texts of the questions that no document answers, in the order of the file."""
        judged = _judgements(self.folder / JUDGEMENTS)
        return [
            _field(row, "text", place)
            for number, place, row in self._asked()
            if number not in judged
        ]

    def _asked(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        seen = set[str]()
        for place, row in _rows(self.folder / QUERIES):
            number = _field(row, "_id", place)
            if number in seen:
                raise InvalidCollection(f"{place}: the question {number!r} comes twice.")
            seen.add(number)
            yield number, place, row


def _context(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    objective, entities = row.get("objective"), row.get("entities", [])
    aliases = row.get("aliases", {})
    if not (
        (objective is None or isinstance(objective, str))
        and _are_texts(entities)
        and isinstance(aliases, dict)
        and all(_are_texts(names) for names in aliases.values())
    ):
        raise InvalidCollection(
            f"{place}: an objective is a text, entities are a list of texts, and aliases a list of"
            " texts for each."
        )
    context = {
        "objective": objective,
        "entities": tuple(entities),
        "aliases": {entity: tuple(names) for entity, names in aliases.items()},
    }
    return {name: said for name, said in context.items() if said}


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def is_collection(path: Path) -> bool:
    """Whether a folder holds documents in the BEIR layout."""
    return (path / CORPUS).is_file()


def documents_of(corpus: Path) -> Iterator[CollectionDocument]:
    """The documents of a `corpus.jsonl`, a line at a time."""
    seen = set[str]()
    for place, row in _rows(corpus):
        number = _field(row, "_id", place)
        if number in seen:
            raise InvalidCollection(f"{place}: the document {number!r} comes twice.")
        seen.add(number)
        title = row.get("title") or ""
        if not isinstance(title, str):
            raise InvalidCollection(f"{place}: 'title' is no text.")
        yield CollectionDocument(
            id=number, title=title, text=_field(row, "text", place, empty=True)
        )


def as_file(document: CollectionDocument) -> tuple[bytes, dict[str, str]]:
    """A document as a file that somebody would upload: bytes, name, media type and title.

    Markdown when a heading or a fence says so, plain text otherwise. A document without a title
    is called the same as every other one, so that the title tells nothing.
    """
    markdown = any(line.startswith(("# ", "## ", "### ")) for line in document.text.splitlines())
    return document.text.encode("utf-8", "replace"), {
        "filename": "document.md" if markdown else "document.txt",
        "media_type": "text/markdown" if markdown else "text/plain",
        "title": " ".join(document.title.split())[:_TITLE_LIMIT] or UNTITLED,
    }


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{file.name}, line {number}"
            try:
                row = json.loads(line.decode())
            except json.JSONDecodeError as error:
                raise InvalidCollection(f"{place}: {error.msg}.") from None
            except UnicodeDecodeError:
                raise InvalidCollection(f"{place} is not UTF-8.") from None
            except (ValueError, RecursionError):  # a number or a nesting beyond all measure
                raise InvalidCollection(f"{place} is no JSON that can be read.") from None
            if not isinstance(row, dict):
                raise InvalidCollection(f"{place} is no JSON object.")
            yield place, row


def _field(row: dict[str, Any], name: str, place: str, *, empty: bool = False) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not (empty or (value and not _NO_TEXT.search(value))):
        raise InvalidCollection(f"{place}: '{name}' is missing or no text.")
    return value


def _judgements(file: Path) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(_cells(lines, file.name), start=1):
            if not row or (number == 1 and "id" in row[0]):
                continue
            place = f"{file.name}, line {number}"
            if len(row) != _COLUMNS:
                raise InvalidCollection(f"{place} has {len(row)} columns instead of {_COLUMNS}.")
            question, document, score = row
            try:
                grade = int(score)
            except ValueError:
                raise InvalidCollection(f"{place}: the score {score!r} is no number.") from None
            if grade > 0:
                judged.setdefault(question, {})[document] = grade
    return judged


def _cells(lines: Iterable[str], name: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines, delimiter="\t")
    except UnicodeDecodeError:
        raise InvalidCollection(f"{name} is not UTF-8.") from None
    except csv.Error as error:
        raise InvalidCollection(f"{name}: {error}.") from None


def _quotes(file: Path) -> dict[str, list[tuple[str, str]]]:
    quoted: dict[str, list[tuple[str, str]]] = {}
    if file.is_file():
        for place, row in _rows(file):
            quoted.setdefault(_field(row, "query_id", place), []).append(
                (_field(row, "doc_id", place), _field(row, "quote", place))
            )
    return quoted
