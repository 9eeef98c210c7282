"""Changing who may find a record, and holding it against deletion. No revision comes of either."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from access.errors import Forbidden, Malformed, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.rescoping import described_space, require_change_rights, space_after
from knowledge.core.scope import resolve_scope
from knowledge.core.types import DocumentChange
from knowledge.core.wording import checked_reason
from knowledge.evidence.writing import WrittenRevision
from knowledge.models import KnowledgeEvent, Record, VisibilitySpace


def change_record(
    record_id: UUID,
    principal: Principal,
    change: DocumentChange,
    *,
    current_scope: str | None = None,
) -> WrittenRevision:
    """Makes all of the change in one transaction, by the rules of documents.

    Who may find it is for whoever made it with `knowledge.write`, the hold for a key with
    `knowledge.delete`, both for an operator who may manage. Returns the record as it is then, which
    the caller may have put out of its own sight. Raises what `require_change_rights` does,
    `ReasonMissing` (lifting a hold takes one), `NotFound` and `Forbidden`.
    """
    if change.title is not None:
        raise Malformed("A title is content: save the page anew.")
    require_change_rights(principal, change)
    reason = change.reason.strip()
    if change.legal_hold is False or reason:
        reason = checked_reason(change.reason)
    with tenant_session(principal.tenant_id):
        scope = resolve_scope(principal, current_scope)
        found = Record.objects.readable(scope).select_related("space")
        record = found.select_for_update(of=("self",)).filter(pk=record_id).first()
        if record is None:
            raise NotFound
        if change.rescopes:
            if not (principal.operator or record.principal_id == principal.principal_id):
                raise Forbidden("Another principal made this record.")
            _rescope(record, change, principal, reason)
        held = change.legal_hold
        if held is not None and held != record.legal_hold:
            record.legal_hold = held
            record.save(update_fields=["legal_hold"])
            name = KnowledgeEvent.RECORD_HELD if held else KnowledgeEvent.RECORD_HOLD_LIFTED
            _tell(name, record, principal, reason=reason)
        row = record.revisions.get(revision=record.revision)
    return WrittenRevision(record=record, row=row, value=row.value())


def _rescope(record: Record, change: DocumentChange, principal: Principal, reason: str) -> None:
    former = record.space
    wanted = space_after(former, record.principal_id, change)
    if all(getattr(former, name) == value for name, value in wanted.items()):
        return
    record.space, _ = VisibilitySpace.objects.get_or_create(tenant_id=record.tenant_id, **wanted)
    record.save(update_fields=["space"])
    _tell(
        KnowledgeEvent.RECORD_RESCOPED,
        record,
        principal,
        reason=reason,
        former=described_space(former),
        now=described_space(record.space),
    )


def _tell(name: str, record: Record, principal: Principal, **data: Any) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=record.tenant_id,
        name=name,
        actor=principal.principal_id,
        surface=principal.surface,
        data={"record_id": str(record.pk), **data},
    )
