"""Reading records: what a caller may see of them, every revision, and where their evidence leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from artifacts import store as artifacts
from artifacts.models import Artifact, SourceDescriptor
from knowledge.core.records import Evidence, EvidenceState, RecordKind, Revision
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.evidence.checking import described
from knowledge.evidence.writing import WrittenRevision
from knowledge.models import Deletion, Record, RecordRevision, RecordSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEvidence:
    """A citation of a revision, and where it leads for whoever asks.

    `annotation` is the id of the note whose evidence it is, empty for the record's own. Of a source
    that is `available` there is the `descriptor`, and `artifact_id` and `sha256` to download it by.
    `attribution` is the citation's own where it has one, else the source's.
    """

    annotation: str
    position: int
    cited: Evidence
    state: EvidenceState
    attribution: str | None
    artifact_id: UUID | None = None
    sha256: str | None = None
    descriptor: Mapping[str, Any] | None = None


def get_record(
    record_id: UUID,
    principal: Principal,
    *,
    current_scope: str | None = None,
    revision: int | None = None,
) -> WrittenRevision:
    """A record as its latest revision has it, or as an earlier one had; `NotFound` for neither."""
    with tenant_session(principal.tenant_id):
        record = _record(record_id, resolve_scope(principal, current_scope))
        row = record.revisions.filter(revision=revision or record.revision).first()
        if row is None:
            raise NotFound
    return WrittenRevision(record=record, row=row, value=row.value())


def records_of(
    scope: ReadScope, *, kind: RecordKind | None = None, source: str | None = None
) -> QuerySet[Record]:
    """What a caller may see, newest first: of one kind, or citing one source in the latest revision.

    To be read in the caller's session.
    """
    found = Record.objects.readable(scope).select_related("space")
    if kind is not None:
        found = found.filter(kind=kind)
    return found if source is None else found.citing(source)


def revisions_of(record_id: UUID, scope: ReadScope) -> QuerySet[RecordRevision]:
    """The revisions of a record, newest first and without their text; raises `NotFound`.

    To be read in the caller's session.
    """
    return _record(record_id, scope).revisions.defer("canonical").order_by("-revision")


def resolve_evidence(
    record_id: UUID,
    principal: Principal,
    *,
    current_scope: str | None = None,
    revision: int | None = None,
) -> tuple[WrittenRevision, list[ResolvedEvidence]]:
    """The evidence of a revision, its own and that of its notes; raises `NotFound`."""
    written = get_record(record_id, principal, current_scope=current_scope, revision=revision)
    with tenant_session(principal.tenant_id):
        sources = _Sources.of(written, principal, current_scope)
    return written, list(sources.resolved(written.value))


def _record(record_id: UUID, scope: ReadScope) -> Record:
    record = Record.objects.readable(scope).select_related("space").filter(pk=record_id).first()
    if record is None:
        raise NotFound
    return record


@dataclass(frozen=True, slots=True)
class _Sources:
    """What has become of the sources of a record, for one caller."""

    readable: Mapping[str, Artifact]
    deleted: frozenset[str]

    @classmethod
    def of(
        cls, written: WrittenRevision, principal: Principal, current_scope: str | None
    ) -> _Sources:
        rows = list(
            RecordSource.objects.filter(record=written.record).values_list(
                "descriptor_id", "artifact_id", "deletion"
            )
        )
        of_artifact = {artifact: source for source, artifact, _ in rows}
        described_still = set(
            SourceDescriptor.objects.filter(pk__in=of_artifact.values()).values_list(
                "pk", flat=True
            )
        )
        readable = artifacts.readable(principal, current_scope=current_scope)
        found = {
            of_artifact[one.pk]: one
            for one in readable.filter(pk__in=list(of_artifact))
            if of_artifact[one.pk] in described_still
        }
        # That a document was deleted is told to whoever could have seen it.
        scope = resolve_scope(principal, current_scope)
        seen = set(
            Deletion.objects.visible_to(scope)
            .filter(pk__in={deletion for _, _, deletion in rows if deletion})
            .values_list("pk", flat=True)
        )
        deleted = frozenset(
            source
            for source, _, deletion in rows
            if source not in described_still and (deletion is None or deletion in seen)
        )
        return cls(found, deleted)

    def resolved(self, value: Revision) -> list[ResolvedEvidence]:
        lists = [("", value.evidence), *((note.id, note.evidence) for note in value.annotations)]
        return [
            self._one(annotation, position, cited)
            for annotation, evidence in lists
            for position, cited in enumerate(evidence)
        ]

    def _one(self, annotation: str, position: int, cited: Evidence) -> ResolvedEvidence:
        artifact = self.readable.get(cited.source)
        if artifact is None:
            gone = cited.source in self.deleted
            return ResolvedEvidence(
                annotation=annotation,
                position=position,
                cited=cited,
                state=EvidenceState.SOURCE_DELETED if gone else EvidenceState.SOURCE_NOT_VISIBLE,
                attribution=cited.attribution,
            )
        return ResolvedEvidence(
            annotation=annotation,
            position=position,
            cited=cited,
            state=EvidenceState.AVAILABLE,
            attribution=cited.attribution or artifact.attribution,
            artifact_id=artifact.pk,
            sha256=artifact.sha256,
            descriptor=described(artifact),
        )
