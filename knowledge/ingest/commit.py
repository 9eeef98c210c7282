"""Step 7, commit: document, version, chunk set, chunks, index rows and event, or none of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from artifacts import store as artifacts
from artifacts.models import Artifact, ArtifactOrigin
from knowledge.adapters import term_index
from knowledge.adapters.database import lock_document, now
from knowledge.core import fingerprint
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.errors import IngestScopeMismatch
from knowledge.core.scope import resolve_scope
from knowledge.core.types import ChunkSetState, IngestReport, IngestResult, Verdict, Visibility
from knowledge.ingest.admission import Admitted
from knowledge.ingest.plan import IngestPlan
from knowledge.models import (
    Chunk,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    VisibilitySpace,
)


def commit(admitted: Admitted, plan: IngestPlan) -> IngestResult:
    """Publishes the plan as the document's newest version, in one transaction.

    The source's bytes are written before and taken back when the transaction failed for certain.
    A crash between the two, or a connection lost in the commit, leaves at most a blob without a
    row, which the sweeper removes.
    """
    with tenant_session(admitted.principal.tenant_id):
        unchanged = _already_ingested(admitted, plan, _current_version(plan.document_id))
    if unchanged is not None:
        return unchanged
    key = artifacts.store_blob(admitted.content)
    try:
        with tenant_session(admitted.principal.tenant_id):
            # Equal ingests take turns, and the second one sees what the first one made.
            lock_document(plan.document_id)
            current = _current_version(plan.document_id)
            unchanged = _already_ingested(admitted, plan, current)
            published = unchanged or _publish(admitted, plan, key, previous=current)
    except (OperationalError, InterfaceError):
        # The connection may have died after the commit: then a row names these bytes. If none
        # does, the sweeper removes them, and nothing that was admitted is ever lost.
        raise
    except BaseException:
        artifacts.discard_blob(key)
        raise
    if unchanged is not None:
        artifacts.discard_blob(key)
    return published


def _already_ingested(
    admitted: Admitted, plan: IngestPlan, current: DocumentVersion | None
) -> IngestResult | None:
    """The result of a no-op: the document's current text is this very text."""
    if current is None:
        return None
    _require_same_space(current.document, admitted)
    _require_writer(current.document, admitted.principal)
    if (current.source.sha256, current.media_type) != (admitted.artifact.sha256, plan.media_type):
        return None
    chunk_set = current.chunk_sets.get(state=ChunkSetState.LIVE)
    admitted_count = chunk_set.chunk_count - chunk_set.quarantined_count - chunk_set.rejected_count
    return _result(
        current,
        chunk_set,
        already_ingested=True,
        chunk_ids=tuple(
            chunk_set.chunks.filter(verdict=Verdict.ADMIT)
            .order_by("ordinal")
            .values_list("chunk_id", flat=True)
        ),
        embedded=0,
        skipped=admitted_count,
    )


def _publish(
    admitted: Admitted, plan: IngestPlan, storage_key: str, *, previous: DocumentVersion | None
) -> IngestResult:
    document = _document(admitted, plan, previous)
    instant = _instant(previous)
    source = Artifact.objects.create(
        tenant_id=document.tenant_id,
        principal_id=document.ingested_by_principal_id,
        origin=ArtifactOrigin.KNOWLEDGE_SOURCE,
        media_type=plan.media_type,
        filename=admitted.artifact.filename,
        attribution=admitted.artifact.attribution,
        sha256=admitted.artifact.sha256,
        byte_size=admitted.artifact.byte_size,
        storage_key=storage_key,
        expires_at=None,
    )
    if previous is not None:
        term_index.retire(previous)
        previous.superseded_at = instant
        previous.save(update_fields=["superseded_at"])
    VisibilitySpace.objects.note(
        document.space_id, language=plan.language, analyzer=ANALYZER_VERSION
    )
    version = DocumentVersion.objects.create(
        document=document,
        version=previous.version + 1 if previous else 1,
        tenant_id=document.tenant_id,
        source=source,
        source_version=admitted.request.source.version if admitted.request.source else "",
        media_type=plan.media_type,
        language=plan.language,
        doc_date=plan.doc_date,
        authority=admitted.request.authority,
        page_count=plan.page_count,
        truncated=plan.truncated,
        warnings=list(plan.warnings),
        ingested_at=instant,
    )
    chunk_set, chunk_ids = _chunk_set(version, plan, space=document.space_id)
    KnowledgeEvent.objects.create(
        tenant_id=document.tenant_id,
        name=KnowledgeEvent.INGESTED,
        document_id=document.document_id,
        version=version.version,
        actor=admitted.principal.principal_id,
        surface=admitted.principal.surface,
        at=instant,
        data={
            "chunk_set_id": str(chunk_set.pk),
            "chunks": plan.total,
            "quarantined": plan.quarantined,
            "rejected": plan.rejected,
            "flagged": chunk_set.flagged_count,
            "source_artifact_id": str(source.pk),
        },
    )
    return _result(
        version,
        chunk_set,
        already_ingested=False,
        chunk_ids=chunk_ids,
        embedded=len(chunk_ids),
        skipped=0,
    )


def _document(admitted: Admitted, plan: IngestPlan, previous: DocumentVersion | None) -> Document:
    """The document that the text is a version of, with its title; a new one when it is the first."""
    request, principal = admitted.request, admitted.principal
    if previous is not None:
        document = previous.document
        if document.title != admitted.title:
            document.title = admitted.title
            document.save(update_fields=["title"])
        return document
    if request.document_id is not None:
        raise NotFound
    space, _ = VisibilitySpace.objects.get_or_create(**_space_of(admitted))
    return Document.objects.create(
        document_id=plan.document_id,
        tenant_id=principal.tenant_id,
        ingested_by_principal_id=principal.principal_id,
        title=admitted.title,
        space=space,
        source_type=request.source.type if request.source else "",
        source_id=request.source.id if request.source else "",
    )


def _chunk_set(
    version: DocumentVersion, plan: IngestPlan, *, space: int
) -> tuple[ChunkSet, tuple[str, ...]]:
    chunk_set = ChunkSet.objects.create(
        tenant_id=version.tenant_id,
        version=version,
        chunker_version=plan.chunker_version,
        analyzer_version=ANALYZER_VERSION,
        secret_scanner_version=plan.secret_scanner_version,
        instruction_scanner_version=plan.instruction_scanner_version,
        admission_version=plan.admission_version,
        plan_fingerprint=plan.fingerprint,
        state=ChunkSetState.LIVE,
        chunk_count=plan.total,
        quarantined_count=plan.quarantined,
        rejected_count=plan.rejected,
        flagged_count=sum(bool(chunk.matches) for chunk in plan.chunks),
        published_at=version.ingested_at,
    )
    chunks = Chunk.objects.bulk_create(
        Chunk(
            chunk_id=fingerprint.chunk_id(version.document_id, version.version, planned.key),
            tenant_id=version.tenant_id,
            chunk_set=chunk_set,
            ordinal=planned.draft.ordinal,
            heading_path=list(planned.draft.heading_path),
            text=planned.draft.text,
            start=planned.draft.start,
            end=planned.draft.end,
            line_start=planned.draft.line_start,
            line_end=planned.draft.line_end,
            page_start=planned.draft.page_start,
            page_end=planned.draft.page_end,
            tokens=planned.draft.tokens,
            content_sha256=planned.content_sha256,
            boilerplate=planned.boilerplate,
            sketch=list(planned.sketch),
            verdict=planned.verdict,
            contains_instruction_like_text=bool(planned.matches),
            instruction_matches=planned.matches,
        )
        for planned in plan.chunks
    )
    rows = [
        (chunk.pk, planned.row)
        for chunk, planned in zip(chunks, plan.chunks, strict=True)
        if planned.row is not None
    ]
    term_index.publish(chunk_set, rows, space=space)
    return chunk_set, tuple(chunk.chunk_id for chunk in chunks if chunk.verdict is Verdict.ADMIT)


def _result(
    version: DocumentVersion,
    chunk_set: ChunkSet,
    *,
    already_ingested: bool,
    chunk_ids: tuple[str, ...],
    embedded: int,
    skipped: int,
) -> IngestResult:
    return IngestResult(
        document_id=version.document_id,
        version=version.version,
        state=ChunkSetState.LIVE,
        chunk_set_id=chunk_set.pk,
        already_ingested=already_ingested,
        title=version.document.title,
        chunk_ids=chunk_ids,
        report=IngestReport(
            chunks=chunk_set.chunk_count,
            embedded=embedded,
            skipped=skipped,
            quarantined=chunk_set.quarantined_count,
            rejected=chunk_set.rejected_count,
            pending=0,
            truncated=version.truncated,
            warnings=tuple(version.warnings),
            deleted=0,
        ),
    )


def _current_version(document_id: UUID) -> DocumentVersion | None:
    return (
        DocumentVersion.objects.filter(document_id=document_id, superseded_at__isnull=True)
        .select_related("document__space", "source")
        .first()
    )


def _space_of(admitted: Admitted) -> dict[str, Any]:
    request, principal = admitted.request, admitted.principal
    return {
        "tenant_id": principal.tenant_id,
        "visibility": request.visibility,
        "project_scope": request.project_scope,
        "principal_id": (
            principal.principal_id if request.visibility is Visibility.PRINCIPAL else None
        ),
        "sensitivity": request.sensitivity,
    }


def _require_same_space(document: Document, admitted: Admitted) -> None:
    """What the caller may not see does not exist; what it sees keeps its visibility."""
    scope = resolve_scope(admitted.principal, admitted.request.project_scope)
    if not VisibilitySpace.objects.visible_to(scope).filter(pk=document.space_id).exists():
        raise NotFound
    asked = _space_of(admitted)
    if any(getattr(document.space, field) != value for field, value in asked.items()):
        raise IngestScopeMismatch(
            f"This document is visible as '{document.space}'. Rescope it to change that."
        )


def _require_writer(document: Document, principal: Principal) -> None:
    """A new text may come from the ingesting principal or whoever could delete the document."""
    if (
        document.ingested_by_principal_id != principal.principal_id
        and Scope.DELETE not in principal.scopes
    ):
        raise Forbidden("Another principal admitted this document.")


def _instant(previous: DocumentVersion | None) -> datetime:
    """The database's clock under the document's lock; it never runs backwards in a document."""
    if previous is None:
        return now()
    return max(now(), previous.ingested_at + timedelta(microseconds=1))
