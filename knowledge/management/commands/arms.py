"""manage.py arms: shows or switches which arms of the search a tenant has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.arms import ArmTrial
from knowledge.core.errors import NoEmbedder
from knowledge.core.fusion import SEMANTIC
from knowledge.evaluation.collections import Collection
from knowledge.evaluation.progress import progress
from knowledge.models import ArmSwitch
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Shows which arms of the search a tenant has beside the lexical one. --enable measures one"
        " on a labelled collection first, in a tenant that is gone afterwards, and refuses without"
        " a lift."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose corpus this is")
        change = parser.add_mutually_exclusive_group()
        change.add_argument(
            "--enable", choices=[SEMANTIC], metavar="ARM", help="measure it, and switch it on"
        )
        change.add_argument("--disable", choices=[SEMANTIC], metavar="ARM", help="without a reason")
        parser.add_argument(
            "--collection",
            type=Path,
            metavar="DIR",
            help="documents like the tenant's and questions that they answer, in the BEIR layout",
        )
        parser.add_argument("--queries", type=int, help="at most this many questions")

    def run(self, options: dict[str, Any]) -> None:
        tenant, folder = options["tenant"], options["collection"]
        if bool(options["enable"]) != (folder is not None):
            raise CommandError("--enable and --collection go together.", returncode=1)
        operator = Principal.for_operator(tenant, "command")
        if options["enable"]:
            if store().filler is None:
                raise NoEmbedder
            trial = self._trial(options["enable"], Collection.at(folder), options["queries"])
            if not self.as_json:
                self.stdout.write(_told(trial))
            store().enable_arm(trial, operator)
        elif options["disable"]:
            store().disable_arm(options["disable"], operator)
        with tenant_session(tenant):
            switch = ArmSwitch.objects.filter(tenant_id=tenant, arm=SEMANTIC).first()
        enabled = bool(switch and switch.enabled)
        figures = switch.figures if switch else {}
        self.emit(
            {
                "tenant": tenant,
                "arms": {SEMANTIC: {"enabled": enabled, "figures": figures or None}},
            },
            f"The {SEMANTIC} arm of {tenant} is {'on' if enabled else 'off'}.",
        )

    def _trial(self, arm: str, collection: Collection, queries: int | None) -> ArmTrial:
        try:
            from knowledge.evaluation.arms import ArmEvaluator  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise CommandError(
                f"Install the extra 'evaluation' ({missing.name} is missing).", returncode=1
            ) from None
        with progress(disable=self.as_json) as track:
            return ArmEvaluator(store(), track).trial(arm, collection, queries=queries)


def _told(trial: ArmTrial) -> str:
    return (
        f"{trial.collection}, {trial.questions} questions: nDCG@10"
        f" {trial.without['ndcg_at_10']:.3f} without the arm and"
        f" {trial.with_arm['ndcg_at_10']:.3f} with it, an answer among the first three for"
        f" {trial.without['hit_at_3']:.0%} and {trial.with_arm['hit_at_3']:.0%}.\nOf"
        f" {trial.unanswerable} turns without an answer {trial.disturbed_without} and"
        f" {trial.disturbed_with} were shown passages."
    )
