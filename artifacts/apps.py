from __future__ import annotations

from django.apps import AppConfig


class ArtifactsConfig(AppConfig):
    name = "artifacts"
    verbose_name = "Artifacts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from access.idempotency import expire_answers  # noqa: PLC0415 - needs the registry
        from artifacts import checks  # noqa: F401, PLC0415 - registers them
        from artifacts.sweeper import register_expiry  # noqa: PLC0415
        from artifacts.uploads import expire_uploads  # noqa: PLC0415

        register_expiry(expire_uploads, to_sweep=False)
        register_expiry(expire_answers, to_sweep=False)
