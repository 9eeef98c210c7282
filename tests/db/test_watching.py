"""What is said of metrics, on the page and in the rules of alerts, is true of `/metrics`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings as configured
from django.test import Client
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
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
_SELECTOR = re.compile(r"(verbatim_\w+)(?:\{([^}]*)\})?")
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


def test_every_alert_asks_for_what_there_is(families: dict[str, Metric]) -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10
    for rule in RULES:
        asked = _SELECTOR.findall(rule["expr"])
        assert asked, rule["alert"]
        for name, selector in asked:
            family = families[name if name in families else _SUFFIXES.sub("", name)]
            suffix = name.removeprefix(family.name)
            assert (
                suffix
                in {
                    "counter": {"_total"},
                    "gauge": {""},
                    "histogram": {"_bucket", "_count", "_sum"},
                }[family.type]
            ), f"{rule['alert']}: {name}"
            for label, words in re.findall(r'(\w+)=~?"([^"]*)"', selector):
                assert set(words.split("|")) <= _VALUES[label], f"{rule['alert']}: {selector}"
        assert rule["labels"]["severity"] in {"page", "ticket"}
        # Somebody is told what to do.
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["action"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_labels_that_an_alert_groups_by_are_there(families: dict[str, Metric]) -> None:
    for rule in RULES:
        grouped = set(re.findall(r"by \((\w+)\)", rule["expr"])) - {"le"}
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        for name, _ in _SELECTOR.findall(rule["expr"]):
            family = families[name if name in families else _SUFFIXES.sub("", name)]
            labels = {label for sample in family.samples for label in sample.labels}
            if family.samples:
                assert grouped <= labels, rule["alert"]
        # A sum without a grouping has no label left.
        assert named <= (grouped or {"tenant"}), rule["alert"]
