"""Looking for what is left of a deleted document: in every table there is, and among the bytes.

By the ids that its tombstone keeps, and by its words when somebody still has them to look for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from artifacts.blobs import blob_store
from artifacts.errors import BlobMissing
from artifacts.models import Artifact
from knowledge.adapters import catalogue, term_index
from knowledge.adapters.catalogue import Column, Found
from knowledge.adapters.indexing import index_rows
from knowledge.core.ports import Stemmer
from knowledge.models import Deletion, Document, IngestJob, UnfinishedVersion, VisibilitySpace

# Why a row that names a deleted document may be there, and the condition on it (`t`). What is not
# named here may not: a table that somebody adds is searched, and answers for itself.
_MAY_NAME: Final[Mapping[str, tuple[str, str]]] = {
    "knowledge_deletion": ("the tombstone", "true"),
    "knowledge_deletedchunk": ("the tombstone", "true"),
    "knowledge_tracedpassage": (
        "a scrubbed trace",
        # A scrubbed title is empty, a thinned one NULL.
        "(t.deleted_at IS NOT NULL AND concat(t.title, t.doc_date, t.heading_path[1]) = '')",
    ),
    "knowledge_recalltrace": ("a scrubbed trace", "true"),
    "knowledge_citation": ("what a host cited, by id", "true"),
    "knowledge_knowledgeevent": ("an event with ids", "true"),
    "knowledge_bulkitem": ("what an operator did to many, by id", "true"),
    "knowledge_attachment": ("a file of the caller's own", "true"),
    "knowledge_retentionproposal": (
        "a scrubbed proposal",
        "(t.title = '' AND t.snapshot_id IS NULL AND t.passages = '[]')",
    ),
    "knowledge_goldenanswer": (
        "a scrubbed golden answer",
        "(t.deleted_at IS NOT NULL AND t.quote = '' AND t.found_in = '{}')",
    ),
    "knowledge_recordsource": ("a record that cites it", "true"),
    "knowledge_recordrevision": ("a record that cites it", "true"),
    "artifacts_upload": ("an upload of the caller's own", "true"),
    "access_idempotentanswer": ("an answer that was forgotten", "t.body IS NULL"),
    "artifacts_artifact": (
        "bytes that wait for the sweeper",
        "t.expires_at <= statement_timestamp()",
    ),
}
_OF_ANOTHER: Final = (
    "NOT EXISTS (SELECT FROM knowledge_deletedchunk d WHERE d.chunk_id = t.chunk_id"
    " AND d.deletion_id = ANY (%(deletions)s))"
)
# Why a row may hold words of it: it is somebody else's, and was never the document's.
_MAY_SAY: Final[Mapping[str, tuple[str, str]]] = {
    "knowledge_recalltrace": ("what a caller asked, and believed", "true"),
    "knowledge_tracedpassage": ("another document", "t.document_id <> %(document)s"),
    "knowledge_document": ("another document", "t.document_id <> %(document)s"),
    "knowledge_unfinishedversion": ("another document", "t.document_id <> %(document)s"),
    "knowledge_chunk": (
        "another document",
        _OF_ANOTHER,
    ),
    "knowledge_ingestjob": ("another document", "t.document_id IS DISTINCT FROM %(document)s"),
    "knowledge_retentionproposal": (
        "another proposal",
        "t.document_id IS DISTINCT FROM %(document)s",
    ),
    "knowledge_goldenquestion": ("what an operator asks", "true"),
    "knowledge_record": ("a record that quotes it", "true"),
    "knowledge_recordrevision": ("a record that quotes it", "true"),
    "knowledge_goldenanswer": ("another document", "t.document_id <> %(document)s"),
    "artifacts_artifact": (
        "an artifact of the caller's own",
        "NOT (t.id = ANY (%(sources)s::uuid[]))",
    ),
    "artifacts_upload": ("an upload of the caller's own", "true"),
    "artifacts_sourcedescriptor": (
        "another source",
        "NOT (t.artifact_id = ANY (%(sources)s::uuid[]))",
    ),
}
# An index row is its chunk's, and is looked for by its number.
_BY_NUMBER: Final = "knowledge_chunk_index"
# What names nothing but sources, which never come again, not even with the document.
_OF_SOURCES: Final = {"artifacts_artifact", "artifacts_sourcedescriptor"}
_UNSWEPT: Final = _MAY_NAME["artifacts_artifact"][0]
_UNMERGED: Final = "words that wait for the next merge of the statistics"
ADMITTED_AGAIN: Final = "the document as it was admitted again"

_LINES_AT_ONCE: Final = 100
_SHORTEST_LINE: Final = 12
_LONGEST_LINE: Final = 160
_PIECE: Final = 80
_WILD = re.compile(r"[\\%_]")
_LEADING = re.compile(r"^[\s#>*+|\-]*(?:\d+[.)]\s+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something was found: `rows` of a column, or bytes in the blob store, and why it may be.

    `what` is `ids`, `words` or `bytes`; `why` is empty for what must not be there.
    """

    place: str
    column: str
    what: str
    rows: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is left of a document: what may stay, what goes by itself soon, what must not be there.

    `tables` is how many were searched, `lines` by how many lines or pieces of them.
    """

    document_id: UUID
    deletions: int
    admitted_again: bool
    tables: int
    lines: int
    kept: tuple[Place, ...]
    waiting: tuple[Place, ...]
    left: tuple[Place, ...]

    @property
    def clean(self) -> bool:
        """Nothing is left but what may stay."""
        return not self.waiting and not self.left


def verify_deletion(
    document_id: UUID, operator: Principal, stemmer: Stemmer, text: Iterable[str] | None = None
) -> Verification:
    """Searches all that is stored for what a deleted document owned. Changes nothing.

    `text` are the lines of its original; of an operator's own tenant alone the words are looked
    for. Raises `Forbidden` to whoever is no operator, and `NotFound` when the tenant has deleted no
    such document.
    """
    if not operator.operator:
        raise Forbidden("Only an operator of the tenant may do this.")
    with tenant_session(operator.tenant_id):
        owned = _Owned.of(document_id, operator.tenant_id)
    with operations_session(), connection.cursor() as cursor:
        # The search of every table may run for long and cannot change a row.
        cursor.execute("SET TRANSACTION READ ONLY")
        tables = list(catalogue.tables())
        places = [place for table, columns, _ in tables for place in _ids(owned, table, columns)]
        places += _bytes(owned)
        lines = 0
        for batch in _batches(_distinctive(text or ())):
            lines += len(batch)
            places += _words(owned, tables, batch, stemmer)
    places = _together(places)
    return Verification(
        document_id=document_id,
        deletions=len(owned.deletions),
        admitted_again=owned.admitted_again,
        tables=len(tables),
        lines=lines,
        kept=tuple(one for one in places if one.why and not _waits(one)),
        waiting=tuple(one for one in places if one.why and _waits(one)),
        left=tuple(one for one in places if not one.why),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owned:
    document_id: UUID
    tenant_id: str
    deletions: tuple[UUID, ...]
    sources: tuple[UUID, ...]
    storage_keys: tuple[str, ...]
    languages: tuple[str, ...]
    admitted_again: bool

    @classmethod
    def of(cls, document_id: UUID, tenant_id: str) -> _Owned:
        deletions = list(
            Deletion.objects.filter(document_id=document_id, tenant_id=tenant_id).select_related(
                "space"
            )
        )
        if not deletions:
            raise NotFound
        last = max(deletion.deleted_at for deletion in deletions)
        own = {"document_id": document_id}
        later = IngestJob.objects.filter(created_at__gt=last, **own)
        return cls(
            document_id=document_id,
            tenant_id=tenant_id,
            deletions=tuple(deletion.pk for deletion in deletions),
            sources=tuple(source for one in deletions for source in one.sources),
            storage_keys=tuple(key for one in deletions for key in one.storage_keys),
            languages=tuple(sorted({word for one in deletions for word in one.space.languages})),
            admitted_again=Document.objects.filter(**own).exists()
            or UnfinishedVersion.objects.filter(**own).exists()
            or later.exists(),
        )

    def values(self) -> dict[str, Any]:
        names = [key.rpartition("/")[2] for key in self.storage_keys]
        return {
            "document": self.document_id,
            "deletions": list(self.deletions),
            "sources": list(self.sources),
            "uuids": [self.document_id, *self.sources],
            "tokens": [self.document_id.hex, *(one.hex for one in self.sources), *names],
        }


# --- by id -------------------------------------------------------------------------------------


def _ids(owned: _Owned, table: str, columns: list[Column]) -> Iterator[Place]:
    why, condition = _MAY_NAME.get(table, ("", "false"))
    found = catalogue.holding_ids(table, columns, condition, owned.values())
    # Its ids are those of a living document again. Its former sources never are.
    otherwise = ADMITTED_AGAIN if owned.admitted_again and table not in _OF_SOURCES else ""
    yield from _places(found, "ids", why, otherwise)


def _bytes(owned: _Owned) -> Iterator[Place]:
    """A blob that is still there waits for the sweeper, when a row says so."""
    due = set(
        Artifact.objects.filter(
            storage_key__in=owned.storage_keys, expires_at__lte=Now()
        ).values_list("storage_key", flat=True)
    )
    there = [key for key in owned.storage_keys if _exists(key)]
    for why, rows in (
        (_UNSWEPT, sum(key in due for key in there)),
        ("", sum(key not in due for key in there)),
    ):
        if rows:
            yield Place(place="blob store", column="", what="bytes", rows=rows, why=why)


def _exists(key: str) -> bool:
    try:
        blob_store().open(key).close()
    except BlobMissing:
        return False
    return True


def _waits(place: Place) -> bool:
    return place.why in {_UNSWEPT, _UNMERGED}


# --- by word -----------------------------------------------------------------------------------


def _distinctive(text: Iterable[str]) -> Iterator[str]:
    """Lines without their markup, when they are long enough to be told from others; long ones in
    pieces, for a passage may hold a part of one."""
    for line in text:
        told = _LEADING.sub("", line).strip()
        if len(told) > _LONGEST_LINE:
            yield from (
                told[start : start + _PIECE] for start in range(0, len(told) - _PIECE, _PIECE)
            )
        elif len(told) >= _SHORTEST_LINE:
            yield told


def _batches(lines: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(lines, _LINES_AT_ONCE)):
        yield batch


def _words(
    owned: _Owned,
    tables: list[tuple[str, list[Column], bool]],
    lines: list[str],
    stemmer: Stemmer,
) -> Iterator[Place]:
    lexemes = _lexemes(lines, owned.languages, stemmer)
    values = {**owned.values(), "lines": _patterns(lines), "lexemes": lexemes}
    for table, columns, of_tenant in tables:
        if table == _BY_NUMBER:
            continue
        why, condition = _MAY_SAY.get(table, ("", "false"))
        where = "t.tenant_id = %(tenant)s" if of_tenant else "true"
        found = catalogue.holding_words(
            table, columns, condition, {**values, "tenant": owned.tenant_id}, where=where
        )
        yield from _places(found, "words", why, ADMITTED_AGAIN if owned.admitted_again else "")
    spaces = VisibilitySpace.objects.filter(tenant_id=owned.tenant_id)
    unmerged, stale = term_index.unfounded(list(spaces.values_list("pk", flat=True)), lexemes)
    for rows, why in ((unmerged, _UNMERGED), (stale, "")):
        if rows:
            yield Place(
                place="knowledge_term_statistic",
                column="lexeme",
                what="words",
                rows=rows,
                why=why,
            )


def _patterns(lines: list[str]) -> list[str]:
    """As they stand in a text, and as they do within JSON and arrays."""
    spelt = set(lines) | {json.dumps(line, ensure_ascii=False)[1:-1] for line in lines}
    escaped = (_WILD.sub(r"\\\g<0>", one) for one in sorted(spelt))
    return [f"%{one}%" for one in escaped]


def _lexemes(lines: list[str], languages: Iterable[str], stemmer: Stemmer) -> list[str]:
    found: set[str] = set()
    for language in languages:
        rows = index_rows(stemmer, "", {0: ((), "\n".join(lines))}, language)
        found |= rows[0].lexemes
    return sorted(found - {""})


# --- putting it together -----------------------------------------------------------------------


def _places(found: list[Found], what: str, why: str, otherwise: str) -> Iterator[Place]:
    for one in found:
        for rows, reason in ((one.kept, why), (one.left, otherwise)):
            if rows:
                yield Place(place=one.table, column=one.column, what=what, rows=rows, why=reason)


def _together(places: Iterable[Place]) -> list[Place]:
    """One of each place, with the most rows that any batch of lines found there."""
    most: dict[tuple[str, str, str, str], Place] = {}
    for one in places:
        key = (one.place, one.column, one.what, one.why)
        if key not in most or most[key].rows < one.rows:
            most[key] = one
    return list(most.values())
