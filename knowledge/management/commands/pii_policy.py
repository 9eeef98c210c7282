"""manage.py pii_policy: shows or changes what a tenant does about personal data."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.adapters.pii import known_countries
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.types import Verdict
from knowledge.models import PiiPolicy
from knowledge.wiring import store

_VERDICTS = (Verdict.QUARANTINE, Verdict.REJECT)


class Command(VerbatimCommand):
    help = (
        "Shows a tenant's policy for passages with personal data, or changes it with --detect or"
        " --off. It holds for what is admitted from then on."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose corpus this is")
        change = parser.add_mutually_exclusive_group()
        change.add_argument(
            "--detect",
            action="append",
            metavar="DETECTOR[=VERDICT]",
            help=f"{', '.join(Detector)}; {' or '.join(_VERDICTS)} (quarantine when not said);"
            " repeat it for more. What is not named is off",
        )
        change.add_argument("--off", action="store_true", help="look for nothing")
        parser.add_argument(
            "--country",
            action="append",
            default=[],
            metavar="CODE",
            help="whose national ids are looked for, and whose telephone numbers are known without"
            f" a country code: {' '.join(known_countries())}",
        )

    def run(self, options: dict[str, Any]) -> None:
        tenant = options["tenant"]
        if options["detect"] or options["off"]:
            rules = PiiRules(
                verdicts=dict(_detector(word) for word in options["detect"] or ()),
                countries=tuple(code.upper() for code in options["country"]),
            )
            store().set_pii_policy(rules, Principal.for_operator(tenant, "command"))
        elif options["country"]:
            raise CommandError("--country goes with --detect.", returncode=1)
        with tenant_session(tenant):
            policy = PiiPolicy.objects.filter(tenant_id=tenant).first()
        verdicts = policy.verdicts if policy else {}
        countries = policy.countries if policy else []
        told = {
            "tenant": tenant,
            "detectors": {str(name): verdicts.get(name, "off") for name in Detector},
            "countries": countries,
            "version": policy.rules().version if policy and verdicts else None,
        }
        lines = [f"{name:12} {verdict}" for name, verdict in told["detectors"].items()]
        self.emit(told, "\n".join([*lines, f"countries    {', '.join(countries) or '–'}"]))


def _detector(word: str) -> tuple[Detector, Verdict]:
    name, _, verdict = word.partition("=")
    known = {str(detector): detector for detector in Detector}
    if name not in known or (verdict and verdict not in _VERDICTS):
        raise CommandError(
            f"--detect {word}: a detector is one of {', '.join(Detector)}, a verdict"
            f" {' or '.join(_VERDICTS)}.",
            returncode=1,
        )
    return known[name], Verdict(verdict) if verdict else Verdict.QUARANTINE
