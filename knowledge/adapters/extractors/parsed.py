"""PDF, HTML and Word: formats that are parsed, each file in a child process of its own."""

from __future__ import annotations

import re
from typing import Any

from knowledge.adapters.extractors.child import EXTRACTION_SECONDS, INSPECTION_SECONDS, read
from knowledge.adapters.extractors.decoding import byte_order_mark, decode
from knowledge.adapters.extractors.media_types import DOCX, HTML, PDF
from knowledge.adapters.extractors.text import is_visible
from knowledge.core.errors import EmptyExtraction
from knowledge.core.ports import InstructionScanner
from knowledge.core.types import ExtractedDocument, Heading, Structure

_MARKDOWN = "text/markdown"


class PdfExtractor:
    """Headings from the outline, page starts, and a warning for every page that gave less than
    it shows."""

    version = "pdf-1"

    def supports(self, media_type: str) -> bool:
        return media_type == PDF

    def inspect(self, content: bytes) -> int:
        """The number of pages; raises what `extract` would raise for a PDF that is encrypted or
        cannot be read. Quicker, for whoever takes in a file that is to be read later."""
        found = read(content, format="pdf", task="inspect", seconds=INSPECTION_SECONDS)
        return int(found["pages"])

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:  # noqa: ARG002
        found = read(content, format="pdf", task="extract", seconds=EXTRACTION_SECONDS)
        return _document(found, media_type)


class HtmlExtractor:
    """What a reader sees of the main content, as Markdown without inline markup."""

    version = "html-1"

    def __init__(self, instruction_scanner: InstructionScanner | None = None) -> None:
        self._instruction_scanner = instruction_scanner

    def supports(self, media_type: str) -> bool:
        return media_type == HTML

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:
        text = decode(content, charset=charset or _declared_charset(content))
        found = read(text.encode(), format="html", task="extract", seconds=EXTRACTION_SECONDS)
        return _document(found, media_type, _MARKDOWN, self._instruction_scanner)


class DocxExtractor:
    """Headings by style, lists and tables, as Markdown without inline markup."""

    version = "docx-1"

    def __init__(self, instruction_scanner: InstructionScanner | None = None) -> None:
        self._instruction_scanner = instruction_scanner

    def supports(self, media_type: str) -> bool:
        return media_type == DOCX

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:  # noqa: ARG002
        found = read(content, format="docx", task="extract", seconds=EXTRACTION_SECONDS)
        return _document(found, media_type, _MARKDOWN, self._instruction_scanner)


def _document(
    found: dict[str, Any],
    media_type: str,
    text_type: str = "",
    scanner: InstructionScanner | None = None,
) -> ExtractedDocument:
    if not is_visible(found["text"]):
        raise EmptyExtraction
    warnings = list(found["warnings"])
    if scanner and found["hidden"].strip() and scanner.scan(found["hidden"]):
        warnings.append("hidden_text_like_instructions")
    unshown = {"unshown": found["unshown"]} if found["unshown"].strip() else {}
    return ExtractedDocument(
        text=found["text"],
        media_type=media_type,
        text_type=text_type,
        structure=Structure(
            headings=tuple(
                Heading(title=title, level=level, start=start)
                for title, level, start in found["headings"]
            ),
            page_starts=tuple(found["page_starts"]),
        ),
        warnings=tuple(warnings),
        metadata={**found["metadata"], **unshown},
    )


# --- the charset of an HTML document ---------------------------------------------------------

_PRESCANNED = 4_096
_DECLARED = re.compile(
    rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([\w.:-]+)"
    rb"|^\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:-]+)",
    re.IGNORECASE,
)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)

# The names under which the web knows other encodings than their own; the WHATWG Encoding
# Standard, section 4.2.
_ON_THE_WEB = {
    **dict.fromkeys(("ascii", "us-ascii", "latin1", "iso-8859-1", "iso8859-1"), "windows-1252"),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean"), "cp949"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "windows-1254"),
    **dict.fromkeys(("tis-620", "iso-8859-11"), "cp874"),
    # A declaration that can be read byte by byte is in no encoding of two bytes.
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be", "unicode"), "utf-8"),
}


def _declared_charset(content: bytes) -> str | None:
    """What the document's own beginning says, unless a byte order mark says it."""
    if byte_order_mark(content):
        return None
    found = _DECLARED.search(_COMMENT.sub(b"", content[:_PRESCANNED]))
    if not found:
        return None
    name = (found[1] or found[2]).decode("ascii").lower()
    return _ON_THE_WEB.get(name, name)
