"""The page of the API tells of every code that a call may answer with, and of no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from access.errors import VerbatimError
from tests.conformance import operations

_PAGE = Path(settings.BASE_DIR) / "docs" / "api.md"


def _errors(root: type[VerbatimError] = VerbatimError) -> Iterator[type[VerbatimError]]:
    yield root
    for below in root.__subclasses__():
        yield from _errors(below)


def _described() -> set[str]:
    found = set[str]()
    for _, _, operation in operations():
        for answer in operation["responses"].values():
            problem = answer.get("content", {}).get("application/problem+json")
            if problem:
                found.update(problem["schema"]["allOf"][1]["properties"]["code"]["enum"])
    # At an address that does not take the method there is no call to describe.
    return found | {"method_not_allowed"}


def rows() -> list[str]:
    by_code = {error.code: error for error in _errors()}
    told = sorted((by_code[code] for code in _described()), key=lambda e: (e.status, e.code))
    return [
        f"| {error.status} | `{error.code}` | {error.meaning()} |"
        f" {', '.join(f'`{name}`' for name in error.own_members)} |"
        for error in told
    ]


def test_every_code_is_on_the_page_and_no_other() -> None:
    table = [line for line in _PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [line for line in table if line[2].isdigit()] == rows()
