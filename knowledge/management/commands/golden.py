"""manage.py golden: run a golden set, write it into a folder, or read one from a folder."""

from __future__ import annotations

from argparse import SUPPRESS
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from access.commands import VerbatimCommand
from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Sensitivity
from knowledge.evaluation.golden import export_set, import_set
from knowledge.models import GoldenRun, GoldenSet
from knowledge.retrieval.acting import Viewpoint
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = "Runs a golden set, exports it as a folder that `evaluate` reads, or imports one."

    def arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        run = what.add_parser("run", help="ask its questions now and tell the figures")
        export = what.add_parser("export", help="write it with the documents that it may find")
        imported = what.add_parser("import", help="make one of a folder's questions")
        for each in (run, export, imported):
            each.add_argument("name", help="of the golden set")
            each.add_argument("--tenant", required=True, help="the tenant whose set it is")
            # After the word as well as before it.
            each.add_argument("--json", action="store_true", default=SUPPRESS, help=SUPPRESS)
        for each in (export, imported):
            each.add_argument("folder", type=Path, help="in the BEIR layout")
        imported.add_argument("--principal", required=True, help="through whose eyes it is asked")
        imported.add_argument("--project", help="on whose behalf")
        imported.add_argument(
            "--ceiling",
            default=Sensitivity.INTERNAL.value,
            choices=[level.value for level in Sensitivity],
        )

    def run(self, options: dict[str, Any]) -> None:
        operator = replace(Principal.for_operator(options["tenant"], "command"), surface="command")
        match options["what"]:
            case "run":
                self._run(options["name"], operator)
            case "export":
                told = export_set(options["name"], operator, options["folder"])
                stale = f"; {len(told.stale)} stale ones are not in it" if told.stale else ""
                self.emit(
                    asdict(told),
                    f"{told.questions} questions and {told.documents} documents{stale}.",
                )
            case "import":
                viewpoint = Viewpoint(
                    principal_id=options["principal"],
                    current_scope=options["project"],
                    sensitivity_ceiling=Sensitivity(options["ceiling"]),
                )
                taken = import_set(store(), options["name"], viewpoint, operator, options["folder"])
                left = ", ".join(taken.unplaced)
                self.emit(
                    asdict(taken),
                    f"{taken.questions} questions."
                    + (f" Nothing here holds the words that answer {left}." if left else ""),
                )

    def _run(self, name: str, operator: Principal) -> None:
        with tenant_session(operator.tenant_id):
            golden = GoldenSet.objects.filter(name=name).first()
        if golden is None:
            raise NotFound
        begun = store().begin_golden_run(golden.pk, operator)
        store().run_golden_set(begun.pk)
        with tenant_session(operator.tenant_id):
            run = GoldenRun.objects.get(pk=begun.pk)
        told = {
            name: getattr(run, name)
            for name in (
                *("state", "asked", "found", "stale"),
                *("recall_at_3", "noise_at_3", "mrr_at_10", "policy"),
            )
        }
        self.emit(told, ", ".join(f"{name} {value}" for name, value in told.items()))
