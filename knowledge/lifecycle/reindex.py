"""Indexing anew after a change of the analyser, a document at a time.

Each chunk set changes over in one transaction with its statistics, and until the last one has a
question is read by the old analyser as well as by the new one, so searches are correct throughout.
Whoever is interrupted starts again where it stopped: the chunk sets say what they are indexed by.
"""

from __future__ import annotations

from collections.abc import Generator
from uuid import UUID

from access.tenancy import operations_session
from knowledge.adapters.database import lock_document
from knowledge.adapters.titles import index_anew
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.ports import Stemmer
from knowledge.core.types import ChunkSetState
from knowledge.models import ChunkSet, VisibilitySpace


def outdated(*, everything: bool = False) -> list[UUID]:
    """The chunk sets that another version of the analyser indexed, or all of them."""
    with operations_session():
        # One that is not published has no index rows yet, and gets them from today's analyser.
        sets = ChunkSet.objects.exclude(state=ChunkSetState.INGESTING).order_by("pk")
        if not everything:
            sets = sets.exclude(analyzer_version=ANALYZER_VERSION)
        return list(sets.values_list("pk", flat=True))


def reindex(chunk_sets: list[UUID], stemmer: Stemmer) -> Generator[UUID, None, None]:
    """Indexes chunk sets anew and yields each when its transaction is committed."""
    for pk in chunk_sets:
        with operations_session():
            _reindex(pk, stemmer)
        yield pk
    with operations_session():
        _forget_analyzers()


def _reindex(pk: UUID, stemmer: Stemmer) -> None:
    chunk_set = ChunkSet.objects.select_related("version__document").filter(pk=pk).first()
    if chunk_set is None or chunk_set.version is None:  # deleted meanwhile
        return
    # The lock of an ingest and a deletion: nothing of the document changes under our hands.
    lock_document(chunk_set.version.document_id)
    chunk_set = ChunkSet.objects.select_related("version__document").filter(pk=pk).first()
    if chunk_set is not None:
        index_anew(chunk_set, stemmer)


def _forget_analyzers() -> None:
    """Lets spaces forget the analysers that no chunk set of theirs is indexed by any more."""
    for space in VisibilitySpace.objects.all():
        used = (
            ChunkSet.objects.filter(version__document__space=space)
            .values_list("analyzer_version", flat=True)
            .distinct()
        )
        analyzers = sorted(used)
        if sorted(space.analyzers) != analyzers:
            VisibilitySpace.objects.filter(pk=space.pk).update(analyzers=analyzers)
