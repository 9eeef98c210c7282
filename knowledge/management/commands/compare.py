"""manage.py compare: ours against what a user would pick instead, and the floor of the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from knowledge.evaluation.collections import Collection
from knowledge.evaluation.progress import figures, progress
from knowledge.wiring import store

_PRINTED_STEP = 5
Table = Callable[[str, Sequence[str], Sequence[Sequence[str]]], str]


class Command(VerbatimCommand):
    help = (
        "Ranks labelled collections by ours, by stock Django search and by other libraries, on "
        "the same chunks, in a tenant that is gone afterwards."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "folders", nargs="+", type=Path, metavar="DIR", help="a collection in the BEIR layout"
        )
        parser.add_argument("--queries", type=int, help="at most this many questions of each")
        parser.add_argument(
            "--floor",
            action="store_true",
            help="also ask what no collection answers, and say which min_score tells them apart",
        )
        parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")

    def run(self, options: dict[str, Any]) -> None:
        try:
            from knowledge.evaluation import peers  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise CommandError(
                f"Install the extra 'evaluation' ({missing.name} is missing).", returncode=1
            ) from None
        table: Table = markdown if options["markdown"] else figures
        collections = [Collection.at(folder) for folder in options["folders"]]
        compared = []
        with progress(disable=self.as_json) as track:
            comparer = peers.Comparer(store(), track)
            for collection in collections:
                told = comparer.compare(
                    collection,
                    queries=options["queries"],
                    foreign=(
                        peers.foreign_questions(collection, collections)
                        if options["floor"]
                        else None
                    ),
                )
                scores = told.pop("best_scores", None)
                compared.append((told, scores))
                self.emit(told, _systems(told, table))
        if len(compared) > 1 and not self.as_json:
            self.stdout.write(_together([told for told, _ in compared], table))
        if options["floor"]:
            floor = peers.floor_of({told["collection"]: scores for told, scores in compared})
            self.emit(floor, _floor(floor, table))


def _systems(told: dict[str, Any], table: Table) -> str:
    """A table for each kind of thing that is judged: documents, and passages where quotes are."""
    refused = f", {len(told['refused'])} refused" if told["refused"] else ""
    title = (
        f"{told['collection']}: {told['documents']} documents{refused}, {told['chunks']} chunks,"
        f" {told['queries']} questions"
    )
    tables = []
    for kind, parts in told["systems"]["ours"].items():
        columns = [f"{kind}, nDCG@10 / recall@3"]
        columns += [f"{part} ({value['queries']})" for part, value in parts.items()]
        rows = [
            [name, *map(_pair, judged[kind].values())] for name, judged in told["systems"].items()
        ]
        tables.append(table(title, columns, rows))
    notes = [
        f"Left out: {name}, for {module} is not installed."
        for name, module in told["missing"].items()
    ]
    return "\n".join([*tables, *notes])


def _together(compared: Sequence[dict[str, Any]], table: Table) -> str:
    """Every collection in one table, and how far ours is from the best of the others."""
    judged = [
        (f"{told['collection']}, {kind}", {n: v[kind]["all"] for n, v in told["systems"].items()})
        for told in compared
        for kind in told["systems"]["ours"]
    ]
    names = list(dict.fromkeys(name for _, systems in judged for name in systems))
    rows = [
        [name, *(_pair(systems[name]) if name in systems else "" for _, systems in judged)]
        for name in names
    ]
    rows.append(["ours less the best other", *(_lead(systems) for _, systems in judged)])
    return table("All questions", ["nDCG@10 / recall@3", *(name for name, _ in judged)], rows)


def _lead(systems: dict[str, dict[str, Any]]) -> str:
    ours = systems["ours"]
    others = [value for name, value in systems.items() if name != "ours"]
    return " / ".join(
        f"{ours[key] - max(other[key] for other in others):+.3f}"
        for key in ("ndcg_at_10", "recall_at_3")
    )


def _floor(floor: dict[str, Any], table: Table) -> str:
    names = list(floor["separation"])
    rows = [
        [
            f"{point['floor']:.2f}",
            *(
                f"{one['kept']:.2f} / {one['dropped']:.2f}"
                for one in (*(point["collections"][name] for name in names), point)
            ),
        ]
        for number, point in enumerate(floor["curve"])
        if number % _PRINTED_STEP == 0 or point["floor"] == floor["default"]
    ]
    told = [floor["separation"][name] for name in names]
    known = [value for value in told if value is not None]
    told.append(sum(known) / len(known) if known else None)
    rows.append(["separation", *("" if value is None else f"{value:.3f}" for value in told)])
    shown = table(
        "Answerable questions kept / foreign ones dropped", ["floor", *names, "mean"], rows
    )
    default = floor["default"]
    return f"{shown}\nDefault: {default:.2f}" if default is not None else shown


def _pair(value: dict[str, Any]) -> str:
    if value["ndcg_at_10"] is None:
        return ""
    return f"{value['ndcg_at_10']:.3f} / {value['recall_at_3']:.3f}"


def markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown under its title."""
    lines = [columns, ["---"] * len(columns), *rows]
    return f"{title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
