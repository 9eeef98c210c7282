"""The base of our management commands: text for people, `--json` for programs, honest exits."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access.errors import VerbatimError
from access.principal import Principal
from access.trust import OriginTrust, Scope, Sensitivity


class VerbatimCommand(ABC, BaseCommand):
    """Subclasses implement `run`; a `VerbatimError` becomes a message and exit status 1."""

    requires_system_checks: list[str] = []  # noqa: RUF012 - the framework's shape

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object (a line for each input)"
        )
        self.arguments(parser)

    def arguments(self, parser: CommandParser) -> None:
        """The arguments of the command."""

    def handle(self, *_args: Any, **options: Any) -> None:
        self.as_json = options["json"]
        try:
            self.run(options)
        except VerbatimError as error:
            if self.as_json:
                self.emit(error.problem())
            raise CommandError(f"{error.code}: {error.detail}", returncode=1) from None

    @abstractmethod
    def run(self, options: dict[str, Any]) -> None:
        """The work of the command."""

    def emit(self, value: dict[str, Any], text: str = "") -> None:
        """Prints the object with `--json`, the text otherwise."""
        if self.as_json:
            self.stdout.write(json.dumps(value, ensure_ascii=False, default=str))
        elif text:
            self.stdout.write(text)


def add_caller_arguments(parser: CommandParser) -> None:
    """For whom a command acts: it has the machine, so it is trusted like a person."""
    parser.add_argument("--tenant", required=True, help="the tenant whose corpus this is")
    parser.add_argument("--principal", required=True, help="who acts, and is on record for it")
    parser.add_argument("--project", help="the project on whose behalf")


def caller(options: dict[str, Any]) -> Principal:
    return Principal(
        tenant_id=options["tenant"],
        principal_id=options["principal"],
        scopes=frozenset({Scope.WRITE}),
        projects=None,
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.RESTRICTED,
        surface="command",
    )
