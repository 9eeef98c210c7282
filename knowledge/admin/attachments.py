"""Attachments: what was sent in conversations, what became of it, and trying again."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from collections import Counter
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from access.admin_base import BoundedPaginator, SearchedByKey
from access.operator_session import may, operator_name, operator_principal
from access.trust import OperatorPermission
from knowledge.admin.change_forms import ReasonForm
from knowledge.admin.jobs import desk_context
from knowledge.core.types import AttachmentState
from knowledge.lifecycle.conversations import ConversationReceipt
from knowledge.models import Attachment
from knowledge.tasks import hint
from knowledge.wiring import store

_FILES_SHOWN: Final = 20


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
    change_form_template = "admin/knowledge/job_change_form.html"

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        attachment: Any = context["original"]
        context |= desk_context(attachment.job)
        context["failed"] = attachment.state in {AttachmentState.REFUSED, AttachmentState.FAILED}
        context["conversation_url"] = reverse(
            "admin:knowledge_attachment_conversation", args=[attachment.pk]
        )
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.conversation_view)
        name = "knowledge_attachment_conversation"
        return [path("<path:object_id>/conversation/", view, name=name), *super().get_urls()]

    def conversation_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Deletes a conversation's files, with what they became, when a reason is given."""
        attachment = self.found(request, object_id)
        if not may(request, OperatorPermission.DELETE):
            raise PermissionDenied
        conversation = attachment.conversation
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            receipt = store().delete_conversation(
                conversation.conversation_id,
                operator_principal(request, attachment.tenant_id),
                reason=form.cleaned_data["reason"],
                owner=conversation.principal_id,
            )
            self.message_user(request, _told(receipt), messages.SUCCESS)
            return HttpResponseRedirect(reverse("admin:knowledge_attachment_changelist"))
        files = Attachment.objects.filter(conversation=conversation)
        context = {
            "title": "Delete the files of a conversation",
            "attachment": attachment,
            "conversation": conversation,
            "files": files.select_related("artifact")[:_FILES_SHOWN],
            "count": files[: BoundedPaginator.LIMIT].count(),
            "form": form,
        }
        return self.rendered(request, "admin/knowledge/attachment/conversation.html", context)

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
        return attachment.conversation.deleted_at or self.get_empty_value_display()

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
        return may(request, OperatorPermission.MANAGE)

    @admin.action(description="Try refused and failed ones again", permissions=["retry"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        chosen = Attachment.objects.filter(pk__in=queryset.values("pk"))
        retried = store().retry_attachments(chosen, asked_by=operator_name(request))
        for attachment in retried:
            if attachment.job is not None:
                hint(attachment.job.job_id)
        count = f"{len(retried)} file" if len(retried) == 1 else f"{len(retried)} files"
        self.message_user(request, f"{count} will be tried again.", messages.SUCCESS)


def _told(receipt: ConversationReceipt) -> str:
    outcomes = Counter(str(one.outcome) for one in receipt.documents)
    documents = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    files = f"{receipt.attachments} file" + "s" * (receipt.attachments != 1)
    return f"{files} handed to the sweeper; of their documents: {documents or 'none'}."
