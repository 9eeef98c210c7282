"""The media type of a file, from its bytes as well as from what is claimed of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message
from pathlib import PurePosixPath

from knowledge.adapters.extractors.decoding import byte_order_mark
from knowledge.core.errors import MediaTypeMismatch, UnsupportedMediaType


@dataclass(frozen=True, slots=True)
class MediaType:
    """`type` in lower case without parameters; `charset` as stated with the claim, if it was."""

    type: str
    charset: str | None = None


PLAIN = "text/plain"
MARKDOWN = "text/markdown"
HTML = "text/html"
SVG = "image/svg+xml"
XML = "text/xml"
PDF = "application/pdf"
ZIP = "application/zip"
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCX = _OFFICE + "wordprocessingml.document"
XLSX = _OFFICE + "spreadsheetml.sheet"
PPTX = _OFFICE + "presentationml.presentation"
UNKNOWN = "application/octet-stream"

# Claims that say nothing: what programs send when they do not know.
_NO_CLAIM = frozenset({"", UNKNOWN, "binary/octet-stream", "application/x-download"})

_SAME_TYPE = {
    "text/x-markdown": MARKDOWN,
    "application/xhtml+xml": HTML,
    "application/xml": XML,
    "application/x-pdf": PDF,
    "application/x-zip-compressed": ZIP,
    "application/x-gzip": "application/gzip",
    "image/jpg": "image/jpeg",
    "text/json": "application/json",
}

_MAGIC = (
    (b"%PDF-", PDF),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\x1a\x45\xdf\xa3", "video/x-matroska"),
    (b"\x7fELF", "application/x-elf"),
    (b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (b"\xca\xfe\xba\xbe", "application/java-vm"),
    (b"\0asm", "application/wasm"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"{\\rtf", "application/rtf"),
    (b"%!PS", "application/postscript"),
)
# Signatures that are also words a text may begin with; they count only before binary bytes.
_MAGIC_LIKE_TEXT = frozenset({b"BZh", b"ID3", b"OggS", b"fLaC"})

# ZIP packages that a part of theirs gives away; the names of parts stand there uncompressed.
_CONTENT_TYPES = b"[Content_Types].xml"
_PACKAGES = ((b"word/document", DOCX), (b"xl/workbook", XLSX), (b"ppt/presentation", PPTX))

# What Office makes of a document with a password: the package, encrypted, in an OLE container.
_OLE = "application/x-ole-storage"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_ENCRYPTABLE = frozenset({DOCX, XLSX, PPTX})

_GIVEN_AWAY = frozenset(kind for _, kind in _PACKAGES)
_PARSED = frozenset({PDF, DOCX})

# Formats that are a ZIP or an OLE container inside, with nothing simple to tell them by.
_CONTAINED = {
    "application/vnd.oasis.opendocument.text": ZIP,
    "application/epub+zip": ZIP,
    "application/java-archive": ZIP,
    "application/msword": "application/x-ole-storage",
    "application/vnd.ms-excel": "application/x-ole-storage",
    "application/vnd.ms-powerpoint": "application/x-ole-storage",
}

# A table of our own: the one of the operating system differs from machine to machine.
_BY_EXTENSION = {
    **dict.fromkeys(("md", "markdown", "mdown", "mkd", "mkdn"), MARKDOWN),
    **dict.fromkeys(("html", "htm", "xhtml"), HTML),
    "txt": PLAIN,
    "text": PLAIN,
    "log": PLAIN,
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "xml": XML,
    "svg": SVG,
    "pdf": PDF,
    "zip": ZIP,
    "gz": "application/gzip",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "docx": DOCX,
    "xlsx": XLSX,
    "pptx": PPTX,
    "odt": "application/vnd.oasis.opendocument.text",
    "epub": "application/epub+zip",
    "jar": "application/java-archive",
    "doc": "application/msword",
    "xls": "application/vnd.ms-excel",
    "ppt": "application/vnd.ms-powerpoint",
    "rtf": "application/rtf",
}

_TEXT_APPLICATIONS = frozenset({"application/json", "application/rtf", "application/postscript"})
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_SNIFFED = 4_096
# Readers accept white space before a PDF's header, and some programs write it.
_PDF_LATER = re.compile(rb"[ \t\r\n\f\0]{1,1024}%PDF-")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]|[\x80-\xff]{2}")

_BEFORE_MARKUP = r"\s*(?:<!--(?:(?!-->).)*-->\s*|<\?xml\b(?:(?!\?>).)*\?>\s*)*"
_HTML = re.compile(
    _BEFORE_MARKUP + r"<(?:!doctype\s+html|html|head|body|script)\b", re.IGNORECASE | re.DOTALL
)
_SVG = re.compile(
    _BEFORE_MARKUP + r"(?:<!doctype\s+svg\b[^>]*>\s*)?<svg\b", re.IGNORECASE | re.DOTALL
)
_XML = re.compile(r"\s*<\?xml\b")


def decide(content: bytes, *, claimed: str | None, filename: str | None) -> MediaType:
    """What the file is.

    The claimed media type counts first; the file name's last extension counts where the claim
    says nothing; the bytes must agree with both, or `MediaTypeMismatch` is raised. A file that
    begins as an HTML document or an SVG image is that, whatever it is called, so that nobody
    gets markup into the store by naming it `.md`; Markdown with HTML elements in it is not.
    Whether the type can be admitted is for `Extractors.for_type` to say.
    """
    claim, charset = _parsed(claimed)
    named = _BY_EXTENSION.get(PurePosixPath(filename or "").suffix.lower().removeprefix("."))
    sniffed = _sniffed(content)
    nameless = sniffed is None and _is_binary(content)
    encrypted = sniffed == _OLE and _ENCRYPTED_PACKAGE in content
    for stated in (claim, named):
        # Binary bytes of no known kind may be a damaged file of the stated one: its reader says.
        excused = (nameless and stated in _PARSED) or (encrypted and stated in _ENCRYPTABLE)
        if stated and not _agrees(stated, sniffed) and not excused:
            raise MediaTypeMismatch(
                f"The bytes are {sniffed or 'text'} and not {stated}.",
                claimed=stated,
                found=sniffed or PLAIN,
            )
    if sniffed in _GIVEN_AWAY and claim in {ZIP, None}:
        return MediaType(str(sniffed), charset)
    if claim and _CONTAINED.get(claim, claim) == sniffed == _CONTAINED.get(named or "", ""):
        return MediaType(named or claim, charset)
    return MediaType(claim or named or sniffed or _without_a_name(content), charset)


def _parsed(claimed: str | None) -> tuple[str | None, str | None]:
    if not claimed or not claimed.strip():
        return None, None
    if not _MEDIA_TYPE.fullmatch(claimed.split(";")[0].strip()):
        raise UnsupportedMediaType("The claimed media type is malformed.")
    message = Message()
    message["Content-Type"] = " ".join(claimed.split())
    kind = message.get_content_type()
    kind = _SAME_TYPE.get(kind, kind)
    return (None if kind in _NO_CLAIM else kind), message.get_content_charset()


def _sniffed(content: bytes) -> str | None:
    """The type that the first bytes give away; `None` for text of no particular kind."""
    if signed := _by_signature(content):
        return _package(content) if signed == ZIP else signed
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[:2] == b"MZ" and _CONTROLS.search(content[:_SNIFFED]):
        return "application/x-msdownload"
    head = content[:_SNIFFED].decode(byte_order_mark(content) or "latin-1", errors="ignore")
    head = head.removeprefix("\ufeff")
    if _SVG.match(head):
        return SVG
    if _HTML.match(head):
        return HTML
    return XML if _XML.match(head) else None


def _by_signature(content: bytes) -> str | None:
    if _PDF_LATER.match(content):
        return PDF
    for signature, kind in _MAGIC:
        if content.startswith(signature) and (
            signature not in _MAGIC_LIKE_TEXT or _CONTROLS.search(content[:_SNIFFED])
        ):
            return kind
    return None


def _package(content: bytes) -> str:
    if _CONTENT_TYPES not in content:
        return ZIP
    return next((kind for part, kind in _PACKAGES if part in content), ZIP)


def _agrees(stated: str, sniffed: str | None) -> bool:
    if sniffed is None:
        return _is_text(stated)
    if stated == ZIP and sniffed in _GIVEN_AWAY:
        return True
    return sniffed in {stated, _CONTAINED.get(stated)} or (sniffed == XML and _is_text(stated))


def _is_text(kind: str) -> bool:
    return (
        kind.startswith("text/") or kind in _TEXT_APPLICATIONS or kind.endswith(("+xml", "+json"))
    )


def _is_binary(content: bytes) -> bool:
    return byte_order_mark(content) is None and _CONTROLS.search(content[:_SNIFFED]) is not None


def _without_a_name(content: bytes) -> str:
    """Text, unless it holds NUL bytes that no byte order mark explains."""
    return UNKNOWN if b"\0" in content and byte_order_mark(content) is None else PLAIN
