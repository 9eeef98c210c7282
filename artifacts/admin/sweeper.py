"""The sweeper's desk: what is due, what is stuck, what it did, and asking for a pass."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Final

from celery.exceptions import OperationalError as BrokerError
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST
from redis import RedisError

from access.admin_base import OperatorAdmin
from access.operator_session import may, operator_name
from access.trust import OperatorPermission
from artifacts.models import Artifact, SweepRun
from artifacts.tasks import sweep

_MOST_COUNTED: Final = 10_000
_STUCK_SHOWN: Final = 50
_RUNS_SHOWN: Final = 20


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
            "title": "Sweeper",
            "due": Artifact.objects.expired()[:_MOST_COUNTED].count(),
            "most_counted": _MOST_COUNTED,
            "stuck": stuck[:_STUCK_SHOWN],
            "stuck_count": stuck[:_MOST_COUNTED].count(),
            "runs": SweepRun.objects.all()[:_RUNS_SHOWN],
        }
        return self.rendered(request, "admin/artifacts/sweeprun/change_list.html", context)

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
