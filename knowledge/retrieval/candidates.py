"""Numbers of chunks to passages, through the one door that knows who may read what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from django.db.models import F

from knowledge.adapters.database import hold_against_deletion
from knowledge.core.scope import ReadScope
from knowledge.core.types import Authority, Candidate, RankedPassage
from knowledge.models import Chunk
from knowledge.retrieval.arms import SearchView
from knowledge.retrieval.prepared import AS_OF, NUMBERS, AnyOf, Prepared, shape_of

_FIELDS = (
    "id",
    "chunk_id",
    "heading_path",
    "tokens",
    "content_sha256",
    "contains_instruction_like_text",
    "boilerplate",
    "sketch",
    "line_start",
    "line_end",
    "page_start",
    "page_end",
    "chunk_set__version__version",
    "chunk_set__version__doc_date",
    "chunk_set__version__authority",
    "chunk_set__version__document_id",
    "chunk_set__version__document__title",
    "chunk_set__version__document__space__project_scope",
)


def load_candidates(
    view: SearchView, match: Mapping[int, float], arms: Mapping[str, Mapping[int, float]]
) -> list[Candidate]:
    """The passages behind the numbers, without their texts; what the caller may not read is not
    among them."""
    statement = _searchable(shape_of(view.scope), as_of=view.as_of is not None)
    rows = statement.rows(view.scope, {NUMBERS: list(match), AS_OF: view.as_of}, using=view.using)
    return [
        Candidate(
            chunk_id=chunk_id,
            document_id=document_id,
            version=version,
            title=title,
            heading_path=tuple(heading_path),
            text="",
            tokens=tokens,
            content_sha256=content_sha256,
            doc_date=doc_date,
            authority=Authority(authority),
            project_scope=project_scope,
            instruction_like=instruction_like,
            boilerplate=boilerplate,
            sketch=tuple(sketch),
            line_start=line_start,
            line_end=line_end,
            page_start=page_start,
            page_end=page_end,
            match=match[number],
            arms={name: scores[number] for name, scores in arms.items() if number in scores},
        )
        for (
            number,
            chunk_id,
            heading_path,
            tokens,
            content_sha256,
            instruction_like,
            boilerplate,
            sketch,
            line_start,
            line_end,
            page_start,
            page_end,
            version,
            doc_date,
            authority,
            document_id,
            title,
            project_scope,
        ) in rows
    ]


@cache
def _searchable(shape: ReadScope, *, as_of: bool) -> Prepared:
    found = Chunk.objects.searchable(shape, as_of=AS_OF if as_of else None)
    found = found.filter(AnyOf(F("pk"), NUMBERS)).order_by()
    return Prepared.of(found.values_list(*_FIELDS))


def with_text(passages: Sequence[RankedPassage]) -> tuple[RankedPassage, ...]:
    """The chosen passages with their words; one that was deleted meanwhile is gone.

    What is shown cannot be deleted before the trace of it is written, so that no trace keeps the
    title of a document that is gone.
    """
    hold_against_deletion(passage.candidate.document_id for passage in passages)
    ids = [passage.candidate.chunk_id for passage in passages]
    texts = dict(Chunk.objects.filter(chunk_id__in=ids).values_list("chunk_id", "text"))
    return tuple(
        replace(
            passage, candidate=replace(passage.candidate, text=texts[passage.candidate.chunk_id])
        )
        for passage in passages
        if passage.candidate.chunk_id in texts
    )
