"""PDF to text with headings and pages, each kind that broke others as a file made here."""

from __future__ import annotations

import io
import re
from typing import cast

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from knowledge.adapters.extractors import PdfExtractor, parsed
from knowledge.core.errors import (
    EmptyExtraction,
    EncryptedDocument,
    Refused,
    TooMuchText,
    UnreadableDocument,
)
from knowledge.core.types import ExtractedDocument, Heading
from tests.documents import lines, pdf, read_here

PDF = "application/pdf"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed, "read", read_here)


def extract(content: bytes) -> ExtractedDocument:
    return PdfExtractor().extract(content, media_type=PDF, charset=None)


def line_at(found: ExtractedDocument, heading: Heading) -> str:
    return found.text[heading.start :].split("\n")[0]


class TestPages:
    def test_each_page_begins_where_it_says(self) -> None:
        found = extract(
            pdf(*(lines(f"{n} page of three in all.") for n in ("First", "Second", "Third")))
        )
        starts = found.structure.page_starts
        assert [found.text[start:].split("\n")[0] for start in starts] == [
            "First page of three in all.",
            "Second page of three in all.",
            "Third page of three in all.",
        ]
        assert found.media_type == PDF
        assert found.warnings == ()

    def test_a_larger_gap_between_lines_ends_a_paragraph(self) -> None:
        body = [*lines("One begins", "and goes on", "to here."), *lines("Two.", y=640)]
        assert extract(pdf(body)).text == "One begins\nand goes on\nto here.\n\nTwo."

    def test_pages_without_text_are_named(self) -> None:
        found = extract(
            pdf(lines("Words enough for one page."), [], lines("And for this."), [], [])
        )
        assert found.warnings[0] == "pages_without_text: 2, 4, 5"
        assert len(found.structure.page_starts) == 5

    def test_pages_that_hold_a_stamp_alone_are_named(self) -> None:
        found = extract(pdf(*[lines("COPY")] * 4))
        assert found.warnings == ("pages_with_little_text: 1-4",)

    @pytest.mark.parametrize("pages", [([], [], []), (lines("   "),)])
    def test_no_text_layer_at_all_is_refused(self, pages: tuple[list[str], ...]) -> None:
        with pytest.raises(EmptyExtraction, match="text layer") as refused:
            extract(pdf(*pages))  # type: ignore[arg-type]
        assert refused.value.members == {"reason": "no_text_layer", "pages": len(pages)}

    @pytest.mark.parametrize("rotate", [90, 180, 270])
    def test_rotated_pages_read_upright(self, rotate: int) -> None:
        content = pdf(lines("Roll back by restoring", "the previous tag."), rotate=rotate)
        assert extract(content).text == "Roll back by restoring\nthe previous tag."

    @pytest.mark.parametrize("matrix", ["0 1 -1 0", "0 -1 1 0", "-1 0 0 -1"])
    def test_turned_text_reads_in_order(self, matrix: str) -> None:
        assert (
            extract(pdf([(300, 300, "Service Building")], matrix=matrix)).text == "Service Building"
        )

    def test_the_same_bytes_give_the_same_text(self) -> None:
        content = pdf(*[lines(*(f"Line {n} of it" for n in range(30))) for _ in range(3)])
        assert extract(content) == extract(content)


LEFT = (
    "The committee read the yearly",
    "depot report and asked the north",
    "to count lanterns twice.",
)
RIGHT = (
    "Approved budgets for the coming",
    "season are listed by the quarry",
    "desk under its heading.",
)
HEIGHTS = (700, 686, 672)


class TestColumns:
    def by_row(self) -> list[tuple[float, float, str]]:
        return [
            (x, y, text)
            for y, left, right in zip(HEIGHTS, LEFT, RIGHT, strict=True)
            for x, text in ((60, left), (330, right))
        ]

    def test_two_columns_drawn_row_by_row_are_put_one_after_the_other(self) -> None:
        found = extract(pdf(self.by_row()))
        assert found.text == "\n".join(LEFT) + "\n\n" + "\n".join(RIGHT)
        assert found.warnings == ("columns_reordered: 1",)

    def test_what_stands_above_and_below_columns_stays_there(self) -> None:
        around = [(60.0, 740.0, "A headline"), *self.by_row(), (60.0, 640.0, "A closing line.")]
        text = extract(pdf(around)).text
        assert text.startswith("A headline\n")
        assert text.endswith("A closing line.")
        assert "\n".join(LEFT) in text

    def test_columns_drawn_one_after_the_other_stay(self) -> None:
        drawn = [(60.0, y, text) for y, text in zip(HEIGHTS, LEFT, strict=True)]
        drawn += [(330.0, y, text) for y, text in zip(HEIGHTS, RIGHT, strict=True)]
        found = extract(pdf(drawn))
        assert found.text == "\n".join(LEFT) + "\n\n" + "\n".join(RIGHT)
        assert found.warnings == ()

    def test_the_rows_of_a_table_stay_rows(self) -> None:
        rows = [
            ("Valve", "open"),
            ("Pump", "closed until spring"),
            ("Relay", "amber"),
            ("Bay", "3"),
        ]
        drawn = [
            (x, 700 - 14 * number, cell)
            for number, row in enumerate(rows)
            for x, cell in zip((60, 330), row, strict=True)
        ]
        assert extract(pdf(drawn)).text.splitlines() == [" ".join(row) for row in rows]


class TestHeadings:
    def test_come_from_the_outline_and_stand_at_their_lines(self) -> None:
        content = pdf(
            lines("Guide", "Words.", "Rollback", "Revert the tag."),
            lines("Setup", "Install it."),
            outline=[("Guide", 1, 0, 740), ("Rollback", 2, 0, None), ("Setup", 1, 1, None)],
        )
        found = extract(content)
        headings = found.structure.headings
        assert [(h.title, h.level) for h in headings] == [
            ("Guide", 1),
            ("Rollback", 2),
            ("Setup", 1),
        ]
        assert [line_at(found, heading) for heading in headings] == ["Guide", "Rollback", "Setup"]

    def test_of_two_lines_that_say_it_the_one_that_is_pointed_at(self) -> None:
        content = pdf(
            lines("Setup", "as in the header", "Other", "Setup", "Install it."),
            outline=[("Setup", 1, 0, 690)],
        )
        found = extract(content)
        assert found.text[found.structure.headings[0].start :] == "Setup\nInstall it."

    def test_a_number_before_the_title_and_another_case_are_no_hindrance(self) -> None:
        content = pdf(
            lines("Words before.", "2.1  ROLLBACK", "Revert."), outline=[("Rollback", 1, 0, None)]
        )
        found = extract(content)
        assert line_at(found, found.structure.headings[0]) == "2.1  ROLLBACK"

    def test_a_title_that_the_page_does_not_say_is_where_it_points(self) -> None:
        content = pdf(
            lines("First.", "Second.", "Third."),
            outline=[("Elsewhere", 1, 0, 706), ("Top", 1, 0, None)],
        )
        found = extract(content)
        assert line_at(found, found.structure.headings[0]) == "Second."

    def test_an_outline_that_goes_in_circles_ends(self) -> None:
        content = pdf(
            lines("Alpha", "Words."), outline=[("Alpha", 1, 0, None), ("Beta", 1, 0, None)]
        )
        writer = PdfWriter(clone_from=io.BytesIO(content))
        outline = cast("DictionaryObject", writer.root_object["/Outlines"])
        last = cast("DictionaryObject", outline["/Last"])
        last[NameObject("/Next")] = outline.raw_get("/First")
        looping = io.BytesIO()
        writer.write(looping)
        found = extract(looping.getvalue())
        assert "Words." in found.text
        assert [heading.title for heading in found.structure.headings][:2] == ["Alpha", "Beta"]


class TestCharacters:
    def test_ligatures_stay_as_they_are(self) -> None:
        content = pdf(lines("O\x03ce con\x01guration"), to_unicode={1: "FB01", 3: "FB03"})
        assert extract(content).text == "Oﬃce conﬁguration"

    @pytest.mark.parametrize("target", ["0000", "0007", "D83D", "DE00"])
    def test_what_is_no_character_becomes_a_replacement_with_a_warning(self, target: str) -> None:
        found = extract(pdf(lines("status \x01 words enough ok"), to_unicode={1: target}))
        assert found.text == "status \ufffd words enough ok"
        assert found.warnings == ("characters_replaced: 1",)

    def test_codes_that_nothing_maps_are_replaced_as_well(self) -> None:
        found = extract(pdf(lines("the con\x01guration of it all"), to_unicode={2: "0041"}))
        assert found.text == "the con\ufffdguration of it all"

    @pytest.mark.parametrize("pair", [{1: "D83DDE00"}, {1: "D83D", 2: "DE00"}])
    def test_a_surrogate_pair_is_one_character(self, pair: dict[int, str]) -> None:
        text = "status \x01 ok" if len(pair) == 1 else "status \x01\x02 ok"
        assert extract(pdf(lines(text), to_unicode=pair)).text == "status \U0001f600 ok"


class TestRefusals:
    @pytest.mark.parametrize(
        "content",
        [
            pdf(lines("Words."), password="opens"),
            pdf(lines("Words."), password="", owner_password="restricts"),
        ],
        ids=["password", "owner password only"],
    )
    def test_encrypted_the_same_at_inspection_and_at_extraction(self, content: bytes) -> None:
        for read in (extract, PdfExtractor().inspect):
            with pytest.raises(EncryptedDocument):
                read(content)

    def test_a_cipher_that_is_not_installed_is_encrypted_too(self) -> None:
        content = pdf(lines("Words."), password="", owner_password="restricts")
        aes = content.replace(b"/V 2", b"/V 5").replace(b"/R 3", b"/R 6")
        assert aes != content
        with pytest.raises((EncryptedDocument, UnreadableDocument)):
            extract(aes)

    @pytest.mark.parametrize(
        "content",
        [
            b"%PDF-1.7\n",
            b"%PDF-1.7\n" + bytes(range(256)) * 20,
            pdf(lines("Words."))[:300],
            pdf(),
        ],
        ids=["header", "noise", "cut off", "no pages"],
    )
    def test_unreadable(self, content: bytes) -> None:
        for read in (extract, PdfExtractor().inspect):
            with pytest.raises(UnreadableDocument):
                read(content)

    def test_pages_in_a_circle(self) -> None:
        content = pdf(lines("Words."))
        circle = re.sub(rb"/Kids \[ \d+ 0 R \]", b"/Kids [ 1 0 R ]", content)
        assert circle != content
        with pytest.raises(Refused):
            extract(circle)

    def test_a_cross_reference_table_that_follows_itself(self) -> None:
        content = pdf(lines("Words in it."))
        start = content.rindex(b"xref\n0")
        looping = content.replace(b"trailer\n<<", b"trailer\n<<\n/Prev %d" % start)
        assert extract(looping).text == "Words in it."

    def test_white_space_before_the_header(self) -> None:
        assert extract(b"  \n" + pdf(lines("Words."))).text == "Words."


def with_a_bomb(content: bytes) -> bytes:
    """The PDF with a first page that unpacks to 80 MB."""
    writer = PdfWriter(clone_from=io.BytesIO(content))
    stream = DecodedStreamObject()
    stream.set_data(b" " * 80_000_000)
    writer.pages[0][NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    bomb = io.BytesIO()
    writer.write(bomb)
    assert bomb.tell() < 200_000
    return bomb.getvalue()


def test_a_page_that_unpacks_to_too_much_is_left_out() -> None:
    found = extract(with_a_bomb(pdf(lines("Words."), lines("More words, enough of them."))))
    assert found.text.strip() == "More words, enough of them."
    assert found.warnings == ("pages_unreadable: 1",)
    with pytest.raises(TooMuchText):
        extract(with_a_bomb(pdf(lines("Words."))))


def test_inspection_counts_the_pages() -> None:
    assert PdfExtractor().inspect(pdf([], lines("a"), [])) == 3


def test_what_the_file_says_of_itself() -> None:
    info = {"Title": "Relay Guide", "Author": "A. Writer", "CreationDate": "D:20250102030405Z"}
    found = extract(pdf(lines("Words."), info=info))
    assert found.metadata == {
        "title": "Relay Guide",
        "author": "A. Writer",
        "producer": "pypdf",
        "date": "2025-01-02",
    }
    changed = extract(pdf(lines("Words."), info={**info, "ModDate": "D:20260708"}))
    assert changed.metadata["date"] == "2026-07-08"
