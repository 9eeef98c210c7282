"""Background ingests: what waits, what runs, what failed, and trying again."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from access.admin_base import SearchedByKey
from access.operator_session import may, operator_name
from access.trust import OperatorPermission
from knowledge.admin.adding import job_context
from knowledge.core.types import JobState
from knowledge.models import IngestJob
from knowledge.tasks import hint
from knowledge.wiring import store


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in JobState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset


def desk_context(job: IngestJob | None) -> dict[str, Any]:
    """What a page shows of a job above its facts, until it has ended by itself."""
    if job is None:
        return {}
    # What is tried again has a last problem all the same, and here it is of interest.
    return {**job_context(job), "waits_after": job.problem, "failed": job.state == JobState.FAILED}


@admin.register(IngestJob)
class IngestJobAdmin(SearchedByKey):
    list_display = ("job_id", "state", "attempts", "age", "progress", "why", "principal_id")
    list_filter = (StateFilter, "created_at")
    search_fields = ("job_id",)
    searched_ids = ("job_id", "document_id")
    searched_names = ("principal_id",)
    search_help_text = "A job's or a document's id, or a principal."
    ordering = ("-number",)
    fields = (
        *("job_id", "state", "tenant_id", "principal_id", "document", "attempts"),
        *("attempts_left", "progress", "created_at", "started_at", "next_attempt_at"),
        *("lease_until", "finished_at"),
    )
    actions = ("try_again",)
    change_form_template = "admin/knowledge/job_change_form.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # What was asked for and by whom in full is on no page.
        return super().get_queryset(request).defer("request", "principal")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context |= desk_context(context["original"])
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="age", ordering="number")
    def age(self, job: IngestJob) -> str:
        return timesince(job.created_at, job.finished_at, depth=1)

    @admin.display(description="progress")
    def progress(self, job: IngestJob) -> str:
        if not job.total:
            return self.get_empty_value_display()
        share = f"{job.embedded:,} of {job.total:,} chunks"
        return f"{share}, batch {job.batch} of {job.batches}" if job.batches else share

    @admin.display(description="problem")
    def why(self, job: IngestJob) -> str:
        return job.problem["code"] if job.problem else self.get_empty_value_display()

    @admin.display(description="document")
    def document(self, job: IngestJob) -> SafeString | str:
        if job.document_id is None:
            return self.get_empty_value_display()
        if job.state != JobState.DONE:
            return str(job.document_id)
        address = reverse("admin:knowledge_document_change", args=[job.document_id])
        return format_html('<a href="{}">{}</a>', address, job.document_id)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    @admin.action(description="Try failed jobs again", permissions=["retry"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        retried = store().retry_jobs(queryset, asked_by=operator_name(request))
        for job_id in retried:
            hint(job_id)
        count = f"{len(retried)} job" if len(retried) == 1 else f"{len(retried)} jobs"
        self.message_user(request, f"{count} will be tried again.", messages.SUCCESS)
