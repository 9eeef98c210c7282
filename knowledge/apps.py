from __future__ import annotations

from django.apps import AppConfig


class KnowledgeConfig(AppConfig):
    name = "knowledge"
    verbose_name = "Knowledge"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from knowledge import checks  # noqa: F401, PLC0415 - registers the system checks
        from knowledge.wiring import register_read_rules  # noqa: PLC0415 - needs the registry

        register_read_rules()
