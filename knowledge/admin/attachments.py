"""Attachments: what was sent in conversations, what became of it, and trying again."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from access.admin_base import SearchedByKey
from access.operator_session import is_operator
from knowledge.core.types import AttachmentState
from knowledge.models import Attachment
from knowledge.tasks import hint
from knowledge.wiring import store


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in AttachmentState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset


@admin.register(Attachment)
class AttachmentAdmin(SearchedByKey):
    list_display = (
        "file",
        "state",
        "attempts",
        "age",
        "why",
        "principal_id",
        "named_conversation",
    )
    list_display_links = ("file",)
    list_filter = (StateFilter, "actor", "created_at")
    search_fields = ("attachment_id",)
    searched_ids = ("attachment_id", "document_id")
    searched_names = ("principal_id", "conversation__conversation_id")
    search_help_text = "An attachment's or a document's id, a conversation, or a principal."
    ordering = ("-number",)
    fields = (
        *("file", "attachment_id", "state", "why", "attempts", "age", "tenant_id"),
        *("principal_id", "actor", "surface", "named_conversation", "conversation_deleted"),
        *("document", "download", "created_at"),
    )
    actions = ("try_again",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return Attachment.objects.with_state()

    @admin.display(description="file", ordering="number")
    def file(self, attachment: Attachment) -> SafeString:
        return format_html("<bdi>{}</bdi>", attachment.artifact.filename)

    @admin.display(description="state")
    def state(self, attachment: Any) -> str:
        return str(attachment.state)

    @admin.display(description="attempts")
    def attempts(self, attachment: Attachment) -> str:
        return str(attachment.job.attempts) if attachment.job else self.get_empty_value_display()

    @admin.display(description="age", ordering="number")
    def age(self, attachment: Attachment) -> str:
        return timesince(attachment.created_at, depth=1)

    @admin.display(description="reason")
    def why(self, attachment: Attachment) -> str:
        return attachment.reason or self.get_empty_value_display()

    @admin.display(description="conversation")
    def named_conversation(self, attachment: Attachment) -> SafeString:
        return format_html("<bdi>{}</bdi>", attachment.conversation.conversation_id)

    @admin.display(description="conversation deleted")
    def conversation_deleted(self, attachment: Attachment) -> Any:
        # Only what a legal hold keeps is still there after that.
        return attachment.conversation.deleted_at

    @admin.display(description="document")
    def document(self, attachment: Any) -> SafeString | str:
        if attachment.state != AttachmentState.INGESTED:
            return self.get_empty_value_display()
        address = reverse("admin:knowledge_document_change", args=[attachment.document_id])
        return format_html('<a href="{}">{}</a>', address, attachment.document_id)

    @admin.display(description="bytes")
    def download(self, attachment: Attachment) -> SafeString:
        address = reverse("admin:artifacts_artifact_download", args=[attachment.artifact_id])
        return format_html('<a href="{}">Download</a>', address)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return is_operator(request)

    @admin.action(description="Try refused and failed ones again", permissions=["retry"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        chosen = Attachment.objects.filter(pk__in=queryset.values("pk"))
        retried = store().retry_attachments(chosen)
        for attachment in retried:
            if attachment.job is not None:
                hint(attachment.job.job_id)
        count = f"{len(retried)} file" if len(retried) == 1 else f"{len(retried)} files"
        self.message_user(request, f"{count} will be tried again.", messages.SUCCESS)
