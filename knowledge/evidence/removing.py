"""Deleting a record: its rows go, the originals that it cites stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope
from knowledge.adapters.database import now
from knowledge.core.errors import LegalHold
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.models import KnowledgeEvent, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRemoval:
    """What went with a record. No original and no descriptor did."""

    record_id: UUID
    kind: str
    deleted_at: datetime
    revisions: int
    sources: int


def remove_record(
    record_id: UUID, principal: Principal, *, current_scope: str | None = None, reason: str = ""
) -> RecordRemoval:
    """Removes all revisions of a record for good, in one transaction.

    Raises `NotFound` when the caller may not see it, `Forbidden` when another principal made it and
    the key lacks `knowledge.delete`, and `LegalHold`, which is on record.
    """
    try:
        with tenant_session(principal.tenant_id):
            scope = resolve_scope(principal, current_scope)
            # The lock of a write: whoever is writing a revision is waited for.
            record = _removable(record_id, scope, principal)
            return _remove(record, principal, reason)
    except LegalHold:
        with tenant_session(principal.tenant_id):
            refused = {"record_id": str(record_id), "reason": "legal_hold"}
            _tell(KnowledgeEvent.RECORD_DELETE_REFUSED, principal, refused)
        raise


def _removable(record_id: UUID, scope: ReadScope, principal: Principal) -> Record:
    found = Record.objects.readable(scope).select_for_update(of=("self",)).filter(pk=record_id)
    record = found.first()
    if record is None:
        raise NotFound
    if record.principal_id != principal.principal_id and Scope.DELETE not in principal.scopes:
        raise Forbidden("Another principal made this record.")
    if record.legal_hold:
        raise LegalHold("The record is under a legal hold and cannot be deleted.")
    return record


def _remove(record: Record, principal: Principal, reason: str) -> RecordRemoval:
    record_id = record.pk
    sources = record.sources.all().delete()[0]
    revisions = record.revisions.all().delete()[0]
    record.delete()
    counts = {"revisions": revisions, "sources": sources}
    _tell(
        KnowledgeEvent.RECORD_DELETED,
        principal,
        {"record_id": str(record_id), "kind": record.kind, "reason": reason, **counts},
    )
    return RecordRemoval(record_id=record_id, kind=record.kind, deleted_at=now(), **counts)


def _tell(name: str, principal: Principal, data: dict[str, Any]) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=principal.tenant_id,
        name=name,
        actor=principal.principal_id,
        surface=principal.surface,
        data=data,
    )
