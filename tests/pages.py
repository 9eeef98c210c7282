"""The README and the pages below docs/, as what they ask a reader to type and where they lead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(settings.BASE_DIR)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

LANGUAGES = frozenset({"sh", "python", "json", "text"})
"""What a block may be: commands, a program, JSON, or anything else, output included."""

ELSEWHERE: dict[tuple[str, str], str] = {
    # One by one, because they do not end by themselves.
    ("README.md", "python manage.py migrate"): "tests/e2e/test_pages.py",
    ("docs/backup.md", ""): "tests/db/test_backup.py",
    ("docs/agent-loop.md", ""): "tests/e2e/test_client.py",
    ("docs/mcp.md", "claude mcp add"): "tests/e2e/test_mcp.py",
}
"""Blocks that another test runs, by page and beginning; no beginning is all of a page."""

NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "make run"): "it installs first; what it starts is started for these tests",
    ("docs/mcp.md", "from agents import Agent"): "needs openai-agents, which is no part of this",
}
"""Blocks that no test runs, and why."""

_KEY = """VERBATIM_KEY=$(.venv/bin/python manage.py create_api_key --tenant demo --principal alice \\
  --scope knowledge.write --max-trust USER --all-projects | head -n 1)
export VERBATIM_KEY
"""
_ADMIT = "--tenant demo --principal alice --visibility tenant --json"
_ID = """ | .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["document_id"])'"""

GIVEN: dict[str, str] = {
    "docs/client.md": _KEY + "echo 'Press the big red button.' > runbook.md\n",
    "docs/mcp.md": _KEY,
    "docs/deletion.md": f"""
echo 'The wombat leaves tomorrow.' > wombat.md
WOMBAT=$(.venv/bin/python manage.py ingest wombat.md {_ADMIT}{_ID})
.venv/bin/python manage.py delete_document "$WOMBAT" --tenant demo --principal alice --reason page
.venv/bin/python manage.py sweep
""",
    "docs/evidence.md": """
export WORKSPACE_ROOT="$PWD/workspace"
mkdir -p workspace/reports
echo 'all is well' > workspace/reports/run.log
""",
    "docs/versions.md": f"""
{_KEY}
KEY=$VERBATIM_KEY URL=http://localhost:$PORT
echo 'The pump is green.' > pump.md
ID=$(.venv/bin/python manage.py ingest pump.md {_ADMIT}{_ID})
""",
}
"""What a page takes as given, as commands: variables that it names, files that it speaks of."""

PLACEHOLDERS: dict[str, dict[str, str]] = {
    "docs/sizing.md": {"1000 10000 50000": "50 100", "FOLDER": "tests/corpus/documents"},
    "docs/deletion.md": {"DOCUMENT_ID": '"$WOMBAT"', "ORIGINAL.md": "wombat.md"},
}
"""Words of a page that stand for something of the reader's, and what they are in the test."""

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_NOT_OF_AN_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code. `line` is 1-based; `language` is empty where the page does not say.

    `status` is the exit status that an `sh` block ends with (`sh status=1`), and `shows` what the
    page shows as its output, the `text` block right after it.
    """

    page: str
    line: int
    language: str
    text: str
    status: int = 0
    shows: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The path that a program's first line says it is kept under: `# house/rules.py`."""
        named = re.match(r"# ([\w/]+\.py)\n", self.text)
        return named[1] if named and self.language == "python" else None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def _parsed(page: Path) -> tuple[Token, ...]:
    return tuple(_MARKDOWN.parse(page.read_text()))


def blocks(page: Path) -> list[Block]:
    """In order; what an `sh` block shows is with it and no block of its own."""
    found: list[Block] = []
    before: Token | None = None
    for token in _parsed(page):
        if token.type in {"fence", "code_block"}:
            language, _, rest = token.info.strip().partition(" ")
            shown = before is not None and before.type == "fence" and language == "text"
            if shown and found[-1].language == "sh" and found[-1].shows is None:
                last = found.pop()
                found.append(_block(page, before, last.text, last.status, token.content))
            else:
                status = int(rest.removeprefix("status=") or 0)
                found.append(_block(page, token, token.content, status))
        before = token
    return found


def _named_in(table: dict[tuple[str, str], str], block: Block) -> bool:
    return any(page == block.page and block.text.startswith(beginning) for page, beginning in table)


def to_run(page: Path) -> list[Block]:
    """The commands and programs of a page that nothing else runs."""
    return [
        block
        for block in blocks(page)
        if block.language in {"sh", "python"}
        and not _named_in(ELSEWHERE, block)
        and not _named_in(NOT_RUN, block)
    ]


def _block(
    page: Path, token: Token | None, text: str, status: int, shows: str | None = None
) -> Block:
    assert token is not None
    assert token.map is not None
    return Block(
        page=name_of(page),
        line=token.map[0] + 1,
        language=token.info.split(" ")[0].strip(),
        text=text,
        status=status,
        shows=shows,
    )


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them; the second of a name is `name-1`."""
    found = Counter[str]()
    made = set[str]()
    for opening, inline in pairwise(_parsed(page)):
        if opening.type == "heading_open":
            words = "".join(child.content for child in inline.children or ())
            anchor = _NOT_OF_AN_ANCHOR.sub("", words.strip().lower()).replace(" ", "-")
            made.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
            found[anchor] += 1
    return made


def links(page: Path) -> Iterator[str]:
    """The targets of all links and pictures, as they are written."""
    for token in _parsed(page):
        for child in token.children or ():
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            if target:
                yield str(target)


def spans(page: Path) -> Iterator[str]:
    """What stands as code amid a sentence."""
    for token in _parsed(page):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def output_pattern(shown: str) -> re.Pattern[str]:
    """What output has to look like to be of the shape that a page shows.

    Words are as they are shown. Numbers, instants, ids and keys are any of their kind, `...` in a
    line is anything there, and a line that is `...` alone is any number of lines.
    """
    lines = []
    for line in shown.rstrip("\n").split("\n"):
        if line.strip() in {"...", "…"}:
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append("".join(_pieces(line.rstrip())) + r"[ ]*\n")
    return re.compile("".join(lines))


_KINDS = {
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "chunk": r"\bkc_[0-9a-z]{16}",
    "key": r"\bvk_[\w-]{40,}",
    "sha256": r"\b[0-9a-f]{64}\b",
    "instant": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)",
    "day": r"\d{4}-\d\d-\d\d",
    "number": r"\d+(?:[.,]\d+)*",
}
_PIECE = re.compile(
    r"(?P<any>\.\.\.|…)|" + "|".join(f"(?P<{name}>{kind})" for name, kind in _KINDS.items())
)
# A shortened id says what it is and no more.
_SHORT = {"kc_...": _KINDS["chunk"], "vk_...": _KINDS["key"]}


def _pieces(line: str) -> Iterator[str]:
    at = 0
    for piece in _PIECE.finditer(line):
        before = line[at : piece.start()]
        short = piece.lastgroup == "any" and before[-3:] in {"kc_", "vk_"}
        yield re.escape(before[:-3] if short else before)
        if short:
            yield _SHORT[f"{before[-3:]}..."]
        else:
            yield ".*?" if piece.lastgroup == "any" else _KINDS[str(piece.lastgroup)]
        at = piece.end()
    yield re.escape(line[at:])
