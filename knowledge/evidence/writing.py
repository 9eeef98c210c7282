"""One write of a record: what was asked, checked, and then published in one transaction.

Evidence is checked before the transaction that writes; in it the sources are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID, uuid4

from access.errors import Malformed, NotFound
from access.principal import Principal
from artifacts import descriptors
from artifacts import store as artifacts
from artifacts.models import SourceDescriptor
from knowledge.adapters.database import lock_request, now
from knowledge.core.errors import (
    EvidenceMissing,
    EvidenceUnknownSource,
    RequestConflict,
    RevisionConflict,
    WrongKind,
)
from knowledge.core.records import (
    Annotation,
    AttachedFile,
    Evidence,
    Expected,
    Placement,
    RecordChange,
    RecordKind,
    Representation,
    Revision,
    Writing,
    label_of,
    request_hash,
    revision_hash,
    without_repeats,
)
from knowledge.core.scope import resolve_scope
from knowledge.core.wording import REASON_LIMIT, checked_reason
from knowledge.evidence.checking import Checked, check, readable_descriptors
from knowledge.evidence.rights import require_writer, space_of
from knowledge.models import (
    KnowledgeEvent,
    Record,
    RecordRevision,
    RecordSource,
    VisibilitySpace,
)

ON_EVIDENCE: Final = frozenset({RecordKind.CLAIM, RecordKind.RELATIONSHIP})
_EVENTS: Final = {
    RecordChange.CREATED: KnowledgeEvent.RECORD_CREATED,
    RecordChange.SAVED: KnowledgeEvent.RECORD_SAVED,
    RecordChange.CORRECTED: KnowledgeEvent.RECORD_CORRECTED,
    RecordChange.ANNOTATED: KnowledgeEvent.RECORD_ANNOTATED,
    RecordChange.RECONCILED: KnowledgeEvent.RECORD_RECONCILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRevision:
    """A record as one of its revisions has it; `value` is what the revision says."""

    record: Record
    row: RecordRevision
    value: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a write makes of the latest revision, which is `None` for a new record.

    `new` and `attachments` are to be checked; `content`, `note` and them are what is scanned.
    """

    change: RecordChange
    kind: RecordKind
    content: Mapping[str, Any]
    new: Sequence[Evidence] = ()
    attachments: Sequence[AttachedFile] = ()
    note: str = ""
    representation: Representation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One write that was asked for."""

    principal: Principal
    writing: Writing
    asked: Mapping[str, Any]
    draft: Callable[[Revision | None], Draft]
    expected: Expected | None = None
    placement: Placement | None = None

    def require_rights(self) -> None:
        require_writer(self.principal, self.writing)
        if (self.expected is None) == (self.placement is None):
            raise Malformed(
                "Say where a new record is to be found (`visibility`), or which revision of which"
                " record this follows (`record_id`, `expected_revision`, `expected_hash`)."
            )
        if self.placement is not None:
            space_of(self.placement, self.principal)
        if len(self.writing.reason) > REASON_LIMIT:
            checked_reason(self.writing.reason)

    @property
    def request_sha256(self) -> str:
        return request_hash(
            _plain(
                {
                    **self.asked,
                    "reason": self.writing.reason,
                    "expected": self.expected,
                    "placement": self.placement,
                }
            )
        )

    def answered(self) -> WrittenRevision | None:
        """What this request wrote before; raises `RequestConflict` when it asked for another thing.

        `NotFound` when whoever asks may not see that record any more.
        """
        row = (
            RecordRevision.objects.filter(
                tenant_id=self.principal.tenant_id,
                principal_id=self.principal.principal_id,
                request_id=self.writing.request_id,
            )
            .select_related("record__space")
            .first()
        )
        if row is None:
            return None
        if row.request_sha256 != self.request_sha256:
            raise RequestConflict
        spaces = VisibilitySpace.objects.visible_in_any_project(
            resolve_scope(self.principal, self.writing.current_scope), self.principal.projects
        )
        if not spaces.filter(pk=row.record.space_id).exists():
            raise NotFound
        return WrittenRevision(record=row.record, row=row, value=row.value())

    def record(self, *, locked: bool) -> Record | None:
        """The record as it was expected; `None` when there is to be a new one."""
        if self.expected is None:
            return None
        scope = resolve_scope(self.principal, self.writing.current_scope)
        found = Record.objects.readable(scope).select_related("space")
        if locked:
            found = found.select_for_update(of=("self",))
        record = found.filter(pk=self.expected.record_id).first()
        if record is None:
            raise NotFound
        if (record.revision, record.sha256) != (self.expected.revision, self.expected.sha256):
            raise RevisionConflict(
                f"Its latest revision is {record.revision}.",
                revision=record.revision,
                hash=record.sha256,
            )
        return record

    def prepare(self, record: Record | None) -> Prepared:
        latest = record.revisions.get(revision=record.revision).value() if record else None
        draft = self.draft(latest)
        if latest is not None and latest.kind is not draft.kind:
            raise WrongKind(f"This record is a {latest.kind}.")
        checked = check(
            draft.new,
            draft.attachments,
            self.principal,
            current_scope=self.writing.current_scope,
            known=set(latest.cited) if latest else (),
        )
        prepared = Prepared(attempt=self, draft=draft, latest=latest, checked=checked)
        prepared.require_evidence()
        return prepared

    def publish(self, prepared: Prepared) -> WrittenRevision:
        """Writes it, under the locks of the request, the record and its new sources."""
        principal = self.principal
        lock_request(principal.tenant_id, principal.principal_id, str(self.writing.request_id))
        if (before := self.answered()) is not None:
            return before
        record = self.record(locked=True)
        prepared.hold_sources()
        at = now()
        value = prepared.revision(record.pk if record else uuid4(), at)
        canonical = value.canonical()
        sha256, label = revision_hash(canonical), label_of(value.kind, value.content)
        if record is None:
            if self.placement is None:
                raise NotFound
            space, _ = VisibilitySpace.objects.get_or_create(**space_of(self.placement, principal))
            record = Record(
                record_id=value.record,
                tenant_id=principal.tenant_id,
                kind=value.kind,
                principal_id=principal.principal_id,
                space=space,
                created_at=at,
            )
        record.revision, record.sha256, record.label = value.revision, sha256, label
        record.changed_at = at
        record.save()
        row = RecordRevision.objects.create(
            record=record,
            tenant_id=principal.tenant_id,
            revision=value.revision,
            sha256=sha256,
            previous_sha256=value.previous,
            change=value.change,
            canonical=canonical.decode(),
            principal_id=principal.principal_id,
            surface=principal.surface,
            reason=self.writing.reason,
            request_id=self.writing.request_id,
            request_sha256=self.request_sha256,
            at=at,
        )
        _name_sources(record, value, prepared.checked)
        self._record_event(record, value)
        return WrittenRevision(record=record, row=row, value=value)

    def _record_event(self, record: Record, value: Revision) -> None:
        KnowledgeEvent.objects.create(
            tenant_id=record.tenant_id,
            name=_EVENTS[value.change],
            actor=self.principal.principal_id,
            surface=self.principal.surface,
            data={
                "record_id": str(record.pk),
                "kind": str(value.kind),
                "revision": value.revision,
                "hash": record.sha256,
                "request_id": str(self.writing.request_id),
                "associations": len(value.cited),
                "sources": len(value.source_ids),
                "reason": self.writing.reason,
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A write whose evidence holds."""

    attempt: Attempt
    draft: Draft
    latest: Revision | None
    checked: Checked

    def require_evidence(self) -> None:
        annotated = self.draft.change is RecordChange.ANNOTATED
        if annotated or self.draft.kind in ON_EVIDENCE:
            needed = self.checked.evidence if annotated else self._evidence()
            if not needed:
                what = "An annotation" if annotated else f"A {self.draft.kind}"
                raise EvidenceMissing(f"{what} cites at least one source.")

    def revision(self, record: UUID, at: datetime) -> Revision:
        latest, draft = self.latest, self.draft
        instant = at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        annotations = latest.annotations if latest else ()
        if draft.change is RecordChange.ANNOTATED:
            note = Annotation(
                # Its number among the notes of the record, of which none ever goes.
                id=str(len(annotations) + 1),
                note=draft.note,
                by=self.attempt.principal.principal_id,
                at=instant,
                evidence=without_repeats(self.checked.evidence),
            )
            annotations = (*annotations, note)
        representation = draft.representation or (
            latest.representation if latest else Representation.COMPACT
        )
        return Revision(
            record=record,
            kind=draft.kind,
            revision=latest.revision + 1 if latest else 1,
            previous=self.attempt.expected.sha256 if self.attempt.expected else "",
            change=draft.change,
            by=self.attempt.principal.principal_id,
            at=instant,
            reason=self.attempt.writing.reason,
            representation=representation,
            content=draft.content,
            evidence=self._evidence(),
            annotations=annotations,
            sources=self._described(representation),
        )

    def hold_sources(self) -> None:
        """Keeps the new sources from going before this is written, for good where they were
        attached; raises `EvidenceUnknownSource` when one has gone since it was checked."""
        new = set(self.checked.sources) - set(self.checked.attached)
        there = (
            SourceDescriptor.objects.filter(pk__in=new)
            .order_by("pk")
            .select_for_update(no_key=True)
            .values_list("pk", flat=True)
        )
        if new - set(there):
            raise EvidenceUnknownSource("A source was deleted just now.")
        wanted = {artifact.pk for artifact in self.checked.attached.values()}
        kept = artifacts.keep_for_good(wanted)
        if len(kept) != len(wanted):
            raise EvidenceUnknownSource("An upload has expired just now.")
        for artifact in kept:
            descriptors.described(artifact)

    def _evidence(self) -> tuple[Evidence, ...]:
        former = self.latest.evidence if self.latest else ()
        match self.draft.change:
            case RecordChange.ANNOTATED:
                return former
            case RecordChange.SAVED:
                return without_repeats((*former, *self.checked.evidence))
        return without_repeats(self.checked.evidence)

    def _described(self, representation: Representation) -> Mapping[str, Mapping[str, Any]]:
        """What an expanded revision says of its sources: what was written before, and what whoever
        writes may read. Of others it has the id alone."""
        if representation is Representation.COMPACT:
            return {}
        attempt, written = self.attempt, dict(self.latest.sources) if self.latest else {}
        cited = {one.source for one in self.latest.cited} if self.latest else set()
        found = readable_descriptors(
            cited - set(written), attempt.principal, current_scope=attempt.writing.current_scope
        )
        return {**written, **found, **self.checked.described}


def _name_sources(record: Record, value: Revision, checked: Checked) -> None:
    """Brings the list of the sources of a record up to its latest revision."""
    cited = set(value.source_ids)
    named = set(RecordSource.objects.filter(record=record).values_list("descriptor_id", flat=True))
    RecordSource.objects.filter(record=record, current=True).exclude(
        descriptor_id__in=cited
    ).update(current=False)
    RecordSource.objects.filter(record=record, current=False, descriptor_id__in=cited).update(
        current=True
    )
    RecordSource.objects.bulk_create(
        RecordSource(
            record=record,
            tenant_id=record.tenant_id,
            descriptor_id=source,
            artifact_id=checked.sources[source].pk,
            current=True,
        )
        for source in value.source_ids
        if source not in named
    )


def _plain(value: Any) -> Any:
    """A request as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, UUID | StrEnum) else value
