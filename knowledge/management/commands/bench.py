"""manage.py bench: how fast ingest and search are here, in tenants of their own."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access.commands import VerbatimCommand
from knowledge.evaluation import (
    admin_pages,
    bench,
    contention,
    generate,
    growth,
    history,
    load,
    scans,
)
from knowledge.evaluation.collections import documents_of
from knowledge.evaluation.progress import figures, progress
from knowledge.evaluation.throwaway import checked, remove_tenant, throw_away_tenant
from knowledge.wiring import store


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Labelled JSON lines, which may be kept from plain view as one base64 text."""
    content = path.read_bytes()
    if path.suffix == ".b64":
        content = base64.b64decode(content)
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def ordinary_texts(collection: Path) -> list[str]:
    return [document.text for document in documents_of(collection / "corpus.jsonl")]


# What else `bench search` measures.
_ALSO = ("cold", "http", "curve", "peers", "meaning")


class Command(VerbatimCommand):
    help = "Measures ingest and search; what it writes is in tenants named bench-..."

    def arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="kind", required=True, metavar="WHAT")
        ingest = kinds.add_parser("ingest", help="admit files, folders and collections")
        ingest.add_argument("paths", nargs="+", type=Path, metavar="PATH")
        search = kinds.add_parser("search", help="latency and overlap with exhaustive scoring")
        search.add_argument("--questions", type=int, default=150)
        search.add_argument("--clients", type=int, default=1, help="processes asking at once")
        search.add_argument("--curve", action="store_true", help="overlap at several budgets")
        search.add_argument(
            "--meaning",
            action="store_true",
            help="with the semantic arm too: all is embedded first",
        )
        search.add_argument("--http", action="store_true", help="through a web process as well")
        search.add_argument("--peers", action="store_true", help="OR + ts_rank and tantivy as well")
        search.add_argument(
            "--cold", action="store_true", help="the first answers too: you emptied the caches"
        )
        writers = kinds.add_parser("writers", help="whether ingests at once wait for each other")
        writers.add_argument("paths", nargs="+", type=Path, metavar="PATH")
        writers.add_argument("--writers", type=int, nargs="+", default=[1, 4])
        writers.add_argument("--documents", type=int, default=40, help="by each writer")
        grow = kinds.add_parser("growth", help="bytes and latency at several sizes of a corpus")
        sizes = [1_000, 10_000, 50_000]
        grow.add_argument(
            "--sizes",
            nargs="+",
            type=int,
            default=sizes,
            metavar="CHUNKS",
            help="of one tenant each, the smallest first",
        )
        grow.add_argument("--questions", type=int, default=60, help="asked twice by each viewer")
        write = kinds.add_parser("generate", help="fill a tenant with generated chunks")
        write.add_argument("--past", action="store_true", help="with events, searches and jobs")
        write.add_argument("--drop", action="store_true", help="remove the tenant instead")
        plan = kinds.add_parser("explain", help="statements and plan of a search")
        plan.add_argument("query")
        plan.add_argument("--viewer", choices=["tenant_wide", "one_percent"], default="tenant_wide")
        pages = kinds.add_parser("admin", help="statements and time of every page of the admin")
        pages.add_argument("--visits", type=int, default=3, help="of each page")
        loaded = kinds.add_parser("load", help="many requests at once to a web process")
        loaded.add_argument("--url", help="of a running installation, instead of one of our own")
        loaded.add_argument("--key-file", type=Path, help="holds an API key of it, and no more")
        loaded.add_argument("--clients", type=int, default=4, help="asking at once")
        until = loaded.add_mutually_exclusive_group()
        until.add_argument("--seconds", type=float, default=60)
        until.add_argument("--requests", type=int, help="instead of so many seconds")
        loaded.add_argument("--warm-up", type=int, default=500, help="requests that do not count")
        loaded.add_argument(
            "--writes",
            type=float,
            default=0.0,
            metavar="SHARE",
            help="of the requests upload, admit, cite or delete: 0.2 is one in five",
        )
        labelled = kinds.add_parser("scans", help="the scanners on labelled JSON lines")
        labelled.add_argument("--secrets", type=Path, help="a .b64 file is decoded first")
        labelled.add_argument("--instructions", type=Path)
        labelled.add_argument(
            "--ordinary",
            nargs="+",
            type=Path,
            default=[],
            metavar="DIR",
            help="collections whose documents must not be flagged",
        )
        for one in (search, write, plan, pages, loaded):
            one.add_argument("--tenant", help="bench-...: filled by `generate`, and kept")
        for one in (search, write, pages, loaded):
            one.add_argument("--chunks", type=int, default=20_000)
            one.add_argument(
                "--copies", type=int, default=1, help="write a part, and copy it until it is all"
            )
        for one in (search, write, pages, loaded, grow):
            one.add_argument(
                "--from",
                dest="sources",
                nargs="+",
                type=Path,
                default=[],
                metavar="PATH",
                help="files, folders or collections: paragraphs to mix, questions to ask",
            )
            one.add_argument("--processes", type=int, default=os.cpu_count() or 1)
        for one in kinds.choices.values():
            one.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, options: dict[str, Any]) -> None:
        getattr(self, f"_{options['kind']}")(options)

    def _ingest(self, options: dict[str, Any]) -> None:
        missing = [path for path in options["paths"] if not path.exists()]
        if missing:
            raise CommandError(f"There is no file or folder {missing[0]}.", returncode=1)
        with progress(disable=self.as_json) as track:
            told = bench.bench_ingest(store(), options["paths"], track)
        self.emit(told, _ingest_table(told))

    def _search(self, options: dict[str, Any]) -> None:
        with self._filled(options) as (tenant_id, generated):
            with progress(disable=self.as_json) as track:
                told = bench.bench_search(
                    store(),
                    tenant_id,
                    questions=options["questions"],
                    clients=options["clients"],
                    also=bench.Conditions(**{name: options[name] for name in _ALSO}),
                    sources=options["sources"],
                    track=track,
                )
            told["generated"] = generated
            self.emit(told, _search_table(told))

    def _load(self, options: dict[str, Any]) -> None:
        amount = load.Amount(
            clients=options["clients"],
            seconds=None if options["requests"] else options["seconds"],
            requests=options["requests"],
            warm_up=options["warm_up"],
            writes=options["writes"],
        )
        if not 0 <= amount.writes <= 1:
            raise CommandError("A share is a number from 0 to 1 (--writes).", returncode=1)
        if options["url"]:
            if not options["key_file"]:
                raise CommandError("Name a file that holds a key (--key-file).", returncode=1)
            target = load.Target(
                url=options["url"].rstrip("/"), key=options["key_file"].read_text().strip()
            )
            told = load.load(target, load.anybody_s_questions(options["sources"]), amount)
            self.emit(told, _load_table(told))
            return
        with self._filled(options) as (tenant_id, generated):
            viewer = bench.viewers(tenant_id)[bench.WHOLE]
            told = load.bench_load(viewer, amount, options["sources"])
            told["generated"] = generated
            self.emit(told, _load_table(told))

    def _admin(self, options: dict[str, Any]) -> None:
        with self._filled(options) as (tenant_id, generated):
            if generated:
                generated["past"] = history.remember(tenant_id)
            with progress(disable=self.as_json) as track:
                told = admin_pages.bench_admin(tenant_id, track, visits=options["visits"])
            told["generated"] = generated
            self.emit(told, _pages_table(told))

    def _writers(self, options: dict[str, Any]) -> None:
        told = contention.bench_writers(
            options["paths"], writers=options["writers"], documents=options["documents"]
        )
        rows = [
            [
                str(number),
                str(run["documents_a_second"]),
                f"{run['looks_with_a_writer_waiting']}/{run['looks']}",
                str(run["longest_wait_seen_ms"]),
                str(run["merged"]["deltas"]),
                str(run["merged"]["statistics"]),
            ]
            for number, run in told["writers"].items()
        ]
        columns = ["writers", "documents/s", "waiting", "longest wait ms", "deltas", "statistics"]
        self.emit(told, figures("Writers of one tenant at once", columns, rows))

    def _growth(self, options: dict[str, Any]) -> None:
        with progress(disable=self.as_json) as track:
            told = growth.bench_growth(
                store(),
                options["sizes"],
                sources=options["sources"],
                questions=options["questions"],
                processes=options["processes"],
                track=track,
            )
        self.emit(told, _growth_table(told))

    def _generate(self, options: dict[str, Any]) -> None:
        tenant_id = checked(options["tenant"] or f"bench-{options['chunks']}")
        if options["drop"]:
            remove_tenant(tenant_id)
            self.emit({"tenant": tenant_id, "removed": True}, f"{tenant_id} is gone.")
            return
        told = self._write(tenant_id, options)
        if options["past"]:
            told["past"] = history.remember(tenant_id)
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in told.items()]
        self.emit(told, "\n".join(lines))

    def _explain(self, options: dict[str, Any]) -> None:
        if not options["tenant"]:
            raise CommandError("Name a tenant that `generate` has filled (--tenant).", returncode=1)
        viewer = bench.viewers(checked(options["tenant"]))[options["viewer"]]
        told = bench.explain(store(), viewer, options["query"])
        statements = [
            f"{one['milliseconds']:8.2f} ms  {one['statement']}" for one in told["statements"]
        ]
        self.emit(told, "\n".join([*statements, "", *told["plan"]]))

    def _scans(self, options: dict[str, Any]) -> None:
        ingestor = store().ingestor
        ordinary = [text for corpus in options["ordinary"] for text in ordinary_texts(corpus)]
        if options["secrets"]:
            secrets = scans.measure_secrets(
                rows_of(options["secrets"]), ordinary, ingestor.secret_scanner
            )
            self.emit({"secrets": asdict(secrets)}, f"{secrets}")
        if options["instructions"]:
            instructions = scans.measure_instructions(
                rows_of(options["instructions"]), ordinary, ingestor.instruction_scanner
            )
            self.emit({"instructions": asdict(instructions)}, f"{instructions}")

    @contextlib.contextmanager
    def _filled(self, options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """A tenant that `generate` filled before, or one for the length of the block."""
        if options["tenant"]:
            yield checked(options["tenant"]), None
            return
        with throw_away_tenant("bench") as tenant_id:
            yield tenant_id, self._write(tenant_id, options)

    def _write(self, tenant_id: str, options: dict[str, Any]) -> dict[str, Any]:
        with progress(disable=self.as_json) as track:
            return generate.generate(
                tenant_id,
                options["chunks"],
                options["sources"],
                processes=options["processes"],
                copies=options["copies"],
                track=track,
            )


def _ingest_table(told: dict[str, Any]) -> str:
    title = (
        f"{told['documents']} documents, {told['chunks']} chunks, {told['megabytes']} MB in"
        f" {told['seconds']} s: {told['mb_per_second']:.2f} MB/s,"
        f" {told['chunks_per_second']:.0f} chunks/s, peak {told['peak_rss_mb']:.0f} MB."
        f" Tokenising alone {told['tokenising_alone_mb_per_second']:.1f} MB/s."
        f" Refused: {told['refused'] or 'none'}."
    )
    rows = [
        [name, f"{step['seconds']:.2f}", f"{step['share']:.1%}", f"{step['mb_per_second']:.1f}"]
        for name, step in told["steps"].items()
    ]
    return figures(title, ["step", "seconds", "share", "MB/s"], rows)


def _search_table(told: dict[str, Any]) -> str:
    rows = []
    for name, viewer in told["viewers"].items():
        times = {"warm": viewer["latency_ms"]}
        times |= {
            kind: viewer[f"{kind}_ms"]
            for kind in ("cold", "http", "meaning")
            if f"{kind}_ms" in viewer
        }
        times |= viewer.get("peers_ms", {})
        for kind, spread in times.items():
            overlap = f"{viewer['overlap_at_10']:.3f}" if kind == "warm" else ""
            figures_of = (f"{spread[key]:.1f}" for key in ("p50", "p95", "max"))
            rows.append([name, f"{viewer['chunks']:,}", kind, *figures_of, overlap])
    columns = ["viewer", "chunks", "", "p50 ms", "p95 ms", "max ms", "overlap@10"]
    lines = [figures(f"{told['questions']} questions, {told['clients']} at once", columns, rows)]
    if of := told.get("embedding"):
        lines.append(
            f"{of['passages']:,} passages embedded in {of['seconds']} s: {of['passages_per_second']}"
            f" a second; a question takes {of['question_ms']} ms, the graph"
            f" {of['graph_bytes'] / 1e6:.1f} MB."
        )
    for name, viewer in told["viewers"].items():
        if curve := viewer.get("overlap_by_budget"):
            lines.append(f"{name}: " + ", ".join(f"{b:,}: {share}" for b, share in curve.items()))
    return "\n".join(lines)


def _load_table(told: dict[str, Any]) -> str:
    title = (
        f"{told['requests']:,} requests of {told['clients']} clients in {told['seconds']} s:"
        f" {told['requests_per_second']} a second, {told['error_rate']:.3%} failed."
    )
    of_kinds = {"all": {"requests": told["requests"], **told["latency_ms"]}}
    rows = [
        [kind, f"{of['requests']:,}", *(f"{of[key]:.1f}" for key in ("p50", "p95", "p99", "max"))]
        for kind, of in (of_kinds | told["latency_ms_by_kind"]).items()
    ]
    columns = ["", "requests", "p50 ms", "p95 ms", "p99 ms", "max ms"]
    lines = [title, figures("", columns, rows)]
    lines += [f"failed: {times} x {what}" for what, times in told["errors"].items()]
    for name, of in (told["process"] or {}).items():
        lines.append(
            f"{name.replace('_mb', ', MB')}: {of['after_warm_up']} after {told['warm_up']} requests,"
            f" {of['at_end']} at the end, {of['most']} at most"
        )
    return "\n".join(lines)


def _growth_table(told: dict[str, Any]) -> str:
    rows, tables = [], []
    for size in told["sizes"]:
        chunks, text = size["chunks"], size["text_bytes"]
        table, indexes = (
            sum(grown[kind] for grown in size["tables"].values()) for kind in ("table", "indexes")
        )
        spread = [size["latency_ms"][name] for name in ("tenant_wide", "one_percent")]
        rows.append(
            [
                f"{chunks:,}",
                *(f"{number / chunks:,.0f}" for number in (text, table, indexes)),
                f"{(table + indexes) / text:.1f}" if text else "",
                *(f"{one['p50']:.0f} / {one['p95']:.0f}" for one in spread),
                f"{size['bytes_left_by_a_search']:,}",
                f"{size['peak_rss_mb']:.0f}",
            ]
        )
        for name, grown in size["tables"].items():
            of_each = (f"{grown[kind] / chunks:,.0f}" for kind in ("table", "indexes"))
            tables.append([f"{chunks:,}", name, *of_each])
    columns = [
        *("chunks", "text B", "tables B", "indexes B", "of text"),
        *("whole p50/p95 ms", "1 % p50/p95 ms", "B a search", "peak MB"),
    ]
    return "\n".join(
        [
            figures("Bytes a chunk, and how it is searched", columns, rows),
            figures("By table, a chunk", ["chunks", "table", "table B", "indexes B"], tables),
        ]
    )


def _pages_table(told: dict[str, Any]) -> str:
    rows = [
        [
            page["page"],
            str(page["status"]),
            str(page["queries"]),
            f"{page['milliseconds']['p50']:.0f}",
            f"{page['milliseconds']['max']:.0f}",
            f"{page['bytes']:,}",
        ]
        for page in told["pages"]
    ]
    columns = ["page", "status", "queries", "p50 ms", "max ms", "bytes"]
    slow = [
        line for page in told["pages"] for line in (page["page"], *page["slow"]) if page["slow"]
    ]
    return "\n".join([figures(f"The admin of {told['tenant']}", columns, rows), *slow])
