"""Rows made directly, for pages and lists that need many or odd ones.

Whatever can be admitted is better admitted: `tests.support.admit` goes through the pipeline.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from access.models import Operator
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.blobs import blob_store
from artifacts.models import Artifact, ArtifactOrigin
from knowledge.core.types import (
    Actor,
    Authority,
    ChunkSetState,
    ProposalRequest,
    Verdict,
    Visibility,
)
from knowledge.models import (
    Attachment,
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    GoldenRun,
    KnowledgeEvent,
    RetentionProposal,
    VisibilitySpace,
)
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.golden import GoldenAsked
from knowledge.wiring import store

_WORDS = ("zebra", "alpine", "harbour", "meadow", "quarry")
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
PASSWORD = "correct horse battery staple"


def make_operator(
    tenant: str,
    username: str = "",
    permissions: Iterable[OperatorPermission] = OperatorPermission,
) -> User:
    user = User.objects.create_user(username or f"op-{tenant}", password=PASSWORD, is_staff=True)
    with operations_session():
        Operator.objects.create(
            user=user, tenant_id=tenant, permissions=[str(word) for word in permissions]
        )
    return user


def make_superuser(username: str = "root") -> User:
    return User.objects.create_superuser(username, password=PASSWORD)


def make_document(
    tenant: str,
    title: str = "Deployment runbook",
    *,
    texts: Sequence[str] = ("Drain the node first.", "Then restart it."),
    headings: Sequence[Sequence[str]] = (),
    matches: Sequence[Sequence[dict[str, Any]]] = (),
    versions: int = 1,
    filename: str = "runbook.md",
    visibility: Visibility = Visibility.TENANT,
    sensitivity: Sensitivity = Sensitivity.INTERNAL,
    legal_hold: bool = False,
    principal_id: str = "alice",
) -> Document:
    """A document as the pipeline leaves it: versions, chunk sets, chunks, index rows, sources."""
    with tenant_session(tenant):
        space, _ = VisibilitySpace.objects.get_or_create(
            tenant_id=tenant,
            visibility=visibility,
            project_scope="apollo" if visibility is Visibility.PROJECT else None,
            principal_id=principal_id if visibility is Visibility.PRINCIPAL else None,
            sensitivity=sensitivity,
        )
        document = Document.objects.create(
            tenant_id=tenant,
            ingested_by_principal_id=principal_id,
            title=title,
            space=space,
            legal_hold=legal_hold,
        )
        start = timezone.now() - timedelta(hours=versions)
        for number in range(1, versions + 1):
            at = start + timedelta(minutes=number)
            current = number == versions
            version = DocumentVersion.objects.create(
                document=document,
                version=number,
                tenant_id=tenant,
                source=_source(tenant, principal_id, filename, "\n\n".join(texts)),
                media_type="text/markdown",
                language="english",
                authority=Authority.PRINCIPAL_SUPPLIED,
                ingested_at=at,
                superseded_at=None if current else at + timedelta(minutes=1),
            )
            _chunk_set(version, space.pk, texts, headings, matches, live=current)
        KnowledgeEvent.objects.create(
            tenant_id=tenant,
            name=KnowledgeEvent.INGESTED,
            document_id=document.pk,
            version=versions,
            actor=principal_id,
            surface="api",
        )
    return document


def make_many_documents(tenant: str, count: int) -> None:
    """Documents of one version without passages or bytes: rows for lists, made quickly."""
    with tenant_session(tenant):
        space, _ = VisibilitySpace.objects.get_or_create(
            tenant_id=tenant, visibility=Visibility.TENANT, sensitivity=Sensitivity.INTERNAL
        )
        documents = Document.objects.bulk_create(
            Document(
                tenant_id=tenant,
                ingested_by_principal_id="alice",
                title=f"Runbook {number} of the {_WORDS[number % len(_WORDS)]} cluster",
                space=space,
            )
            for number in range(count)
        )
        sources = Artifact.objects.bulk_create(
            Artifact(
                tenant_id=tenant,
                principal_id="alice",
                origin=ArtifactOrigin.KNOWLEDGE_SOURCE,
                media_type="text/markdown",
                filename="runbook.md",
                sha256="0" * 64,
                byte_size=10,
                storage_key=f"none/{tenant}/{document.pk}",
            )
            for document in documents
        )
        versions = DocumentVersion.objects.bulk_create(
            DocumentVersion(
                document=document,
                version=1,
                tenant_id=tenant,
                source=source,
                media_type="text/markdown",
                language="english",
                authority=Authority.PRINCIPAL_SUPPLIED,
                ingested_at=document.created_at,
            )
            for document, source in zip(documents, sources, strict=True)
        )
        ChunkSet.objects.bulk_create(
            _manifest(version, chunk_count=4, flagged_count=number % 3)
            for number, version in enumerate(versions)
        )
        # In a test's own transaction nobody else counts these rows, and a plan made for an empty
        # table takes minutes over many.
        with connection.cursor() as cursor:
            for model in (Document, DocumentVersion, ChunkSet):
                cursor.execute(f"ANALYZE {model._meta.db_table}")


def make_attachment(
    tenant: str,
    *,
    filename: str = "runbook.md",
    conversation_id: str = "c-1",
    principal_id: str = "alice",
    actor: Actor = Actor.PRINCIPAL,
) -> Attachment:
    """A file that was sent in a conversation; pending, when its owner sent it."""
    sender = _person(tenant, principal_id)
    return store().attach(
        io.BytesIO(f"# Runbook\n\nDrain the node of {filename}.\n".encode()),
        sender,
        conversation_id=conversation_id,
        actor=actor,
        filename=filename,
    )


def make_proposal(
    tenant: str,
    title: str = "Deployment runbook",
    *,
    text: str = "# Runbook\n\nDrain the node first.\n",
    filename: str = "runbook.md",
    reason: str = "Cited often.",
    principal_id: str = "agent:scout",
) -> RetentionProposal:
    """A file that an agent proposed to keep, waiting for an operator."""
    agent = _person(tenant, principal_id)
    return store().propose(
        ProposalRequest(
            artifact_id=artifacts.put(agent, io.BytesIO(text.encode()), filename=filename).pk,
            title=title,
            visibility=Visibility.TENANT,
            reason=reason,
        ),
        agent,
    )


def make_golden_run(tenant: str, chunk_id: str, name: str = "Pumps", **given: Any) -> GoldenRun:
    """A golden set of one question that the passage answers, and a run of it that has ended."""
    operator = Principal.for_operator(tenant, "olga")
    viewpoint = Viewpoint(
        principal_id=given.pop("principal_id", "alice"),
        current_scope=None,
        sensitivity_ceiling=Sensitivity.RESTRICTED,
    )
    chosen = store().create_golden_set(name, viewpoint, operator)
    asked = {"text": "When does the pump run?", "answers": {chunk_id: ""}, **given}
    store().keep_golden_question(chosen.pk, GoldenAsked(**asked), operator)
    run = store().begin_golden_run(chosen.pk, operator)
    store().run_golden_set(run.pk)
    with tenant_session(tenant):
        return GoldenRun.objects.select_related("golden_set").get(pk=run.pk)


def _person(tenant: str, principal_id: str) -> Principal:
    return Principal(
        tenant_id=tenant,
        principal_id=principal_id,
        scopes=frozenset({Scope.WRITE}),
        max_origin_trust=OriginTrust.USER,
    )


def chunk_ids(document: Document) -> list[str]:
    """The passages of the newest version, in order."""
    with tenant_session(document.tenant_id):
        return list(
            Chunk.objects.filter(
                chunk_set__version__document=document,
                chunk_set__version__superseded_at__isnull=True,
            )
            .order_by("ordinal")
            .values_list("chunk_id", flat=True)
        )


def _source(tenant: str, principal_id: str, filename: str, text: str) -> Artifact:
    content = text.encode("utf-8", "surrogatepass")
    return Artifact.objects.create(
        tenant_id=tenant,
        principal_id=principal_id,
        origin=ArtifactOrigin.KNOWLEDGE_SOURCE,
        media_type="text/markdown",
        filename=filename,
        sha256=hashlib.sha256(content).hexdigest(),
        byte_size=len(content),
        storage_key=blob_store().put(io.BytesIO(content)),
    )


def _manifest(version: DocumentVersion, **counts: int) -> ChunkSet:
    return ChunkSet(
        tenant_id=version.tenant_id,
        version=version,
        chunker_version="text-1/normal-1/structure-1/default",
        analyzer_version="test",
        secret_scanner_version="test",
        instruction_scanner_version="test",
        admission_version="test",
        plan_fingerprint="0" * 64,
        state=ChunkSetState.LIVE,
        published_at=version.ingested_at,
        **counts,
    )


def _chunk_set(
    version: DocumentVersion,
    space: int,
    texts: Sequence[str],
    headings: Sequence[Sequence[str]],
    matches: Sequence[Sequence[dict[str, Any]]],
    *,
    live: bool,
) -> None:
    flagged = sum(bool(found) for found in matches)
    chunk_set = _manifest(version, chunk_count=len(texts), flagged_count=flagged)
    chunk_set.save(force_insert=True)
    rows, line, start = [], 1, 0
    for ordinal, text in enumerate(texts):
        found = list(matches[ordinal]) if ordinal < len(matches) else []
        rows.append(
            Chunk(
                chunk_id="kc_" + "".join(secrets.choice(_CROCKFORD) for _ in range(16)),
                tenant_id=version.tenant_id,
                chunk_set=chunk_set,
                ordinal=ordinal,
                heading_path=list(headings[ordinal]) if ordinal < len(headings) else [],
                text=text,
                start=start,
                end=start + len(text),
                line_start=line,
                line_end=line + text.count("\n"),
                tokens=max(1, len(text) // 4),
                content_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                verdict=Verdict.ADMIT,
                contains_instruction_like_text=bool(found),
                instruction_matches=found,
            )
        )
        line += text.count("\n") + 2
        start += len(text) + 2
    made = Chunk.objects.bulk_create(rows)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO knowledge_chunk_index (chunk, space, live, sv, tsv)"
            " VALUES (%s, %s, %s, '{1:1}/1000000000'::sparsevec, 'word:1'::tsvector)",
            [(chunk.pk, space, live) for chunk in made],
        )
