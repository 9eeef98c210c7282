"""manage.py preturn: shows or switches a tenant's automatic recall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.preturn import Trial
from knowledge.evaluation.collections import Collection
from knowledge.evaluation.progress import progress
from knowledge.models import PreturnPolicy
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Shows whether a tenant has automatic recall. --enable measures it on a labelled"
        " collection first, in a tenant that is gone afterwards, and refuses without a gain."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose corpus this is")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--enable", action="store_true", help="measure it, and switch it on")
        change.add_argument("--disable", action="store_true", help="without a reason")
        parser.add_argument(
            "--collection",
            type=Path,
            metavar="DIR",
            help="documents like the tenant's, questions that they answer and turns that they do"
            " not, in the BEIR layout",
        )
        parser.add_argument("--queries", type=int, help="at most this many questions")

    def run(self, options: dict[str, Any]) -> None:
        tenant, folder = options["tenant"], options["collection"]
        if options["enable"] != (folder is not None):
            raise CommandError("--enable and --collection go together.", returncode=1)
        operator = Principal.for_operator(tenant, "command")
        if options["enable"]:
            trial = self._trial(Collection.at(folder), options["queries"])
            if not self.as_json:
                self.stdout.write(_told(trial))
            store().enable_preturn(trial, operator)
        elif options["disable"]:
            store().disable_preturn(operator)
        with tenant_session(tenant):
            policy = PreturnPolicy.objects.filter(tenant_id=tenant).first()
        enabled = bool(policy and policy.enabled)
        figures = policy.figures if policy else {}
        self.emit(
            {"tenant": tenant, "enabled": enabled, "figures": figures or None},
            f"Automatic recall of {tenant} is {'on' if enabled else 'off'}.",
        )

    def _trial(self, collection: Collection, queries: int | None) -> Trial:
        try:
            from knowledge.evaluation.preturn import PreturnEvaluator  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise CommandError(
                f"Install the extra 'evaluation' ({missing.name} is missing).", returncode=1
            ) from None
        with progress(disable=self.as_json) as track:
            return PreturnEvaluator(store(), track).trial(collection, queries=queries)


def _told(trial: Trial) -> str:
    turns = ", ".join(
        f"{trial.disturbed.get(kind, 0)} of {count} ({kind.replace('_', ' ')})"
        for kind, count in trial.unanswerable.items()
    )
    return (
        f"{trial.collection}, floor {trial.floor:.2f}: of {trial.answerable} questions"
        f" {trial.recalled} were given passages and {trial.answered} one that answers"
        f" ({trial.recall:.0%}).\nOf turns without an answer were given passages: {turns}."
    )
