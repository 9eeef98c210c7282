"""Changing what is one for all versions of a document: title, who may find it, legal hold.

Nothing of this makes a version, cuts a text anew or changes a chunk id. The next search obeys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from access.errors import Forbidden
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.adapters import term_index
from knowledge.adapters.database import lock_document
from knowledge.adapters.titles import Titles
from knowledge.core.ports import SecretScanner, VectorSink
from knowledge.core.rescoping import described_space, require_change_rights, space_after
from knowledge.core.scanning import SecretGate
from knowledge.core.scope import resolve_scope
from knowledge.core.types import ChunkSetState, DocumentChange
from knowledge.core.wording import checked_reason, checked_title
from knowledge.lifecycle.tombstones import missing_document
from knowledge.models import ChunkSet, Document, KnowledgeEvent, VisibilitySpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater:
    """Changes of documents with the parts that they need."""

    titles: Titles
    secret_scanner: SecretScanner
    vectors: VectorSink | None

    def update(
        self,
        document_id: UUID,
        principal: Principal,
        change: DocumentChange,
        *,
        current_scope: str | None,
    ) -> Document:
        """Makes all of the change in one transaction, with an event for each part of it.

        Returns the document with its versions as it is then, which the caller may have put out of
        its own sight. What is as asked for already is no change and leaves no event.

        Title and scope are for the ingesting principal with `knowledge.write`, the hold for a key
        with `knowledge.delete`, all of it for an operator who may manage; a key needs a turn of USER trust.
        Raises `ScopeMissing`, `UntrustedOrigin`, `Malformed` (nothing to change, a project without
        need or the other way round), `InvalidTitle`, `SecretFound`, `ReasonMissing` (lifting a hold
        takes one), `ProjectForbidden`, `SensitivityAboveCeiling`, `NotFound`, `Deleted`, and
        `Forbidden` when another principal admitted the document.
        """
        require_change_rights(principal, change)
        title = self._title(change)
        reason = change.reason.strip()
        if change.legal_hold is False or reason:
            reason = checked_reason(change.reason)
        scope = resolve_scope(principal, current_scope)
        with tenant_session(principal.tenant_id):
            # The lock of an ingest, a deletion and a rechunking: all of them take turns.
            lock_document(document_id)
            documents = Document.objects.readable(scope).filter(document_id=document_id)
            document = documents.select_related("space").first()
            if document is None:
                raise missing_document(document_id, scope)
            recorder = _Recorder(document, principal, reason)
            if title is not None or change.rescopes:
                _require_own(document, principal)
            if title is not None and title != document.title:
                self.titles.change(document, title, principal, reason=reason)
            if change.rescopes:
                self._rescope(document, change, recorder)
            if change.legal_hold is not None:
                _hold(document, recorder, held=change.legal_hold)
            return Document.objects.with_versions().get(document_id=document_id)

    def _title(self, change: DocumentChange) -> str | None:
        """The title as it will be stored, scanned as an ingest scans it."""
        if change.title is None:
            return None
        title = checked_title(change.title)
        SecretGate(self.secret_scanner).check(
            raw="", normalised="", fields={"title": title}, chunks=()
        )
        return title

    def _rescope(self, document: Document, change: DocumentChange, recorder: _Recorder) -> None:
        """Moves the document to another space with all that knows of spaces.

        A version that is being committed at this moment, or a chunk set that is to replace
        another, looks at the document when it is published and so arrives in the new space.
        """
        former = document.space
        wanted = space_after(former, document.ingested_by_principal_id, change)
        if all(getattr(former, name) == value for name, value in wanted.items()):
            return
        space, _ = VisibilitySpace.objects.get_or_create(tenant_id=document.tenant_id, **wanted)
        document.space = space
        document.save(update_fields=["space"])
        published = ChunkSet.objects.filter(version__document=document).exclude(
            state=ChunkSetState.INGESTING
        )
        for language, analyzer in (
            published.order_by().values_list("version__language", "analyzer_version").distinct()
        ):
            VisibilitySpace.objects.note(space.pk, language=language, analyzer=analyzer)
        rows = term_index.move(document, space=space.pk)
        if self.vectors is not None:
            self.vectors.move(list(published.values_list("pk", flat=True)), space=space.pk)
        recorder.record(
            KnowledgeEvent.RESCOPED,
            index_rows=rows,
            former=described_space(former),
            now=described_space(space),
        )


@dataclass(frozen=True, slots=True)
class _Recorder:
    document: Document
    actor: Principal
    reason: str

    def record(self, name: str, **data: Any) -> None:
        KnowledgeEvent.objects.create(
            tenant_id=self.document.tenant_id,
            name=name,
            document_id=self.document.pk,
            actor=self.actor.principal_id,
            surface=self.actor.surface,
            data={"reason": self.reason, **data},
        )


def _require_own(document: Document, principal: Principal) -> None:
    own = document.ingested_by_principal_id == principal.principal_id
    if not (own or principal.operator):
        raise Forbidden("Another principal admitted this document.")


def _hold(document: Document, recorder: _Recorder, *, held: bool) -> None:
    if document.legal_hold == held:
        return
    document.legal_hold = held
    document.save(update_fields=["legal_hold"])
    recorder.record(KnowledgeEvent.HELD if held else KnowledgeEvent.HOLD_LIFTED)
