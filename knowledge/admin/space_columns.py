"""What lists of documents and of records say of who may see each."""

from __future__ import annotations

from typing import Final

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from knowledge.models import Document, Record

HELD: Final = SafeString(' <span class="badge held">held</span>')


class SpaceColumns:
    """The columns `visibility` and `sensitivity` of a list whose rows have a space."""

    @admin.display(description="visible to")
    def visibility(self, row: Document | Record) -> str:
        of = row.space.project_scope or row.space.principal_id
        return f"{row.space.visibility}: {of}" if of else row.space.visibility

    @admin.display(description="sensitivity")
    def sensitivity(self, row: Document | Record) -> SafeString:
        return format_html('<span class="badge {0}">{0}</span>', row.space.sensitivity)
