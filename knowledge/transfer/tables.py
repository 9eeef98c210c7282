"""Which tables travel, what stands for a row in another's columns, and why the others stay.

Rows are known by what callers know them by, never by numbers that a database counts up: where a
row names one of a table with such numbers, the other's key stands in its place. What follows from
the rows (index, statistics, vectors) is made anew by whoever takes them in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from django.apps import apps
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from artifacts.models import Artifact, SourceDescriptor
from artifacts.store import needed
from knowledge.core.types import ChunkSetState, GoldenRunState, JobState
from knowledge.models import (
    Attachment,
    Chunk,
    ChunkSet,
    Citation,
    CitedAnswer,
    Conversation,
    DeletedChunk,
    Deletion,
    Document,
    DocumentVersion,
    GoldenAnswer,
    GoldenQuestion,
    GoldenResult,
    GoldenRun,
    GoldenSet,
    IngestJob,
    KnowledgeEvent,
    PiiPolicy,
    PreturnPolicy,
    RecallTrace,
    Record,
    RecordRevision,
    RecordSource,
    RetentionProposal,
    TracedPassage,
    UnfinishedVersion,
    VisibilitySpace,
)
from knowledge.transfer.values import Codec, codec

Row = dict[str, Any]
Key = tuple[Any, ...]


def _everything() -> Q:
    return Q()


def _as_it_is(row: Row) -> Row:
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table in an archive.

    `key` are the columns that a row is known by; none means that rows are facts without a name,
    which can be there several times. `order` is that of the file. `near` is the column whose values
    select what may be the same row: (its name, the look-up; of a list the first part counts).
    `left_out` says why a column does not travel. `number` is a column that is counted, not stored:
    `place` within the first column of the key, `rank` by primary key among all that travel.
    """

    model: type[models.Model]
    key: tuple[str, ...]
    order: tuple[str, ...]
    near: tuple[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    only: Callable[[], Q] = _everything
    number: Literal["", "place", "rank"] = ""
    settled: Callable[[Row], Row] = _as_it_is
    traces: bool = False
    # Columns in which a row may go on changing without becoming another one.
    merged: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[Column, ...]:
        return _columns(self.model)

    @property
    def names(self) -> tuple[str, ...]:
        """Every member that a row has."""
        counted = ("number",) if self.number else ()
        return tuple(sorted((*(column.name for column in self.columns), *counted)))

    def key_of(self, row: Row) -> Key:
        """The values of its key, part by part, as another row refers to it."""
        parts: list[Any] = []
        for name in self.key:
            parts += row[name] if isinstance(row[name], list) else [row[name]]
        return tuple(parts)

    @property
    def uniques(self) -> tuple[tuple[str, ...], ...]:
        """What else than its key no two rows have in common."""
        meta = self.model._meta  # noqa: SLF001 - Django's documented interface
        single = [(one.name,) for one in meta.concrete_fields if one.unique and not one.primary_key]
        several = [
            tuple(one.fields)
            for one in meta.constraints
            if isinstance(one, models.UniqueConstraint) and one.condition is None
        ]
        names = set(self.names)
        return tuple(sorted(set(filter(names.issuperset, (*single, *several))) - {tuple(self.key)}))

    def near_of(self, row: Row) -> Any:
        value = row[self.near[0]]
        return value[0] if isinstance(value, list) else value

    def comparable(self, row: Row) -> Row:
        """What two rows of the same key must have in common to be the same."""
        apart = self.merged | ({"number"} if self.number == "rank" else set())
        return {name: value for name, value in row.items() if name not in apart}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the model's field, and what is looked up for it, of which each has a codec.

    `target` is the table that it names a row of, if it does; `numbered` says that the last look-up
    is the primary key of a row that has a counted number instead.
    """

    field: models.Field[Any, Any]
    lookups: tuple[str, ...]
    codecs: tuple[Codec, ...]
    target: str = ""
    numbered: bool = False

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def natural(self) -> bool:
        """Whether it names another row by something else than what is stored for it."""
        return self.lookups != (self.field.attname,)

    def reference(self, row: Row) -> tuple[Any, ...] | None:
        """The key of the row that it names, part by part; `None` when it names none."""
        value = row[self.name]
        if value is None:
            return None
        target = TABLES[self.target]
        own = (row["tenant_id"],) if target.key[0] == "tenant_id" and len(target.key) > 1 else ()
        return (*own, *(value if isinstance(value, list) else (value,)))

    def write(self, values: Sequence[Any]) -> Any:
        written = [write(value) for (write, _), value in zip(self.codecs, values, strict=True)]
        if len(written) == 1:
            return written[0]
        return None if self.field.null and written[-1] is None else written

    def read(self, value: Any) -> Any:
        """The value, or the parts of the other row's key; raises `ValueError`."""
        if len(self.codecs) == 1:
            return self.codecs[0][1](value)
        if value is None and self.field.null:
            return None
        if type(value) is not list or len(value) != len(self.codecs):
            raise ValueError("it is no key of another row")
        return tuple(read(part) for (_, read), part in zip(self.codecs, value, strict=True))


# --- which rows --------------------------------------------------------------------------------


def _artifacts_kept() -> Q:
    """No bytes that are to die: what has expired, and what an ingest has not finished."""
    being_ingested = UnfinishedVersion.objects.filter(original=OuterRef("pk"))
    alive = Q(expires_at__isnull=True) | Q(expires_at__gt=Now()) | needed()
    return alive & Q(~Exists(being_ingested))


def _descriptors_kept() -> Q:
    return Q(artifact__in=Artifact.objects.filter(_artifacts_kept()))


def _published() -> Q:
    return Q(state__in=[ChunkSetState.LIVE, ChunkSetState.RETIRED], version__isnull=False)


def _of_published() -> Q:
    return Q(
        chunk_set__state__in=[ChunkSetState.LIVE, ChunkSetState.RETIRED],
        chunk_set__version__isnull=False,
    )


_ENDED: Final = (GoldenRunState.DONE, GoldenRunState.FAILED)


def _ended() -> Q:
    return Q(state__in=_ENDED)


def _of_ended() -> Q:
    return Q(run__state__in=_ENDED)


def _of_the_corpus() -> Q:
    """What happened to the corpus; that it was taken along or in happened to an installation."""
    return ~Q(name__in=[KnowledgeEvent.CORPUS_EXPORTED, KnowledgeEvent.CORPUS_IMPORTED])


def _waiting_again(row: Row) -> Row:
    """A job that somebody works on waits to be taken wherever the archive is taken in."""
    if row["state"] != JobState.RUNNING:
        return row
    return {**row, "state": str(JobState.QUEUED), "attempts_left": max(row["attempts_left"], 1)}


_INDEX_MADE_ANEW: Final = "the index is made anew, by the analyser of whoever takes it in"
_LEASED: Final = "nobody works on it there"

# Parents before children: in this order rows are checked and written.
TABLES: Final[Mapping[str, Table]] = {
    "spaces": Table(
        model=VisibilitySpace,
        key=("tenant_id", "visibility", "project_scope", "principal_id", "sensitivity"),
        order=("tenant_id", "visibility", "project_scope", "principal_id", "sensitivity"),
        near=("tenant_id", "tenant_id"),
        left_out={"analyzers": _INDEX_MADE_ANEW},
        merged=frozenset({"languages"}),
    ),
    "artifacts": Table(
        model=Artifact,
        key=("id",),
        order=("id",),
        near=("id", "id"),
        left_out={
            "storage_key": "each storage makes its own keys",
            "sweep_attempts": "about a storage",
            "sweep_error": "about a storage",
            "sweep_failed_at": "about a storage",
        },
        only=_artifacts_kept,
    ),
    "descriptors": Table(
        model=SourceDescriptor,
        key=("descriptor_id",),
        order=("descriptor_id",),
        near=("descriptor_id", "descriptor_id"),
        only=_descriptors_kept,
    ),
    "documents": Table(
        model=Document,
        key=("document_id",),
        order=("document_id",),
        near=("document_id", "document_id"),
    ),
    "versions": Table(
        model=DocumentVersion,
        key=("document", "version"),
        order=("document_id", "version"),
        near=("document", "document_id"),
    ),
    "chunk_sets": Table(
        model=ChunkSet,
        key=("id",),
        order=("version__document_id", "version__version", "id"),
        near=("id", "id"),
        left_out={"analyzer_version": _INDEX_MADE_ANEW},
        only=_published,
    ),
    "chunks": Table(
        model=Chunk,
        key=("chunk_id",),
        order=(
            *("chunk_set__version__document_id", "chunk_set__version__version"),
            *("chunk_set_id", "ordinal"),
        ),
        near=("chunk_id", "chunk_id"),
        only=_of_published,
        number="rank",
    ),
    "deletions": Table(
        model=Deletion,
        key=("deletion_id",),
        order=("deletion_id",),
        near=("deletion_id", "deletion_id"),
    ),
    "deleted_chunks": Table(
        model=DeletedChunk,
        key=("deletion", "chunk_id"),
        order=("deletion_id", "chunk_id"),
        near=("chunk_id", "chunk_id"),
        left_out={"number": "numbers are counted up by each database"},
    ),
    "records": Table(
        model=Record, key=("record_id",), order=("record_id",), near=("record_id", "record_id")
    ),
    "record_revisions": Table(
        model=RecordRevision,
        key=("record", "revision"),
        order=("record_id", "revision"),
        near=("record", "record_id"),
    ),
    "record_sources": Table(
        model=RecordSource,
        key=("record", "descriptor_id"),
        order=("record_id", "descriptor_id"),
        near=("record", "record_id"),
    ),
    "conversations": Table(
        model=Conversation,
        key=("tenant_id", "principal_id", "conversation_id"),
        order=("tenant_id", "principal_id", "conversation_id"),
        near=("conversation_id", "conversation_id"),
    ),
    "jobs": Table(
        model=IngestJob,
        key=("job_id",),
        order=("number",),
        near=("job_id", "job_id"),
        left_out={
            "lease_token": _LEASED,
            "lease_until": _LEASED,
            "hinted_at": _LEASED,
        },
        settled=_waiting_again,
    ),
    "attachments": Table(
        model=Attachment,
        key=("attachment_id",),
        order=("number",),
        near=("attachment_id", "attachment_id"),
    ),
    "proposals": Table(
        model=RetentionProposal,
        key=("proposal_id",),
        order=("proposal_id",),
        near=("proposal_id", "proposal_id"),
    ),
    "golden_sets": Table(model=GoldenSet, key=("id",), order=("id",), near=("id", "id")),
    "golden_questions": Table(
        model=GoldenQuestion,
        key=("golden_set", "number"),
        order=("golden_set_id", "id"),
        near=("golden_set", "golden_set_id"),
        number="place",
    ),
    "golden_answers": Table(
        model=GoldenAnswer,
        key=("question", "chunk_id"),
        order=("question__golden_set_id", "question_id", "id"),
        near=("question", "question__golden_set_id"),
    ),
    "golden_runs": Table(
        model=GoldenRun,
        key=("golden_set", "number"),
        order=("golden_set_id", "id"),
        near=("golden_set", "golden_set_id"),
        only=_ended,
        number="place",
    ),
    "golden_results": Table(
        model=GoldenResult,
        key=("run", "question"),
        order=("run__golden_set_id", "run_id", "question_id"),
        near=("run", "run__golden_set_id"),
        only=_of_ended,
    ),
    "pii_policies": Table(
        model=PiiPolicy, key=("tenant_id",), order=("tenant_id",), near=("tenant_id", "tenant_id")
    ),
    "preturn_policies": Table(
        model=PreturnPolicy,
        key=("tenant_id",),
        order=("tenant_id",),
        near=("tenant_id", "tenant_id"),
    ),
    "events": Table(
        model=KnowledgeEvent, key=(), order=("at", "id"), near=("at", "at"), only=_of_the_corpus
    ),
    "traces": Table(model=RecallTrace, key=("id",), order=("id",), near=("id", "id"), traces=True),
    "traced_passages": Table(
        model=TracedPassage,
        key=("trace", "position"),
        order=("trace_id", "position"),
        near=("trace", "trace_id"),
        traces=True,
    ),
    "cited_answers": Table(
        model=CitedAnswer,
        key=("trace", "answer_id"),
        order=("trace_id", "answer_id"),
        near=("trace", "trace_id"),
        traces=True,
    ),
    "citations": Table(
        model=Citation,
        key=("answer", "position"),
        order=("answer__trace_id", "answer__answer_id", "position"),
        near=("answer", "answer__trace_id"),
        traces=True,
    ),
}

OF_DOCUMENTS: Final = ("documents", "versions", "chunk_sets", "chunks")
"""Read side by side: all of a document in each, document by document."""
WITH_DOCUMENTS: Final = ("spaces", "artifacts", "descriptors", *OF_DOCUMENTS)
"""What documents are made of; artifacts and descriptors of other things come after them."""

STAYS: Final[Mapping[str, str]] = {
    "access.ApiKey": "a secret's hash has no business in a file: issue keys where they are used",
    "access.IdempotentAnswer": "what calls of one installation were answered, for a day",
    "access.Operator": "accounts belong to an installation",
    "artifacts.SweepRun": "what one installation swept",
    "artifacts.Upload": "the journal of a sender's calls; what arrived whole is an artifact",
    "artifacts.UploadPiece": "the journal of a sender's calls; what arrived whole is an artifact",
    "artifacts.UploadQuota": "how much one installation lets a tenant keep",
    "knowledge.ArmSwitch": "measured with the embedder of one installation, which may be another",
    "semantic.ChunkVector": "made anew from the chunks, by `manage.py embed`",
    "semantic.EmbeddingSpace": "which models one installation has",
    "knowledge.ChunkIndex": "made anew from the chunks",
    "knowledge.TermStatistic": "made anew from the chunks",
    "knowledge.TermDelta": "made anew from the chunks",
    "knowledge.SearchChange": "what replicas of one installation must have",
    "knowledge.UnfinishedVersion": "no reader may see it; its job, if it has one, begins again",
    "knowledge.BulkTask": "what operators of one installation were at; what was done is an event",
    "knowledge.BulkItem": "what operators of one installation were at; what was done is an event",
    "knowledge.DailyFigures": "how one installation was used, day by day",
    "knowledge.RefusalCount": "how one installation was used, day by day",
}
"""Models of ours that do not travel, and why."""
APPS_STAY: Final[Mapping[str, str]] = {
    "admin": "which buttons accounts of an installation pressed",
    "auth": "accounts belong to an installation",
    "contenttypes": "Django's own, the same everywhere",
    "sessions": "who is signed in",
}
"""Apps of which nothing travels, and why."""


def undeclared() -> list[str]:
    """Models that are neither in `TABLES` nor in `STAYS`: somebody has to decide."""
    travels = {table.model for table in TABLES.values()}
    return sorted(
        model._meta.label  # noqa: SLF001 - Django's documented interface
        for model in apps.get_models()
        if not model._meta.proxy  # noqa: SLF001
        and model not in travels
        and model._meta.label not in STAYS  # noqa: SLF001
        and model._meta.app_label not in APPS_STAY  # noqa: SLF001
    )


def names_of(*, traces: bool) -> list[str]:
    return [name for name, table in TABLES.items() if traces or not table.traces]


def schema() -> str:
    """A hash of all tables with their columns: archives are read by those that wrote them."""
    told = [f"{name}:{','.join(table.names)}" for name, table in TABLES.items()]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


# --- columns -----------------------------------------------------------------------------------


@cache
def _columns(model: type[models.Model]) -> tuple[Column, ...]:
    table = table_of(model)
    return tuple(
        _column(one)
        for one in model._meta.concrete_fields  # noqa: SLF001 - Django's documented interface
        if one.name not in table.left_out
        and not isinstance(one, models.GeneratedField)
        and not isinstance(one, models.CompositePrimaryKey)
        and not (one.primary_key and isinstance(one, models.AutoField))
    )


def table_of(model: type[models.Model]) -> Table:
    return next(table for table in TABLES.values() if table.model is model)


def name_of(table: Table) -> str:
    return next(name for name, one in TABLES.items() if one is table)


def _column(one: models.Field[Any, Any]) -> Column:
    if not isinstance(one, models.ForeignKey):
        return Column(one, (one.attname,), (codec(one),))
    target = table_of(one.related_model)
    parts = list(_parts(target, f"{one.name}__", null=one.null))
    if target.number == "place":
        parts[-1] = (f"{one.name}_id", codec(models.PositiveIntegerField(null=one.null)))
    elif len(parts) == 1:
        # The key is the primary key, or stands for it.
        pk = parts[0][0] == f"{one.name}__{target.model._meta.pk.attname}"  # noqa: SLF001
        parts = [(one.attname if pk else parts[0][0], parts[0][1])]
    return Column(
        one,
        tuple(lookup for lookup, _ in parts),
        tuple(how for _, how in parts),
        target=name_of(target),
        numbered=target.number == "place",
    )


def _parts(target: Table, prefix: str, *, null: bool) -> Iterator[tuple[str, Codec]]:
    """What is looked up for each column of another table's key, but for its tenant."""
    for name in target.key:
        if name == "tenant_id" and len(target.key) > 1:
            continue  # one's own: no row names one of another tenant
        if name == "number":
            yield f"{prefix}pk", codec(models.PositiveIntegerField(null=null))
            continue
        inner = next(column for column in target.columns if column.name == name)
        for lookup, (write, read) in zip(inner.lookups, inner.codecs, strict=True):
            yield f"{prefix}{lookup}", (write, _or_null(read) if null else read)


def _or_null(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)
