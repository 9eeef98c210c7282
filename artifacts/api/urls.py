"""Addresses of artifacts."""

from __future__ import annotations

from django.urls import path

from artifacts.api.views import ArtifactContentView, ArtifactsView, ArtifactView

urlpatterns = [
    path("v1/artifacts", ArtifactsView.as_view(), name="artifacts"),
    path("v1/artifacts/<uuid:artifact_id>", ArtifactView.as_view(), name="artifact"),
    path("v1/artifacts/<uuid:artifact_id>/content", ArtifactContentView.as_view(), name="content"),
]
