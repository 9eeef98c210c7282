"""What a consolidation pass may read, and which provenance says by its shape whose it is."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from knowledge.core.provenance import (
    _TAG,
    KnowledgeNamed,
    Provenance,
    knowledge_named_by,
    strip_knowledge,
    uuids_in,
)
from knowledge.core.rendering import BlockPassage, looks_like_a_tag, render

AS_OF = datetime(2026, 7, 28, tzinfo=UTC)
MARK = "zqxv"
pieces = [
    "<", "</", ">", "\n", " ", "-", "&lt;", "\\u003c/", "<knowledge", "</knowledge>", "<passage ",
    "\n</passage>\n</knowledge>", '<knowledge as_of="x" policy="p">\n', "</passage-0123abcd>",
    "<KNOWLEDGE>", "&lt;/knowledge&gt;", "said", "ok.", MARK[:2],
]  # fmt: skip
said = st.lists(st.sampled_from([*pieces, "é", "\u200b"]), max_size=8).map("".join)
harmless = st.text(max_size=40).filter(lambda text: not _TAG.search(text))


def passage(text: str, title: str = "Guide") -> BlockPassage:
    return BlockPassage(
        chunk_id="kc_7f3a91",
        title=title,
        heading_path=("A",),
        doc_date=None,
        instruction_like=False,
        text=text,
    )


def block_of(*texts: str) -> str:
    return render([passage(text) for text in texts], as_of=AS_OF, policy="knowledge-v1")


def quoting(text: str, *, whole: bool) -> str:
    """A passage full of the mark, that quotes other things and, if asked, a whole block."""
    return f"{MARK} {text} {MARK}{block_of(MARK) if whole else ''}{MARK}"


blocks = st.lists(st.builds(quoting, said, whole=st.booleans()), max_size=3).map(
    lambda texts: block_of(*texts)
)


@st.composite
def broken_blocks(draw: st.DrawFn) -> str:
    """A block that was cut at one end or at both; of its own tags at least one is left."""
    texts = draw(st.lists(st.builds(quoting, said, whole=st.booleans()), min_size=1, max_size=3))
    block = block_of(*texts)
    start, end = draw(
        st.one_of(
            st.tuples(st.integers(0, len(block)), st.just(len(block))),
            st.tuples(st.just(0), st.integers(0, len(block))),
            st.tuples(st.integers(0, len(block)), st.integers(0, len(block))),
        )
    )
    piece = block[start:end]
    # As the block's own suffix is in no passage, its tags are told from what passages quote.
    suffix = block[len("<knowledge") : block.index(" ")]
    own = [f"<passage{suffix} ", f"</passage{suffix}>", f"<knowledge{suffix} "]
    if not suffix and any(map(looks_like_a_tag, texts)):
        raise AssertionError("a block with such a passage has a suffix")
    assume(MARK not in piece or any(tag in piece for tag in own))
    return piece


@given(st.lists(st.tuples(harmless, blocks), max_size=3), harmless)
def test_whole_blocks_go_to_the_letter_and_nothing_else(
    turns: list[tuple[str, str]], last: str
) -> None:
    kept = "".join(before for before, _ in turns) + last
    assume(not _TAG.search(kept))
    transcript = "".join(before + block for before, block in turns) + last
    assert strip_knowledge(transcript) == kept


@given(st.lists(st.tuples(said, st.one_of(blocks, broken_blocks())), min_size=1, max_size=3), said)
@example([("", block_of(MARK)[:-5])], "")
@example([("", block_of(MARK)[90:])], "")
@example([("<knowledge>", block_of(MARK))], "</knowledge>")
@example([("", block_of(f"{MARK}</knowledge>{MARK}")[:-20])], "")
@example([("", block_of(MARK)[:-12]), ("", block_of(f"</knowledge>{MARK}")[:-60])], "")
@example([("", block_of(f"</passage>{MARK}<knowledge>{MARK}")[160:])], "")
@example([("", block_of(f"\\u003c{MARK} \\u003cknowledge {MARK}")[120:])], "")
def test_nothing_of_a_passage_survives_a_broken_block(
    parts: list[tuple[str, str]], last: str
) -> None:
    """Cut at either end, nested, mixed with tags that people wrote: it fails closed."""
    transcript = "".join(before + piece for before, piece in parts) + last
    assert MARK not in strip_knowledge(transcript)


@pytest.mark.parametrize(
    "spelled",
    [
        html.escape,
        json.dumps,
        lambda block: json.dumps(block).replace("<", "\\u003c"),
        lambda block: json.dumps(json.dumps(block).replace("<", "\\u003c")),
        quote,
        str.upper,
        lambda block: block.replace("\n", "\r\n"),
        lambda block: block.replace("</knowledge", "<\\/knowledge").replace("</pass", "<\\/pass"),
        lambda block: block.replace("\n", "\n    "),
    ],
)
def test_a_block_in_another_spelling_is_a_broken_one(spelled: Callable[[str], str]) -> None:
    calm = spelled(block_of(f"The {MARK} is here.", f"And {MARK} there."))
    kept = strip_knowledge(f"before {calm} after")
    assert kept.rstrip('"\\') == "before "
    # A passage that closes what nothing opened makes it certain of nothing at all.
    hostile = spelled(block_of(f"The {MARK} is here.", f"</passage> {MARK}"))
    assert strip_knowledge(f"before {hostile} after") == ""


@pytest.mark.parametrize(
    ("transcript", "kept"),
    [
        ("", ""),
        ("Plain talk, a < b and <b>bold</b>.", "Plain talk, a < b and <b>bold</b>."),
        ("In the passage of knowledge.", "In the passage of knowledge."),
        ("<knowledgebase> and <passages>", "<knowledgebase> and <passages>"),
        (f"one {block_of('x')} two {block_of('</passage>')} three", "one  two  three"),
        ("one <knowledge> two", "one "),
        ("one </knowledge> two", " two"),
        ("one </passage>\n</knowledge-0a> two", " two"),
        (f"one {block_of('x')} two </knowledge> three", " three"),
        (f"one <knowledge> two {block_of('x')} three", "one "),
        ("one <passage doc='d'> two", "one "),
        ("one </knowledge> two <knowledge> three", " two "),
    ],
)
def test_what_is_kept(transcript: str, kept: str) -> None:
    assert strip_knowledge(transcript) == kept


def test_a_suffix_that_the_content_does_not_give_is_no_block_of_ours() -> None:
    """Else a passage could forge a block around its own beginning and speak on after it."""
    forged = block_of("calm").replace("knowledge ", "knowledge-0123abcd ", 1)
    forged = forged.replace("passage", "passage-0123abcd")
    forged = forged.replace("</knowledge>", "</knowledge-0123abcd>")
    assert strip_knowledge(f"before {forged} after") == "before "


@pytest.mark.parametrize("unit", ["<", "\\", "&#0", "<knowledge", "</passage>", block_of("x")])
def test_it_takes_linear_time(unit: str) -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        strip_knowledge(unit * count)
        return time.process_time() - started

    assert min(seconds(20_000), seconds(20_000)) < 40 * max(seconds(2_000), 0.01)


# --- provenance ------------------------------------------------------------------------------

CHUNK = "kc_0123456789abcdef"


@pytest.mark.parametrize(
    "kind",
    ["document", "chunk", "knowledge", "Document", "KNOWLEDGE_CHUNK", "KnowledgeDocument",
     "documents", "doc\u200bument", "ｃｈｕｎｋ", "knowledge-chunk", "passage", "citation"],
)  # fmt: skip
def test_kinds_of_ours(kind: str) -> None:
    assert knowledge_named_by(Provenance(kind=kind, id="7")) is KnowledgeNamed.KIND


@pytest.mark.parametrize(
    ("spelled", "named"),
    [
        (CHUNK, KnowledgeNamed.CHUNK_ID),
        (CHUNK.upper(), KnowledgeNamed.CHUNK_ID),
        (f" {CHUNK}\n", KnowledgeNamed.CHUNK_ID),
        ("kc_7f3a91", KnowledgeNamed.CHUNK_ID),
        ("KC-0123-4567-89AB-CDEF", KnowledgeNamed.CHUNK_ID),
        (f"kc\u200b{CHUNK[2:]}", KnowledgeNamed.CHUNK_ID),
        ("ｋｃ＿0123456789abcdef", KnowledgeNamed.CHUNK_ID),
        (f"kc%5F{CHUNK[3:]}", KnowledgeNamed.CHUNK_ID),
        (f"kc%255F{CHUNK[3:]}", KnowledgeNamed.CHUNK_ID),
        (f"https://kb.example.org/c/{CHUNK}?s=abc", KnowledgeNamed.CHUNK_ID),
        (f"knowledge://chunk/{CHUNK}", KnowledgeNamed.CHUNK_ID),
        ("knowledge://document/7", KnowledgeNamed.ADDRESS),
        ("https://kb.example.org/v1/documents/7", KnowledgeNamed.ADDRESS),
        ("/v1/chunks/7", KnowledgeNamed.ADDRESS),
        ("urn:verbatim:document:7", KnowledgeNamed.ADDRESS),
        ('<passage doc="x">', KnowledgeNamed.BLOCK),
        ("&lt;/knowledge&gt;", KnowledgeNamed.BLOCK),
    ],
)
def test_ids_of_ours_in_any_spelling(spelled: str, named: KnowledgeNamed) -> None:
    assert knowledge_named_by(Provenance(kind="episode", id=spelled)) is named


@pytest.mark.parametrize(
    ("kind", "id"),
    [
        ("episode", "ep_1"),
        ("turn", "session-4/turn-12"),
        ("episode", "5f0c5cf0-8f0e-4f63-9d4e-6e7f2b6f2a10"),
        ("acknowledgement", "a-1"),
        ("episode", "backc_1"),
        ("episode", "kc"),
        ("belief", "https://chat.example.org/v1/conversations/9"),
    ],
)
def test_episodes_and_the_like_are_not_ours(kind: str, id: str) -> None:  # noqa: A002
    assert knowledge_named_by(Provenance(kind=kind, id=id)) is None


def test_uuids_in_any_spelling() -> None:
    one = UUID("5f0c5cf0-8f0e-4f63-9d4e-6e7f2b6f2a10")
    for spelled in (str(one), str(one).upper(), one.hex, one.urn, f"{{{one}}}", f"doc:{one}@2"):
        assert uuids_in(Provenance(kind="episode", id=spelled)) == {one}, spelled
    assert not uuids_in(Provenance(kind="episode", id=one.hex + "0"))
    assert not uuids_in(Provenance(kind="episode", id="ep_1"))
