"""Lists, a page at a time behind an opaque cursor."""

from __future__ import annotations

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.scope import resolve_scope
from knowledge.models import Document


class DocumentPages(CursorPagination):
    """The documents of a caller, newest first."""

    ordering = ("-created_at", "document_id")

    def __init__(self, principal: Principal, current_scope: str | None, page_size: int) -> None:
        super().__init__()
        self._principal = principal
        self._scope = resolve_scope(principal, current_scope)
        self.page_size = page_size

    def response(
        self, request: Request, view: APIView, serializer: type[Serializer[Any]]
    ) -> Response:
        with tenant_session(self._principal.tenant_id):
            documents = Document.objects.readable(self._scope).select_related("space")
            page = self.paginate_queryset(documents, request, view=view)
        return self.get_paginated_response(serializer(page, many=True).data)
