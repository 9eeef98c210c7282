"""The guard of beliefs: no provenance may be a document or a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.errors import BeliefFromDocument
from knowledge.core.provenance import KnowledgeNamed, Provenance, knowledge_named_by, uuids_in
from knowledge.core.scope import resolve_scope
from knowledge.models import (
    Attachment,
    ChunkSet,
    Deletion,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    TracedPassage,
    VisibilitySpace,
)


def check_provenance(provenance: Sequence[Provenance], principal: Principal) -> None:
    """Raises `BeliefFromDocument` with what was refused: `refused: [{index, because}]`.

    A bare UUID is looked up among what the caller could have read, for that is all that a belief
    of theirs could stand on, and an answer that tells more would betray what they may not see.
    """
    refused = {
        index: named
        for index, one in enumerate(provenance)
        if (named := knowledge_named_by(one)) is not None
    }
    left = {
        index: found
        for index, one in enumerate(provenance)
        if index not in refused and (found := uuids_in(one))
    }
    if left:
        known = _of_documents(set().union(*left.values()), principal)
        refused |= {
            index: KnowledgeNamed.DOCUMENT for index, found in left.items() if found & known
        }
    if refused:
        raise BeliefFromDocument(
            f"Provenance {min(refused)} is of the knowledge store. A belief stands on episodes,"
            " never on what a document says.",
            refused=[
                {"index": index, "because": str(named)} for index, named in sorted(refused.items())
            ],
        )


def _of_documents(ids: set[UUID], principal: Principal) -> set[UUID]:
    """Those that are, or were, a document, a chunk set, a source or an attachment they knew."""
    # What is deleted or was rescoped away since: what they were shown or did themselves.
    own = {"tenant_id": principal.tenant_id, "document_id__in": ids}
    shown = TracedPassage.objects.filter(
        trace__principal_id=principal.principal_id, trace__acting_operator="", **own
    )
    sent = Attachment.objects.filter(
        tenant_id=principal.tenant_id,
        principal_id=principal.principal_id,
        document_id__isnull=False,
    )
    gone = Deletion.objects.filter(document_id__in=ids, readable=True)
    done = KnowledgeEvent.objects.filter(actor=principal.principal_id, **own)
    with tenant_session(principal.tenant_id):
        spaces = VisibilitySpace.objects.visible_in_any_project(
            resolve_scope(principal, None), principal.projects
        )
        return {
            *Document.objects.filter(space__in=spaces, pk__in=ids).values_list("pk", flat=True),
            *gone.filter(space__in=spaces).values_list("document_id", flat=True),
            *ChunkSet.objects.filter(version__document__space__in=spaces, pk__in=ids).values_list(
                "pk", flat=True
            ),
            *DocumentVersion.objects.filter(document__space__in=spaces, source__in=ids).values_list(
                "source_id", flat=True
            ),
            *sent.filter(attachment_id__in=ids).values_list("attachment_id", flat=True),
            *sent.filter(artifact__in=ids).values_list("artifact_id", flat=True),
            *shown.values_list("document_id", flat=True),
            *(one for one in done.values_list("document_id", flat=True) if one is not None),
        }
