"""Settings to adapters to store: the one place where the parts are put together."""

from __future__ import annotations


def register_read_rules() -> None:
    pass
