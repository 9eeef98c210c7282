"""manage.py create_api_key: a new key, shown once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from access.commands import VerbatimCommand
from access.models import ApiKey
from access.trust import OriginTrust, Scope, Sensitivity


class Command(VerbatimCommand):
    help = "Creates an API key for a principal and prints it, once."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant that it opens")
        parser.add_argument("--principal", required=True, help="whom it speaks for")
        parser.add_argument("--name", default="", help="what the key is for")
        parser.add_argument(
            "--scope",
            action="append",
            default=[],
            choices=[scope.value for scope in Scope],
            help="repeat for several; searching needs none",
        )
        projects = parser.add_mutually_exclusive_group()
        projects.add_argument(
            "--project", action="append", default=[], help="a project it may name; repeatable"
        )
        projects.add_argument("--all-projects", action="store_true", help="it may name any")
        parser.add_argument(
            "--max-trust",
            default=OriginTrust.EXTERNAL_UNTRUSTED.value,
            choices=[trust.value for trust in OriginTrust],
            help="the highest origin trust it can vouch for; admitting documents needs USER",
        )
        parser.add_argument(
            "--ceiling",
            default=Sensitivity.INTERNAL.value,
            choices=[level.value for level in Sensitivity],
            help="the highest sensitivity it may read",
        )
        parser.add_argument("--surface", default="api", help="what events and traces call its user")
        parser.add_argument(
            "--requests-per-minute", type=int, help="0 is no limit; absent means the common one"
        )
        parser.add_argument("--expires-in-days", type=int, help="never, unless given")

    def run(self, options: dict[str, Any]) -> None:
        days = options["expires_in_days"]
        key, plain = ApiKey.issue(
            tenant_id=options["tenant"],
            principal_id=options["principal"],
            name=options["name"],
            scopes=[Scope(scope) for scope in options["scope"]],
            projects=None if options["all_projects"] else options["project"],
            max_origin_trust=OriginTrust(options["max_trust"]),
            sensitivity_ceiling=Sensitivity(options["ceiling"]),
            surface=options["surface"],
            requests_per_minute=options["requests_per_minute"],
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        )
        self.emit(
            {"api_key": plain, "prefix": key.prefix},
            f"{plain}\nKeep it now: it cannot be shown again.",
        )
