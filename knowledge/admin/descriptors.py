"""Source descriptors: what each original is, and everything that cites it."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import json
import re
from typing import Any, Final

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin_base import ReadOnlyPage, as_uuid, searched_words
from artifacts.models import SourceDescriptor
from knowledge.models import DocumentVersion, RecordSource

_RECORDS_SHOWN: Final = 100
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@admin.register(SourceDescriptor)
class SourceDescriptorAdmin(ReadOnlyPage):
    """Read only: nothing of a descriptor ever changes."""

    list_display = ("file", "attribution", "media_type", "size", "kept_since")
    list_display_links = ("file",)
    list_select_related = ("artifact",)
    search_fields = ("artifact__filename",)
    search_help_text = "File name, a descriptor's id, an artifact's id, or a whole SHA-256."
    ordering = ("-artifact__created_at", "descriptor_id")
    page = "admin/artifacts/sourcedescriptor/page.html"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip().lower()
        if (artifact := as_uuid(term)) is not None:
            return queryset.filter(artifact=artifact), False
        if _SHA256.fullmatch(term):
            return queryset.filter(Q(pk=term) | Q(artifact__sha256=term)), False
        for word in searched_words(term):
            queryset = queryset.filter(artifact__filename__icontains=word)
        return queryset, False

    @admin.display(description="source", ordering="artifact__filename")
    def file(self, descriptor: SourceDescriptor) -> SafeString:
        return format_html(
            '<bdi>{}</bdi><span class="quiet about-it"><code>{}…</code></span>',
            descriptor.artifact.filename,
            descriptor.pk[:12],
        )

    @admin.display(description="attribution", ordering="artifact__attribution")
    def attribution(self, descriptor: SourceDescriptor) -> SafeString | str:
        told = descriptor.artifact.attribution
        return format_html("<bdi>{}</bdi>", told) if told else self.get_empty_value_display()

    @admin.display(description="media type", ordering="artifact__media_type")
    def media_type(self, descriptor: SourceDescriptor) -> str:
        return descriptor.artifact.media_type

    @admin.display(description="size", ordering="artifact__byte_size")
    def size(self, descriptor: SourceDescriptor) -> str:
        return filesizeformat(descriptor.artifact.byte_size)

    @admin.display(description="since", ordering="artifact__created_at")
    def kept_since(self, descriptor: SourceDescriptor) -> Any:
        return descriptor.artifact.created_at

    def context(self, request: HttpRequest, row: SourceDescriptor) -> dict[str, Any]:
        citing = (
            RecordSource.objects.filter(descriptor_id=row.pk)
            .select_related("record__space")
            .order_by("-current", "-record__changed_at", "record_id")[: _RECORDS_SHOWN + 1]
        )
        return {
            "title": row.artifact.filename,
            "descriptor": row,
            "artifact": row.artifact,
            "canonical": json.dumps(json.loads(row.canonical), ensure_ascii=False, indent=2),
            "version": DocumentVersion.objects.select_related("document__space")
            .filter(source=row.artifact)
            .first(),
            "citing": list(citing)[:_RECORDS_SHOWN],
            "more_citing": len(citing) > _RECORDS_SHOWN,
        }
