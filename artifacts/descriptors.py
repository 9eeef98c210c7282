"""What identifies a retained original: a descriptor, whose id is its own hash.

An identity and never a credential: whoever knows an id still needs to be let in by other means.
"""

from __future__ import annotations

import hashlib

import rfc8785

from artifacts.models import Artifact, SourceDescriptor


def canonical(
    *, path: str, sha256: str, attribution: str, filename: str, media_type: str, size: int
) -> bytes:
    """The descriptor as JSON in the one spelling that RFC 8785 gives it."""
    return rfc8785.dumps(
        {
            "path": path,
            "sha256": sha256,
            "attribution": attribution,
            "filename": filename,
            "media_type": media_type,
            "size": size,
        }
    )


def descriptor_id(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()


def canonical_of(artifact: Artifact) -> bytes:
    """The descriptor of an artifact, made of its row.

    Its path names the original by its id: where a storage keeps the bytes is no part of what they
    are.
    """
    return canonical(
        path=f"artifacts/{artifact.pk}",
        sha256=artifact.sha256,
        attribution=artifact.attribution,
        filename=artifact.filename,
        media_type=artifact.media_type,
        size=artifact.byte_size,
    )


def describe(artifact: Artifact) -> SourceDescriptor:
    """Makes the descriptor of a source, in the transaction that makes the source."""
    said = canonical_of(artifact)
    return SourceDescriptor.objects.create(
        descriptor_id=descriptor_id(said),
        tenant_id=artifact.tenant_id,
        artifact=artifact,
        canonical=said.decode(),
    )


def described(artifact: Artifact) -> SourceDescriptor:
    """The descriptor of an artifact, made now unless it has one; the caller holds its row."""
    known = SourceDescriptor.objects.filter(artifact=artifact).first()
    return known or describe(artifact)
