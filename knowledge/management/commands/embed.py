"""manage.py embed: gives vectors to what has none, and switches to another model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.progress import Progress, TaskID

from access.commands import VerbatimCommand
from access.principal import Principal
from knowledge.core.types import EmbedReport
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = (
        "Embeds the passages of a tenant that have no vector, or one of another title, by every"
        " model that is set up. Can be stopped and run again. --switch makes NEXT_EMBEDDER the"
        " model of every search, once no passage of any tenant lacks a vector of it."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose corpus this is")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--switch", action="store_true", help="then switch to the next model")
        change.add_argument(
            "--drop-retired",
            action="store_true",
            help="delete the vectors of models that were switched away from",
        )

    def run(self, options: dict[str, Any]) -> None:
        operator = Principal.for_operator(options["tenant"], "command")
        if options["drop_retired"]:
            dropped = dict(store().drop_retired_models(operator))
            self.emit({"dropped": dropped}, f"{sum(dropped.values()):,} vectors are gone.")
            return
        with Progress(disable=self.as_json, transient=True) as bars:
            reports = store().embed(operator, on_progress=_shown(bars))
        failures = [report for report in reports if report.failure]
        switched = None
        if options["switch"] and not failures:
            switched = store().switch_model(operator)
        self.emit(
            {
                "tenant": options["tenant"],
                "models": [asdict(report) for report in reports],
                "switched_to": switched,
            },
            "\n".join(
                [
                    *(
                        f"{report.model}: {report.embedded:,} passages embedded,"
                        f" {report.missing:,} left."
                        for report in reports
                    ),
                    *([f"Searches read {switched} from now on."] if switched else []),
                ]
            ),
        )
        if failures:
            raise CommandError(
                f"The embedder failed ({failures[0].failure}); run this again to go on.",
                returncode=1,
            )


def _shown(bars: Progress) -> Callable[[EmbedReport], None]:
    tasks: dict[str, TaskID] = {}

    def show(report: EmbedReport) -> None:
        whole = report.embedded + report.missing
        if report.model not in tasks:
            tasks[report.model] = bars.add_task(report.model, total=whole)
        bars.update(tasks[report.model], completed=report.embedded)

    return show
