"""Artifacts: what bytes there are, where they came from, what names them and when they go."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from access.admin_base import OperatorAdmin, breakable
from artifacts.api.views import download
from artifacts.errors import BlobMissing, RangeNotSatisfiable
from artifacts.models import Artifact, SourceDescriptor
from artifacts.naming import names_of

_LONGEST_SEARCH: Final = 255


class DueFilter(admin.SimpleListFilter):
    title = "time left"
    parameter_name = "due"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [
            ("kept", "kept"),
            ("later", "expires later"),
            ("due", "due for the sweeper"),
            ("stuck", "could not be swept"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        conditions = {
            "kept": Q(expires_at__isnull=True),
            "later": Q(expires_at__gt=Now()),
            "due": Q(expires_at__lte=Now()),
            "stuck": Q(sweep_failed_at__isnull=False),
        }
        condition = conditions.get(self.value() or "")
        return queryset if condition is None else queryset.filter(condition)


@admin.register(Artifact)
class ArtifactAdmin(OperatorAdmin):
    list_display = (
        "file",
        "kind",
        "size",
        "principal_id",
        "created_at",
        "expires_at",
    )
    list_filter = ("origin", DueFilter, "created_at")
    search_fields = ("filename",)
    search_help_text = "File name, or a whole SHA-256."
    ordering = ("-created_at", "id")
    fields = (
        "file",
        "id",
        "tenant_id",
        "principal_id",
        "origin",
        "media_type",
        "attribution",
        "size",
        "sha256",
        "created_at",
        "expires_at",
        "sweep_attempts",
        "sweep_error",
        "sweep_failed_at",
        "descriptor_id",
        "descriptor_says",
        "named_by",
    )
    change_form_template = "admin/artifacts/artifact/change_form.html"

    @admin.display(description="file name", ordering="filename")
    def file(self, artifact: Artifact) -> SafeString:
        return format_html("<bdi>{}</bdi>", artifact.filename)

    @admin.display(description="origin", ordering="origin")
    def kind(self, artifact: Artifact) -> SafeString:
        return format_html(
            '{}<span class="quiet about-it">{}</span>',
            breakable(artifact.origin),
            artifact.media_type,
        )

    @admin.display(description="size", ordering="byte_size")
    def size(self, artifact: Artifact) -> str:
        return filesizeformat(artifact.byte_size)

    @admin.display(description="descriptor")
    def descriptor_id(self, artifact: Artifact) -> SafeString | str:
        descriptor = self._descriptor(artifact)
        if descriptor is None:
            return self.get_empty_value_display()
        return format_html("<code>{}</code>", descriptor.descriptor_id)

    @admin.display(description="it says")
    def descriptor_says(self, artifact: Artifact) -> SafeString | str:
        descriptor = self._descriptor(artifact)
        if descriptor is None:
            return self.get_empty_value_display()
        return format_html("<code><bdi>{}</bdi></code>", descriptor.canonical)

    @admin.display(description="named by")
    def named_by(self, artifact: Artifact) -> SafeString | str:
        named = names_of(artifact)
        shown = format_html_join(
            mark_safe("<br>"),
            '{}: <a href="{}"><bdi>{}</bdi></a>',
            ((one.what, one.address, one.text) for one in named),
        )
        return shown or self.get_empty_value_display()

    def _descriptor(self, artifact: Artifact) -> SourceDescriptor | None:
        return SourceDescriptor.objects.filter(artifact=artifact).first()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip().lower()[:_LONGEST_SEARCH]
        if not term:
            return queryset, False
        return queryset.filter(Q(filename__icontains=term) | Q(sha256=term)), False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_safe(self.download_view))
        return [
            path("<path:object_id>/download/", view, name="artifacts_artifact_download"),
            *super().get_urls(),
        ]

    def download_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """The bytes as an attachment; what has expired is gone even before it is swept."""
        artifact = self.found(request, object_id)
        if Artifact.objects.expired().filter(pk=artifact.pk).exists():
            raise Http404
        try:
            return download(request, artifact, request.headers.get("Range"))
        except BlobMissing as gone:
            raise Http404 from gone
        except RangeNotSatisfiable as outside:
            response = HttpResponse(status=outside.status)
            response["Content-Range"] = f"bytes */{artifact.byte_size}"
            return response
