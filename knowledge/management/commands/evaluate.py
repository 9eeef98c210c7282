"""manage.py evaluate: how well the search answers a labelled collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from knowledge.evaluation.collections import Collection
from knowledge.evaluation.progress import figures, progress
from knowledge.wiring import store

_COLUMNS = {
    "nDCG@10": "ndcg_at_10",
    "hit@3": "hit_at_3",
    "hit@3 capped": "hit_at_3_capped",
    "recall@10": "recall_at_10",
    "MRR@10": "mrr_at_10",
    "noise@3": "noise_at_3",
    "passage nDCG@10": "passage_ndcg_at_10",
    "passage hit@3": "passage_hit_at_3",
    "passage recall@3": "passage_recall_at_3",
}


class Command(VerbatimCommand):
    help = "Measures the search on labelled collections, in a tenant that is gone afterwards."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "folders", nargs="+", type=Path, metavar="DIR", help="a collection in the BEIR layout"
        )
        parser.add_argument(
            "--arms",
            nargs="+",
            default=[],
            metavar="ARM",
            help="arms and ablations by name, or 'all'; else every arm",
        )
        parser.add_argument("--queries", type=int, help="at most this many questions")

    def run(self, options: dict[str, Any]) -> None:
        try:
            from knowledge.evaluation.harness import Evaluator  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise CommandError(
                f"Install the extra 'evaluation' ({missing.name} is missing).", returncode=1
            ) from None
        collections = [Collection.at(folder) for folder in options["folders"]]
        with progress(disable=self.as_json) as track:
            for collection in collections:
                told = Evaluator(store(), track).evaluate(
                    collection, arms=options["arms"], queries=options["queries"]
                )
                self.emit(told, _table(told))


def _table(told: dict[str, Any]) -> str:
    refused = f", {len(told['refused'])} refused" if told["refused"] else ""
    title = (
        f"{told['collection']}: {told['documents']} documents{refused}, {told['chunks']} chunks,"
        f" {told['queries']} questions"
    )
    rows = [
        [
            name,
            *(_figure(arm[key]) for key in _COLUMNS.values()),
            f"{arm['latency_ms']['p50']:.1f}",
            f"{arm['latency_ms']['p95']:.1f}",
        ]
        for name, arm in told["arms"].items()
    ]
    return figures(title, ["arm", *_COLUMNS, "p50 ms", "p95 ms"], rows)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
