"""Our block tokens are those of `markdown-it-py`'s own parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from knowledge.core.markdown_blocks import DEEPEST_NESTING, block_tokens
from tests.unit.test_chunking import document

Told = tuple[str, str, int, list[int] | None, str]

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("tests/corpus/documents/*.md")])


def as_the_library_does(text: str) -> list[Told]:
    parser = MarkdownIt("commonmark", {"maxNesting": DEEPEST_NESTING}).enable("table")
    tokens: list = []  # type: ignore[type-arg]
    parser.block.parse(text, parser, {}, tokens)
    return told(tokens)


def told(tokens: list) -> list[Told]:  # type: ignore[type-arg]
    """What structure is made of: of a paragraph that it is there, of a heading what it says."""
    kept: list[Told] = []
    for number, token in enumerate(tokens):
        of_heading = number > 0 and tokens[number - 1].type == "heading_open"
        if token.type == "inline" and of_heading:
            kept.append((token.type, token.tag, token.level, None, token.content))
        elif token.type not in {"inline", "paragraph_close"}:
            kept.append((token.type, token.tag, token.level, token.map, ""))
    return kept


@settings(deadline=None, max_examples=200)
@given(document)
def test_documents(text: str) -> None:
    assert told(block_tokens(text)) == as_the_library_does(text)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(
        st.sampled_from(
            [
                *("\n", "\n\n", "\n ", "\n  ", "\n   ", "\n    ", "\n\t", "\n     ", " ", "\t"),
                *("> ", ">", "- ", "-", "* ", "+ ", "1. ", "2) ", "1234567890. ", "# ", "#", "## "),
                *("```", "~~~~", "===", "---", "***", "___", "|", "|-|", "| a | b |", ":-"),
                *("<div>", "<!--", "-->", "<pre>", "</pre>", "<a>", "[a]: /x", "[a]:", '"t"', "]"),
                *("a", "word", "\\", "\r", "\x0c", "\u2028", "\xa0", "\u3000", "é"),
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_any_mix_of_marks(text: str) -> None:
    assert told(block_tokens(text)) == as_the_library_does(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "\n", "a\n ", "a\n\n  ", "\ta", "- a\n\tb", "a\n\t---", ">\ta\n>\n>b"),
        "> a\nb\n===\n> - c\nd\n    e",
        "- a\n  b\n  ---\n- c\n\n  d\n# e",
        "1. a\n   > b\n   c\n2. d\n10. e\n  - f\n    g\n    ===",
        "a\n1. no list\n2. either\n\n1. a list\nb",
        "[a]: /x\n'title\ngoes on'\n[b]: <y> z\n[c]\n: no",
        "| a | b |\n| - | - |\n| c |\n> d\n\na | b\n:-|-:\nc\n# e",
        "<div>\n# no\n\n# yes\n<!-- a\n\nb -->\nc\n<b>\nd",
        ">" * 70 + " deep\n" + "".join("  " * n + "- x\n" for n in range(70)),
        "a\n    ===\n   ===\nb\n= =\n--- \t\n",
        "# a #\n####### b\n#c\n#\n## d ## \n   # e\n    # f",
        "``` a`b\n```\n~~~ a`b\n```\n~~~\n  ```\n x\n   ```",
    ],
)
def test_cases(text: str) -> None:
    assert told(block_tokens(text)) == as_the_library_does(text)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_our_own_pages(path: Path) -> None:
    text = path.read_text()
    assert told(block_tokens(text)) == as_the_library_does(text)
