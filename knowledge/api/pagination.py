"""Lists, a page at a time behind an opaque cursor."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from access.errors import Malformed
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.records import RecordKind
from knowledge.core.scope import resolve_scope
from knowledge.evidence.reading import records_of, revisions_of
from knowledge.models import Document

_LONGEST_NUMBER: Final = 9


def page_of(row: type[Serializer[Any]]) -> Serializer[Any]:
    """The shape of one page of a list, for the API's description."""
    name = row.__name__.removesuffix("Serializer")
    return inline_serializer(
        f"{name}Page",
        {
            "next": serializers.URLField(allow_null=True),
            "previous": serializers.URLField(allow_null=True),
            "results": row(many=True),
        },
    )


class Pages(CursorPagination):
    """What a caller may see of something, in an order whose first field is told by `position`."""

    def __init__(self, principal: Principal, current_scope: str | None, page_size: int) -> None:
        super().__init__()
        self._principal = principal
        self.scope = resolve_scope(principal, current_scope)
        self.page_size = page_size

    def rows(self) -> QuerySet[Any]:
        """To be read in the caller's session; raises `NotFound`."""
        raise NotImplementedError

    def position(self, told: str) -> object:
        """What a cursor says of where it stands; raises `ValueError` for what none says."""
        return datetime.fromisoformat(told).astimezone(UTC)

    def decode_cursor(self, request: Request) -> Cursor | None:
        """A cursor that a list of ours handed out; raises `Malformed` for any other."""
        try:
            cursor = super().decode_cursor(request)
            if cursor is not None and cursor.position is not None:
                self.position(str(cursor.position))
        except (NotFound, ValueError, OverflowError) as error:
            raise Malformed("cursor: Use the address of `next` or `previous` as it is.") from error
        return cursor

    def response(
        self, request: Request, view: APIView, serializer: type[Serializer[Any]]
    ) -> Response:
        with tenant_session(self._principal.tenant_id):
            page = self.paginate_queryset(self.rows(), request, view=view)
        return self.get_paginated_response(serializer(page, many=True).data)


class DocumentPages(Pages):
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
        super().__init__(principal, current_scope, page_size)
        self._as_of = as_of

    def rows(self) -> QuerySet[Any]:
        return Document.objects.readable(self.scope).with_current(self._as_of)


class RecordPages(Pages):
    """The records of a caller, newest first."""

    ordering = ("-created_at", "record_id")

    def __init__(
        self,
        principal: Principal,
        current_scope: str | None,
        page_size: int,
        *,
        kind: RecordKind | None,
        source: str | None,
    ) -> None:
        super().__init__(principal, current_scope, page_size)
        self._kind, self._source = kind, source

    def rows(self) -> QuerySet[Any]:
        return records_of(self.scope, kind=self._kind, source=self._source)


class RevisionPages(Pages):
    """The revisions of a record, newest first."""

    ordering = ("-revision",)

    def __init__(
        self, principal: Principal, current_scope: str | None, page_size: int, *, record_id: UUID
    ) -> None:
        super().__init__(principal, current_scope, page_size)
        self._record_id = record_id

    def position(self, told: str) -> object:
        if not (told.isascii() and told.isdecimal() and len(told) <= _LONGEST_NUMBER):
            raise ValueError("no number of a revision")
        return int(told)

    def rows(self) -> QuerySet[Any]:
        return revisions_of(self._record_id, self.scope)
