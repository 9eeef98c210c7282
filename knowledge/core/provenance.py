"""No belief from a document: what a consolidation pass may read, and what a belief may stand on.

A passage is quoted, never believed. So a pass that forms beliefs from what was said reads the
transcript without its knowledge blocks, and a belief whose provenance is a document or a part of
one is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote
from uuid import UUID

from knowledge.core.analysis import visible
from knowledge.core.rendering import MalformedBlock, looks_like_a_tag, parse_block, render

# --- what may be read ------------------------------------------------------------------------

# A tag of a block in the ways that a transcript may spell it: as it was rendered, escaped for
# HTML, for JSON or for an address.
_TAG: Final = re.compile(
    r"(?P<bracket><|＜|&lt;?|&#0*60;?|&#x0*3c;?|\\{1,4}u003c|\\{1,4}x3c|%3c)"
    r"(?P<closing>(?:[\\/]|&#0*47;?|&#x0*2f;?|&sol;|%2f)*)"
    r"(?:knowledge|passage)(?P<suffix>-[0-9a-f]+)?(?![A-Za-z0-9_])>?",
    re.IGNORECASE,
)
_OPENING: Final = re.compile(r"<knowledge(-[0-9a-f]+)? ")


def strip_knowledge(transcript: str) -> str:
    """The transcript without its knowledge blocks: what a consolidation pass may read.

    A block that is whole, to the letter as `render` writes it, is taken out and nothing else
    is. What is left of a broken one marks no certain end, so it is never guessed at: a tag that
    opens no whole block takes everything after it, and one that closes what nothing opened
    everything before. A text that lost all of its own tags is a text like any other; give the
    transcript whole, as the model saw it.
    """
    kept: list[str] = []
    at = 0
    while (tag := _TAG.search(transcript, at)) is not None:
        end = _end_of_block(transcript, tag.start())
        if end is not None:
            kept.append(transcript[at : tag.start()])
            at = end
        elif tag["closing"]:
            kept.clear()
            at = tag.end()
        else:
            kept.append(transcript[at : tag.start()])
            return "" if _closes_unopened(transcript, tag) else "".join(kept)
    kept.append(transcript[at:])
    return "".join(kept)


def _closes_unopened(transcript: str, broken: re.Match[str]) -> bool:
    """Whether a later tag closes what neither the broken opening nor one after it opened.

    Then the broken one may itself be the words of a passage whose own opening is lost.
    """
    opened = {_family(broken)}
    for tag in _TAG.finditer(transcript, broken.end()):
        if not tag["closing"]:
            opened.add(_family(tag))
        elif _family(tag) not in opened:
            return True
    return False


def _family(tag: re.Match[str]) -> tuple[str, str | None]:
    """What the tags of one block have in common."""
    return tag["bracket"].casefold(), tag["suffix"]


def _end_of_block(transcript: str, start: int) -> int | None:
    """Where the whole block that begins here ends; `None` when none does."""
    opening = _OPENING.match(transcript, start)
    if opening is None:
        return None
    closing = f"</knowledge{opening[1] or ''}>"
    # The suffix occurs in no passage, and without one no passage holds a tag: the first closing
    # tag is the block's own.
    end = transcript.find(closing, opening.end())
    if end < 0:
        return None
    end += len(closing)
    block = transcript[start:end]
    try:
        parsed = parse_block(block)
        written = render(parsed.passages, as_of=parsed.as_of, policy=parsed.policy)
    except (MalformedBlock, ValueError, OverflowError):
        return None
    return end if written == block else None


# --- what a belief may stand on --------------------------------------------------------------


class KnowledgeNamed(StrEnum):
    """How a provenance names something of the knowledge store."""

    KIND = "kind"
    CHUNK_ID = "chunk_id"
    ADDRESS = "address"
    BLOCK = "block"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a belief stands on: the host's word for its kind, and the host's id of it."""

    kind: str
    id: str


_KIND: Final = re.compile(r"document|chunk|(?<!ac)knowledge|passage|citation")
_CHUNK_ID: Final = re.compile(r"(?<![a-z0-9])kc[_-][a-z0-9]")
_ADDRESS: Final = re.compile(r"knowledge:|urn:verbatim:|/v1/(?:documents|chunks)(?![a-z0-9_-])")
_UUID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}(?![0-9a-f])")


def knowledge_named_by(provenance: Provenance) -> KnowledgeNamed | None:
    """Whether the very shape of a provenance says that it is of the knowledge store.

    Whether it exists is not asked: `kc_` and our addresses are ours whatever follows them.
    """
    kind, named = _plain(provenance.kind), _plain(provenance.id)
    if _KIND.search("".join(filter(str.isalnum, kind))):
        return KnowledgeNamed.KIND
    if _CHUNK_ID.search(named):
        return KnowledgeNamed.CHUNK_ID
    if _ADDRESS.search(named):
        return KnowledgeNamed.ADDRESS
    if looks_like_a_tag(provenance.id):
        return KnowledgeNamed.BLOCK
    return None


def uuids_in(provenance: Provenance) -> set[UUID]:
    """What in an id could be the id of a document, in any spelling of a UUID."""
    return {UUID(found[0]) for found in _UUID.finditer(_plain(provenance.id))}


def _plain(text: str) -> str:
    """Without escapes, invisible characters, widths and case."""
    return visible(unquote(unquote(text))).casefold()
