"""Every page can be reached, every link leads somewhere, and every block says what it is."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from tests.pages import (
    ELSEWHERE,
    GIVEN,
    LANGUAGES,
    NOT_RUN,
    PAGES,
    PLACEHOLDERS,
    ROOT,
    Block,
    anchors,
    blocks,
    links,
    name_of,
    output_pattern,
    spans,
    to_run,
)

_NAMES = [name_of(page) for page in PAGES]
_BLOCKS = [block for page in PAGES for block in blocks(page)]


def _leads_to(page: Path, link: str) -> tuple[Path, str]:
    path, _, anchor = link.partition("#")
    return ((page.parent / path).resolve() if path else page), anchor


@pytest.mark.parametrize("page", PAGES, ids=_NAMES)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        target, anchor = _leads_to(page, link)
        assert target.exists(), f"{name_of(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{name_of(page)}: {link} leads out of the clone"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)}: {link} is no heading there"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = PAGES[0]
    linked = {_leads_to(readme, link)[0] for link in links(readme)}
    assert {name_of(page) for page in PAGES[1:]} - {
        str(path.relative_to(ROOT)) for path in linked if path.is_relative_to(ROOT)
    } == set()


def test_every_block_says_what_it_is() -> None:
    """So that what is to be typed can be told from what is to be read, and is run by a test."""
    unsaid = [str(block) for block in _BLOCKS if block.language not in LANGUAGES]
    assert unsaid == [], f"fence these blocks as one of {sorted(LANGUAGES)}"


def test_every_command_is_run_by_a_test() -> None:
    """What is not run where the others are is named with the test that does, or with why not."""
    for table in (ELSEWHERE, NOT_RUN):
        for name, beginning in table:
            found = [b for b in _BLOCKS if b.page == name and b.text.startswith(beginning)]
            assert found, f"{name} has no block that begins with {beginning!r}"
    for (name, _), test in ELSEWHERE.items():
        assert Path(name).name in (ROOT / test).read_text(), f"{test} does not read {name}"
    # Commands are typed where a shell is: everything else is output or a file.
    typed = re.compile(r"(?:[$%>] |>>> |(?:\S+/)?(?:python3?|manage\.py|make|curl|docker|psql) )")
    unsaid = [
        str(block) for block in _BLOCKS if block.language == "text" and typed.match(block.text)
    ]
    assert unsaid == [], "fence these commands as sh"


def test_what_stands_for_something_of_the_readers_is_in_the_page() -> None:
    for name, words in PLACEHOLDERS.items():
        typed = "\n".join(block.text for block in to_run(ROOT / name))
        assert [word for word in words if word not in typed] == []
    assert [name for name in GIVEN if not to_run(ROOT / name)] == []


_SPANS = sorted({(name_of(page), span) for page in PAGES for span in spans(page)})
_TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _words(command: str) -> list[str]:
    """`manage.py embed --tenant T` as its words, whatever stands before it."""
    return command.partition("manage.py ")[2].split()


@pytest.mark.parametrize(
    "command",
    sorted(
        {span for _, span in _SPANS if re.match(r"(\.venv/bin/)?(python )?manage\.py \w", span)}
    ),
)
def test_commands_in_a_sentence_are_commands(command: str) -> None:
    name, *rest = _words(command)
    app = get_commands()[name]
    loaded = app if isinstance(app, BaseCommand) else load_command_class(app, name)
    parser = loaded.create_parser("manage.py", name)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and rest:
            # `golden run|export NAME`: one of several that take the same.
            parser = action.choices[rest[0].partition("|")[0]]
    known = {option for action in parser._actions for option in action.option_strings}
    asked = {word.strip("[]`,").partition("=")[0] for word in rest if "--" in word}
    assert asked - known == set()


def test_the_page_of_commands_has_each_of_ours() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    ours = {
        name
        for name, app in get_commands().items()
        if str(app).partition(".")[0] in {"access", "artifacts", "knowledge", "config"}
    }
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == ours


@pytest.mark.parametrize(
    "target", sorted({t for _, span in _SPANS for t in re.findall(r"^make ([\w-]+)$", span)})
)
def test_targets_in_a_sentence_are_targets(target: str) -> None:
    assert target in _TARGETS


@pytest.mark.parametrize("block", [b for b in _BLOCKS if b.language == "json"], ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", [b for b in _BLOCKS if b.language == "python"], ids=str)
def test_programs_can_be_read(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("1 files: 1 ingested.", "12 files: 3 ingested.\n", True),
        ("1 files: 1 ingested.", "12 files: 3 refused.\n", False),
        ("[kc_...] at 0.91", "[kc_p4fyn4q56ynfmmzm] at 12\n", True),
        ("[kc_...] at 0.91", "[none] at 12\n", False),
        ("first\n...\nlast", "first\na\nb\nlast\n", True),
        ("first\n...\nlast", "first\nlast\nmore\n", False),
        ('{"at": "2026-07-28T00:00:00Z", ...}', '{"at": "2026-11-30T10:55:40.9Z", "x": 1}\n', True),
        ('{"at": "2026-07-28T00:00:00Z", ...}', '{"at": null, "x": 1}\n', False),
        ("kc_p4fyn4q56ynfmmzm", "kc_0000000000000000\n", True),
        ("vk_...", "vk_short\n", False),
    ],
)
def test_the_shape_of_output(shown: str, printed: str, same: bool) -> None:
    assert bool(output_pattern(shown).fullmatch(printed)) is same
