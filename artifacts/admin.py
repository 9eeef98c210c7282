"""Artifacts: what bytes there are, where they came from and when they go."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Final

from celery.exceptions import OperationalError as BrokerError
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe
from redis import RedisError

from access.admin_base import OperatorAdmin
from access.operator_session import is_superuser, may, operator_name
from access.trust import OperatorPermission
from artifacts.api.views import download
from artifacts.errors import BlobMissing, RangeNotSatisfiable
from artifacts.models import Artifact, SweepRun
from artifacts.tasks import sweep

_LONGEST_SEARCH: Final = 255
_MOST_COUNTED: Final = 10_000
_STUCK_SHOWN: Final = 50
_RUNS_SHOWN: Final = 20


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
        "origin",
        "media_type",
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
    )
    change_form_template = "admin/artifacts/artifact/change_form.html"

    @admin.display(description="file name", ordering="filename")
    def file(self, artifact: Artifact) -> SafeString:
        return format_html("<bdi>{}</bdi>", artifact.filename)

    @admin.display(description="size", ordering="byte_size")
    def size(self, artifact: Artifact) -> str:
        return filesizeformat(artifact.byte_size)

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


@admin.register(SweepRun)
class SweepRunAdmin(OperatorAdmin):
    """The sweeper's desk. What is due and what is stuck are the tenant's; a pass is over all."""

    def get_urls(self) -> list[URLPattern]:
        run = self.admin_site.admin_view(require_POST(self.run_view))
        return [path("run/", run, name="artifacts_sweeprun_run"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        stuck = Artifact.objects.stuck().order_by("-sweep_failed_at")
        context = {
            **self.admin_site.each_context(request),
            "title": "Sweeper",
            "opts": self.opts,
            "due": Artifact.objects.expired()[:_MOST_COUNTED].count(),
            "most_counted": _MOST_COUNTED,
            "stuck": stuck[:_STUCK_SHOWN],
            "stuck_count": stuck[:_MOST_COUNTED].count(),
            "runs": SweepRun.objects.all()[:_RUNS_SHOWN],
            # How much there was to do elsewhere is nobody's business but theirs.
            "all_tenants": is_superuser(request),
        }
        return TemplateResponse(request, "admin/artifacts/sweeprun/change_list.html", context)

    def found(self, request: HttpRequest, object_id: str) -> Any:
        """Nothing: a pass has no page of its own, for it is no tenant's."""
        raise Http404

    def run_view(self, request: HttpRequest) -> HttpResponse:
        if not may(request, OperatorPermission.MANAGE):
            raise PermissionDenied
        by = operator_name(request)
        transaction.on_commit(partial(_ask_for_a_pass, by))
        self.message_user(
            request,
            "A worker sweeps as soon as one is free; load this page again.",
            messages.SUCCESS,
        )
        return HttpResponseRedirect(reverse("admin:artifacts_sweeprun_changelist"))


def _ask_for_a_pass(by: str) -> None:
    # Lost, it is no loss: the next pass is a few minutes away.
    with contextlib.suppress(BrokerError, RedisError, OSError):
        sweep.apply_async(kwargs={"by": by}, retry=False)
