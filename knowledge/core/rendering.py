"""The block in which passages reach a model, and its exact reading back.

    <knowledge as_of="2026-07-28T00:00:00Z" policy="knowledge-v1">
    <passage doc="Guide" path="Deployment > Rollback" chunk="kc_..." doc_date="2026-05-02" instruction_like="false">
    the text of the passage, byte for byte
    </passage>
    </knowledge>

The text stands between the newline after its opening tag and the newline before its closing tag.
It is not indented and not escaped, for what is quoted must be what was written. So that no text
can close its envelope or open another, the tags of the whole block carry a suffix when any
passage holds something that looks like one of them, in any spelling; the suffix is taken from a
hash of the block's content and occurs in no passage.

Attributes are escaped. A heading path is written `A > B`; a `>` inside a heading is `&gt;`, so
that the separator is never in doubt. Control and format characters are numeric references, among
them line ends and those that turn the direction of text.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, TypeVar

from knowledge.core.analysis import visible
from knowledge.core.types import Candidate

_T = TypeVar("_T")

_SEPARATOR: Final = " > "
_SUFFIX_LENGTH: Final = 8

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_CHARACTERS: Final = {entity: character for character, entity in _ENTITIES.items()}
_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|quot|apos|#x[0-9a-f]{1,6});")
# Unprintable, invisible, turning, unpaired or ending a line somewhere.
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})

# After case, width, white space, invisible characters and references are resolved. The brackets
# are those that pass for a less-than sign.
_LIKE_A_TAG: Final = re.compile(r"[<‹«〈⟨《˂ᐸ≺≪][^\w<‹«〈⟨《˂ᐸ≺≪]*(?:knowledge|passage)")
_LEADING_ZEROS: Final = re.compile(r"&#0+(?=[0-9])")
# Beyond Unicode, and beyond the digits that Python converts.
_NO_REFERENCE: Final = re.compile(r"&#[0-9]{8,}")
_WHITE_SPACE: Final = re.compile(r"\s+")


class MalformedBlock(ValueError):
    """This is not a block that `render` wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPassage:
    """A passage as the block shows it: all that is needed to write it again."""

    chunk_id: str
    title: str
    heading_path: tuple[str, ...]
    doc_date: date | None
    instruction_like: bool
    text: str

    @classmethod
    def of(cls, candidate: Candidate) -> BlockPassage:
        return cls(
            chunk_id=candidate.chunk_id,
            title=candidate.title,
            heading_path=candidate.heading_path,
            doc_date=candidate.doc_date,
            instruction_like=candidate.instruction_like,
            text=candidate.text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBlock:
    as_of: datetime
    policy: str
    passages: tuple[BlockPassage, ...]


# --- writing ---------------------------------------------------------------------------------


def render(passages: Iterable[BlockPassage], *, as_of: datetime, policy: str) -> str:
    """The block, without a newline at its end. `as_of` has an offset and is written in UTC."""
    if as_of.utcoffset() is None:
        raise ValueError("as_of needs an offset from UTC.")
    passages = tuple(passages)
    instant = as_of.astimezone(UTC).isoformat().replace("+00:00", "Z")
    attributes = f'as_of="{instant}" policy="{_escaped(policy)}"'
    headers = [_header(passage) for passage in passages]
    suffix = _suffix(attributes, headers, passages)
    lines = [f"<knowledge{suffix} {attributes}>"]
    for header, passage in zip(headers, passages, strict=True):
        lines += [f"<passage{suffix} {header}>", passage.text, f"</passage{suffix}>"]
    lines.append(f"</knowledge{suffix}>")
    return "\n".join(lines)


def looks_like_a_tag(text: str) -> bool:
    """Whether a text holds anything that could pass for a tag of the block."""
    # References are resolved on both sides of folding: a fullwidth `＆lt;` is one as well.
    folded = _resolved(visible(_resolved(text))).casefold()
    return _LIKE_A_TAG.search(_WHITE_SPACE.sub("", folded)) is not None


def _resolved(text: str) -> str:
    return html.unescape(_NO_REFERENCE.sub(" ", _LEADING_ZEROS.sub("&#", text)))


def _header(passage: BlockPassage) -> str:
    attributes = [f'doc="{_escaped(passage.title)}"']
    if passage.heading_path:
        attributes.append(f'path="{_SEPARATOR.join(map(_escaped, passage.heading_path))}"')
    attributes.append(f'chunk="{_escaped(passage.chunk_id)}"')
    if passage.doc_date is not None:
        attributes.append(f'doc_date="{passage.doc_date.isoformat()}"')
    attributes.append(f'instruction_like="{str(passage.instruction_like).lower()}"')
    return " ".join(attributes)


def _suffix(attributes: str, headers: Sequence[str], passages: Sequence[BlockPassage]) -> str:
    if not any(looks_like_a_tag(passage.text) for passage in passages):
        return ""
    digest = hashlib.sha256()
    for part in (attributes, *headers, *(passage.text for passage in passages)):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    texts = [passage.text.casefold() for passage in passages]
    # A passage cannot foresee a hash of itself except by long search; that is why this repeats.
    while any(digest.hexdigest()[:_SUFFIX_LENGTH] in text for text in texts):
        digest.update(b"again")
    return f"-{digest.hexdigest()[:_SUFFIX_LENGTH]}"


def _escaped(value: str) -> str:
    return "".join(
        _ENTITIES.get(character)
        or (
            f"&#x{ord(character):x};"
            if unicodedata.category(character) in _HIDDEN_CATEGORIES
            else character
        )
        for character in value
    )


# --- reading back ----------------------------------------------------------------------------

_OPENING: Final = re.compile(r'<knowledge(-[0-9a-f]+)? as_of="([^"]*)" policy="([^"]*)">\n')
_PASSAGE: Final = (
    r'<passage{suffix} doc="([^"]*)"(?: path="([^"]*)")? chunk="([^"]*)"'
    r'(?: doc_date="([^"]*)")? instruction_like="(true|false)">\n'
)


def parse_block(block: str) -> ParsedBlock:
    """Read a whole block back, exactly as it was given to `render`. Raises `MalformedBlock`."""
    opening = _OPENING.match(block)
    if opening is None:
        raise MalformedBlock("The block does not begin with its opening tag.")
    suffix = opening[1] or ""
    passage_header = re.compile(_PASSAGE.format(suffix=re.escape(suffix)))
    closing = f"\n</passage{suffix}>\n"
    passages = []
    at = opening.end()
    while (header := passage_header.match(block, at)) is not None:
        # The newline before the closing tag may be the very next character: an empty text.
        end = block.find(closing, header.end())
        if end < 0:
            raise MalformedBlock("A passage is not closed.")
        passages.append(_passage(header, block[header.end() : end]))
        at = end + len(closing)
    if block[at:] != f"</knowledge{suffix}>":
        raise MalformedBlock("The block does not end with its closing tag.")
    return ParsedBlock(
        as_of=_read(datetime.fromisoformat, opening[2]),
        policy=_unescaped(opening[3]),
        passages=tuple(passages),
    )


def _passage(header: re.Match[str], text: str) -> BlockPassage:
    title, path, chunk_id, doc_date, flag = header.groups()
    return BlockPassage(
        chunk_id=_unescaped(chunk_id),
        title=_unescaped(title),
        heading_path=()
        if path is None
        else tuple(_unescaped(heading) for heading in path.split(_SEPARATOR)),
        doc_date=None if doc_date is None else _read(date.fromisoformat, doc_date),
        instruction_like=flag == "true",
        text=text,
    )


def _read(parse: Callable[[str], _T], value: str) -> _T:
    try:
        return parse(value)
    except ValueError as error:
        raise MalformedBlock("A date of the block cannot be read.") from error


def _unescaped(value: str) -> str:
    return _ENTITY.sub(_character, value)


def _character(entity: re.Match[str]) -> str:
    found = entity[0]
    if found in _CHARACTERS:
        return _CHARACTERS[found]
    try:
        return chr(int(found[3:-1], 16))
    except ValueError as error:
        raise MalformedBlock("A character reference of the block names no character.") from error
