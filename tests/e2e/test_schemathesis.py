"""Thousands of requests made from the API's own description, against a running server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.installation import Installation

# What must hold of every answer: none is a failure of ours, and none is undescribed.
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "ignored_auth",
)
_SECONDS = 240


@pytest.mark.long
def test_every_answer_is_described_and_none_is_a_failure_of_ours(
    installation: Installation,
) -> None:
    installation.up_and_serving()
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://localhost:{installation.port}/openapi.json",
            *("--header", f"Authorization: Bearer {installation.demo()['api_key']}"),
            *("--checks", ",".join(_CHECKS)),
            *("--phases", "examples,coverage,fuzzing,stateful"),
            *("--max-time", str(_SECONDS), "--seed", "1", "--continue-on-failure"),
        ],
        capture_output=True,
        text=True,
        timeout=3 * _SECONDS,
        cwd=installation.var.parent,
        check=False,
    )
    print(run.stdout[-20_000:])
    assert run.returncode == 0, run.stdout[-20_000:]
    assert "Test cases:" in run.stdout
