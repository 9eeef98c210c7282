"""Numbers of chunks to passages, through the one door that knows who may read what."""

from __future__ import annotations

from collections.abc import Mapping

from knowledge.core.types import Authority, Candidate
from knowledge.models import Chunk
from knowledge.retrieval.arms import SearchView

_FIELDS = (
    "id",
    "chunk_id",
    "heading_path",
    "text",
    "tokens",
    "content_sha256",
    "contains_instruction_like_text",
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
    """The passages behind the numbers; a number that the caller may not read is not there."""
    rows = (
        Chunk.objects.searchable(view.scope, as_of=view.as_of)
        .filter(pk__in=list(match))
        .values_list(*_FIELDS)
    )
    return [
        Candidate(
            chunk_id=chunk_id,
            document_id=document_id,
            version=version,
            title=title,
            heading_path=tuple(heading_path),
            text=text,
            tokens=tokens,
            content_sha256=content_sha256,
            doc_date=doc_date,
            authority=Authority(authority),
            project_scope=project_scope,
            instruction_like=instruction_like,
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
            text,
            tokens,
            content_sha256,
            instruction_like,
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
