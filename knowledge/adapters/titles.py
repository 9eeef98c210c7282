"""A document's title as it stands in what is stored of its passages: in their index rows, and in
the flags of what reads like an instruction.

The title belongs to the document and not to a version, so a new one reaches every passage: those
of superseded versions and of retired chunk sets are found by it as of an earlier instant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from access.principal import Principal
from knowledge.adapters import term_index
from knowledge.adapters.indexing import index_rows
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.ports import InstructionScanner, Stemmer, VectorSink
from knowledge.core.scanning import HeadingFlags
from knowledge.core.types import ChunkSetState, Verdict
from knowledge.models import ChunkSet, Document, KnowledgeEvent, VisibilitySpace

# Only the passages whose flags change; one parameter for all of them.
_FLAG = """
    UPDATE knowledge_chunk c
    SET instruction_matches = r.matches, contains_instruction_like_text = r.matches <> '[]'::jsonb
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (id bigint, matches jsonb)
    WHERE c.id = r.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Titles:
    """Gives documents other titles, in the caller's transaction and under the document's lock."""

    stemmer: Stemmer
    scanner: InstructionScanner
    vectors: VectorSink | None = None

    def change(self, document: Document, title: str, actor: Principal, *, reason: str = "") -> None:
        """Writes the title and all that follows from it, with an event that names neither title.

        No chunk is cut anew and no chunk id changes: a title is no part of either.
        """
        document.title = title
        document.save(update_fields=["title"])
        rows, chunk_sets = 0, list[UUID]()
        for chunk_set in ChunkSet.objects.filter(version__document=document).select_related(
            "version__document"
        ):
            self.flag(chunk_set, title)
            chunk_sets.append(chunk_set.pk)
            # One that is being committed gets its rows when it is published.
            if chunk_set.state != ChunkSetState.INGESTING:
                rows += index_anew(chunk_set, self.stemmer)
        if self.vectors is not None:
            self.vectors.outdate(chunk_sets)
        KnowledgeEvent.objects.create(
            tenant_id=document.tenant_id,
            name=KnowledgeEvent.RETITLED,
            document_id=document.pk,
            actor=actor.principal_id,
            surface=actor.surface,
            data={"reason": reason, "index_rows": rows},
        )

    def flag(self, chunk_set: ChunkSet, title: str) -> None:
        """Flags the passages of a set under another title, which is scanned with their headings."""
        flags = HeadingFlags(self.scanner, title)
        flagged, changed = 0, list[dict[str, Any]]()
        for number, path, matches in chunk_set.chunks.values_list(
            "pk", "heading_path", "instruction_matches"
        ):
            now = flags.renewed(tuple(path), matches)
            flagged += bool(now)
            if now != matches:
                changed.append({"id": number, "matches": now})
        if changed:
            _write_flags(changed)
        if chunk_set.flagged_count != flagged:
            chunk_set.flagged_count = flagged
            chunk_set.save(update_fields=["flagged_count"])


def index_anew(chunk_set: ChunkSet, stemmer: Stemmer) -> int:
    """Writes the index rows of a published set by today's analyser and title. Returns how many."""
    version = chunk_set.finalized_version
    document = version.document
    chunks = chunk_set.chunks.filter(verdict=Verdict.ADMIT).values_list(
        "pk", "heading_path", "text"
    )
    rows = index_rows(
        stemmer,
        document.title,
        {number: (path, text) for number, path, text in chunks},
        version.language,
    )
    VisibilitySpace.objects.note(
        document.space_id, language=version.language, analyzer=ANALYZER_VERSION
    )
    term_index.replace(chunk_set, list(rows.items()))
    ChunkSet.objects.filter(pk=chunk_set.pk).update(analyzer_version=ANALYZER_VERSION)
    return len(rows)


def _write_flags(changed: Iterable[dict[str, Any]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FLAG, {"rows": json.dumps(list(changed), ensure_ascii=False)})
