"""Bytes to text, exactly or not at all.

A byte order mark decides, else the charset that the media type states, else strict UTF-8.
Nothing is guessed: a guess that is wrong stores words that nobody wrote. What looks likely is
only told to whoever has to send the file again.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from knowledge.core.errors import BinaryContent, UndecodableText

# The longer marks first: UTF-32's begins with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Only encodings of text: Python also knows `rot13`, `unicode_escape` and the like.
_CHARSETS = frozenset(
    (
        *("ascii", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
        *("koi8-r", "koi8-u", "mac-roman", "cp437", "cp850", "cp866", "cp874", "tis-620"),
        *(f"cp125{number}" for number in range(9)),
        *(f"iso8859-{number}" for number in range(1, 17)),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_kr", "cp949"),
        *("shift_jis", "cp932", "euc_jp", "iso2022_jp"),
    )
)

# RFC 2781, section 4.3: without a mark, `UTF-16` is big-endian. Python would take the byte order
# of the machine it runs on.
_BYTE_ORDER_BY_STANDARD = {"utf-16": "utf-16-be", "utf-32": "utf-32-be"}

_SAMPLE = 65_536
_HIGH = 0x80
_MANY_HIGH_BYTES = 0.3
_MANY_NULS = 0.3


def decode(content: bytes, *, charset: str | None) -> str:
    """The text of `content` without its byte order mark.

    Raises `UndecodableText` with the byte offset of the first byte that does not decode and a
    hint at the likely encoding, and `BinaryContent` for text with NUL characters. Neither says
    what stands there.
    """
    mark, encoding = _encoding(content, charset)
    text, wrong = _strictly(content[len(mark) :], encoding)
    if wrong is not None:
        offset = wrong + len(mark)
        likely = _likely_encoding(content, encoding)
        hint = f" It looks like {likely}." if likely else ""
        raise UndecodableText(
            f"Byte {offset} is not {encoding}.{hint} Save it as UTF-8, or state its charset in "
            "the media type.",
            offset=offset,
            likely_encoding=likely,
        )
    if "\0" in text:
        raise BinaryContent
    return text


def decoded_blocks(blocks: Iterable[bytes], *, charset: str | None) -> Iterator[str]:
    """What `decode` gives for all the bytes together, a block at a time.

    Raises `UndecodableText` and `BinaryContent`, perhaps after some of the text.
    """
    decoder: codecs.IncrementalDecoder | None = None
    for block in blocks:
        rest = block
        if decoder is None:
            mark, encoding = _encoding(block, charset)
            decoder = codecs.getincrementaldecoder(encoding)("strict")
            rest = block[len(mark) :]
        yield _decoded(decoder, rest)
    if decoder is not None:
        yield _decoded(decoder, b"", final=True)


def _decoded(decoder: codecs.IncrementalDecoder, content: bytes, *, final: bool = False) -> str:
    try:
        text = decoder.decode(content, final)
    except UnicodeDecodeError:
        text = None  # Python's own error would carry the content along
    if text is None:
        raise UndecodableText
    if "\0" in text:
        raise BinaryContent
    return text


def _encoding(content: bytes, charset: str | None) -> tuple[bytes, str]:
    """The byte order mark, if any, and the encoding, by what the content begins with."""
    mark, encoding = _byte_order_mark(content)
    if encoding is None:
        encoding = _stated(charset) if charset else "utf-8"
        if not charset and (order := _utf_16_without_mark(content)):
            raise UndecodableText(
                f"This looks like {order} without a byte order mark. Save it as UTF-8, or state "
                "its charset in the media type.",
                offset=0,
                likely_encoding=order,
            )
        if encoding in {"utf-8", "ascii"} and b"\0" in content:
            raise BinaryContent(offset=content.index(b"\0"))
    return mark, encoding


def byte_order_mark(content: bytes) -> str | None:
    """The encoding that a byte order mark announces, if there is one."""
    return _byte_order_mark(content)[1]


def _byte_order_mark(content: bytes) -> tuple[bytes, str | None]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return mark, encoding
    return b"", None


def _stated(charset: str) -> str:
    try:
        name = codecs.lookup(charset.strip()).name
    except (LookupError, ValueError):
        name = ""
    if name not in _CHARSETS:
        raise UndecodableText("The charset that the media type states is not known here.")
    return _BYTE_ORDER_BY_STANDARD.get(name, name)


def _strictly(content: bytes, encoding: str) -> tuple[str, int | None]:
    """The text, or the offset of the first byte that is wrong.

    A value and not an exception: Python's own error would carry the whole content along.
    """
    try:
        return content.decode(encoding), None
    except UnicodeDecodeError as error:
        return "", error.start


def _utf_16_without_mark(content: bytes) -> str | None:
    """UTF-16 of mostly Latin text has a NUL in every other byte."""
    sample = content[:_SAMPLE]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = max(len(sample) // 2, 1)
    if len(content) % 2 == 0 and max(even, odd) / half > _MANY_NULS and not (even and odd):
        return "UTF-16LE" if odd else "UTF-16BE"
    return None


def _likely_encoding(content: bytes, tried: str) -> str | None:
    """A guess to tell a person, from the share of high bytes and what else decodes."""
    sample = content[:_SAMPLE]
    high = sum(byte >= _HIGH for byte in sample)
    if tried == "utf-8":
        replaced = sample.decode("utf-8", errors="replace")
        damaged = replaced.count("\ufffd")
        beyond_ascii = sum(ord(character) >= _HIGH for character in replaced)
        if beyond_ascii > 2 * damaged:
            return "UTF-8 with damaged bytes"
    if high > len(sample) * _MANY_HIGH_BYTES:
        if _strictly(sample[: len(sample) // 2 * 2], "gb18030")[1] is None:
            return "GB18030 or another encoding of Chinese, Japanese or Korean"
        return None
    return "Windows-1252" if _strictly(sample, "cp1252")[1] is None else None
