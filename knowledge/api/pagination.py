"""Lists, a page at a time behind an opaque cursor."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from access.errors import Malformed
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.scope import resolve_scope
from knowledge.models import Document


class DocumentPages(CursorPagination):
    """The documents of a caller, newest first."""

    ordering = ("-created_at", "document_id")

    def __init__(
        self,
        principal: Principal,
        current_scope: str | None,
        page_size: int,
        *,
        as_of: datetime | None,
    ) -> None:
        super().__init__()
        self._as_of = as_of
        self._principal = principal
        self._scope = resolve_scope(principal, current_scope)
        self.page_size = page_size

    def decode_cursor(self, request: Request) -> Cursor | None:
        """A cursor that a list of ours handed out; raises `Malformed` for any other."""
        try:
            cursor = super().decode_cursor(request)
            if cursor is not None and cursor.position is not None:
                datetime.fromisoformat(str(cursor.position)).astimezone(UTC)
        except (NotFound, ValueError, OverflowError) as error:
            raise Malformed("cursor: Use the address of `next` or `previous` as it is.") from error
        return cursor

    def response(
        self, request: Request, view: APIView, serializer: type[Serializer[Any]]
    ) -> Response:
        with tenant_session(self._principal.tenant_id):
            documents = Document.objects.readable(self._scope).with_current(self._as_of)
            page = self.paginate_queryset(documents, request, view=view)
        return self.get_paginated_response(serializer(page, many=True).data)
