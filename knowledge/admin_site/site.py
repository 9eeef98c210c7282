"""Our admin site."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from access.operator_session import is_operator, is_superuser, permissions_of
from knowledge.admin_site.overview import PERIODS, overview, period
from knowledge.models import RefusalCount

View = Callable[..., HttpResponseBase]
_APP_ORDER = ("knowledge", "semantic", "artifacts", "access", "auth")
_REFUSAL_ROWS = 500


def _playground() -> dict[str, Any]:
    """An entry of the list of models, for a page that has none."""
    return {
        "name": "Playground",
        "object_name": "Playground",
        "perms": {"add": False, "change": False, "delete": False, "view": True},
        "admin_url": reverse("admin:knowledge_recalltrace_playground"),
        "add_url": None,
        "view_only": True,
    }


class VerbatimAdminSite(admin.AdminSite):
    site_header = "Verbatim"
    site_title = "Verbatim"
    index_title = "Overview"
    empty_value_display = "–"

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        if view in {self.logout, self.password_change, self.password_change_done}:
            return super().admin_view(view, cacheable)
        return super().admin_view(self._for_operators(view), cacheable)

    def each_context(self, request: Any) -> dict[str, Any]:
        """With `may`: the permissions of who is signed in, so that pages offer nothing else."""
        return {**super().each_context(request), "may": permissions_of(request)}

    def get_urls(self) -> list[Any]:
        refusals = self.admin_view(require_safe(self.refusals))
        # No row of ours has an address outside, and the short cut to it fails on odd ids.
        kept = [url for url in super().get_urls() if getattr(url, "name", "") != "view_on_site"]
        return [path("refusals/", refusals, name="refusals"), *kept]

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        apps = super().get_app_list(request, app_label)
        for app in apps:
            if app["app_label"] == "knowledge":
                app["models"] = sorted(
                    [*app["models"], _playground()], key=lambda model: str(model["name"]).lower()
                )
        return sorted(
            apps,
            key=lambda app: (
                _APP_ORDER.index(app["app_label"])
                if app["app_label"] in _APP_ORDER
                else len(_APP_ORDER)
            ),
        )

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        return super().index(
            request,
            {
                "overview": overview(
                    period(request.GET.get("days", "")), by_tenant=is_superuser(request)
                ),
                "periods": PERIODS,
                "all_tenants": is_superuser(request),
                **(extra_context or {}),
            },
        )

    def refusals(self, request: HttpRequest) -> HttpResponse:
        """What was refused, by day and reason. Nothing else of a refused document is kept."""
        rows = RefusalCount.objects.order_by("-day", "reason", "tenant_id")[:_REFUSAL_ROWS]
        return TemplateResponse(
            request,
            "admin/refusals.html",
            {
                **self.each_context(request),
                "title": "Refusals",
                "rows": rows,
                "most_rows": _REFUSAL_ROWS,
                "all_tenants": is_superuser(request),
            },
        )

    def _for_operators(self, view: View) -> View:
        """Says what is missing to a staff member whom nobody has given a tenant."""

        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if is_operator(request):
                return view(request, *args, **kwargs)
            context = {**self.each_context(request), "title": "No tenant yet"}
            return TemplateResponse(request, "admin/no_tenant.html", context, status=403)

        return guarded
