from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccessConfig(AppConfig):
    name = "access"
    verbose_name = "Access"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from access import checks  # noqa: F401, PLC0415 - registers the system checks
        from access.tenancy import grant_operations_role  # noqa: PLC0415 - needs the registry

        post_migrate.connect(grant_operations_role, sender=self)
