"""Whether evidence holds: sources that the caller may read now, lines that there are, exact words."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from access.principal import Principal
from artifacts import descriptors
from artifacts import store as artifacts
from artifacts.errors import BlobMissing
from artifacts.models import Artifact, ArtifactOrigin, SourceDescriptor
from knowledge.adapters.source_texts import text_of_source
from knowledge.core.errors import EvidenceRefused, EvidenceUnknownSource, EvidenceWithoutText
from knowledge.core.records import (
    AttachedFile,
    Evidence,
    check_against,
    checked_range,
    require_evidence_text,
)

_SOURCES_AT_ONCE: Final = 1_000
_SMALL: Final = 1 << 20
_MOST_HELD: Final = 16
# A conversation, a proposal and a document take their files with them when they go.
_OTHERS_OWN: Final = frozenset(
    {ArtifactOrigin.KNOWLEDGE_SOURCE, ArtifactOrigin.ATTACHMENT, ArtifactOrigin.PROPOSAL}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Evidence that holds. `sources` are the artifacts of all that is new, by descriptor id.

    `attached` are those among them that get their descriptor with the revision, and `described`
    says what each new source is.
    """

    evidence: tuple[Evidence, ...]
    sources: Mapping[str, Artifact] = field(default_factory=dict)
    attached: Mapping[str, Artifact] = field(default_factory=dict)
    described: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def check(
    evidence: Sequence[Evidence],
    attachments: Sequence[AttachedFile],
    principal: Principal,
    *,
    current_scope: str | None,
    known: Collection[Evidence] = (),
) -> Checked:
    """Evidence with that of the attachments after it, in the caller's session.

    What is `known` was checked when it was first written, and stays as it is: its source may have
    gone since, or be hidden from whoever writes now. Raises `EvidenceRefused` of the first citation
    that does not hold, with its list and its position there.
    """
    attached = _attached(attachments, principal, current_scope)
    cited = [
        *(("evidence", place, one) for place, one in enumerate(evidence)),
        *(
            ("attachments", place, one.cited_as(source))
            for place, (one, (source, _)) in enumerate(zip(attachments, attached, strict=True))
        ),
    ]
    cited = [(of, place, _with_range(one, place, of)) for of, place, one in cited]
    fresh = [each for each in cited if each[0] == "attachments" or each[2] not in known]
    named = {one.source for of, _, one in fresh if of == "evidence"}
    sources = {**_readable_sources(named, principal, current_scope), **dict(attached)}
    for of, place, one in fresh:
        if one.source not in sources:
            raise EvidenceUnknownSource().at(place, of)
    texts = _Texts()
    for of, place, one in fresh:
        if one.speaks_of_text:
            try:
                check_against(one, texts.of(sources[one.source]))
            except EvidenceRefused as refused:
                raise refused.at(place, of) from None
    return Checked(
        evidence=tuple(one for _, _, one in cited),
        sources=sources,
        attached=dict(attached),
        described={name: described(artifact) for name, artifact in sources.items()},
    )


class _Texts:
    """Texts of sources; of a few small ones each is read once, however often it is cited."""

    def __init__(self) -> None:
        self._held: dict[UUID, list[str]] = {}

    def of(self, artifact: Artifact) -> Iterable[str]:
        """Raises `EvidenceWithoutText`, also for a source whose bytes are gone."""
        if artifact.pk in self._held:
            return self._held[artifact.pk]
        if artifact.byte_size > _SMALL or len(self._held) == _MOST_HELD:
            return _read(artifact)
        self._held[artifact.pk] = list(_read(artifact))
        return self._held[artifact.pk]


def _read(artifact: Artifact) -> Iterator[str]:
    try:
        yield from text_of_source(artifact)
    except BlobMissing as gone:
        raise EvidenceWithoutText("The bytes of this source are gone.") from gone


def described(artifact: Artifact) -> dict[str, Any]:
    """The descriptor of an artifact, whether it is there already or will be."""
    members: dict[str, Any] = json.loads(descriptors.canonical_of(artifact))
    return members


def readable_descriptors(
    sources: Iterable[str], principal: Principal, *, current_scope: str | None
) -> dict[str, dict[str, Any]]:
    """What the sources are that the caller may read now, by descriptor id."""
    found = _readable_sources(set(sources), principal, current_scope)
    return {name: described(artifact) for name, artifact in found.items()}


def _with_range(evidence: Evidence, place: int, of: str) -> Evidence:
    require_evidence_text(evidence)
    try:
        return checked_range(evidence)
    except EvidenceRefused as refused:
        raise refused.at(place, of) from None


def _attached(
    attachments: Sequence[AttachedFile], principal: Principal, current_scope: str | None
) -> list[tuple[str, Artifact]]:
    """The artifacts of receipts, in order, each with the descriptor that it has or will have."""
    found: dict[UUID, Artifact] = {}
    for batch in _batches({str(one.artifact_id) for one in attachments}):
        readable = artifacts.readable(principal, current_scope=current_scope)
        found |= {artifact.pk: artifact for artifact in readable.filter(pk__in=batch)}
    attached: list[tuple[str, Artifact]] = []
    for place, one in enumerate(attachments):
        artifact = found.get(one.artifact_id)
        if artifact is None or artifact.sha256 != one.sha256:
            raise EvidenceUnknownSource("There is no upload by this id and hash.").at(
                place, "attachments"
            )
        if artifact.origin in _OTHERS_OWN:
            raise EvidenceUnknownSource(
                "This file belongs to a document, a conversation or a proposal: cite a document's"
                " source by its descriptor, or upload the file for the record."
            ).at(place, "attachments")
        said = descriptors.canonical_of(artifact)
        attached.append((descriptors.descriptor_id(said), artifact))
    return attached


def _readable_sources(
    wanted: Collection[str], principal: Principal, current_scope: str | None
) -> dict[str, Artifact]:
    found: dict[str, Artifact] = {}
    for batch in _batches(wanted):
        owners = dict(
            SourceDescriptor.objects.filter(pk__in=batch).values_list("artifact_id", "pk")
        )
        readable = artifacts.readable(principal, current_scope=current_scope)
        found |= {owners[one.pk]: one for one in readable.filter(pk__in=list(owners))}
    return found


def _batches(wanted: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(wanted)
    for start in range(0, len(ordered), _SOURCES_AT_ONCE):
        yield ordered[start : start + _SOURCES_AT_ONCE]
