"""What the page of one document shows: its versions, one version's passages, what cites them.

Everything comes in pages found by number, so that a document of five thousand passages costs what
one of five does; of passages that are not shown no text is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.conf import settings
from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpRequest

from knowledge.core.types import ChunkSetState
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    RecallTrace,
    TracedPassage,
    UnfinishedVersion,
)
from knowledge.passage_html import families, passage_html

CHUNKS_ON_PAGE: Final = 50
VERSIONS_ON_PAGE: Final = 50
_EVENTS_ON_PAGE: Final = 20
_TRACED_LOOKED_AT: Final = 50
_TRACES_ON_PAGE: Final = 10
_OUTLINED_CHUNKS: Final = 5_000
_HEADINGS_ON_PAGE: Final = 400
_DEEPEST: Final = 6
_LONGEST_NUMBER: Final = 9

# In the order in which they were live; one that is not finished comes last.
_SETS = Prefetch("chunk_sets", queryset=ChunkSet.objects.order_by("published_at"))


def document_context(request: HttpRequest, document: Document) -> dict[str, Any]:
    versions = list(
        versions_of(document).prefetch_related(_SETS).order_by("-version")[: VERSIONS_ON_PAGE + 1]
    )
    shown = _asked_version(request, document, versions)
    return {
        "title": document.title,
        "document": document,
        "versions": versions[:VERSIONS_ON_PAGE],
        "more_versions": len(versions) > VERSIONS_ON_PAGE,
        "shown": shown,
        "unfinished": UnfinishedVersion.objects.filter(document_id=document.pk).first(),
        "passages": _passages(request, shown),
        "events": KnowledgeEvent.objects.filter(document_id=document.pk)[:_EVENTS_ON_PAGE],
        "traces": _traces(document),
    }


def versions_of(document: Document) -> QuerySet[DocumentVersion]:
    return DocumentVersion.objects.filter(document=document).select_related("source")


def set_to_show(version: DocumentVersion | None) -> ChunkSet | None:
    """The live chunk set of a version, else the one that was, else the one that will be."""
    sets = list(version.chunk_sets.all()) if version else []
    order = {ChunkSetState.LIVE: 0, ChunkSetState.RETIRED: 1, ChunkSetState.INGESTING: 2}
    return min(sets, key=lambda one: order[ChunkSetState(one.state)], default=None)


def positive_number(text: str) -> int | None:
    """A positive number that the address names, or `None`."""
    if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    return None


def page_asked(request: HttpRequest, pages: int) -> int:
    return min(max(positive_number(request.GET.get("page", "")) or 1, 1), pages)


def version_numbered(document: Document, number: int | None) -> DocumentVersion:
    found = None
    if number is not None:
        found = versions_of(document).prefetch_related(_SETS).filter(version=number).first()
    if found is None:
        raise Http404
    return found


def opened(above: Sequence[str], path: Sequence[str]) -> list[tuple[int, str]]:
    """The headings that open where the path changes, each with its depth."""
    same = 0
    for old, new in zip(above, path, strict=False):
        if old != new:
            break
        same += 1
    return [(min(depth, _DEEPEST), title) for depth, title in enumerate(path[same:], same + 1)]


def _asked_version(
    request: HttpRequest, document: Document, versions: Sequence[DocumentVersion]
) -> DocumentVersion | None:
    """The version that the address names, itself or by a passage of it, else the newest."""
    if "chunk" in request.GET:
        of = Chunk.objects.filter(chunk_id=request.GET["chunk"].replace("\x00", ""))
        of = of.filter(chunk_set__version__document=document)
        number = of.values_list("chunk_set__version__version", flat=True).first()
        return version_numbered(document, number)
    if "version" not in request.GET:
        return versions[0] if versions else None
    number = positive_number(request.GET["version"])
    listed = next((version for version in versions if version.version == number), None)
    return listed or version_numbered(document, number)


def _passages(request: HttpRequest, version: DocumentVersion | None) -> dict[str, Any]:
    """One page of a version's chunks, found by ordinal so that page 100 costs what page 1 does."""
    chunk_set = set_to_show(version)
    if chunk_set is None:
        return {"chunks": [], "outline": None, "page": 1, "pages": 1}
    pages = max(1, math.ceil(chunk_set.chunk_count / CHUNKS_ON_PAGE))
    page = _page_of_chunk(request, chunk_set) or page_asked(request, pages)
    first = (page - 1) * CHUNKS_ON_PAGE
    rows = Chunk.objects.filter(
        chunk_set=chunk_set, ordinal__gte=first, ordinal__lt=first + CHUNKS_ON_PAGE
    ).order_by("ordinal")
    chunks = []
    above: list[str] = []
    vectors = _vectors(chunk_set, [chunk.pk for chunk in rows])
    for chunk in rows:
        chunks.append(
            {
                "row": chunk,
                "vector": vectors["states"].get(chunk.pk) if vectors else None,
                "headings": [
                    {"depth": depth, "title": title}
                    for depth, title in opened(above, chunk.heading_path)
                ],
                "html": passage_html(chunk.text, chunk.instruction_matches),
                "families": families(chunk.instruction_matches),
            }
        )
        above = chunk.heading_path
    return {
        "chunk_set": chunk_set,
        "vectors": vectors,
        "chunks": chunks,
        "outline": _outline(chunk_set, page),
        "query": f"version={version.version}" if version else "",
        "page": page,
        "pages": pages,
    }


def _vectors(chunk_set: ChunkSet, shown: Sequence[int]) -> dict[str, Any] | None:
    """Of how many passages searches by meaning have a vector, and which of those shown have none.

    `None` where there is no such search, or nothing to find yet.
    """
    if not settings.EMBEDDERS or chunk_set.state == ChunkSetState.INGESTING:
        return None
    from knowledge.semantic import coverage, spaces  # noqa: PLC0415 - an app that is installed now

    space = spaces.live()
    if space is None:
        return None
    return {
        "space": space,
        "coverage": coverage.of_chunk_set(chunk_set.pk, space.number),
        "states": coverage.of_passages(shown, space.number),
    }


def _page_of_chunk(request: HttpRequest, chunk_set: ChunkSet) -> int | None:
    if "chunk" not in request.GET:
        return None
    named = Chunk.objects.filter(
        chunk_set=chunk_set, chunk_id=request.GET["chunk"].replace("\x00", "")
    )
    ordinal = named.values_list("ordinal", flat=True).first()
    return None if ordinal is None else ordinal // CHUNKS_ON_PAGE + 1


def _outline(chunk_set: ChunkSet, page: int) -> dict[str, Any]:
    """The headings of the whole version, each with the page of passages that it opens on.

    Where there are too many, those of the deepest levels are left out, and `levels` says how many
    levels are shown.
    """
    rows = Chunk.objects.filter(chunk_set=chunk_set, ordinal__lt=_OUTLINED_CHUNKS)
    headings: list[dict[str, Any]] = []
    above: list[str] = []
    for ordinal, chunk_id, path in rows.order_by("ordinal").values_list(
        "ordinal", "chunk_id", "heading_path"
    ):
        on_page = ordinal // CHUNKS_ON_PAGE + 1
        headings += [
            {
                "title": title,
                "depth": depth,
                "chunk_id": chunk_id,
                "page": on_page,
                "here": on_page == page,
            }
            for depth, title in opened(above, path)
        ]
        above = path
    levels = _levels_that_fit(heading["depth"] for heading in headings)
    shown = [heading for heading in headings if heading["depth"] <= levels][:_HEADINGS_ON_PAGE]
    return {"headings": shown, "left_out": len(headings) - len(shown)}


def _levels_that_fit(depths: Iterable[int]) -> int:
    counts = Counter(depths)
    total = 0
    for depth in sorted(counts):
        total += counts[depth]
        if total > _HEADINGS_ON_PAGE:
            return max(depth - 1, min(counts))
    return _DEEPEST


def _traces(document: Document) -> list[RecallTrace]:
    """The latest searches that showed something of it."""
    latest = TracedPassage.objects.filter(document_id=document.pk).order_by("-id")
    ids = dict.fromkeys(latest.values_list("trace_id", flat=True)[:_TRACED_LOOKED_AT])
    traces = RecallTrace.objects.filter(pk__in=list(ids)[:_TRACES_ON_PAGE])
    # Of a trace the list shows when and for whom; what was asked is on its own page.
    return list(traces.only("pk", "created_at", "principal_id", "surface", "current_scope"))
