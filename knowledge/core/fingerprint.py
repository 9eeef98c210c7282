"""Names that depend on bytes alone: chunk ids, content hashes, derived document ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID, uuid5

from knowledge.core.types import Structure

Part = str | bytes | int | Sequence[str]

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_CHUNK_ID_CHARACTERS = 16
_BITS_OF_A_CHARACTER = 5

_SOURCE_NAMESPACE = UUID("6f1d3a54-7c0e-4f7e-9d0a-2a1f8f6c1b01")
_BYTES_NAMESPACE = UUID("6f1d3a54-7c0e-4f7e-9d0a-2a1f8f6c1b02")
_ATTACHMENT_NAMESPACE = UUID("6f1d3a54-7c0e-4f7e-9d0a-2a1f8f6c1b03")
_PROPOSAL_NAMESPACE = UUID("6f1d3a54-7c0e-4f7e-9d0a-2a1f8f6c1b04")


def frame(*parts: Part) -> bytes:
    """The parts as one byte string that no other parts have.

    Each part is a kind, its length in bytes and a colon, then its bytes: `s` text in UTF-8,
    `b` bytes, `i` a decimal integer, `l` a sequence of texts (its bytes are their frame).
    """
    return b"".join(_framed(part) for part in parts)


def _framed(part: Part) -> bytes:
    kind, payload = _payload(part)
    return b"%s%d:%s" % (kind, len(payload), payload)


def _payload(part: Part) -> tuple[bytes, bytes]:
    match part:
        case str():
            return b"s", part.encode()
        case bytes():
            return b"b", part
        case int():
            return b"i", str(int(part)).encode()
        case _:
            return b"l", frame(*part)


def content_sha256(text: str) -> str:
    """SHA-256 of the text in UTF-8, in hexadecimal; it binds a citation to its words."""
    return hashlib.sha256(text.encode()).hexdigest()


def chunker_version(extractor: str, normaliser: str, chunker: str, profile: str) -> str:
    """All that decides where chunks begin and end, as one name.

    `markdown-1/normal-1/structure-1/default`, for example.
    """
    return "/".join((extractor, normaliser, chunker, profile))


def chunk_key(chunker_version: str, ordinal: int, heading_path: Sequence[str], text: str) -> str:
    """SHA-256 in hexadecimal of what a chunk is, whichever document it is in."""
    return hashlib.sha256(frame(chunker_version, ordinal, tuple(heading_path), text)).hexdigest()


def chunk_id(document_id: UUID, version: int, chunk_key: str) -> str:
    """The citation: `kc_` and 80 bits in lower-case Crockford base32.

    The same document chunked again in any process on any day gets the same ids; the same text
    at another place or in another document or version gets another.
    """
    digest = hashlib.sha256(frame(str(document_id), version, chunk_key)).digest()
    return "kc_" + _base32(digest, _CHUNK_ID_CHARACTERS)


def plan_fingerprint(
    *,
    chunker_version: str,
    structure: Structure,
    built_in: Sequence[str],
    policy_version: str,
    scope: Sequence[str],
    embedding: Sequence[str],
    text: str,
    chunk_keys: Sequence[str],
) -> str:
    """SHA-256 in hexadecimal of all that decides which chunks are stored and for whom.

    Two calls of ingest may write into one chunk set exactly when this is the same. `built_in`
    names the versions of the detectors that run whatever the policy, `scope` the visibility, its
    project or principal and the sensitivity, `embedding` the model and its dimensions or nothing.
    The keys of the chunks say once more where every one begins and ends, so that nothing that
    moves a boundary can be forgotten here.
    """
    headings = [
        str(part)
        for heading in structure.headings
        for part in (heading.start, heading.level, heading.title)
    ]
    framed = frame(
        "plan-1",
        chunker_version,
        headings,
        [str(start) for start in structure.page_starts],
        built_in,
        policy_version,
        scope,
        embedding,
        text,
        chunk_keys,
    )
    return hashlib.sha256(framed).hexdigest()


def is_chunk_id(text: str) -> bool:
    """Whether this could be a citation at all; any other string names nothing."""
    body = text.removeprefix("kc_")
    return len(text) == _CHUNK_ID_CHARACTERS + 3 and body != text and set(body) <= set(_CROCKFORD)


def _base32(digest: bytes, characters: int) -> str:
    number = int.from_bytes(digest) >> (len(digest) * 8 - characters * _BITS_OF_A_CHARACTER)
    return "".join(
        _CROCKFORD[number >> shift & 0b11111]
        for shift in range((characters - 1) * _BITS_OF_A_CHARACTER, -1, -_BITS_OF_A_CHARACTER)
    )


def document_id_for_source(tenant: str, type: str, id: str) -> UUID:  # noqa: A002 - the connector's own words
    """The document that a connector names; edited bytes are a new version of it."""
    return _named(_SOURCE_NAMESPACE, tenant, type, id)


def document_id_for_bytes(tenant: str, principal: str, sha256: str, media_type: str) -> UUID:
    """The document of bytes that nobody named: the same bytes admitted twice are one document."""
    return _named(_BYTES_NAMESPACE, tenant, principal, sha256, media_type)


def document_id_for_attachment(tenant: str, principal: str, sha256: str) -> UUID:
    """The document of an attached file.

    In a namespace of its own, so that deleting a conversation never takes a document that was
    admitted by hand from the same bytes.
    """
    return _named(_ATTACHMENT_NAMESPACE, tenant, principal, sha256)


def document_id_for_proposal(tenant: str, principal: str, sha256: str) -> UUID:
    """The document of a file that an agent proposed to keep, whichever operator approves it."""
    return _named(_PROPOSAL_NAMESPACE, tenant, principal, sha256)


def _named(namespace: UUID, *parts: str) -> UUID:
    return uuid5(namespace, frame(*parts).hex())
