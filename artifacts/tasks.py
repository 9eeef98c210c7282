"""Background work on bytes."""

from __future__ import annotations

from dataclasses import asdict

from celery import shared_task
from django.db import OperationalError

from artifacts import sweeper


@shared_task(name="artifacts.sweep", autoretry_for=(OperationalError,), max_retries=3)
def sweep(by: str = "beat") -> dict[str, int]:
    return asdict(sweeper.sweep(by=by))
