"""Writing records: every change is a revision that names the one before it.

Whoever writes says which revision they saw. What is asked twice with one request id is done once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.adapters.database import now
from knowledge.core.errors import (
    SchemaMismatch,
    WrongKind,
)
from knowledge.core.ports import SecretScanner
from knowledge.core.records import (
    RECORD_SCHEMA,
    AttachedFile,
    Evidence,
    EvidenceCounts,
    Expected,
    Placement,
    RecordChange,
    RecordKind,
    Representation,
    Revision,
    Writing,
    claim_content,
    note_of,
    page_content,
    relationship_content,
)
from knowledge.core.scanning import SecretGate
from knowledge.core.wording import checked_reason
from knowledge.evidence.writing import ON_EVIDENCE, Attempt, Draft, Prepared, WrittenRevision


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What a reconciliation did or, when `written` is `None`, would do."""

    before: EvidenceCounts
    after: EvidenceCounts
    added: int
    removed: int
    kept: int
    written: WrittenRevision | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Writes of records, with what scans them for secrets."""

    secret_scanner: SecretScanner

    def save_page(
        self,
        principal: Principal,
        writing: Writing,
        *,
        title: str,
        body: str,
        metadata: Mapping[str, Any] | None = None,
        evidence: Sequence[Evidence] = (),
        attachments: Sequence[AttachedFile] = (),
        expected: Expected | None = None,
        placement: Placement | None = None,
    ) -> WrittenRevision:
        """A new page in its place, or the next revision of one that was expected.

        Evidence and attachments are added to what the page has; taking some away is for
        `reconcile`. No metadata leaves those that there are. An attachment becomes a source and is
        kept for good with the revision, or nothing of it changes.

        Raises what every write raises (`ScopeMissing`, `UntrustedOrigin`, `NotFound`,
        `RevisionConflict`, `RequestConflict`, `EvidenceRefused`, `SecretFound`), `WrongKind`,
        `InvalidTitle`, `InvalidRecord`, `Malformed` and `SensitivityAboveCeiling`.
        """
        told = page_content(title, body, metadata or {})

        def draft(latest: Revision | None) -> Draft:
            content = told
            if latest is not None and metadata is None:
                content = {**told, "metadata": latest.content.get("metadata", {})}
            return Draft(
                change=RecordChange.SAVED if latest else RecordChange.CREATED,
                kind=RecordKind.PAGE,
                content=content,
                new=evidence,
                attachments=attachments,
            )

        asked = {
            "do": "save_page",
            **told,
            "metadata": metadata,
            "evidence": evidence,
            "attachments": attachments,
        }
        return self._carry_out(
            Attempt(
                principal=principal,
                writing=writing,
                asked=asked,
                draft=draft,
                expected=expected,
                placement=placement,
            )
        )

    def make_claim(
        self,
        principal: Principal,
        writing: Writing,
        *,
        statement: str,
        placement: Placement,
        evidence: Sequence[Evidence] = (),
        attachments: Sequence[AttachedFile] = (),
    ) -> WrittenRevision:
        """A claim with its evidence; raises what `save_page` does, and `EvidenceMissing`."""
        return self._make(
            principal,
            writing,
            kind=RecordKind.CLAIM,
            content=claim_content(statement),
            placement=placement,
            evidence=evidence,
            attachments=attachments,
        )

    def make_relationship(
        self,
        principal: Principal,
        writing: Writing,
        *,
        subject: str,
        predicate: str,
        object_: str,
        placement: Placement,
        evidence: Sequence[Evidence] = (),
        attachments: Sequence[AttachedFile] = (),
    ) -> WrittenRevision:
        """A relationship with its evidence; raises what `make_claim` does."""
        return self._make(
            principal,
            writing,
            kind=RecordKind.RELATIONSHIP,
            content=relationship_content(subject, predicate, object_),
            placement=placement,
            evidence=evidence,
            attachments=attachments,
        )

    def correct(
        self,
        principal: Principal,
        writing: Writing,
        *,
        expected: Expected,
        content: Mapping[str, str],
        evidence: Sequence[Evidence],
        attachments: Sequence[AttachedFile] = (),
    ) -> WrittenRevision:
        """A claim or relationship said anew, with its complete evidence and a reason.

        What is not in `content` stays as it was said. Raises what every write raises,
        `ReasonMissing`, `EvidenceMissing`, and `WrongKind` for a page or for another kind's words.
        """
        writing = _with_reason(writing)

        def draft(latest: Revision | None) -> Draft:
            kind, former = (latest.kind, latest.content) if latest else (RecordKind.PAGE, {})
            if kind not in ON_EVIDENCE or not set(content) <= set(former):
                raise WrongKind(
                    "A claim has a statement, a relationship subject, predicate and object; a page"
                    " is saved anew."
                )
            return Draft(
                change=RecordChange.CORRECTED,
                kind=kind,
                content=_content(kind, {**former, **content}),
                new=evidence,
                attachments=attachments,
            )

        asked = {
            "do": "correct",
            "content": dict(content),
            "evidence": evidence,
            "attachments": attachments,
        }
        return self._carry_out(
            Attempt(
                principal=principal, writing=writing, asked=asked, draft=draft, expected=expected
            )
        )

    def annotate(
        self,
        principal: Principal,
        writing: Writing,
        *,
        expected: Expected,
        note: str,
        evidence: Sequence[Evidence],
        attachments: Sequence[AttachedFile] = (),
    ) -> WrittenRevision:
        """A dated note on a record, with evidence that stays with it whatever is reconciled.

        Raises what every write raises, `InvalidRecord` and `EvidenceMissing`.
        """
        told = note_of(note)

        def draft(latest: Revision | None) -> Draft:
            if latest is None:
                raise NotFound
            return Draft(
                change=RecordChange.ANNOTATED,
                kind=latest.kind,
                content=latest.content,
                new=evidence,
                attachments=attachments,
                note=told,
            )

        asked = {
            "do": "annotate",
            "note": told,
            "evidence": evidence,
            "attachments": attachments,
        }
        return self._carry_out(
            Attempt(
                principal=principal, writing=writing, asked=asked, draft=draft, expected=expected
            )
        )

    def reconcile(
        self,
        principal: Principal,
        writing: Writing,
        *,
        expected: Expected,
        schema: str,
        representation: Representation,
        evidence: Sequence[Evidence] | None = None,
        dry_run: bool = False,
    ) -> Reconciled:
        """Writes the evidence of a record in another representation and, when a complete set is
        given, in place of what a page had.

        A dry run counts and publishes nothing; its request id stays unused. The evidence of
        annotations stays. Raises what every write raises, `ReasonMissing`, `SchemaMismatch`, and
        `WrongKind` when the evidence of a claim or a relationship is to be another: that is for
        `correct`.
        """
        writing = _with_reason(writing)
        if schema != RECORD_SCHEMA:
            raise SchemaMismatch(f"Records are written in {RECORD_SCHEMA!r}.", schema=RECORD_SCHEMA)

        def draft(latest: Revision | None) -> Draft:
            if latest is None:
                raise NotFound
            if evidence is not None and latest.kind in ON_EVIDENCE:
                raise WrongKind(
                    f"The evidence of a {latest.kind} changes with a correction or an annotation."
                )
            return Draft(
                change=RecordChange.RECONCILED,
                kind=latest.kind,
                content=latest.content,
                new=latest.evidence if evidence is None else evidence,
                representation=representation,
            )

        asked = {
            "do": "reconcile",
            "schema": schema,
            "representation": representation,
            "evidence": evidence,
        }
        attempt = Attempt(
            principal=principal, writing=writing, asked=asked, draft=draft, expected=expected
        )
        if dry_run:
            return self._previewed(attempt)
        written = self._carry_out(attempt)
        with tenant_session(principal.tenant_id):
            former = written.record.revisions.get(revision=written.row.revision - 1).value()
        return _compared(former, written.value, written)

    # --- one write ---------------------------------------------------------------------------

    def _make(
        self,
        principal: Principal,
        writing: Writing,
        *,
        kind: RecordKind,
        content: Mapping[str, Any],
        placement: Placement,
        evidence: Sequence[Evidence],
        attachments: Sequence[AttachedFile],
    ) -> WrittenRevision:
        made = Draft(
            change=RecordChange.CREATED,
            kind=kind,
            content=content,
            new=evidence,
            attachments=attachments,
        )
        return self._carry_out(
            Attempt(
                principal=principal,
                writing=writing,
                asked={
                    "do": f"make_{kind}",
                    **content,
                    "evidence": evidence,
                    "attachments": attachments,
                },
                draft=lambda _: made,
                placement=placement,
            )
        )

    def _carry_out(self, attempt: Attempt) -> WrittenRevision:
        prepared = self._prepared(attempt)
        if isinstance(prepared, WrittenRevision):
            return prepared
        with tenant_session(attempt.principal.tenant_id):
            return attempt.publish(prepared)

    def _previewed(self, attempt: Attempt) -> Reconciled:
        prepared = self._prepared(attempt, replay=False)
        if isinstance(prepared, WrittenRevision) or prepared.latest is None:
            raise NotFound
        return _compared(prepared.latest, prepared.revision(uuid4(), now()), None)

    def _prepared(self, attempt: Attempt, *, replay: bool = True) -> Prepared | WrittenRevision:
        """What is to be written, all of it checked; or what this request wrote before."""
        attempt.require_rights()
        with tenant_session(attempt.principal.tenant_id):
            if replay and (before := attempt.answered()) is not None:
                return before
            record = attempt.record(locked=False)
            prepared = attempt.prepare(record)
        self._scan(attempt.writing, prepared)
        return prepared

    def _scan(self, writing: Writing, prepared: Prepared) -> None:
        """Raises `SecretFound`; what was there before was scanned when it came."""
        draft, latest = prepared.draft, prepared.latest
        former = latest.content if latest else {}
        fields = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in draft.content.items()
            if former.get(name) != value
        }
        fields |= {"note": draft.note, "reason": writing.reason}
        known = set(latest.cited) if latest else set()
        for place, one in enumerate(prepared.checked.evidence):
            if one not in known:
                fields[f"evidence[{place}]"] = f"{one.quote or ''}\n{one.attribution or ''}".strip()
        for file in prepared.checked.attached.values():
            fields[f"file {file.pk}"] = f"{file.filename}\n{file.attribution}".strip()
        SecretGate(self.secret_scanner).check(raw="", normalised="", fields=fields, chunks=())


def _compared(former: Revision, value: Revision, written: WrittenRevision | None) -> Reconciled:
    before, after = set(former.evidence), set(value.evidence)
    return Reconciled(
        before=EvidenceCounts.of(former),
        after=EvidenceCounts.of(value),
        added=len(after - before),
        removed=len(before - after),
        kept=len(after & before),
        written=written,
    )


def _content(kind: RecordKind, said: Mapping[str, str]) -> Mapping[str, Any]:
    if kind is RecordKind.CLAIM:
        return claim_content(said["statement"])
    return relationship_content(said["subject"], said["predicate"], said["object"])


def _with_reason(writing: Writing) -> Writing:
    return Writing(
        request_id=writing.request_id,
        reason=checked_reason(writing.reason),
        origin_trust=writing.origin_trust,
        current_scope=writing.current_scope,
    )
