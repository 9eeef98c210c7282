from __future__ import annotations

from django.apps import AppConfig


class KnowledgeConfig(AppConfig):
    name = "knowledge"
    verbose_name = "Knowledge"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from artifacts.sweeper import register_expiry  # noqa: PLC0415 - needs the registry
        from knowledge import checks  # noqa: F401, PLC0415 - registers the system checks
        from knowledge.ingest.proposals import expire_proposals  # noqa: PLC0415
        from knowledge.wiring import (  # noqa: PLC0415
            check_registered,
            register_access_log,
            register_keep_rules,
            register_read_rules,
        )

        register_access_log()
        register_read_rules()
        register_keep_rules()
        register_expiry(expire_proposals)
        check_registered()
