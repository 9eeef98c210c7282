"""Addresses of the pages for people."""

from __future__ import annotations

from django.urls import path

from knowledge import pages

urlpatterns = [path("c/<str:chunk_id>", pages.citation, name="citation")]
