"""Word documents through mammoth, which writes HTML of them, and then as HTML."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET
from xml.parsers import expat

import mammoth

from knowledge.adapters.reading import html
from knowledge.adapters.reading.answers import NoText, Reading, Reason, repaired

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MOST_PARTS = 10_000
_LARGEST_XML = 64 * 1024**2
_LARGEST_RATIO = 200
_SMALL = 1024**2

_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
"""
_XML = re.compile(r"\.(?:xml|rels)$", re.IGNORECASE)
_BESIDE = re.compile(r"word/(?:comments|header|footer)\d*\.xml|docProps/(?:custom|app)\.xml")
_NAMESPACE = re.compile(r"\{(.*)\}")
_CORE = {
    "title": "title",
    "creator": "author",
    "subject": "subject",
    "keywords": "keywords",
    "description": "description",
    "language": "language",
    "lastModifiedBy": "last_modified_by",
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def extract(content: bytes) -> Reading:
    parts = _parts(content)
    hidden: list[str] = []
    for name in [name for name in parts if name.startswith("word/") and name.endswith(".xml")]:
        parts[name] = _without_hidden_runs(parts[name], hidden)
    written = mammoth.convert_to_html(
        io.BytesIO(_packed(parts)), style_map=_STYLES, convert_image=_no_image
    )
    found = html.page(f"<html><body>{written.value}</body></html>", main_content=False)
    shown = any(text.strip() for text in hidden)
    found.metadata = _metadata(parts.get("docProps/core.xml", b""))
    found.warnings = ["hidden_text_dropped"] if shown else []
    found.hidden = repaired("\n".join(hidden))
    found.unshown = repaired("\n".join([found.unshown, found.hidden, *_beside_the_text(parts)]))
    return found


def _parts(content: bytes) -> dict[str, bytes]:
    """The XML parts by name; raises what a bomb or an encrypted package deserves."""
    if content.startswith(_OLE):
        raise NoText(Reason.ENCRYPTED, "")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            entries = [entry for entry in package.infolist() if _XML.search(entry.filename)]
            _refuse_bombs(entries)
            # What an entry declares is all that is ever read of it.
            parts = {entry.filename: package.read(entry) for entry in entries}
    except RuntimeError:
        raise NoText(Reason.ENCRYPTED, "") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        raise NoText(Reason.UNREADABLE, "") from None
    for part in parts.values():
        _refuse_declarations(part)
    return parts


def _refuse_bombs(entries: list[zipfile.ZipInfo]) -> None:
    total = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if (
        len(entries) > _MOST_PARTS
        or total > _LARGEST_XML
        or (total > _SMALL and total > packed * _LARGEST_RATIO)
    ):
        raise NoText(Reason.TOO_LARGE, "This document is far larger unpacked than packed.")


def _refuse_declarations(part: bytes) -> None:
    """No part of a Word document has a DTD; one that has wants to define entities."""

    def refuse(*_: Any) -> None:
        raise NoText(Reason.UNREADABLE, "A part of this document defines entities of its own.")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(part, True)
    except expat.ExpatError:
        raise NoText(Reason.UNREADABLE, "") from None


def _without_hidden_runs(part: bytes, hidden: list[str]) -> bytes:
    """The part without runs formatted as hidden; their text goes to `hidden`."""
    if b"vanish" not in part and b"webHidden" not in part:
        return part
    root = ET.fromstring(part)  # noqa: S314 - no DTD
    found = False
    for parent in list(root.iter()):
        for run in [child for child in parent if _local(child) == "r"]:
            if _is_hidden(run):
                hidden.append(_text_of(run))
                parent.remove(run)
                found = True
    return ET.tostring(root) if found else part


def _is_hidden(run: ET.Element) -> bool:
    return any(
        _local(mark) in {"vanish", "specVanish"}
        and not any(
            _local_name(key) == "val" and value in {"0", "false", "off"}
            for key, value in mark.items()
        )
        for properties in run
        if _local(properties) == "rPr"
        for mark in properties
    )


def _local(element: ET.Element) -> str:
    return _local_name(element.tag)


def _local_name(name: str) -> str:
    return _NAMESPACE.sub("", name)


def _text_of(element: ET.Element) -> str:
    return "".join(
        node.text or ""
        for node in element.iter()
        if _local(node) in {"t", "delText", "instrText", "lpwstr"}
    )


def _packed(parts: dict[str, bytes]) -> bytes:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as out:
        for name, part in parts.items():
            out.writestr(name, part)
    return package.getvalue()


def _no_image(_image: Any) -> list[Any]:
    return []


def _metadata(core: bytes) -> dict[str, str]:
    """The core properties; `date` is when it was last changed, else made."""
    if not core:
        return {}
    values = {
        _local(node): (node.text or "").strip()
        for node in ET.fromstring(core)  # noqa: S314 - no DTD
    }
    found = {ours: values.get(theirs, "") for theirs, ours in _CORE.items()}
    found["date"] = next(
        (day[0] for name in ("modified", "created") if (day := _DAY.match(values.get(name, "")))),
        "",
    )
    return {name: repaired(value) for name, value in found.items() if value}


def _beside_the_text(parts: dict[str, bytes]) -> Iterator[str]:
    """Comments, headers and footers, deleted text, field codes, addresses of links."""
    for name, part in parts.items():
        root = ET.fromstring(part)  # noqa: S314 - no DTD
        if name.endswith(".rels"):
            yield from (node.get("Target", "") for node in root if node.get("TargetMode"))
        elif _BESIDE.fullmatch(name):
            for paragraph in root.iter():
                if _local(paragraph) in {"p", "property"}:
                    yield _text_of(paragraph)
        elif name.startswith("word/"):
            yield from (
                node.text or "" for node in root.iter() if _local(node) in {"delText", "instrText"}
            )
