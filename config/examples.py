"""An example of every call in the API's description: what was asked once, and what was answered.

`api_examples.json` is recorded from a run of the API (tests/db/test_api_examples.py), so that no
example shows what was never so.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).with_name("api_examples.json")


@cache
def examples() -> dict[str, dict[str, Any]]:
    """By operation id: `request`, `status` and `response`, the bodies being absent where none is."""
    recorded: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
    return recorded


def add_examples(
    result: dict[str, Any],
    generator: Any,  # noqa: ARG001 - drf-spectacular's shape of a hook
    request: Any,  # noqa: ARG001
    public: bool,  # noqa: ARG001
) -> dict[str, Any]:
    for item in result["paths"].values():
        for operation in item.values():
            example = examples().get(operation["operationId"])
            if example is None:
                continue
            if "request" in example:
                for content in operation["requestBody"]["content"].values():
                    content["example"] = example["request"]
            if "response" in example:
                answer = operation["responses"][str(example["status"])]
                answer["content"]["application/json"]["example"] = example["response"]
    return result
