"""A look into a tenant that is not one's own is on the tenant's record."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest

from access.operator_session import is_superuser, operator_principal
from knowledge.models import KnowledgeEvent

VIEWED_ACROSS_TENANTS = "knowledge.document.viewed_by_superuser"


def note_visit(request: HttpRequest, tenant_id: str, document_id: UUID | None, **data: Any) -> None:
    if not is_superuser(request):
        return
    principal = operator_principal(request, tenant_id)
    KnowledgeEvent.objects.create(
        tenant_id=tenant_id,
        name=VIEWED_ACROSS_TENANTS,
        document_id=document_id,
        actor=principal.principal_id,
        surface=principal.surface,
        data=data,
    )
