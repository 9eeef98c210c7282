"""Whatever bytes come in, a reader gives a text or a refusal with a code, never anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knowledge.adapters.extractors import DocxExtractor, HtmlExtractor, PdfExtractor, parsed
from knowledge.adapters.extractors.media_types import decide
from knowledge.core.errors import MediaTypeMismatch, Refused, UnsupportedMediaType
from knowledge.core.ports import Extractor
from knowledge.core.types import ExtractedDocument
from tests.documents import docx, lines, paragraph, pdf, read_here, table

A_PDF = pdf(
    lines("Relay Guide", "The amber relay checks it."),
    lines("Rollback", "Restore the tag."),
    outline=[("Relay Guide", 1, 0, 700), ("Rollback", 2, 1, None)],
    info={"Title": "Guide"},
    to_unicode={1: "FB01"},
)
A_PAGE = (
    b"<!doctype html><html lang=en><head><title>Guide</title></head><body><nav>x</nav><main>"
    b"<h1>Guide <br>of it</h1><p>Words &amp; <b>more</b><ul><li>one<ol><li>two</ol></ul>"
    b"<table><caption>c</caption><tr><td>1<td>2</table><pre><code class=language-c>x\n\ny</code></pre>"
    b"<p style='display:none'>gone<!-- gone --></main></body></html>"
)
A_WORD_FILE = docx(
    paragraph("Guide", style="Heading1"),
    paragraph("one", bullet=0),
    table(["a", "b"]),
    paragraph("gone", hidden=True),
    core="<dc:title>Guide</dc:title>",
)
KINDS: list[tuple[Extractor, str, bytes]] = [
    (PdfExtractor(), "application/pdf", A_PDF),
    (HtmlExtractor(), "text/html", A_PAGE),
    (
        DocxExtractor(),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        A_WORD_FILE,
    ),
]
kinds = pytest.mark.parametrize(
    ("extractor", "media_type", "good"), KINDS, ids=["pdf", "html", "docx"]
)
hostile = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed, "read", read_here)


def read(extractor: Extractor, media_type: str, content: bytes) -> ExtractedDocument | None:
    try:
        found = extractor.extract(content, media_type=media_type, charset=None)
    except Refused as refused:
        _refused_properly(refused)
        return None
    for part in (found.text, *found.metadata.values()):
        part.encode()
        assert "\0" not in part
    assert found.text.strip()
    starts = [heading.start for heading in found.structure.headings]
    assert all(0 <= start <= len(found.text) for start in [*starts, *found.structure.page_starts])
    assert list(found.structure.page_starts) == sorted(found.structure.page_starts)
    return found


def _refused_properly(refused: Refused) -> None:
    assert refused.code not in {"refused", ""}
    assert refused.detail


@kinds
def test_the_good_file_is_read(extractor: Extractor, media_type: str, good: bytes) -> None:
    found = read(extractor, media_type, good)
    assert found is not None
    assert "Guide" in found.text


@kinds
@hostile
@given(content=st.binary(max_size=2_000))
def test_noise(extractor: Extractor, media_type: str, good: bytes, content: bytes) -> None:
    read(extractor, media_type, content)
    read(extractor, media_type, good[:20] + content)


@kinds
@hostile
@given(data=st.data())
def test_a_good_file_that_was_damaged(
    extractor: Extractor, media_type: str, good: bytes, data: st.DataObject
) -> None:
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        damage: Callable[[bytearray, int], None] = data.draw(st.sampled_from(DAMAGES))
        damage(content, at)
        if not content:
            break
    read(extractor, media_type, bytes(content))


def _flip(content: bytearray, at: int) -> None:
    content[at] ^= 0xFF


def _cut(content: bytearray, at: int) -> None:
    del content[at : at + 40]


def _repeat(content: bytearray, at: int) -> None:
    content[at:at] = content[max(at - 60, 0) : at]


def _end(content: bytearray, at: int) -> None:
    del content[max(at, 1) :]


def _number(content: bytearray, at: int) -> None:
    digits = [n for n in range(at, min(at + 60, len(content))) if 0x30 <= content[n] <= 0x39]
    if digits:
        content[digits[0]] = 0x30 + (content[digits[0]] - 0x2F) % 10


DAMAGES: list[Callable[[bytearray, int], None]] = [_flip, _cut, _repeat, _end, _number]


@hostile
@given(
    content=st.binary(max_size=300) | st.sampled_from([A_PDF, A_PAGE, A_WORD_FILE]),
    claimed=st.none() | st.text(max_size=20) | st.sampled_from([kind for _, kind, _ in KINDS]),
    name=st.none() | st.text(max_size=20) | st.sampled_from(["a.pdf", "a.html", "a.docx", "a"]),
)
def test_any_file_has_a_media_type_or_is_refused(
    content: bytes, claimed: str | None, name: str | None
) -> None:
    try:
        kind = decide(content, claimed=claimed, filename=name).type
    except (MediaTypeMismatch, UnsupportedMediaType) as refused:
        _refused_properly(refused)
    else:
        assert "/" in kind
