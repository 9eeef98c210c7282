from __future__ import annotations

import codecs
import traceback
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.adapters.extractors import (
    Extractors,
    MarkdownExtractor,
    MediaType,
    TextExtractor,
    decide,
)
from knowledge.adapters.extractors.decoding import decode
from knowledge.core.errors import (
    BinaryContent,
    EmptyExtraction,
    MediaTypeMismatch,
    Refused,
    UndecodableText,
    UnsupportedMediaType,
)
from knowledge.core.types import ExtractedDocument
from tests.documents import docx

HTML = b"<!DOCTYPE html>\n<html><body>hello</body></html>"
SVG = b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
ZIP = b"PK\x03\x04\x14\0\0\0"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500
ENCRYPTED_DOCX = OLE + "EncryptedPackage".encode("utf-16-le")
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


class TestDecoding:
    @pytest.mark.parametrize(
        ("mark", "encoding"),
        [
            (codecs.BOM_UTF8, "utf-8"),
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF32_BE, "utf-32-be"),
        ],
    )
    def test_a_byte_order_mark_decides_and_is_consumed(self, mark: bytes, encoding: str) -> None:
        content = mark + "Größe \U0001f600".encode(encoding)
        assert decode(content, charset=None) == "Größe \U0001f600"
        assert decode(content, charset="iso-8859-1") == "Größe \U0001f600"

    def test_only_the_first_mark_is_a_mark(self) -> None:
        assert decode(codecs.BOM_UTF8 + "a\ufeffb".encode(), charset=None) == "a\ufeffb"

    @pytest.mark.parametrize("charset", ["windows-1252", "ISO-8859-15", "UTF-16", "latin1"])
    def test_a_stated_charset_counts(self, charset: str) -> None:
        name = "utf-16-be" if charset == "UTF-16" else charset
        assert decode("Schlüssel".encode(name), charset=charset) == "Schlüssel"

    @pytest.mark.parametrize("charset", ["rot13", "unicode_escape", "no-such", "base64", "a\0b"])
    def test_only_charsets_of_text_count(self, charset: str) -> None:
        with pytest.raises(UndecodableText):
            decode(b"plain", charset=charset)

    @pytest.mark.parametrize(
        ("content", "offset", "likely"),
        [
            ("schön".encode("cp1252"), 3, "Windows-1252"),
            ("ä ö ü ".encode() * 5 + b"\xff ", 45, "UTF-8 with damaged bytes"),
            ("The valve opens.".encode("utf-16-le"), 0, "UTF-16LE"),
            ("The valve opens.".encode("utf-16-be"), 0, "UTF-16BE"),
            ("铜账本检查完毕".encode("gb18030"), 2, "GB18030"),
            (b"lone \xed\xa0\xbd surrogate", 5, "Windows-1252"),
            (codecs.BOM_UTF16_LE + b"a\0\0\xd8b\0", 4, None),
        ],
    )
    def test_what_does_not_decode_is_refused_with_its_place_and_a_hint(
        self, content: bytes, offset: int, likely: str | None
    ) -> None:
        with pytest.raises(UndecodableText) as refused:
            decode(content, charset=None)
        assert refused.value.members["offset"] == offset
        found = refused.value.members["likely_encoding"]
        assert found is None if likely is None else found.startswith(likely)

    def test_a_refusal_carries_nothing_of_the_content(self) -> None:
        with pytest.raises(UndecodableText) as refused:
            decode(b"confidential \xff words", charset=None)
        error = refused.value
        assert error.__cause__ is None
        assert error.__context__ is None
        assert "confidential" not in "".join(traceback.format_exception_only(error))

    @pytest.mark.parametrize(
        "content", [b"a\0b", b"\x01\0\x02\0\0\xff", "a\0b".encode("utf-8-sig")]
    )
    def test_nul_is_binary(self, content: bytes) -> None:
        with pytest.raises(BinaryContent):
            decode(content, charset=None)

    def test_other_controls_are_characters(self) -> None:
        assert decode(b"\x07\x1b[31m\x0b", charset=None) == "\x07\x1b[31m\x0b"

    @given(
        st.text(alphabet=st.characters(exclude_characters="\0\ufeff", exclude_categories=["Cs"]))
    )
    def test_utf_8_comes_back_as_it_was(self, text: str) -> None:
        assert decode(text.encode(), charset=None) == text

    @given(st.binary(max_size=200))
    def test_any_bytes_are_text_or_refused(self, content: bytes) -> None:
        with suppress(Refused):
            assert "\0" not in decode(content, charset=None)


class TestMediaTypes:
    @pytest.mark.parametrize(
        ("content", "claimed", "filename", "expected"),
        [
            (b"# hi", None, "notes.md", "text/markdown"),
            (b"# hi", None, "NOTES.v2.exe.MD", "text/markdown"),
            (b"# hi", "application/octet-stream", "notes.markdown", "text/markdown"),
            (b"# hi", "text/x-markdown", None, "text/markdown"),
            (b"# hi", "text/plain", "notes.md", "text/plain"),
            (b"# hi", None, None, "text/plain"),
            (b"fn main() {}", None, "main.rs", "text/plain"),
            (b"{}", "application/json", None, "application/json"),
            (b"a,b", None, "table.csv", "text/csv"),
            (b"<p align=center>logo</p>\n\n# Title", None, "README.md", "text/markdown"),
            (b"<?xml version='1.0'?><a/>", None, "a.xml", "text/xml"),
            (HTML, None, "page.html", "text/html"),
            (HTML, None, None, "text/html"),
            (b"<p>a fragment</p>", "text/html", None, "text/html"),
            (SVG, "image/svg+xml", "a.svg", "image/svg+xml"),
            (PDF, "application/pdf", "a.pdf", "application/pdf"),
            (PDF, None, None, "application/pdf"),
            (docx("words"), None, "a.docx", DOCX),
            (docx("words"), "application/zip", "a.docx", DOCX),
            (docx("words"), "application/zip", None, DOCX),
            (docx("words"), None, None, DOCX),
            (ENCRYPTED_DOCX, None, "a.docx", DOCX),
            (ENCRYPTED_DOCX, DOCX, None, DOCX),
            (ZIP, None, "a.odt", "application/vnd.oasis.opendocument.text"),
            (b"  \r\n" + PDF, None, "a.pdf", "application/pdf"),
            (b"\xf0\x9a\0\1\2", None, "broken.pdf", "application/pdf"),
            (PNG, None, None, "image/png"),
            (b"\x7fELF\2\1", None, None, "application/x-elf"),
            (b"BZh is how it begins", None, "a.txt", "text/plain"),
            (b"MZ is a country code", None, "a.txt", "text/plain"),
            (b"\0\1\2\3", None, "blob", "application/octet-stream"),
            ("a".encode("utf-16"), None, None, "text/plain"),
        ],
    )
    def test_bytes_claim_and_name_agree(
        self, content: bytes, claimed: str | None, filename: str | None, expected: str
    ) -> None:
        assert decide(content, claimed=claimed, filename=filename).type == expected

    @pytest.mark.parametrize(
        ("content", "claimed", "filename"),
        [
            (PDF, None, "a.txt"),
            (PDF, "text/plain", None),
            (PDF, "application/pdf", "a.txt"),
            (ZIP, None, "notes.md"),
            (ZIP, None, "a.docx"),
            (ZIP, DOCX, None),
            (OLE, DOCX, "a.docx"),
            (ENCRYPTED_DOCX, None, "a.pdf"),
            (docx("words"), None, "a.xlsx"),
            (docx("words"), "application/pdf", None),
            (docx("words"), None, "a.txt"),
            (b"   " + PDF, None, "a.txt"),
            (b"\xf0\x9a\0\1\2", None, "broken.png"),
            (ZIP, "application/pdf", None),
            (PNG, "image/jpeg", None),
            (HTML, None, "page.pdf"),
            (HTML, None, "page.md"),
            (HTML, "text/plain", None),
            (b"\xef\xbb\xbf\n" + HTML, "text/markdown", None),
            (HTML.decode().encode("utf-16"), "text/markdown", None),
            (SVG, None, "drawing.md"),
            (SVG, "text/xml", None),
            (b"plain words", "application/pdf", None),
            (b"plain words", None, "photo.PNG"),
            (b"plain words", "image/png", "notes.txt"),
            (b"\x1f\x8b\x08", "text/plain", "a.log"),
            (b"MZ\x90\0\3\0", None, "a.txt"),
        ],
    )
    def test_a_mismatch_is_refused(
        self, content: bytes, claimed: str | None, filename: str | None
    ) -> None:
        with pytest.raises(MediaTypeMismatch):
            decide(content, claimed=claimed, filename=filename)

    def test_the_charset_of_the_claim_is_kept(self) -> None:
        media_type = decide(b"a", claimed='Text/Plain; Charset="Windows-1252"', filename=None)
        assert media_type == MediaType("text/plain", "windows-1252")

    @pytest.mark.parametrize("claimed", ["text", "text/", "/plain", "text/plain/x", "te xt/plain"])
    def test_a_malformed_claim_is_refused(self, claimed: str | None) -> None:
        with pytest.raises(UnsupportedMediaType):
            decide(b"a", claimed=claimed, filename=None)


class TestExtractors:
    @pytest.mark.parametrize(
        ("media_type", "version"),
        [
            ("text/markdown", "markdown-1"),
            ("text/plain", "text-1"),
            ("text/csv", "text-1"),
            ("application/json", "text-1"),
            ("application/pdf", "pdf-1"),
            ("text/html", "html-1"),
            (DOCX, "docx-1"),
        ],
    )
    def test_built_in(self, media_type: str, version: str) -> None:
        assert Extractors().for_type(media_type).version == version

    @pytest.mark.parametrize(
        "media_type", ["image/svg+xml", "application/zip", "application/octet-stream"]
    )
    def test_unsupported(self, media_type: str) -> None:
        with pytest.raises(UnsupportedMediaType) as refused:
            Extractors().for_type(media_type)
        assert refused.value.members["media_type"] == media_type

    def test_a_registered_one_wins(self) -> None:
        class Shouting:
            version = "shouting-1"

            def supports(self, media_type: str) -> bool:
                return media_type == "text/plain"

            def extract(
                self, content: bytes, *, media_type: str, charset: str | None
            ) -> ExtractedDocument:
                return ExtractedDocument(text=content.decode().upper(), media_type=media_type)

        registry = Extractors([Shouting()])
        assert registry.for_type("text/plain").version == "shouting-1"
        assert registry.for_type("text/csv").version == "text-1"

    def test_text_is_its_own_extraction(self) -> None:
        extracted = TextExtractor().extract(b"a\tb\r\n", media_type="text/plain", charset=None)
        assert extracted == ExtractedDocument(text="a\tb\r\n", media_type="text/plain")

    @pytest.mark.parametrize("text", ["", " \n\t\n", "\xa0\u200b\n\u2028", "\ufeff\ufeff", "\x07"])
    def test_text_that_nobody_can_see_is_refused(self, text: str) -> None:
        for extractor in (TextExtractor(), MarkdownExtractor()):
            with pytest.raises(EmptyExtraction):
                extractor.extract(text.encode(), media_type="text/markdown", charset=None)

    def test_markdown_says_its_title_and_date(self) -> None:
        content = b"---\r\ntitle: A Day\r\ndate: 2026-05-02\r\n---\r\n\r\nwords\r\n"
        extracted = MarkdownExtractor().extract(content, media_type="text/markdown", charset=None)
        assert extracted.metadata == {"title": "A Day", "date": "2026-05-02"}
        assert extracted.text == content.decode()

    def test_markdown_with_nothing_but_front_matter_is_refused(self) -> None:
        with pytest.raises(EmptyExtraction):
            MarkdownExtractor().extract(
                b"---\ntitle: Shell\n---\n\n", media_type="text/markdown", charset=None
            )

    def test_front_matter_that_cannot_be_read_is_a_warning(self) -> None:
        content = b"---\na: &a [x]\nb: *a\ntitle: t\n---\nwords"
        extracted = MarkdownExtractor().extract(content, media_type="text/markdown", charset=None)
        assert extracted.metadata == {}
        assert extracted.warnings == ("front_matter_unreadable",)
