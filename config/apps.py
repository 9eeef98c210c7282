from __future__ import annotations

from django.apps import AppConfig

from config.celery import app as celery_app

__all__ = ["ConfigConfig", "celery_app"]


class ConfigConfig(AppConfig):
    """Loaded first; by importing the Celery application it makes it the one of all shared tasks."""

    name = "config"
    label = "config"
    verbose_name = "Verbatim"
