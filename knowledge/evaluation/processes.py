"""Pools of fresh processes that use Django.

A fresh process imports the module of its initializer before anything has set Django up, so this
module imports none of ours.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import django
from django.utils.module_loading import import_string


def pool(
    processes: int, *, database: str, prepare: str = "", given: Any = None
) -> ProcessPoolExecutor:
    """Processes with the parent's database; each begins by calling `prepare`, a dotted name."""
    return ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(database, prepare, given),
    )


def _start(database: str, prepare: str, given: Any) -> None:
    django.setup()
    from django.db import connections  # noqa: PLC0415 - reads the settings

    connections.settings["default"]["NAME"] = database
    if prepare:
        import_string(prepare)(given)
