"""One row of everything that the admin shows, and every address it has.

Whoever registers a model gives it a factory here; the crawlers in `tests/db` fail until then.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.urls import URLPattern, URLResolver, reverse
from django.utils import timezone

from access.models import ApiKey, Operator
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from artifacts import store as artifacts
from artifacts.models import Artifact, SourceDescriptor, SweepRun, Upload, UploadQuota
from knowledge.core.fusion import SEMANTIC
from knowledge.core.records import AttachedFile
from knowledge.core.types import BulkAction, PassageVector
from knowledge.models import (
    ArmSwitch,
    Attachment,
    BulkTask,
    Chunk,
    ChunkIndex,
    Deletion,
    Document,
    GoldenSet,
    IngestJob,
    KnowledgeEvent,
    PiiPolicy,
    QuarantinedChunk,
    RecallTrace,
    Record,
    RetentionProposal,
    TracedPassage,
)
from knowledge.wiring import store
from tests.factories import (
    chunk_ids,
    make_attachment,
    make_document,
    make_golden_run,
    make_operator,
    make_proposal,
)
from tests.support import principal, save_page, seen, writing
from tests.uploading import piece, send

# What a form of any page may ask for: what a page does not ask for it does not read.
PLAUSIBLE = {
    "confirmed": "yes",
    "reason": "because",
    "sure": "on",
    "release-reason": "because",
    "purge-reason": "because",
    "purge-sure": "on",
    "principal_id": "agent:new",
    "max_origin_trust": "USER",
    "sensitivity_ceiling": "internal",
    "email": "quarantine",
    "username": "somebody",
    "tenant_id": "globex",
    "password1": "correct horse battery staple",
    "password2": "correct horse battery staple",
    "usable_password": "true",
    "operator-TOTAL_FORMS": "0",
    "operator-INITIAL_FORMS": "0",
    "name": "A new set",
    "new_set": "Another new set",
    "text": "ours",
    "way": "lexical",
    "budget_tokens": "3000",
    "max_passages": "3",
    "max_per_document": "2",
    "asked": "yes",
    "title": "Another title",
    "visibility": "tenant",
    "sensitivity": "confidential",
    "authority": "principal_supplied",
    "naming": "stem",
    "quota_bytes": "123456789",
}


def plausible(rows: dict[type[Model], Any]) -> dict[str, str]:
    """With what a form asks for of the rows that there are."""
    golden: GoldenSet = rows[GoldenSet]
    with operations_session():
        question = golden.questions.get()
        return {
            **PLAUSIBLE,
            "question": str(question.pk),
            "answers": question.answers.get().chunk_id,
        }


def a_document(tenant: str, word: str) -> Document:
    return make_document(
        tenant,
        word,
        texts=[f"{word} one", f"{word} two"],
        headings=[[word], [word]],
        matches=[[{"family": word, "part": "text", "start": 0, "end": 3}]],
        filename=f"{word}.md",
        principal_id=word,
    )


def an_artifact(tenant: str, word: str) -> Artifact:
    document = a_document(tenant, word)
    with tenant_session(tenant):
        return document.versions.select_related("source").get().source


def an_event(tenant: str, word: str) -> KnowledgeEvent:
    with tenant_session(tenant):
        return KnowledgeEvent.objects.create(
            tenant_id=tenant,
            name="knowledge.document.ingested",
            document_id=uuid4(),
            actor=word,
            surface=word[:50],
            data={"reason": word},
        )


def a_trace(tenant: str, word: str) -> RecallTrace:
    document = a_document(tenant, word)
    shown, left_out = chunk_ids(document)
    with tenant_session(tenant):
        trace = RecallTrace.objects.create(
            tenant_id=tenant,
            principal_id=word,
            surface=word[:50],
            current_scope=word,
            sensitivity_ceiling="restricted",
            query_text=f"{word}?",
            as_of=document.created_at,
            policy="knowledge-v1",
            analyzer_version="test",
            notes=[word],
            block_sha256="0" * 64,
            block_tokens=1,
            duration_ms=1.0,
            created_at=document.created_at,
            asked={
                "objective": word,
                "entities": [word],
                "aliases": {word: [word]},
                "max_passages": 3,
                "max_per_document": 2,
                "budget_tokens": 9,
                "floor": 0.3,
                "weights": {"match": 0.9, "penalty": 0.1},
                "fusion": word,
            },
            words=[
                {
                    "word": word,
                    "lexemes": [word],
                    "weight": 1.0,
                    "passages": 1,
                    "identifier": True,
                    "whole": False,
                }
            ],
            omitted=[
                {
                    "chunk_id": left_out,
                    "document_id": str(document.pk),
                    "reason": "floor",
                    "tokens": 1,
                    "score": 0.1,
                }
            ],
        )
        TracedPassage.objects.create(
            trace=trace,
            tenant_id=tenant,
            position=0,
            chunk_id=shown,
            document_id=document.pk,
            content_sha256="0" * 64,
            title=word,
            heading_path=[word],
            instruction_like=True,
            tokens=1,
            score=0.5,
            terms={"match": 0.5},
            arms={"lexical": 0.5},
        )
    return trace


def a_quarantined_chunk(tenant: str, word: str) -> QuarantinedChunk:
    document = a_document(tenant, word)
    with tenant_session(tenant):
        aside = Chunk.objects.get(chunk_set__version__document=document, ordinal=0)
        ChunkIndex.objects.filter(chunk=aside).delete()
        Chunk.objects.filter(pk=aside.pk).update(
            verdict="quarantine",
            verdict_reasons=[{"detector": "email", "part": "text", "start": 0, "end": 3}],
        )
        version = document.versions.get()
        version.chunk_sets.update(quarantined_count=1)
        return QuarantinedChunk.objects.get(pk=aside.pk)


def a_key(tenant: str, word: str) -> ApiKey:
    key, _ = ApiKey.issue(tenant_id=tenant, principal_id=word, name=word, projects=[word])
    return key


def a_policy(tenant: str, word: str) -> PiiPolicy:
    with tenant_session(tenant):
        return PiiPolicy.objects.get_or_create(tenant_id=tenant, changed_by=word)[0]


def a_job(tenant: str, word: str) -> IngestJob:
    attachment = make_attachment(
        tenant, filename=f"{word[:40]}.md", principal_id=word, conversation_id=word
    )
    with operations_session():
        IngestJob.objects.filter(attachment=attachment).update(
            state="failed", finished_at=attachment.created_at
        )
        return IngestJob.objects.get(attachment=attachment)


def an_attachment(tenant: str, word: str) -> Attachment:
    job = a_job(tenant, word)
    with tenant_session(tenant):
        return Attachment.objects.get(job=job)


def a_proposal(tenant: str, word: str) -> RetentionProposal:
    return make_proposal(
        tenant,
        word,
        text=f"# {word}\n\n{word} is said.\n",
        filename=f"{word[:40]}.md",
        reason=word,
        principal_id=word,
    )


def a_user(tenant: str, word: str) -> User:
    return make_operator(tenant, f"{word[:20]}-{uuid4().hex[:8]}")


def an_operator(tenant: str, word: str) -> Operator:
    user = a_user(tenant, word)
    with tenant_session(tenant):
        return Operator.objects.select_related("user").get(user=user)


def a_golden_set(tenant: str, word: str) -> GoldenSet:
    passage = chunk_ids(a_document(tenant, word))[1]
    run = make_golden_run(tenant, passage, word[:200], principal_id=word, text=f"{word} two?")
    return run.golden_set


def a_deletion(tenant: str, word: str) -> Deletion:
    operator = Principal.for_operator(tenant, word[:40])
    return store().delete(a_document(tenant, word).pk, operator, reason=word[:500])


def a_record(tenant: str, word: str) -> Record:
    """A page of two revisions, with a note, that cites a file of its own."""
    by = principal(word[:200], tenant)
    content = io.BytesIO(f"{word} one\n{word} two\n".encode())
    file = artifacts.put(by, content, filename=f"{word[:40]}.md", attribution=word)
    told: dict[str, Any] = {"title": word, "body": word, "metadata": {"word": word}}
    first = save_page(
        by,
        **told,
        attachments=[
            AttachedFile(
                artifact_id=file.pk,
                sha256=file.sha256,
                start_line=2,
                quote=f"{word} two",
                attribution=word,
            )
        ],
    )
    second = save_page(by, **told, expected=seen(first), writing=writing(reason=word[:500]))
    cited = second.value.evidence
    return (
        store()
        .records.annotate(by, writing(), expected=seen(second), note=word, evidence=cited)
        .record
    )


def a_descriptor(tenant: str, word: str) -> SourceDescriptor:
    record = a_record(tenant, word)
    with tenant_session(tenant):
        cited = record.sources.get().descriptor_id
        return SourceDescriptor.objects.select_related("artifact").get(pk=cited)


def a_sweep(tenant: str, word: str) -> SweepRun:
    """One pass over all tenants, which a person of this one asked for."""
    with operations_session():
        return SweepRun.objects.create(
            started_at=timezone.now(), finished_at=timezone.now(), by=word[:200]
        )


def an_upload(tenant: str, word: str) -> Upload:
    """Half a file, of which somebody may still send the rest."""
    request_id = uuid4()
    told = {"filename": word[:250], "attribution": word}
    send(principal(word, tenant), request_id, piece(0, word.encode()), **told)
    with tenant_session(tenant):
        return Upload.objects.get(request_id=request_id)


def a_quota(tenant: str, word: str) -> UploadQuota:
    with tenant_session(tenant):
        return UploadQuota.objects.get_or_create(
            tenant_id=tenant, quota_bytes=10**12, changed_by=word
        )[0]


def a_bulk_task(tenant: str, word: str) -> BulkTask:
    operator = Principal.for_operator(tenant, word[:40])
    return store().begin_bulk(
        BulkAction.HOLD, [a_document(tenant, word).pk], operator, reason=word[:500]
    )


def an_arm_switch(tenant: str, word: str) -> ArmSwitch:
    figures = {
        "model": word,
        "collection": word,
        "policy": word,
        "fusion": word,
        "lift": 0.02,
        "questions": 20,
        "without": {"ndcg_at_10": 0.5},
        "with_arm": {"ndcg_at_10": 0.52},
        "unanswerable": 5,
        "disturbed_without": 1,
        "disturbed_with": 1,
    }
    with tenant_session(tenant):
        return ArmSwitch.objects.update_or_create(
            tenant_id=tenant,
            arm=SEMANTIC,
            defaults={"enabled": True, "figures": figures, "changed_by": word[:200]},
        )[0]


def a_space(tenant: str, word: str) -> Any:
    """Vectors of a model that no search reads yet, of one of the tenant's passages."""
    from knowledge.semantic import spaces  # noqa: PLC0415 - of an app that may not be installed
    from knowledge.semantic.models import EmbeddingSpace  # noqa: PLC0415
    from knowledge.semantic.vectors import PostgresVectors  # noqa: PLC0415

    spaces.made("the one in use", dimensions=2)
    document = a_document(tenant, word)
    with tenant_session(tenant):
        passage = Chunk.objects.get(chunk_id=chunk_ids(document)[0])
        vector = PassageVector(digest=word.encode()[:32], vector=[0.6, 0.8])
        PostgresVectors().write({passage.pk: vector}, model=word[:200], space=document.space_id)
    return EmbeddingSpace.objects.get(model=word[:200])


FACTORIES: dict[type[Model], Callable[[str, str], Any]] = {
    ApiKey: a_key,
    Artifact: an_artifact,
    Attachment: an_attachment,
    BulkTask: a_bulk_task,
    Deletion: a_deletion,
    Document: a_document,
    GoldenSet: a_golden_set,
    IngestJob: a_job,
    KnowledgeEvent: an_event,
    Operator: an_operator,
    PiiPolicy: a_policy,
    QuarantinedChunk: a_quarantined_chunk,
    RecallTrace: a_trace,
    Record: a_record,
    SourceDescriptor: a_descriptor,
    SweepRun: a_sweep,
    Upload: an_upload,
    UploadQuota: a_quota,
    RetentionProposal: a_proposal,
    User: a_user,
}
if apps.is_installed("knowledge.semantic"):
    from knowledge.semantic.models import EmbeddingSpace

    FACTORIES |= {ArmSwitch: an_arm_switch, EmbeddingSpace: a_space}


def one_of_everything(tenant: str, word: str) -> dict[type[Model], Any]:
    """A row of every registered model; whatever of it is shown somewhere has the word in it."""
    return {model: make(tenant, word) for model, make in FACTORIES.items()}


def never_was(key: Any) -> Any:
    """A key of the same kind, which nothing has."""
    if isinstance(key, UUID):
        return uuid4()
    return "nowhere" if isinstance(key, str) else 2**40


@dataclass(frozen=True)
class Address:
    """An address of the admin: of a model's pages or of none, and perhaps of one row.

    `subject` is the model of that row, and `key` what it is named by.
    """

    name: str
    model: type[Model] | None
    subject: type[Model] | None = None
    key: str = "pk"

    def key_of(self, rows: dict[type[Model], Any]) -> Any:
        return getattr(rows[self.subject], self.key) if self.subject else None

    def path(self, key: Any = None) -> str:
        return reverse(f"admin:{self.name}", args=[key] if self.subject else [])


# Addresses with parts of their own, which have tests of their own.
_ODD = {"app_list"}
_ID_NAMES = {"object_id", "id"}
# Parts that name a row of another model than the page's own: the row's model, and its field.
_OTHERS: dict[str, tuple[type[Model], str]] = {"job_id": (IngestJob, "job_id")}


def addresses() -> Iterator[Address]:
    """Every one. One with parts that nobody said how to fill is an error."""
    for model, model_admin in admin.site._registry.items():
        for pattern in model_admin.urls:
            if pattern.name is None:  # the old address of a row, which leads to its page
                continue
            parts = set(pattern.pattern.converters) | set(pattern.pattern.regex.groupindex)
            if len(parts) == 1 and parts <= set(_OTHERS):
                subject, key = _OTHERS[parts.pop()]
                yield Address(pattern.name, model, subject, key)
                continue
            assert parts <= _ID_NAMES, f"{pattern.name}: how are {parts} filled?"
            yield Address(pattern.name, model, model if parts else None)
    for entry in admin.site.get_urls():
        if isinstance(entry, URLResolver):
            continue
        assert isinstance(entry, URLPattern)
        if entry.name in _ODD or entry.name is None:
            continue
        assert not entry.pattern.regex.groupindex, f"{entry.name}: how are its parts filled?"
        yield Address(str(entry.name), None)


def state_of_everything() -> dict[str, str]:
    """A hash of every row of every table of ours, by table: equal when nothing was changed."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(_whole_state())
        return dict(cursor.fetchall())


@cache
def _whole_state() -> str:
    """One statement for all tables, for it is asked after every request of a crawl."""
    names = connection.introspection.table_names()
    return " UNION ALL ".join(
        f"SELECT '{name}', count(*) || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), ''))"
        f' FROM "{name}" t'
        for name in sorted(set(names) - {"django_session", "django_migrations"})
    )
