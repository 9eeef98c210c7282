"""Typed readers of environment variables; a wrong value says what to set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

_env = environ.Env()


def text(name: str, default: str) -> str:
    return os.environ.get(name, "").strip() or default


def flag(name: str, *, default: bool) -> bool:
    value = text(name, "true" if default else "false").lower()
    if value not in {"true", "false", "1", "0", "yes", "no", "on", "off"}:
        raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}.")
    return value in {"true", "1", "yes", "on"}


def number(name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    value = text(name, str(default))
    limits = f"from {least} to {most}" if most is not None else f"of at least {least}"
    if not value.isascii() or not value.isdigit():
        raise ImproperlyConfigured(f"{name} must be a whole number {limits}, not {value!r}.")
    if int(value) < least or (most is not None and int(value) > most):
        raise ImproperlyConfigured(f"{name} must be a whole number {limits}, not {value}.")
    return int(value)


def share(name: str, default: float) -> float:
    """From 0 to below 1: `0.25`."""
    value = text(name, str(default))
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise ImproperlyConfigured(f"{name} must be from 0 to below 1, such as 0.25, not {value}.")
    return number


def prefix(name: str) -> str:
    """As it is, with the space that it may end on."""
    return os.environ.get(name, "")


def names(name: str, default: list[str]) -> list[str]:
    value = text(name, "")
    return [part.strip() for part in value.split(",") if part.strip()] if value else default


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = text(name, default)
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(allowed)}, not {value!r}.")
    return value


def folder(name: str, default: Path) -> Path:
    path = Path(text(name, str(default))).expanduser()
    if not path.is_absolute():
        raise ImproperlyConfigured(f"{name} must be an absolute path, not {str(path)!r}.")
    return path


def web_address(
    name: str, default: str, *, what: str = "people open, such as https://verbatim.example.org"
) -> str:
    """A scheme and a host, without a path: `https://verbatim.example.org`."""
    value = text(name, default).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path or parts.query:
        raise ImproperlyConfigured(f"{name} must be the address {what}, not {value!r}.")
    return value


def database(name: str, default: str) -> dict[str, Any]:
    value = text(name, default)
    # Never quoted in the message: it holds a password.
    problem = ImproperlyConfigured(
        f"{name} must look like postgresql://user:password@host:5432/database "
        "(or postgresql://user@/database?host=/socket/folder)."
    )
    if urlsplit(value).scheme not in {"postgres", "postgresql"}:
        raise problem
    try:
        parsed: dict[str, Any] = _env.db_url_config(value)
    except ValueError:
        raise problem from None
    if not parsed.get("NAME"):
        raise problem
    return parsed


def redis_server(name: str, default: str) -> str:
    value = text(name, default)
    parts = urlsplit(value)
    if parts.scheme not in {"redis", "rediss", "unix"} or not (parts.hostname or parts.path):
        raise ImproperlyConfigured(
            f"{name} must look like redis://host:6379/0, rediss://host:6379/0 or "
            "unix:///path/of/the.sock."
        )
    return value
