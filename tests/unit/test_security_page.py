"""The threat model names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings

_PAGE = Path(settings.BASE_DIR) / "docs" / "security.md"
_ROW = re.compile(r"^\| (?P<risk>(?:LLM|API)\d+)[^|]*\|[^|]*\|(?P<shown>[^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = [
    (match["risk"], _TEST.findall(match["shown"])) for match in _ROW.finditer(_PAGE.read_text())
]


def test_every_risk_of_both_lists_has_its_row() -> None:
    expected = [f"LLM{n:02}" for n in range(1, 11)] + [f"API{n}" for n in range(1, 11)]
    assert [risk for risk, _ in ROWS] == expected


@pytest.mark.parametrize(("risk", "tests"), ROWS, ids=[risk for risk, _ in ROWS])
def test_a_row_names_tests_that_there_are(risk: str, tests: list[tuple[str, str]]) -> None:
    assert tests, risk
    for file, name in tests:
        tree = ast.parse((Path(settings.BASE_DIR) / "tests" / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in defined, f"{risk}: {file} has no {name}"
