"""The journal of uploads: what arrives in pieces, how far it is, and ending one that never will."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin_base import SearchedByKey
from access.operator_session import may
from access.trust import OperatorPermission
from artifacts.models import Artifact, Upload, UploadPiece, UploadState
from artifacts.naming import Name, register_naming
from artifacts.uploads import cancel


@admin.register(Upload)
class UploadAdmin(SearchedByKey):
    list_display = (
        "file",
        "state",
        "size",
        "piece_count",
        "principal_id",
        "created_at",
        "expires_at",
    )
    list_display_links = ("file",)
    list_filter = ("state", "created_at")
    # What is searched is below; this is what makes Django show the field.
    search_fields = ("request_id",)
    searched_ids = ("request_id", "artifact_id")
    searched_names = ("principal_id",)
    search_help_text = "A request's or an artifact's id, or a principal."
    ordering = ("-created_at", "-id")
    fields = (
        *("file", "request_id", "tenant_id", "principal_id", "state", "size", "piece_count"),
        *("attribution", "media_type", "file_path", "artifact", "sha256", "created_at"),
        "expires_at",
    )
    actions = ("cancel_selected",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:  # noqa: ARG002 - Django's shape
        pieces = UploadPiece.objects.filter(upload=OuterRef("pk")).order_by().values("upload")
        counted = Subquery(pieces.annotate(count=Count("pk")).values("count"))
        return Upload.objects.annotate(piece_count=Coalesce(counted, 0))

    @admin.display(description="file name", ordering="filename")
    def file(self, upload: Upload) -> SafeString:
        return format_html("<bdi>{}</bdi>", upload.filename)

    @admin.display(description="received", ordering="received")
    def size(self, upload: Upload) -> str:
        return filesizeformat(upload.received)

    @admin.display(description="pieces")
    def piece_count(self, upload: Any) -> str:
        """A file of the workspace came whole, in none."""
        return f"{upload.piece_count:,}"

    @admin.display(description="artifact")
    def artifact(self, upload: Upload) -> SafeString | str:
        """By id alone when it is gone: this is its receipt, and outlives it."""
        if upload.artifact_id is None:
            return self.get_empty_value_display()
        if not Artifact.objects.filter(pk=upload.artifact_id).exists():
            return f"{upload.artifact_id} (gone)"
        address = reverse("admin:artifacts_artifact_change", args=[upload.artifact_id])
        return format_html('<a href="{}">{}</a>', address, upload.artifact_id)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    @admin.action(description="Cancel unfinished ones", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        cancelled = cancel(Upload.objects.filter(pk__in=queryset.values("pk")))
        count = f"{cancelled} upload" if cancelled == 1 else f"{cancelled} uploads"
        self.message_user(request, f"{count} cancelled; the pieces are gone.", messages.SUCCESS)


@register_naming
def _receipts(artifact: Artifact) -> Iterator[Name]:
    for upload in Upload.objects.filter(artifact_id=artifact.pk, state=UploadState.COMPLETE):
        yield Name(
            what="upload",
            text=str(upload.request_id),
            address=reverse("admin:artifacts_upload_change", args=[upload.pk]),
        )
