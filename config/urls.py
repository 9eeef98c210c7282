"""Every address of the installation."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from config import home, metrics

urlpatterns = [
    path("", home.home, name="home"),
    path("livez", home.livez, name="livez"),
    path("readyz", home.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="schema"),
    # Split: the page's script comes from an address of its own, as the content policy wants.
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("", include("artifacts.api.urls")),
    path("", include("knowledge.api.urls")),
    path("", include("knowledge.pages_urls")),
]

handler400 = "config.problems.bad_request"
handler403 = "config.problems.forbidden"
handler404 = "config.problems.not_found"
handler500 = "config.problems.server_error"
