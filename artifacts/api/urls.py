"""Addresses of artifacts, below /v1/."""

from __future__ import annotations

from django.urls import path

from artifacts.api.views import ArtifactContentView, ArtifactsView, ArtifactView

urlpatterns = [
    path("artifacts", ArtifactsView.as_view(), name="artifacts"),
    path("artifacts/<uuid:artifact_id>", ArtifactView.as_view(), name="artifact"),
    path("artifacts/<uuid:artifact_id>/content", ArtifactContentView.as_view(), name="content"),
]
