from __future__ import annotations

from datetime import date

import pytest

from knowledge.core.structure import (
    LONGEST_FRONT_MATTER,
    LONGEST_HEADING,
    Lines,
    Section,
    front_matter,
    front_matter_end,
    sections,
)
from knowledge.core.types import Heading, Structure

NOTHING = Structure()


def outline(
    text: str, media_type: str = "text/markdown", structure: Structure = NOTHING
) -> list[Section]:
    return sections(Lines(text), media_type=media_type, structure=structure)


def contents(
    text: str, media_type: str = "text/markdown", structure: Structure = NOTHING
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Each section that has text, as its path and its blocks."""
    return [
        (section.path, [text[block.start : block.end] for block in section.blocks])
        for section in outline(text, media_type, structure)
        if section.blocks
    ]


class TestFrontMatter:
    @pytest.mark.parametrize(
        ("written", "day"),
        [
            ("2026-05-02", date(2026, 5, 2)),
            ("'2026-05-02'", date(2026, 5, 2)),
            ("2026-05-02T23:30:00-07:00", date(2026, 5, 2)),
            ("2026-05-02T23:30:00Z", date(2026, 5, 2)),
            ("2026-05-02 00:10:00 +14:00", date(2026, 5, 2)),
            ("2026-02-30", None),
            ("2026-13-01T00:00:00Z", None),
            ("0000-01-01", None),
            ("2 May 2026", None),
            ("20260502", None),
            ("[2026-05-02]", None),
            ("", None),
        ],
    )
    def test_a_date_is_the_day_as_written(self, written: str, day: date | None) -> None:
        assert front_matter(f"---\ndate: {written}\n---\ntext").doc_date == day

    @pytest.mark.parametrize(
        ("written", "title"),
        [
            ("Plain", "Plain"),
            ('"With: colon"', "With: colon"),
            ("2026-02-30", "2026-02-30"),
            (">\n  folded\n  over lines", "folded over lines"),
            ("[a, b]", None),
            ("", None),
        ],
    )
    def test_a_title_is_text_whatever_it_looks_like(self, written: str, title: str | None) -> None:
        found = front_matter(f"---\ntitle: {written}\n---\ntext")
        assert found.title == title
        assert found.readable

    @pytest.mark.parametrize(
        "text",
        [
            "---\ntitle: x\n---\n",
            "---\ntitle: x\n...\nrest",
            "---  \r\ntitle: x\r\n---\r\nrest",
            "---\n# a comment\ntitle: x\n---",
            '---\n"quoted key": 1\n---\n',
        ],
    )
    def test_is_found(self, text: str) -> None:
        end = front_matter(text).end
        assert text[end:] in {"", "rest"}
        assert end == front_matter_end(text)

    @pytest.mark.parametrize(
        "text",
        [
            "---\n\nA thematic break.\n\n---\n",
            "---\n---\n",
            "---\nA sentence without a key\n---\n",
            "---\n- a list: yes\n---\n",
            "---\ntitle: never closed\n",
            " ---\ntitle: indented\n---\n",
            "\n---\ntitle: not in the first line\n---\n",
            "----\ntitle: four dashes\n----\n",
            "---\nlong: " + "x" * LONGEST_FRONT_MATTER + "\n---\n",
        ],
    )
    def test_is_not_found(self, text: str) -> None:
        assert front_matter(text).end == 0
        assert front_matter_end(text) == 0

    @pytest.mark.parametrize(
        "yaml",
        [
            "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
            "title: a: b: c",
            "title: [unclosed",
            "a: " + "[" * 500,
            "title: 'x'\n\tdate: tab",
        ],
    )
    def test_what_cannot_be_read_is_still_no_text(self, yaml: str) -> None:
        found = front_matter(f"---\n{yaml}\n---\ntext")
        assert (found.title, found.doc_date, found.readable) == (None, None, False)
        assert found.end > 0

    def test_building_objects_is_not_possible(self) -> None:
        found = front_matter("---\ntitle: !!python/object/apply:os.getcwd []\n---\n")
        assert found.title is None


class TestMarkdown:
    def test_headings_open_sections_by_level(self) -> None:
        text = "a\n# A\na\n### B\nb\n### C\nc\n## D\nd\n###### E\ne\n# F\nf\n"
        assert [path for path, _ in contents(text)] == [
            (),
            ("A",),
            ("A", "B"),
            ("A", "C"),
            ("A", "D"),
            ("A", "D", "E"),
            ("F",),
        ]

    def test_a_file_may_begin_at_any_level(self) -> None:
        assert [path for path, _ in contents("#### X\nx\n## Y\ny\n### Z\nz")] == [
            ("X",),
            ("Y",),
            ("Y", "Z"),
        ]

    @pytest.mark.parametrize(
        ("text", "title"),
        [
            ("Title\n=====\n\ntext", "Title"),
            ("Two\nlines\n---\ntext", "Two lines"),
            ("## Closed ##\ntext", "Closed"),
            ("   ## Indented\ntext", "Indented"),
            ("# A `code` *word* #1\ntext", "A `code` *word* #1"),
        ],
    )
    def test_what_is_a_heading(self, text: str, title: str) -> None:
        assert contents(text) == [((title,), ["text"])]

    @pytest.mark.parametrize(
        "text",
        [
            "```sh\n# comment\n## more\n```",
            "~~~\n# comment\n\n# unclosed",
            "    # indented code",
            "#NoSpace",
            "####### seven",
            "\\# escaped",
            "> # quoted",
            "- # in an item",
            "<div>\n# in html\n</div>",
            "<!--\n\n# in a comment\n\n-->",
            "# " + "x" * (LONGEST_HEADING + 1) + "\n\ntext",
            "#\n\ntext",
            "##   ##\n\ntext",
            "\n***\n",
        ],
    )
    def test_what_is_no_heading(self, text: str) -> None:
        assert {path for path, _ in contents(text)} == {()}

    def test_a_heading_above_nothing_is_text_of_its_parent(self) -> None:
        text = "# A\na\n## Empty\n## B\nb\n## Last"
        assert contents(text) == [
            (("A",), ["a"]),
            (("A",), ["## Empty"]),
            (("A", "B"), ["b"]),
            (("A",), ["## Last"]),
        ]
        assert contents("# Alone") == [((), ["# Alone"])]
        assert contents("# A\n## B") == [(("A",), ["## B"])]

    def test_list_items_are_blocks_of_their_own(self) -> None:
        text = "intro\n\n- one\n  more\n\n- two\n  - nested\n\nafter"
        assert contents(text) == [
            ((), ["intro", "- one\n  more", "- two\n  - nested", "after"]),
        ]

    def test_other_blocks_are_whole(self) -> None:
        blocks = [
            "para\ngraph",
            "| a | b |\n| - | - |\n| 1 | 2 |",
            "> quote\n>\n> more",
            "```\ncode\n\n\ncode\n```",
            "<div>\nhtml\n</div>",
            "    indented\n\n    code",
            "***",
        ]
        assert contents("\n\n".join(blocks)) == [((), blocks)]

    def test_a_link_definition_belongs_to_the_block_before_it(self) -> None:
        assert contents("see [a]\n\n[a]: /x\n[b]: /y\n\nnext") == [
            ((), ["see [a]\n\n[a]: /x\n[b]: /y", "next"])
        ]
        assert contents("# A\n\n[a]: /x\n\ntext") == [(("A",), ["[a]: /x", "text"])]
        assert contents("[a]: /x") == [((), ["[a]: /x"])]

    def test_lines_end_at_line_feeds_alone(self) -> None:
        text = "one\rstill one\x0bone\u2028one\n# Two\ntwo\x85two\x0ctwo"
        assert contents(text) == [
            ((), ["one\rstill one\x0bone\u2028one"]),
            (("Two",), ["two\x85two\x0ctwo"]),
        ]

    def test_text_below_the_deepest_nesting_is_kept(self) -> None:
        quote = ">" * 50_000 + " deep"
        items = "\n".join("  " * depth + f"- item{depth}" for depth in range(300))
        text = f"{quote}\n\n{items}\n\n# Not lost\n\nend"
        kept = "".join(block for _, blocks in contents(text) for block in blocks)
        assert "deep" in kept
        assert all(f"item{depth}" in kept for depth in range(300))
        assert "end" in kept

    def test_front_matter_is_no_text(self) -> None:
        assert contents("---\ntitle: x\n---\n\n# A\n\ntext") == [(("A",), ["text"])]


class TestPlainText:
    @pytest.mark.parametrize("media_type", ["text/plain", "text/csv", "application/json"])
    def test_paragraphs_and_no_headings(self, media_type: str) -> None:
        text = "# not a heading\nkey = 1\n\nAlpha\n-----\n\n\n- item\n"
        assert contents(text, media_type) == [
            ((), ["# not a heading\nkey = 1", "Alpha\n-----", "- item"])
        ]

    def test_an_outline_opens_sections(self) -> None:
        text = "front\nOne\nfirst\n\nTwo  words\nsecond\nthird\n"
        structure = Structure(
            headings=(
                Heading(title="One", level=1, start=text.index("One")),
                Heading(title="Two words", level=2, start=text.index("Two")),
                Heading(title="Not printed", level=1, start=text.index("third")),
            )
        )
        assert contents(text, "application/pdf", structure) == [
            ((), ["front"]),
            (("One",), ["first"]),
            (("One", "Two words"), ["second"]),
            (("Not printed",), ["third"]),
        ]
        found = outline(text, "application/pdf", structure)
        assert [section.heading is None for section in found] == [True, False, False, True]

    def test_several_headings_may_point_to_one_place(self) -> None:
        structure = Structure(
            headings=tuple(
                Heading(title=title, level=level, start=0)
                for title, level in (("A", 1), ("B", 2), ("C", 2), (" ", 3))
            )
        )
        assert contents("words", "application/pdf", structure) == [(("A", "C"), ["words"])]

    def test_an_outline_beyond_the_end_points_into_the_last_line(self) -> None:
        structure = Structure(headings=(Heading(title="A", level=1, start=99),))
        assert contents("front\nwords", "application/pdf", structure) == [
            ((), ["front"]),
            (("A",), ["words"]),
        ]
