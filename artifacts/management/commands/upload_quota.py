"""manage.py upload_quota: shows or changes what a tenant's uploads may take up."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from access.principal import Principal
from access.tenancy import tenant_session
from artifacts.quota import drop_quota, quota_of, set_quota

_LARGEST = 2**63 - 1


class Command(VerbatimCommand):
    help = (
        "Shows what a tenant's uploads may take up, or changes it with --bytes; --default gives the"
        " tenant what UPLOAD_QUOTA_BYTES says again."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose uploads these are")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--bytes", type=int, metavar="N", help="0 is no limit")
        change.add_argument("--default", action="store_true", help="what holds for all tenants")

    def run(self, options: dict[str, Any]) -> None:
        tenant, quota = options["tenant"], options["bytes"]
        if quota is not None and not 0 <= quota <= _LARGEST:
            raise CommandError("--bytes is a number of bytes, or 0 for no limit.", returncode=1)
        operator = Principal.for_operator(tenant, "command")
        if quota is not None:
            set_quota(operator, quota)
        elif options["default"]:
            drop_quota(operator)
        with tenant_session(tenant):
            holds = quota_of(tenant)
        told = f"{holds:,} bytes" if holds else "no limit"
        self.emit({"tenant": tenant, "quota_bytes": holds}, f"{tenant}: {told}")
