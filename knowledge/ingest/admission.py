"""Step 1, admit: who may hand a document over, and which bytes."""

from __future__ import annotations

from dataclasses import dataclass

from access.errors import Malformed
from access.principal import Principal
from access.trust import OriginTrust, Scope
from artifacts import store as artifacts
from artifacts.models import Artifact
from knowledge.core.errors import InvalidBatchSize, TooLarge, UntrustedOrigin
from knowledge.core.profiles import profile_named
from knowledge.core.types import MAX_BATCH_SIZE, ChunkDraft, IngestRequest, Verdict, Visibility
from knowledge.core.wording import checked_title


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A request that may go ahead, and the bytes it speaks of."""

    request: IngestRequest
    principal: Principal
    title: str
    artifact: Artifact
    content: bytes


def admit(request: IngestRequest, principal: Principal, *, max_bytes: int) -> Admitted:
    """Raises why the document cannot be taken; reads nothing before trust and scope are there."""
    principal.require(Scope.WRITE)
    if not principal.trust_of(request.origin_trust).at_least(OriginTrust.USER):
        raise UntrustedOrigin(
            "The turn's origin trust is below USER. A person may admit this document,"
            " or an agent may propose it for retention."
        )
    return read(request, principal, max_bytes=max_bytes)


def read(request: IngestRequest, principal: Principal, *, max_bytes: int) -> Admitted:
    """The bytes and what they would be admitted as; who vouches for it is not asked here."""
    title = checked_title(request.title)
    if not 1 <= request.batch_size <= MAX_BATCH_SIZE:
        raise InvalidBatchSize(f"A batch has 1 to {MAX_BATCH_SIZE} chunks.")
    if (request.visibility is Visibility.PROJECT) != (request.project_scope is not None):
        raise Malformed("project_scope is given exactly when visibility is 'project'.")
    if request.project_scope is not None:
        principal.require_project(request.project_scope)
    if request.document_id is not None and request.source is not None:
        raise Malformed("Give document_id or source, not both.")
    profile_named(request.profile)  # unknown: said before anything is read or queued
    artifact = artifacts.get(principal, request.artifact_id)
    if artifact.byte_size > max_bytes:
        raise TooLarge(f"The document has {artifact.byte_size:,} bytes; {max_bytes:,} are allowed.")
    return Admitted(
        request=request,
        principal=principal,
        title=title,
        artifact=artifact,
        content=artifacts.read_bytes(artifact),
    )


class AdmitAll:
    """The admission policy of an installation that has no other: every chunk is admitted."""

    version = "admit-all-1"

    def classify(self, chunk: ChunkDraft) -> Verdict:  # noqa: ARG002 - the port's shape
        return Verdict.ADMIT
