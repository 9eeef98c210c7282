"""Records against a plain-Python model of their histories, step by random step.

The model knows what every revision said and cited, and who may see a record by rules written down
here a second time. Any write may die at a named point of its transaction; then nothing happened.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact, SourceDescriptor
from artifacts.sweeper import sweep
from knowledge.core.errors import (
    EvidenceMissing,
    EvidenceUnknownSource,
    QuoteNotFound,
    RequestConflict,
    RevisionConflict,
)
from knowledge.core.records import (
    RECORD_SCHEMA,
    AttachedFile,
    Evidence,
    EvidenceState,
    Expected,
    Placement,
    Representation,
    Writing,
)
from knowledge.core.types import DocumentChange, SecretFinding, Visibility
from knowledge.evidence.records import Records
from knowledge.evidence.writing import WrittenRevision
from knowledge.models import Record, RecordRevision, RecordSource
from knowledge.wiring import store
from tests.machine import Death, Place, Viewer, dying
from tests.support import admit, source_of

MOST_RECORDS = 5
TEXT = "The quokka pump is started by hand.\nIt stops at dusk.\n"
QUOTES = (None, "quokka pump", "It stops at dusk.", "by hand.\nIt stops")

POINTS = (
    ("knowledge.evidence.writing.lock_request", "after"),
    ("artifacts.descriptors.describe", "after"),
    ("knowledge.evidence.writing._name_sources", "before"),
    ("knowledge.evidence.writing._name_sources", "after"),
    ("knowledge.evidence.writing.Attempt._record_event", "after"),
)
DEATHS = (
    st.none()
    | st.none()
    | st.builds(
        lambda point, cut: Death(point[0], point[1], disconnects=cut),
        st.sampled_from(POINTS),
        st.booleans(),
    )
)
CITATIONS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(QUOTES), st.booleans()), max_size=3
)


class NothingSecret:
    """What scans for secrets has tests of its own, and takes its time."""

    version = "none"

    def scan(self, text: str) -> list[SecretFinding]:
        return []


@dataclass(frozen=True, slots=True)
class Said:
    """What a revision has to say."""

    content: dict[str, Any]
    evidence: tuple[Evidence, ...]
    notes: tuple[tuple[str, tuple[Evidence, ...]], ...]
    representation: Representation
    sha256: str


@dataclass(slots=True)
class Known:
    record_id: UUID
    kind: str
    place: Place
    history: list[Said]

    @property
    def latest(self) -> Said:
        return self.history[-1]

    def expected(self) -> Expected:
        return Expected(
            record_id=self.record_id, revision=len(self.history), sha256=self.latest.sha256
        )


@dataclass(slots=True)
class Source:
    """A source by its descriptor; an upload has none until something cites it."""

    artifact: Artifact | None
    descriptor: str
    document: UUID | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A write that was answered, to be asked again."""

    again: Callable[[str], WrittenRevision]
    record: Known
    row: int


_runs = itertools.count(1)


class RecordMachine(RuleBasedStateMachine):
    """One world of a tenant that nobody else uses."""

    def __init__(self) -> None:
        super().__init__()
        self.tenant = f"records-{next(_runs)}"
        self.records = Records(secret_scanner=NothingSecret())
        self.numbers = itertools.count(1)
        self.alice = self._person("alice")
        self.bob = self._person("bob")
        low = replace(self._person("carol"), sensitivity_ceiling=Sensitivity.INTERNAL)
        self.viewers = (
            *(Viewer(self.alice, project) for project in (None, "apollo")),
            *(Viewer(self.bob, project) for project in (None, "apollo")),
            Viewer(low, None),
            Viewer(replace(self.alice, tenant_id=f"{self.tenant}-rival"), "apollo"),
        )
        self.known: list[Known] = []
        self.gone: list[Known] = []
        self.done: list[Done] = []
        admitted = admit(TEXT, by=self.alice, title="Pumps")
        self.sources = [
            Source(
                artifact=None,
                descriptor=source_of(admitted, self.tenant),
                document=admitted.document_id,
            )
        ]
        self.touched: Known | None = None

    def _person(self, who: str) -> Principal:
        return Principal(
            tenant_id=self.tenant,
            principal_id=who,
            scopes=frozenset({Scope.WRITE}),
            projects=frozenset({"apollo"}),
            max_origin_trust=OriginTrust.USER,
            sensitivity_ceiling=Sensitivity.RESTRICTED,
        )

    def _writing(self, record: Known | None, reason: str = "") -> Writing:
        return Writing(
            request_id=uuid4(),
            reason=reason,
            origin_trust=OriginTrust.USER,
            current_scope=record.place.project if record else None,
        )

    def _writer(self, record: Known, bob: bool) -> Principal:
        """Bob, where he may see it."""
        viewer = Viewer(self.bob, record.place.project)
        return self.bob if bob and record.place.seen_by(viewer) else self.alice

    def _one(self, choice: int) -> Known:
        return self.known[choice % len(self.known)]

    def _cited(
        self, by: Principal, citations: Sequence[tuple[int, str | None, bool]]
    ) -> tuple[tuple[Evidence, ...], tuple[AttachedFile, ...], bool]:
        """Citations of sources that there are, and attachments; whether a source has gone.

        Bob cites the document, which everybody may read; what Alice attached may be hidden from him.
        """
        evidence, attachments, missing = [], [], False
        for choice, quote, fresh in citations:
            if fresh and by is self.alice:
                attachments.append(self._upload(quote))
                continue
            source = self.sources[choice % len(self.sources) if by is self.alice else 0]
            missing |= source.deleted
            evidence.append(Evidence(source=source.descriptor, quote=quote))
        return tuple(evidence), tuple(attachments), missing

    def _upload(self, quote: str | None) -> AttachedFile:
        content = f"{TEXT}{next(self.numbers)}\n".encode()
        artifact = artifacts.put(self.alice, io.BytesIO(content), filename="note.txt")
        return AttachedFile(artifact_id=artifact.pk, sha256=artifact.sha256, quote=quote)

    def _keep_sources(self, attachments: Sequence[AttachedFile]) -> tuple[Evidence, ...]:
        """The evidence that attachments became."""
        kept = []
        for one in attachments:
            with tenant_session(self.tenant):
                artifact = Artifact.objects.select_related("descriptor").get(pk=one.artifact_id)
            descriptor = artifact.descriptor.pk
            self.sources.append(Source(artifact=artifact, descriptor=descriptor))
            kept.append(one.cited_as(descriptor))
        return tuple(kept)

    def _write(
        self,
        record: Known | None,
        death: Death | None,
        write: Callable[[str], WrittenRevision],
        said: Callable[[str], Said],
        refusal: type[Exception] | None,
    ) -> WrittenRevision | None:
        """Writes, dies or is refused; `said` is what the revision of that hash has to say."""
        before = self._rows()
        written: WrittenRevision | None = None
        refused: Exception | None = None
        with dying(death) as died:
            try:
                written = write("")
            except (EvidenceMissing, EvidenceUnknownSource, RevisionConflict) as error:
                refused = error
        if died or refusal is not None:
            if not died:
                assert isinstance(refused, refusal or ()), (refused, refusal)
            assert self._rows() == before
            return None
        assert refused is None, refused
        assert written is not None
        if record is not None:
            record.history.append(said(written.row.sha256))
            self.done.append(Done(write, record, len(record.history)))
            self.touched = record
        return written

    def _rows(self) -> tuple[int, ...]:
        with operations_session():
            return (
                *(model.objects.count() for model in (Record, RecordRevision, RecordSource)),
                SourceDescriptor.objects.count(),
                Artifact.objects.filter(expires_at=None).count(),
            )

    # --- acts

    @precondition(lambda self: len(self.known) < MOST_RECORDS)
    @rule(
        claim=st.booleans(),
        visibility=st.sampled_from(list(Visibility)),
        secret=st.booleans(),
        citations=CITATIONS,
        death=DEATHS,
    )
    def make(
        self,
        *,
        claim: bool,
        visibility: Visibility,
        secret: bool,
        citations: list[tuple[int, str | None, bool]],
        death: Death | None,
    ) -> None:
        evidence, attachments, missing = self._cited(self.alice, citations)
        level = Sensitivity.CONFIDENTIAL if secret else Sensitivity.INTERNAL
        project = "apollo" if visibility is Visibility.PROJECT else None
        placement = Placement(visibility=visibility, project_scope=project, sensitivity=level)
        told, words = self._writing(None), f"words {next(self.numbers)}"

        def write(more: str) -> WrittenRevision:
            given: dict[str, Any] = {
                "evidence": evidence,
                "attachments": attachments,
                "placement": placement,
            }
            if claim:
                return self.records.make_claim(self.alice, told, statement=words + more, **given)
            return self.records.save_page(self.alice, told, title=words + more, body=words, **given)

        refusal: type[Exception] | None = None
        if missing:
            refusal = EvidenceUnknownSource
        elif claim and not citations:
            refusal = EvidenceMissing
        written = self._write(None, death, write, lambda _: self._never(), refusal)
        if written is None:
            return
        content: dict[str, Any] = (
            {"statement": words} if claim else {"title": words, "body": words, "metadata": {}}
        )
        record = Known(
            record_id=written.record.pk,
            kind="claim" if claim else "page",
            place=Place(self.tenant, "alice", str(visibility), project, str(level)),
            history=[
                Said(
                    content=content,
                    evidence=_once((*evidence, *self._keep_sources(attachments))),
                    notes=(),
                    representation=Representation.COMPACT,
                    sha256=written.row.sha256,
                )
            ],
        )
        self.known.append(record)
        self.done.append(Done(write, record, 1))
        self.touched = record

    def _never(self) -> Said:
        raise AssertionError

    @precondition(lambda self: bool(self.known))
    @rule(
        choice=st.integers(0, 9),
        bob=st.booleans(),
        stale=st.booleans(),
        citations=CITATIONS,
        note=st.booleans(),
        death=DEATHS,
    )
    def add(
        self,
        *,
        choice: int,
        bob: bool,
        stale: bool,
        citations: list[tuple[int, str | None, bool]],
        note: bool,
        death: Death | None,
    ) -> None:
        """A page is saved or a note is made: either adds evidence."""
        record = self._one(choice)
        note = note or record.kind == "claim"
        by = self._writer(record, bob)
        latest, expected = record.latest, record.expected()
        known = {*latest.evidence, *(one for _, cited in latest.notes for one in cited)}
        evidence, attachments, _ = self._cited(by, citations)
        missing = any(one not in known and self._is_deleted(one.source) for one in evidence)
        if stale:
            expected = replace(expected, sha256=hashlib.sha256(b"another").hexdigest())
        told, words = self._writing(record), f"words {next(self.numbers)}"

        def write(more: str) -> WrittenRevision:
            given: dict[str, Any] = {
                "expected": expected,
                "evidence": evidence,
                "attachments": attachments,
            }
            if note:
                return self.records.annotate(by, told, note=words + more, **given)
            return self.records.save_page(by, told, title=words + more, body=words, **given)

        def said(sha256: str) -> Said:
            added = (*evidence, *self._keep_sources(attachments))
            if note:
                notes = (*latest.notes, (words, _once(added)))
                return replace(latest, notes=notes, sha256=sha256)
            content = {"title": words, "body": words, "metadata": {}}
            joined = _once((*latest.evidence, *added))
            return replace(latest, content=content, evidence=joined, sha256=sha256)

        refusal: type[Exception] | None = None
        if stale:
            refusal = RevisionConflict
        elif missing:
            refusal = EvidenceUnknownSource
        elif note and not evidence and not attachments:
            refusal = EvidenceMissing
        self._write(record, death, write, said, refusal)

    @precondition(lambda self: bool(self.known))
    @rule(
        choice=st.integers(0, 9),
        bob=st.booleans(),
        kept=st.lists(st.booleans(), max_size=4),
        citations=CITATIONS,
        expanded=st.booleans(),
        only_representation=st.booleans(),
        death=DEATHS,
    )
    def replace_evidence(
        self,
        *,
        choice: int,
        bob: bool,
        kept: list[bool],
        citations: list[tuple[int, str | None, bool]],
        expanded: bool,
        only_representation: bool,
        death: Death | None,
    ) -> None:
        """A page is reconciled, or a claim corrected: the whole set is another."""
        record = self._one(choice)
        by = self._writer(record, bob)
        latest, expected = record.latest, record.expected()
        known = {*latest.evidence, *(one for _, cited in latest.notes for one in cited)}
        added, _, _ = self._cited(by, [(each[0], each[1], False) for each in citations])
        staying = tuple(one for one, keep in zip(latest.evidence, kept, strict=False) if keep)
        wanted: tuple[Evidence, ...] = (*staying, *added)
        missing = any(one not in known and self._is_deleted(one.source) for one in wanted)
        told, words = self._writing(record, "reviewed"), f"words {next(self.numbers)}"
        written_as = Representation.EXPANDED if expanded else Representation.COMPACT
        reconciles = record.kind == "page" or only_representation

        def write(more: str) -> WrittenRevision:
            if not reconciles:
                return self.records.correct(
                    by,
                    told,
                    expected=expected,
                    content={"statement": words + more},
                    evidence=wanted,
                )
            given: dict[str, Any] = {
                "expected": expected,
                "schema": RECORD_SCHEMA,
                "representation": written_as,
                "evidence": None if only_representation else wanted,
            }
            if more:
                given["expected"] = replace(expected, revision=expected.revision + 1)
            else:
                rows = self._rows()
                preview = self.records.reconcile(by, told, dry_run=True, **given)
                assert preview.written is None
                assert self._rows() == rows
            done = self.records.reconcile(by, told, **given)
            assert done.written is not None
            return done.written

        def said(sha256: str) -> Said:
            if not reconciles:
                content = {"statement": words}
                return replace(latest, content=content, evidence=_once(wanted), sha256=sha256)
            evidence = latest.evidence if only_representation else _once(wanted)
            return replace(latest, evidence=evidence, representation=written_as, sha256=sha256)

        refusal: type[Exception] | None = None
        if missing and not (reconciles and only_representation):
            refusal = EvidenceUnknownSource
        elif not reconciles and not wanted:
            refusal = EvidenceMissing
        self._write(record, death, write, said, refusal)

    @precondition(lambda self: bool(self.done))
    @rule(choice=st.integers(0, 99), otherwise=st.booleans())
    def ask_again(self, *, choice: int, otherwise: bool) -> None:
        """What was answered is answered alike; the same request id for another thing is not."""
        done = self.done[choice % len(self.done)]
        if done.record in self.gone:
            return
        before = self._rows()
        try:
            answer = done.again(" and more" if otherwise else "")
        except RequestConflict:
            assert otherwise
        else:
            assert not otherwise
            assert answer.row.revision == done.row
            assert answer.row.sha256 == done.record.history[done.row - 1].sha256
        assert self._rows() == before

    @precondition(lambda self: bool(self.known))
    @rule(choice=st.integers(0, 9), quote=st.sampled_from(["never said", "Quokka"]))
    def misquote(self, *, choice: int, quote: str) -> None:
        record, before = self._one(choice), self._rows()
        source = self.sources[-1]
        if source.deleted:
            return
        try:
            self.records.annotate(
                self.alice,
                self._writing(record),
                expected=record.expected(),
                note="x",
                evidence=[Evidence(source=source.descriptor, quote=quote)],
            )
        except QuoteNotFound:
            assert self._rows() == before
        else:
            raise AssertionError(quote)

    @precondition(lambda self: bool(self.known))
    @rule(choice=st.integers(0, 9), visibility=st.sampled_from(list(Visibility)))
    def rescope(self, *, choice: int, visibility: Visibility) -> None:
        record = self._one(choice)
        moving = visibility is Visibility.PROJECT and record.place.project is None
        store().change_record(
            record.record_id,
            self.alice,
            DocumentChange(
                visibility=visibility,
                project_scope="apollo" if moving else None,
                origin_trust=OriginTrust.USER,
            ),
            current_scope=record.place.project,
        )
        project = "apollo" if visibility is Visibility.PROJECT else None
        record.place = replace(record.place, visibility=str(visibility), project=project)
        self.touched = record

    @precondition(lambda self: len(self.known) > 1)
    @rule(choice=st.integers(0, 9))
    def remove(self, *, choice: int) -> None:
        record = self._one(choice)
        removal = store().remove_record(
            record.record_id, self.alice, current_scope=record.place.project
        )
        assert removal.revisions == len(record.history)
        self.known.remove(record)
        self.gone.append(record)

    @precondition(lambda self: not self.sources[0].deleted and len(self.known) > 2)
    @rule()
    def delete_the_document(self) -> None:
        document = self.sources[0].document
        assert document is not None
        store().delete(document, self.alice)
        sweep()
        self.sources[0].deleted = True

    def _is_deleted(self, descriptor: str) -> bool:
        return any(one.deleted for one in self.sources if one.descriptor == descriptor)

    # --- what must hold

    @invariant()
    def every_revision_is_as_it_was_written(self) -> None:
        record = self.touched
        if record is None or record in self.gone:
            return
        previous = ""
        for number, said in enumerate(record.history, 1):
            read = store().get_record(
                record.record_id,
                self.alice,
                current_scope=record.place.project,
                revision=number,
            )
            assert read.row.sha256 == said.sha256
            assert hashlib.sha256(read.row.canonical.encode()).hexdigest() == said.sha256
            assert read.row.previous_sha256 == read.value.previous == previous
            assert read.value.content == said.content
            assert read.value.evidence == said.evidence
            assert read.value.representation is said.representation
            notes = tuple((one.note, one.evidence) for one in read.value.annotations)
            assert notes == said.notes
            previous = said.sha256
        assert read.record.revision == len(record.history)
        self._sources_are_those_that_are_named(record)

    def _sources_are_those_that_are_named(self, record: Known) -> None:
        def cited(said: Said) -> set[str]:
            notes = (one for _, evidence in said.notes for one in evidence)
            return {one.source for one in (*said.evidence, *notes)}

        with tenant_session(self.tenant):
            rows = dict(
                RecordSource.objects.filter(record=record.record_id).values_list(
                    "descriptor_id", "current"
                )
            )
        assert set(rows) == set().union(*map(cited, record.history))
        assert {one for one, current in rows.items() if current} == cited(record.latest)
        _, resolved = store().resolve_evidence(
            record.record_id, self.alice, current_scope=record.place.project
        )
        for one in resolved:
            gone = self._is_deleted(one.cited.source)
            wanted = EvidenceState.SOURCE_DELETED if gone else EvidenceState.AVAILABLE
            assert one.state is wanted

    @invariant()
    def a_record_is_for_those_who_may_see_it(self) -> None:
        record = self.touched
        if record is None:
            return
        for viewer in self.viewers:
            seen = record not in self.gone and record.place.seen_by(viewer)
            try:
                store().get_record(record.record_id, viewer.principal, current_scope=viewer.project)
            except NotFound:
                assert not seen, viewer
            else:
                assert seen, viewer

    @invariant()
    def what_was_ever_attached_is_kept_for_good(self) -> None:
        with operations_session():
            kept = set(
                SourceDescriptor.objects.filter(
                    tenant_id=self.tenant, artifact__expires_at=None
                ).values_list("pk", flat=True)
            )
        assert kept == {one.descriptor for one in self.sources if not one.deleted}


def _once(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple(dict.fromkeys(evidence))
