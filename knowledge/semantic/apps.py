from __future__ import annotations

from django.apps import AppConfig


class SemanticConfig(AppConfig):
    name = "knowledge.semantic"
    label = "semantic"
    verbose_name = "Semantic arm"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from knowledge.semantic import checks  # noqa: F401, PLC0415 - registers the system check
