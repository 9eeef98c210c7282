"""Golden sets as folders in the BEIR layout and back, so that `evaluate` can ask them too."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.db import transaction

from access.errors import Malformed, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Sensitivity
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.core.types import GOLDEN_SURFACE
from knowledge.evaluation.collections import (
    CORPUS,
    JUDGEMENTS,
    QUERIES,
    REFERENCES,
    Collection,
    Question,
)
from knowledge.models import Chunk, GoldenSet, KnowledgeEvent
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.golden import MOST_ANSWERS, MOST_QUESTIONS, GoldenAsked, placed, squeezed
from knowledge.store import KnowledgeStore

_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written. `stale` are questions that nothing in the corpus answers today."""

    documents: int
    questions: int
    stale: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`unplaced` are the questions of which no passage holds the words; they were not taken."""

    golden_set_id: UUID
    questions: int
    unplaced: tuple[str, ...]


def export_set(
    name: str, operator: Principal, folder: Path, *, most_passages: int | None = None
) -> Exported:
    """Writes a set and every document that its principal may find into a new or empty folder.

    A document is written as its admitted passages with their headings: what was set aside, or is
    not for the set's principal, is not in it. The event says who took it along. Raises `NotFound`,
    `Malformed` for a folder with something in it or a corpus of more than `most_passages`.
    """
    if folder.exists() and any(folder.iterdir()):
        raise Malformed("The folder has something in it already.")
    with tenant_session(operator.tenant_id):
        golden = GoldenSet.objects.filter(name=name).first()
        if golden is None:
            raise NotFound
        scope = _scope_of(golden, operator)
        if most_passages is not None:
            _require_at_most(most_passages, scope)
        (folder / JUDGEMENTS).parent.mkdir(parents=True, exist_ok=True)
        with (folder / CORPUS).open("w", encoding="utf-8") as corpus:
            documents = _write_documents(corpus, scope)
        written = _write_questions(folder, golden, scope, documents)
        KnowledgeEvent.objects.create(
            tenant_id=operator.tenant_id,
            name=KnowledgeEvent.GOLDEN_SET_EXPORTED,
            actor=operator.principal_id,
            surface=operator.surface,
            data={"golden_set_id": str(golden.pk), "documents": documents},
        )
    return written


def _require_at_most(passages: int, scope: ReadScope) -> None:
    if Chunk.objects.searchable(scope).order_by()[: passages + 1].count() > passages:
        raise Malformed(
            f"Its principal may find more than {passages:,} passages, which all go along:"
            " `manage.py golden export` writes that many."
        )


def _scope_of(golden: GoldenSet, operator: Principal) -> ReadScope:
    viewpoint = Viewpoint(
        principal_id=golden.principal_id,
        current_scope=golden.current_scope,
        sensitivity_ceiling=Sensitivity(golden.sensitivity_ceiling),
    )
    seen_by = viewpoint.principal(
        operator.tenant_id, surface=GOLDEN_SURFACE, acting_operator=operator.principal_id
    )
    return resolve_scope(seen_by, golden.current_scope)


def _write_documents(corpus: IO[str], scope: ReadScope) -> int:
    rows = (
        Chunk.objects.searchable(scope)
        .order_by("chunk_set__version__document", "ordinal")
        .values_list(
            "chunk_set__version__document",
            "chunk_set__version__document__title",
            "heading_path",
            "text",
        )
        .iterator(chunk_size=_AT_ONCE)
    )
    written = 0
    for (document_id, title), passages in groupby(rows, key=lambda row: row[:2]):
        text = "\n\n".join(_parts((path, text) for _, _, path, text in passages))
        _line(corpus, {"_id": str(document_id), "title": title, "text": text})
        written += 1
    return written


def _parts(passages: Iterator[tuple[Sequence[str], str]]) -> Iterator[str]:
    """Texts, each under the headings that open with it."""
    above: Sequence[str] = ()
    for path, text in passages:
        same = 0
        while same < min(len(above), len(path)) and above[same] == path[same]:
            same += 1
        for depth, heading in enumerate(path[same:], start=same + 1):
            yield f"{'#' * min(depth, 6)} {heading}"
        yield text
        above = path


def _write_questions(folder: Path, golden: GoldenSet, scope: ReadScope, documents: int) -> Exported:
    stale, questions = [], 0
    with (
        (folder / QUERIES).open("w", encoding="utf-8") as queries,
        (folder / JUDGEMENTS).open("w", encoding="utf-8", newline="") as judged,
        (folder / REFERENCES).open("w", encoding="utf-8") as references,
    ):
        judgements = csv.writer(judged, delimiter="\t", lineterminator="\n")
        judgements.writerow(["query-id", "corpus-id", "score"])
        for question in golden.questions.prefetch_related("answers"):
            answers = list(question.answers.all())
            _, answering = placed(answers, scope)
            if not answering:
                stale.append(question.pk)
                continue
            questions += 1
            said = {
                "objective": question.objective,
                "entities": question.entities,
                "aliases": question.aliases,
            }
            context = {name: value for name, value in said.items() if value}
            _line(queries, {"_id": str(question.pk), "text": question.text, **context})
            for document_id in sorted(answering):
                judgements.writerow([question.pk, document_id, 1])
            for answer in answers:
                if answer.quote and answer.document_id in answering:
                    _line(
                        references,
                        {
                            "query_id": str(question.pk),
                            "doc_id": str(answer.document_id),
                            "quote": answer.quote,
                        },
                    )
    return Exported(documents=documents, questions=questions, stale=tuple(stale))


def _line(file: IO[str], value: Mapping[str, Any]) -> None:
    file.write(json.dumps(value, ensure_ascii=False) + "\n")


def import_set(
    store: KnowledgeStore,
    name: str,
    viewpoint: Viewpoint,
    operator: Principal,
    folder: Path,
    *,
    most_questions: int = MOST_QUESTIONS,
) -> Imported:
    """A new set of a folder's questions, for documents that are in the tenant already.

    The passages that hold the quoted words are the right ones, wherever they are. One question
    that cannot be kept leaves no set. Raises `InvalidCollection`, `GoldenSetExists`, `Malformed`.
    """
    questions = Collection.at(folder, needs=(QUERIES, JUDGEMENTS)).questions()
    if len(questions) > most_questions:
        raise Malformed(
            f"These are {len(questions):,} questions; at most {most_questions:,} are taken here."
        )
    holders = _holders(questions, operator)
    asked = {question.id: _asked(question, holders) for question in questions}
    kept = [one for one in asked.values() if one is not None]
    with transaction.atomic():
        made = store.create_golden_set(name, viewpoint, operator)
        for one in kept:
            store.keep_golden_question(made.pk, one, operator)
    unplaced = tuple(number for number, one in asked.items() if one is None)
    return Imported(golden_set_id=made.pk, questions=len(kept), unplaced=unplaced)


def _asked(question: Question, holders: Mapping[str, Sequence[str]]) -> GoldenAsked | None:
    """The question with the passages that hold its quotes; `None` where none does."""
    answers: dict[str, str] = {}
    for _, quote in question.quotes:
        answers |= dict.fromkeys(holders.get(squeezed(quote), ()), quote)
    if not answers:
        return None
    query = question.query()
    return GoldenAsked(
        text=question.text,
        answers=dict(list(answers.items())[:MOST_ANSWERS]),
        objective=query.objective,
        entities=query.entities,
        aliases=query.aliases,
    )


def _holders(questions: Sequence[Question], operator: Principal) -> dict[str, list[str]]:
    """By quote without its white space: the live passages that hold it whole, in one reading."""
    wanted = {squeezed(quote) for question in questions for _, quote in question.quotes}
    found: dict[str, list[str]] = {}
    with tenant_session(operator.tenant_id):
        live = Chunk.objects.searchable(resolve_scope(operator, None)).order_by("pk")
        for chunk_id, text in live.values_list("chunk_id", "text").iterator(chunk_size=_AT_ONCE):
            words = squeezed(text)
            for quote in wanted:
                if quote in words:
                    found.setdefault(quote, []).append(chunk_id)
    return found
