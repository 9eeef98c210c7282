from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core.chunking import StructureChunker, require_chunks
from knowledge.core.errors import EmptyExtraction, UnknownProfile
from knowledge.core.normalising import normalise
from knowledge.core.profiles import (
    CHAT,
    DEFAULT,
    PROFILES,
    REFERENCE,
    Blocks,
    ChunkingProfile,
    profile_named,
)
from knowledge.core.structure import front_matter_end
from knowledge.core.types import ChunkDraft, Heading, Structure

MARKDOWN = "text/markdown"
PLAIN = "text/plain"
CSV = "text/csv"
NOTHING = Structure()

counter = TiktokenCounter()
chunker = StructureChunker(counter)
# The profiles, and each kind of block with sizes at which a few words fill a chunk.
SMALL = ChunkingProfile("small", target=24, ceiling=40, floor=8)
SMALL_PROFILES = [SMALL, *(replace(SMALL, label=f"small-{b}", blocks=b) for b in Blocks)]


def chunk(
    text: str,
    media_type: str = MARKDOWN,
    structure: Structure = NOTHING,
    profile: ChunkingProfile = DEFAULT,
    by: StructureChunker = chunker,
) -> list[ChunkDraft]:
    drafts = by.chunk(text, title="", media_type=media_type, structure=structure, profile=profile)
    check(text, drafts, media_type, profile)
    return drafts


def check(text: str, drafts: list[ChunkDraft], media_type: str, profile: ChunkingProfile) -> None:
    """All that holds for every text whatever it is."""
    assert [draft.ordinal for draft in drafts] == list(range(len(drafts)))
    for draft in drafts:
        assert draft.text == text[draft.start : draft.end]
        assert draft.text.strip()
        assert draft.tokens == counter.count(draft.text)
        assert draft.tokens <= profile.ceiling
        assert draft.line_start == text.count("\n", 0, draft.start) + 1
        assert draft.line_end == text.count("\n", 0, draft.end) + 1
        assert all(part.strip() for part in draft.heading_path)
    for before, after in pairwise(drafts):
        assert before.end <= after.start
    for number, line in uncovered(text, drafts, media_type):
        assert is_heading_of_a_path(text, number, line, drafts), (number, line)


def uncovered(text: str, drafts: list[ChunkDraft], media_type: str) -> list[tuple[int, str]]:
    """The lines after the front matter with visible characters in no chunk."""
    starts = [draft.start for draft in drafts]
    at = front_matter_end(text) if media_type == MARKDOWN else 0
    missing = []
    for number, line in enumerate(text[at:].split("\n"), text.count("\n", 0, at)):
        outside = [
            offset
            for offset, character in enumerate(line, at)
            if not character.isspace()
            and not (
                (index := bisect_right(starts, offset) - 1) >= 0 and offset < drafts[index].end
            )
        ]
        if outside:
            assert len(outside) == len("".join(line.split())), "a line is held in part"
            missing.append((number, line))
        at += len(line) + 1
    return missing


def is_heading_of_a_path(text: str, number: int, line: str, drafts: list[ChunkDraft]) -> bool:
    titles = {part for draft in drafts for part in draft.heading_path}
    said = [line.strip().strip("#").strip()]
    # What looks like an underline may also be the first line of a heading of several.
    if re.fullmatch(r"\s*(=+|-+)\s*", line):
        said.append(text.split("\n")[number - 1].strip())
    return any(words in title for title in titles for words in said)


def paths(drafts: list[ChunkDraft]) -> list[tuple[str, ...]]:
    return [draft.heading_path for draft in drafts]


def words(count: int, word: str = "word") -> str:
    """A paragraph of exactly `count` tokens."""
    return " ".join([word] * count)


# --- properties --------------------------------------------------------------------------------

inline = st.one_of(
    st.sampled_from(
        [
            "word",
            "A sentence ends. Another begins!",
            "`code`",
            "it's",
            "cafe\u0301",
            "漢字かな交じり文。次の文。",
            "\U0001f469\u200d\U0001f469\u200d\U0001f467",
            "\ufeff",
            "\r",
            "\x0c",
            "\u2028",
            "<b>",
            "[ref]",
            "---",
            "#",
            "x" * 200,
            "  ",
            "\t",
            "Ann:",
            "[10:02] Bob:",
            "**Cy:**",
            '{"role":',
            '"',
            "a  b",
            "a | b",
        ]
    ),
    st.text(max_size=10),
)
line = st.lists(inline, min_size=1, max_size=5).map(" ".join)
lines = st.lists(line, min_size=1, max_size=4)
block = st.one_of(
    st.tuples(st.integers(1, 7), line).map(lambda each: f"{'#' * each[0]} {each[1]}"),
    st.tuples(line, st.sampled_from(["===", "---"])).map("\n".join),
    lines.map("\n".join),
    lines.map(lambda each: "```\n# " + "\n".join(each) + "\n```"),
    lines.map(lambda each: "~~~\n" + "\n\n".join(each)),
    lines.map(lambda each: "\n".join(f"- {item}" for item in each)),
    lines.map(lambda each: "\n".join("  " * depth + f"* {x}" for depth, x in enumerate(each))),
    lines.map(lambda each: "\n\n".join(f"{n}. {item}" for n, item in enumerate(each, 1))),
    lines.map(lambda each: "\n".join(f"> {item}" for item in each)),
    lines.map(lambda each: "|a|b|\n|-|-|\n" + "\n".join(f"|{item}|x|" for item in each)),
    lines.map(lambda each: "<div>\n" + "\n".join(each) + "\n</div>"),
    lines.map(lambda each: "    " + "\n    ".join(each)),
    st.sampled_from(["[a]: /x", "***", "#", "##  ##", "<!-- open", ">" * 100 + " deep", ""]),
)
front = st.sampled_from(["", "", "---\ntitle: x\n---\n", "---\n\n---\n", "---\nnot closed: x\n"])
document = st.tuples(
    front,
    st.lists(
        st.tuples(block, st.sampled_from(["\n", "\n\n", "\n\n\n\n"])).map("".join), max_size=14
    ),
).map(lambda each: each[0] + "".join(each[1]))


@settings(deadline=None, max_examples=120)
@example("# word\n---\n===\nword\n===\n# \n", PROFILES["default"])
@given(document, st.sampled_from([*PROFILES.values(), *SMALL_PROFILES]))
def test_every_line_is_somewhere_once_and_in_order(text: str, profile: ChunkingProfile) -> None:
    for media_type in (MARKDOWN, PLAIN, CSV):
        chunk(normalise(text, media_type=media_type).text, media_type, profile=profile)


@settings(deadline=None, max_examples=50)
@given(document, st.sampled_from(SMALL_PROFILES), st.data())
def test_an_outline_and_pages_lose_nothing(
    text: str, profile: ChunkingProfile, data: st.DataObject
) -> None:
    normalised = normalise(text, media_type="application/pdf").text
    offsets = st.integers(0, len(normalised))
    headings = data.draw(
        st.lists(
            st.builds(
                lambda title, level, start: Heading(title=title, level=level, start=start),
                st.sampled_from(["word", "Two words", ""]),
                st.integers(0, 4),
                offsets,
            ),
            max_size=4,
        )
    )
    pages = (0, *sorted(data.draw(st.lists(offsets, max_size=3))))
    structure = Structure(headings=tuple(headings), page_starts=pages)
    for draft in chunk(normalised, "application/pdf", structure, profile):
        assert draft.page_start is not None
        assert draft.page_end is not None
        assert 1 <= draft.page_start <= draft.page_end <= len(pages)


@settings(deadline=None, max_examples=30)
@given(document, st.sampled_from([*PROFILES.values()]))
def test_the_same_text_makes_the_same_chunks(text: str, profile: ChunkingProfile) -> None:
    normalised = normalise(text, media_type=MARKDOWN).text
    again = StructureChunker(TiktokenCounter())
    assert chunk(normalised, profile=profile) == chunk(normalised, profile=profile, by=again)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.sampled_from(["e\u0301", "\U0001f1e9\U0001f1ea", "漢", "a", " ", "\u200d"]), min_size=80
    ),
    st.sampled_from(SMALL_PROFILES),
)
def test_a_cut_line_is_put_together_from_its_pieces(
    parts: list[str], profile: ChunkingProfile
) -> None:
    text = unicodedata.normalize("NFC", "".join(parts)).strip() or "x"
    text = re.sub(" +", " ", text)
    drafts = chunk(text, PLAIN, profile=profile)
    assert "".join(draft.text for draft in drafts) == text


# --- rule 2: packing ---------------------------------------------------------------------------


def test_blocks_are_packed_up_to_the_target() -> None:
    drafts = chunk("\n\n".join([words(190)] * 7), PLAIN)
    assert [draft.tokens for draft in drafts] == [572, 572, 190]


def test_a_block_within_the_ceiling_is_never_cut() -> None:
    drafts = chunk(f"{words(50)}\n\n{words(1000)}\n\n{words(50)}", PLAIN)
    assert [draft.tokens for draft in drafts] == [50, 1000, 50]


def test_a_chunk_never_crosses_a_heading_of_a_large_section() -> None:
    drafts = chunk(f"# A\n\n{words(150)}\n\n# B\n\n{words(150)}")
    assert paths(drafts) == [("A",), ("B",)]


# --- rule 3: what is too large -----------------------------------------------------------------


def test_a_table_is_cut_between_rows_and_repeats_nothing() -> None:
    rows = [f"| R{number:04} | the valve of row {number} | {number * 7} |" for number in range(200)]
    text = "# Parts\n\n| id | text | count |\n| --- | --- | --- |\n" + "\n".join(rows)
    drafts = chunk(text)
    assert len(drafts) > 3
    assert set(paths(drafts)) == {("Parts",)}
    assert "\n".join(draft.text for draft in drafts) == text.removeprefix("# Parts\n\n")


def test_a_large_list_item_is_cut_where_an_inner_item_begins() -> None:
    inner = "\n".join(f"  - {words(150)}\n    {words(150)}" for _ in range(5))
    drafts = chunk(f"- outer\n{inner}")
    assert len(drafts) > 1
    assert all(draft.text.startswith(("- outer", "  - word")) for draft in drafts)


def test_a_line_is_cut_after_a_sentence() -> None:
    text = " ".join(["The valve opens when the ledger is closed (or not)."] * 200)
    drafts = chunk(text, PLAIN)
    assert len(drafts) > 3
    assert all(draft.text.rstrip().endswith("not).") for draft in drafts)
    assert "".join(draft.text for draft in drafts) == text


def test_a_sentence_is_cut_between_words() -> None:
    text = words(2500)
    drafts = chunk(text, PLAIN)
    assert all(set(draft.text.split()) == {"word"} for draft in drafts)
    assert "".join(draft.text for draft in drafts) == text


def test_text_without_spaces_is_cut_after_its_sentences() -> None:
    text = "铜账本检查完毕后阀门开启。" * 300
    drafts = chunk(text, PLAIN)
    assert all(draft.text.endswith("。") for draft in drafts)


@pytest.mark.parametrize(
    "cluster",
    [
        "a\u0308\u0323",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea",
        "กำ",
        "각",
    ],
)
def test_a_word_is_cut_between_graphemes(cluster: str) -> None:
    text = unicodedata.normalize("NFC", cluster * 1500)
    size = len(unicodedata.normalize("NFC", cluster))
    drafts = chunk(text, PLAIN)
    assert len(drafts) > 1
    assert all(len(draft.text) % size == 0 for draft in drafts)


def test_a_grapheme_above_the_ceiling_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 5000
    assert len(chunk(normalise(text, media_type=PLAIN).text, PLAIN)) > 1


def test_white_space_that_a_cut_would_fall_into_lies_between_chunks() -> None:
    drafts = chunk("a" + " " * 200_000 + "b", PLAIN)
    assert [draft.text for draft in drafts] == ["a", "b"]


def test_the_end_of_a_cut_block_is_packed_with_what_follows() -> None:
    drafts = chunk(f"{words(1700)}\n\n{words(10)}", PLAIN)
    assert len(drafts) == 3
    assert drafts[-1].text.endswith(words(10))


# --- rule 4: small sections --------------------------------------------------------------------


def test_small_sections_merge_into_their_parents_chunk() -> None:
    text = f"# A\n\n{words(120)}\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd"
    drafts = chunk(text)
    assert paths(drafts) == [("A",)]
    assert drafts[0].text == text.removeprefix("# A\n\n")


def test_a_small_section_after_a_large_sibling_stays_small() -> None:
    drafts = chunk(f"# A\n\n{words(120)}\n\n## B\n\n{words(120)}\n\n## C\n\nc")
    assert paths(drafts) == [("A",), ("A", "B"), ("A", "C")]
    assert drafts[-1].text == "c"


def test_merging_stops_at_the_ceiling() -> None:
    small = "\n\n".join(f"## S{number}\n\n{words(90)}" for number in range(20))
    drafts = chunk(f"# A\n\n{words(500)}\n\n{small}")
    assert drafts[0].heading_path == ("A",)
    assert 900 < drafts[0].tokens <= 1000
    assert paths(drafts)[1] == ("A", "S5")


def test_small_sections_of_a_parent_without_text_are_put_together() -> None:
    text = "# Changes\n\n" + "\n\n".join(f"## 1.{n}\n\n- item {n}" for n in range(30))
    drafts = chunk(text)
    assert paths(drafts) == [("Changes",)]
    assert drafts[0].text == text.removeprefix("# Changes\n\n")


def test_a_lone_small_section_of_a_parent_without_text_keeps_its_path() -> None:
    drafts = chunk(f"# A\n\n## B\n\nb\n\n## C\n\n{words(150)}")
    assert paths(drafts) == [("A", "B"), ("A", "C")]


def test_sections_at_the_top_never_merge() -> None:
    assert paths(chunk("before\n\n# A\n\na\n\n# B\n\nb")) == [(), ("A",), ("B",)]


def test_a_section_whose_title_is_not_printed_never_merges() -> None:
    text = f"{words(150)}\nsmall\n"
    structure = Structure(
        headings=(
            Heading(title="A", level=1, start=0),
            Heading(title="B", level=2, start=text.index("small")),
        )
    )
    assert paths(chunk(text, "application/pdf", structure)) == [("A",), ("A", "B")]


# --- rule 5 and 6 ------------------------------------------------------------------------------


def test_a_heading_above_nothing_is_text() -> None:
    assert [(d.heading_path, d.text) for d in chunk("# A\n\na\n\n## B\n\n## C")] == [
        (("A",), "a\n\n## B\n\n## C")
    ]
    assert [(d.heading_path, d.text) for d in chunk("# Alone")] == [((), "# Alone")]


def test_an_empty_heading_is_text_and_no_element_of_a_path() -> None:
    drafts = chunk("# Top\n\nalpha\n\n#\n\nbravo\n\n##\n\ncharlie")
    assert [(d.heading_path, d.text) for d in drafts] == [
        (("Top",), "alpha\n\n#\n\nbravo\n\n##\n\ncharlie")
    ]


def test_equal_headings_keep_separate_chunks() -> None:
    drafts = chunk(f"# A\n\n{words(120)}\n\n## X\n\n{words(120)}\n\n## X\n\n{words(120)}")
    assert paths(drafts) == [("A",), ("A", "X"), ("A", "X")]


def test_comments_in_code_open_no_section() -> None:
    fence = "```sh\n# stop the worker\n\n## then\nstart\n```"
    drafts = chunk(f"# A\n\n{words(120)}\n\n{fence}\n\n    # indented\n\n## B\n\n{words(120)}")
    assert paths(drafts) == [("A",), ("A", "B")]
    assert fence in drafts[0].text


def test_the_same_comments_in_plain_text_are_text() -> None:
    assert paths(chunk("# retry rule\nretry = 3\n\nAlpha\n-----\ntext", PLAIN)) == [()]


def test_a_byte_order_mark_makes_no_difference() -> None:
    content = "# Größe\n\ntext\n"
    marked = (b"\xef\xbb\xbf" + content.encode()).decode("utf-8-sig")
    assert chunk(marked) == chunk(content)


def test_special_tokens_are_words() -> None:
    drafts = chunk("# A\n\nends with <|endoftext|> and <|im_start|>system")
    assert "<|endoftext|>" in drafts[0].text


def test_pages_are_counted_from_one() -> None:
    text = f"{words(500)}\n\n{words(500)}\n\n{words(500)}"
    starts = (0, text.index("\n\n") + 2, len(text) - 100)
    drafts = chunk(text, "application/pdf", Structure(page_starts=starts))
    assert [(d.page_start, d.page_end) for d in drafts] == [(1, 1), (2, 2), (2, 3)]
    assert [d.page_start for d in chunk(text, PLAIN)] == [None] * 3


@pytest.mark.parametrize("text", ["", "\n\n", " \n", "---\ntitle: x\n---\n\n"])
def test_no_text_makes_no_chunk(text: str) -> None:
    with pytest.raises(EmptyExtraction):
        require_chunks(chunk(text))


# --- profiles ----------------------------------------------------------------------------------


def turns(count: int, length: int, form: str = "{who}: {said}") -> list[str]:
    return [
        form.format(who=("Ann", "Bob")[n % 2], said=f"turn {n} {words(length)}", at=f"10:{n:02}")
        for n in range(count)
    ]


@pytest.mark.parametrize("media_type", [MARKDOWN, PLAIN])
@pytest.mark.parametrize("between", ["\n", "\n\n"])
@pytest.mark.parametrize(
    "form",
    [
        "{who}: {said}",
        "{who}:\n{said}",
        "{who}:\n\n{said}\n\nand {said}",
        "**{who}:** {said}",
        "**{who}**: {said}",
        "[{at}] {who}: {said}",
        "[{at}] {said}",
        "{who} ({at}): {said}",
        "12/03/24, {at} - {who}: {said}",
        "2024-03-12T{at}:05Z {who} O'Neill: {said}",
        "<{who}> {said}",
        "- {who}: {said}",
        '{{"role": "{who}", "content": "{said}"}}',
    ],
)
def test_a_turn_of_a_transcript_is_never_cut(form: str, between: str, media_type: str) -> None:
    every = turns(12, 90, form)
    drafts = chunk(between.join(every), media_type, profile=CHAT)
    assert len(drafts) > 3
    assert all(any(draft.text.startswith(turn) for turn in every) for draft in drafts)
    assert all(any(draft.text.endswith(turn) for turn in every) for draft in drafts)
    assert all(draft.tokens <= CHAT.target or draft.text in every for draft in drafts)


def test_a_turn_holds_the_fence_and_the_list_in_it() -> None:
    text = f"Ann: how?\n\nBob: so\n\n```sh\nAnn: not a turn\n```\n\n- one\n- two {words(200)}\n\nAnn: {words(90)}"
    first, second = chunk(text, profile=CHAT)
    assert first.text.startswith("Ann: how?")
    assert second.text == f"Ann: {words(90)}"
    assert first.tokens + second.tokens > CHAT.target


def test_a_turn_above_the_ceiling_is_cut_between_its_paragraphs() -> None:
    said = [f"{n} {words(250)}" for n in range(4)]
    drafts = chunk("Ann: so\n\n" + "\n\n".join(said) + "\n\nBob: yes", PLAIN, profile=CHAT)
    assert [draft.text for draft in drafts] == ["Ann: so", *said, "Bob: yes"]


def test_text_without_turns_is_cut_as_ever() -> None:
    paragraphs = [words(200)] * 3
    drafts = chunk("\n\n".join(paragraphs), profile=CHAT)
    assert [draft.text for draft in drafts] == paragraphs


def test_a_table_within_the_ceiling_is_cut_between_rows_too() -> None:
    rows = [f"| R{n:03} | {words(15)} |" for n in range(40)]
    table = "| id | text |\n| - | - |\n" + "\n".join(rows)
    text = f"# A\n\n{words(500)}\n\n{table}"
    assert [draft.text for draft in chunk(text)] == [words(500), table]
    first, second = chunk(text, profile=REFERENCE)
    assert first.text.startswith(f"{words(500)}\n\n| id | text |\n| - | - |\n| R000")
    assert second.text.startswith("| R0")
    assert second.text.endswith(rows[-1])
    assert first.tokens > 950


def test_a_record_of_a_csv_is_never_cut() -> None:
    records = [f'R{n:03},"{words(40)}\n\n{words(20)} ""so""",{n}' for n in range(60)]
    drafts = chunk("id,text,count\n" + "\n".join(records), CSV, profile=REFERENCE)
    assert len(drafts) > 3
    assert all(draft.text.startswith(("id,text,count\nR000", "R")) for draft in drafts)
    assert all(
        draft.text.endswith(tuple(f'"""so""",{n}'[2:] for n in range(60))) for draft in drafts
    )


@pytest.mark.parametrize("gap", ["    ", " | ", "|"])
def test_lines_in_columns_are_rows_and_prose_is_none(gap: str) -> None:
    rows = [gap.join(("R", words(15), str(n))) for n in range(60)]
    drafts = chunk(words(500) + "\n\n" + "\n".join(rows), PLAIN, profile=REFERENCE)
    assert drafts[0].text.startswith(f"{words(500)}\n\nR")
    prose = f"{words(300)}.  Two\n{words(300)} lines"
    drafts = chunk(f"{words(500)}\n\n{prose}", PLAIN, profile=REFERENCE)
    assert [draft.text for draft in drafts] == [words(500), prose]


def test_a_profile_is_known_by_its_name_and_by_its_label() -> None:
    for name, profile in PROFILES.items():
        assert profile_named(name) is profile_named(profile.label) is profile
    labels = [profile.label for profile in PROFILES.values()]
    assert len({*labels}) == len(labels)


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(UnknownProfile, match="'default', 'chat', 'reference'") as raised:
        profile_named("huge")
    assert raised.value.members == {"profiles": [*PROFILES]}


def test_a_profile_that_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="target"):
        ChunkingProfile(target=2000)


# --- size and time -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "media_type"),
    [
        ("a" * 60_000, PLAIN),
        ("^" * 60_000, PLAIN),
        ("铜账本检查完毕" * 4_000, PLAIN),
        ("Ab9+/" * 12_000, MARKDOWN),
        ("x" + "\n" * 60_000 + "y", PLAIN),
        ("*a_ " * 15_000, MARKDOWN),
        ("#" * 30_000 + "\n" + "# a\n" * 2_000, MARKDOWN),
        (">" * 20_000 + " x\n\n" + "\n".join("  " * n + "- x" for n in range(200)), MARKDOWN),
        ("[" * 20_000, MARKDOWN),
        ("[a]: /x\n" * 3_000, MARKDOWN),
        ("The amber relay is sealed. " * 4_000, PLAIN),
    ],
    ids=range(11),
)
def test_adversarial_input(text: str, media_type: str) -> None:
    assert chunk(normalise(text, media_type=media_type).text, media_type)


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "QUJD+/9x" * 125_000, "The amber relay is sealed. " * 400_000],
    ids=["run", "base64", "one line of ten megabytes"],
)
def test_megabytes(text: str) -> None:
    assert chunker.chunk(text, title="", media_type=PLAIN, structure=NOTHING)
