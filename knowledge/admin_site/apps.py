"""Makes ours the admin's default site."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class VerbatimAdminConfig(AdminConfig):
    default_site = "knowledge.admin_site.site.VerbatimAdminSite"
