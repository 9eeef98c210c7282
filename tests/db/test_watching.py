"""What is said of metrics, on the page and in the rules of alerts, is true of `/metrics`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from django.conf import settings as configured
from django.test import Client
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, Call, Expr, MatrixSelector, VectorSelector
from pytest_django import Settings

from access.durations import HISTOGRAMS, INGESTS, REQUESTS, TOOLS, WAITS, observe
from artifacts.sweeper import sweep
from knowledge.core.types import CitationVerdict
from knowledge.lifecycle.figures import roll_up
from tests.support import admit, ask

pytestmark = pytest.mark.django_db

ROOT = Path(configured.BASE_DIR)
PAGE = (ROOT / "docs" / "operations.md").read_text()
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "config" / "deploy" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
_SUFFIXES = re.compile(r"_(total|bucket|count|sum)$")
_SUFFIXES_OF = {
    "counter": {"_total"},
    "gauge": {""},
    "histogram": {"_bucket", "_count", "_sum"},
}
# Values of labels that a rule may ask for.
_VALUES = {
    "status": {"2xx", "3xx", "4xx", "5xx"},
    "outcome": {"answered", "ingested", "unchanged", "incomplete", "refused", "failed"},
    "attempt": {"first", "again"},
    "state": {"queued", "running", "failed"},
    "verdict": {str(verdict) for verdict in CitationVerdict},
    "reason": {"unsupported_media_type", "secret_found"},
}


@pytest.fixture
def families(blob_root: Path, settings: Settings, client: Client) -> dict[str, Metric]:
    settings.METRICS_ON_LOOPBACK = True
    admit("The zebra pump starts by hand.")
    ask("zebra")
    roll_up()
    sweep()
    labels = {REQUESTS: ("GET", "/", "2xx"), TOOLS: ("fetch", "answered")}
    labels |= {INGESTS: ("ingested",), WAITS: ("first",)}
    assert set(labels) == set(HISTOGRAMS)
    for histogram, of in labels.items():
        observe(histogram, *of, seconds=0.1)
    shown = client.get("/metrics").content.decode()
    return {family.name: family for family in text_string_to_metric_families(shown)}


def test_the_page_tells_of_every_metric_and_of_no_other(families: dict[str, Metric]) -> None:
    told = set(re.findall(r"`(verbatim_\w+)`", PAGE))
    assert told == set(families)
    assert all(family.documentation for family in families.values())


def nodes(rule: dict[str, Any]) -> list[Expr]:
    """Every part of what a rule asks, as Prometheus reads it; fails for what it would not read."""
    found: list[Expr] = []
    promql_parser.walk(promql_parser.parse(rule["expr"]), found.append)
    return found


def selectors(rule: dict[str, Any]) -> list[VectorSelector]:
    return [node for node in nodes(rule) if isinstance(node, VectorSelector)]


def family_of(selector: VectorSelector, families: dict[str, Metric]) -> Metric:
    assert selector.name
    name = selector.name
    return families[name if name in families else _SUFFIXES.sub("", name)]


def test_every_alert_asks_for_what_there_is(families: dict[str, Metric]) -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10
    for rule in RULES:
        asked = selectors(rule)
        assert asked, rule["alert"]
        for selector in asked:
            family = family_of(selector, families)
            suffix = str(selector.name).removeprefix(family.name)
            assert suffix in _SUFFIXES_OF[family.type], f"{rule['alert']}: {selector}"
            for matcher in selector.matchers.matchers:
                words = set(matcher.value.split("|"))
                assert words <= _VALUES[matcher.name], f"{rule['alert']}: {selector}"
        assert rule["labels"]["severity"] in {"page", "ticket"}
        # Somebody is told what to do.
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["action"]


def test_an_alert_looks_at_how_fast_a_count_grows_and_at_no_count(
    families: dict[str, Metric],
) -> None:
    """A count that begins anew, as that of a process does, is no reason to wake somebody."""
    for rule in RULES:
        rated = {
            str(argument.vector_selector)
            for node in nodes(rule)
            if isinstance(node, Call) and node.func.name in {"rate", "increase"}
            for argument in node.args
            if isinstance(argument, MatrixSelector)
        }
        for selector in selectors(rule):
            counts = family_of(selector, families).type != "gauge"
            assert (str(selector) in rated) is counts, f"{rule['alert']}: {selector}"


def test_a_rule_that_prometheus_would_not_read_is_found() -> None:
    for expr in (
        "sum(rate(verbatim_x_total[5m])",
        "sum by tenant (verbatim_x)",
        "rate(verbatim_x)",
    ):
        with pytest.raises(ValueError, match=r"."):
            nodes({"expr": expr})


def test_labels_that_an_alert_groups_by_are_there(families: dict[str, Metric]) -> None:
    for rule in RULES:
        grouped = {
            label
            for node in nodes(rule)
            if isinstance(node, AggregateExpr) and node.modifier
            for label in node.modifier.labels
        } - {"le"}
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        for selector in selectors(rule):
            family = family_of(selector, families)
            labels = {label for sample in family.samples for label in sample.labels}
            if family.samples:
                assert grouped <= labels, rule["alert"]
        # A sum without a grouping has no label left.
        assert named <= (grouped or {"tenant"}), rule["alert"]
