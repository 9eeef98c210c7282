"""What to say of what is not there: that it was deleted, or that it never was.

Asked after a miss and never before, so that what exists is found as fast as ever.
"""

from __future__ import annotations

from uuid import UUID

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.errors import Deleted
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.models import DeletedChunk, Deletion, VisibilitySpace


def missing_chunk(chunk_id: str, scope: ReadScope) -> NotFound | Deleted:
    """`Deleted` to whoever could have read the chunk, `NotFound` to everybody else."""
    kept = (
        DeletedChunk.objects.filter(
            chunk_id=chunk_id,
            readable=True,
            deletion__space__in=VisibilitySpace.objects.visible_to(scope),
        )
        .select_related("deletion")
        .order_by("-deletion__deleted_at")
        .first()
    )
    return NotFound() if kept is None else _gone(kept.deletion)


def missing_document(document_id: UUID, scope: ReadScope) -> NotFound | Deleted:
    """`Deleted` to whoever could have seen the document, `NotFound` to everybody else."""
    deletion = (
        Deletion.objects.visible_to(scope)
        .filter(document_id=document_id, readable=True)
        .order_by("-deleted_at")
        .first()
    )
    return NotFound() if deletion is None else _gone(deletion)


def deletion_of(
    deletion_id: UUID, principal: Principal, *, current_scope: str | None = None
) -> Deletion:
    """The receipt, for whoever could have seen the document; `NotFound` otherwise."""
    scope = resolve_scope(principal, current_scope)
    with tenant_session(principal.tenant_id):
        seen = Deletion.objects.visible_to(scope).with_bytes().with_records(scope)
        deletion = seen.filter(pk=deletion_id).first()
    if deletion is None:
        raise NotFound
    return deletion


def _gone(deletion: Deletion) -> Deleted:
    return Deleted(deleted_at=deletion.deleted_at, deletion_id=deletion.pk)
