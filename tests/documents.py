"""PDF and Word files made for a test, and reading without a process for each."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from pypdf import PdfWriter
from pypdf.generic import (
    DecodedStreamObject,
    DictionaryObject,
    Fit,
    IndirectObject,
    NameObject,
)

from knowledge.adapters.extractors import child
from knowledge.adapters.reading import child as reading


def read_here(content: bytes, *, format: str, task: str, seconds: float) -> dict[str, Any]:  # noqa: A002
    """What `extractors.child.read` gives, made in this process: hundreds of files take seconds
    this way, and nothing but the process is left out."""
    answer = reading._answer({"format": format, "task": task}, content)
    return child._found(reading._encoded(answer, child.LARGEST_ANSWER))


Drawn = tuple[float, float, str]
"""A piece of text and where on the page it begins, in points from the lower left corner."""


def lines(*texts: str, x: float = 72, y: float = 720, apart: float = 14) -> list[Drawn]:
    return [(x, y - number * apart, text) for number, text in enumerate(texts)]


def pdf(
    *pages: Sequence[Drawn],
    outline: Sequence[tuple[str, int, int, float | None]] = (),
    info: Mapping[str, str] | None = None,
    password: str | None = None,
    owner_password: str | None = None,
    to_unicode: Mapping[int, str] | None = None,
    rotate: int = 0,
    matrix: str = "1 0 0 1",
) -> bytes:
    """A PDF with these pages. `outline` is (title, level, page index, top); `to_unicode` maps
    character codes to UTF-16 in hexadecimal; `matrix` turns the text."""
    writer = PdfWriter()
    font = _font(writer, to_unicode)
    for drawn in pages:
        page = writer.add_blank_page(612, 792)
        stream = DecodedStreamObject()
        stream.set_data(
            "\n".join(
                f"BT /F1 11 Tf {matrix} {x} {y} Tm <{text.encode('latin-1').hex()}> Tj ET"
                for x, y, text in drawn
            ).encode()
        )
        page[NameObject("/Contents")] = writer._add_object(stream)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        if rotate:
            page.rotate(rotate)
    above: list[Any] = []
    for title, level, number, top in outline:
        del above[level - 1 :]
        fit = Fit.fit() if top is None else Fit.xyz(left=0, top=top)
        parent = above[-1] if above else None
        above.append(
            writer.add_outline_item(title=title, page_number=number, parent=parent, fit=fit)
        )
    if info:
        writer.add_metadata({f"/{name}": value for name, value in info.items()})
    if password is not None or owner_password is not None:
        writer.encrypt(password or "", owner_password, algorithm="RC4-128")
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def _font(writer: PdfWriter, to_unicode: Mapping[int, str] | None) -> IndirectObject:
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
            NameObject("/Encoding"): NameObject("/WinAnsiEncoding"),
        }
    )
    if to_unicode:
        printable = {code: f"{code:04X}" for code in range(0x20, 0x7F)}
        pairs = "\n".join(
            f"<{code:02X}> <{text}>" for code, text in {**printable, **to_unicode}.items()
        )
        stream = DecodedStreamObject()
        stream.set_data(
            (
                "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
                "1 begincodespacerange <00> <FF> endcodespacerange\n"
                f"{len(printable) + len(to_unicode)} beginbfchar\n{pairs}\nendbfchar\n"
                "endcmap end end"
            ).encode()
        )
        font[NameObject("/ToUnicode")] = writer._add_object(stream)
    return writer._add_object(font)


# --- Word ------------------------------------------------------------------------------------

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_STYLE_NAMES = {"Title": "Title", **{f"Heading{n}": f"heading {n}" for n in range(1, 7)}}


def paragraph(
    text: str, *, style: str = "", bullet: int | None = None, hidden: bool = False
) -> str:
    properties = f'<w:pStyle w:val="{style}"/>' if style else ""
    if bullet is not None:
        properties += f'<w:numPr><w:ilvl w:val="{bullet}"/><w:numId w:val="1"/></w:numPr>'
    run = "<w:rPr><w:vanish/></w:rPr>" if hidden else ""
    return (
        f"<w:p><w:pPr>{properties}</w:pPr>"
        f'<w:r>{run}<w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'
    )


def table(*rows: Sequence[str]) -> str:
    cells = "".join(
        "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>"
        for row in rows
    )
    return f"<w:tbl>{cells}</w:tbl>"


def docx(*body: str, core: str = "", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A Word document; `parts` adds to its parts or takes their place."""
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
        for key, name in _STYLE_NAMES.items()
    )
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:numFmt w:val="bullet"/></w:lvl>' for level in range(3)
    )
    made: dict[str, str | bytes] = {
        "[Content_Types].xml": (
            f'<Types xmlns="{_PACKAGE}/content-types">'
            '<Default Extension="xml" ContentType="application/xml"/>'
            '<Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{_MAIN}.document.main+xml"/>'
            "</Types>"
        ),
        "_rels/.rels": (
            f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>'
        ),
        "word/_rels/document.xml.rels": (
            f'<Relationships xmlns="{_PACKAGE}/relationships">'
            f'<Relationship Id="s" Type="{_OFFICE}/styles" Target="styles.xml"/>'
            f'<Relationship Id="n" Type="{_OFFICE}/numbering" Target="numbering.xml"/>'
            "</Relationships>"
        ),
        "word/document.xml": f"<w:document {_W}><w:body>{''.join(body)}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {_W}>{styles}</w:styles>",
        "word/numbering.xml": (
            f'<w:numbering {_W}><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>'
            '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
        ),
    }
    if core:
        made["docProps/core.xml"] = (
            f'<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
            'xmlns:dc="http://purl.org/dc/elements/1.1/" '
            f'xmlns:dcterms="http://purl.org/dc/terms/">{core}</cp:coreProperties>'
        )
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as out:
        for name, part in {**made, **(parts or {})}.items():
            out.writestr(name, part)
    return package.getvalue()
