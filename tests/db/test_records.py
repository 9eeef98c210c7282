"""Records: what may be written, what is refused, and what stays."""

from __future__ import annotations

import hashlib
import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from access.errors import Forbidden, Malformed, NotFound, ProjectForbidden, ScopeMissing
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact, SourceDescriptor
from artifacts.sweeper import sweep
from knowledge.core.errors import (
    EvidenceLinesOutOfRange,
    EvidenceMissing,
    EvidenceUnknownSource,
    EvidenceWithoutText,
    InvalidRecord,
    InvalidTitle,
    LegalHold,
    QuoteNotFound,
    ReasonMissing,
    RequestConflict,
    RevisionConflict,
    SchemaMismatch,
    SecretFound,
    SensitivityAboveCeiling,
    UntrustedOrigin,
    WrongKind,
)
from knowledge.core.records import (
    RECORD_SCHEMA,
    AttachedFile,
    Evidence,
    EvidenceState,
    RecordChange,
    RecordKind,
    Representation,
    revision_hash,
)
from knowledge.core.types import Visibility
from knowledge.evidence.writing import WrittenRevision
from knowledge.models import KnowledgeEvent, Record, RecordRevision, RecordSource
from knowledge.wiring import store
from tests.documents import docx, lines, paragraph, pdf
from tests.support import (
    admit,
    everywhere,
    footprint,
    principal,
    save_page,
    seen,
    source_of,
    upload,
    writing,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

ALICE, BOB = principal("alice"), principal("bob")
NOTE = "# Pumps\n\nThe quokka pump is started by hand.\nIt stops at dusk.\n"
CLAIM = "The quokka pump is started by hand."


def noted(**given: Any) -> str:
    return source_of(admit(NOTE, **given))


def claim(source: str, by: Principal = ALICE, **given: Any) -> WrittenRevision:
    told = given.pop("writing", None) or writing()
    given = {
        "statement": CLAIM,
        "evidence": [Evidence(source=source, start_line=3, quote=CLAIM)],
        "placement": everywhere(),
        **given,
    }
    return store().records.make_claim(by, told, **given)


def attached(artifact: Artifact, **given: Any) -> AttachedFile:
    return AttachedFile(artifact_id=artifact.pk, sha256=artifact.sha256, **given)


def reconciled(written: WrittenRevision, by: Principal = ALICE, **given: Any) -> Any:
    told = given.pop("writing", None) or writing(reason="tidying up")
    given = {
        "expected": seen(written),
        "schema": RECORD_SCHEMA,
        "representation": Representation.COMPACT,
        **given,
    }
    return store().records.reconcile(by, told, **given)


def events(name: str) -> list[dict[str, Any]]:
    with tenant_session("acme"):
        return list(KnowledgeEvent.objects.filter(name=name).values_list("data", flat=True))


# --- revisions -----------------------------------------------------------------------------------


def test_a_page_needs_no_evidence_and_keeps_every_revision() -> None:
    first = save_page(metadata={"topic": "water"})
    second = save_page(
        title="Pumps and valves", body="Both.", expected=seen(first), writing=writing(reason="more")
    )
    assert (first.row.revision, second.row.revision) == (1, 2)
    assert first.row.previous_sha256 == ""
    assert second.row.previous_sha256 == first.row.sha256
    assert second.value.content == {
        "title": "Pumps and valves",
        "body": "Both.",
        "metadata": {"topic": "water"},
    }
    assert (second.value.by, second.value.reason) == ("alice", "more")
    latest = store().get_record(first.record.pk, ALICE)
    assert (latest.row.revision, latest.record.label) == (2, "Pumps and valves")
    old = store().get_record(first.record.pk, ALICE, revision=1)
    assert old.value == first.value
    for each in (old, latest):
        assert revision_hash(each.row.canonical.encode()) == each.row.sha256
    with pytest.raises(NotFound):
        store().get_record(first.record.pk, ALICE, revision=3)


def test_nobody_writes_history_anew() -> None:
    written = save_page()
    with tenant_session("acme"), pytest.raises(IntegrityError), transaction.atomic():
        RecordRevision.objects.filter(record=written.record).update(reason="never")


def test_who_writes_has_to_have_seen_the_latest() -> None:
    first = save_page()
    second = save_page(expected=seen(first), body="Anew.")
    for stale in (
        seen(first),
        replace(seen(second), sha256="0" * 64),
        replace(seen(second), revision=3),
    ):
        with pytest.raises(RevisionConflict) as refused:
            save_page(expected=stale, body="Otherwise.")
        assert refused.value.members == {"revision": 2, "hash": second.row.sha256}
    assert store().get_record(first.record.pk, ALICE).row.sha256 == second.row.sha256


def test_the_same_request_has_the_same_answer_and_another_is_a_conflict() -> None:
    told = writing()
    first = save_page(writing=told)
    again = save_page(writing=told)
    assert (again.record.pk, again.row.pk) == (first.record.pk, first.row.pk)
    with pytest.raises(RequestConflict):
        save_page(writing=told, body="Otherwise.")
    with pytest.raises(RequestConflict):
        save_page(writing=told, expected=seen(first))
    # Another principal's request ids are its own.
    assert save_page(BOB, writing=told).record.pk != first.record.pk
    saved = writing()
    second = save_page(writing=saved, expected=seen(first), body="Anew.")
    save_page(expected=seen(second), body="And on.")
    late = save_page(writing=saved, expected=seen(first), body="Anew.")
    assert (late.row.pk, late.value) == (second.row.pk, second.value)


def test_a_record_that_was_put_out_of_sight_is_not_told_again() -> None:
    told = writing()
    save_page(writing=told, placement=everywhere(sensitivity=Sensitivity.RESTRICTED))
    lower = replace(ALICE, sensitivity_ceiling=Sensitivity.INTERNAL)
    with pytest.raises((NotFound, SensitivityAboveCeiling)):
        save_page(lower, writing=told, placement=everywhere(sensitivity=Sensitivity.RESTRICTED))


@pytest.mark.parametrize(
    ("by", "told", "error"),
    [
        (principal(scopes=frozenset()), {}, ScopeMissing),
        (ALICE, {"origin_trust": OriginTrust.MODEL}, UntrustedOrigin),
        (ALICE, {"origin_trust": None}, UntrustedOrigin),
        (principal(max_origin_trust=OriginTrust.TOOL), {}, UntrustedOrigin),
        (ALICE, {"current_scope": "zeus"}, ProjectForbidden),
    ],
)
def test_who_may_write(
    by: Principal, told: dict[str, Any], error: type[Exception], blob_root: Path
) -> None:
    before = footprint(blob_root)
    with pytest.raises(error):
        save_page(by, writing=writing(**told))
    assert footprint(blob_root) == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"placement": everywhere(), "expected": None, "title": " "}, InvalidTitle),
        ({"body": "\0"}, InvalidRecord),
        ({"body": "x" * 1_000_001}, InvalidRecord),
        ({"metadata": {"n": 2**60}}, InvalidRecord),
        ({"placement": None}, Malformed),
        ({"placement": everywhere(project_scope="apollo")}, Malformed),
        ({"placement": replace(everywhere(), visibility=Visibility.PROJECT)}, Malformed),
        ({"placement": everywhere(Visibility.PROJECT, project_scope="zeus")}, ProjectForbidden),
        ({"writing": writing(reason="x" * 501)}, ReasonMissing),
    ],
)
def test_what_cannot_be_written(
    given: dict[str, Any], error: type[Exception], blob_root: Path
) -> None:
    before = footprint(blob_root)
    with pytest.raises(error):
        save_page(**given)
    assert footprint(blob_root) == before


def test_a_record_is_not_put_above_its_writers_ceiling() -> None:
    lower = replace(ALICE, sensitivity_ceiling=Sensitivity.INTERNAL)
    with pytest.raises(SensitivityAboveCeiling):
        save_page(lower, placement=everywhere(sensitivity=Sensitivity.CONFIDENTIAL))


SECRET = "ghp_" + "aB3dE6gH9jK2" + "mN5pQ8rS1tU4vW7xY0zA1bC2"


@pytest.mark.parametrize(
    "given",
    [
        {"title": f"Token {SECRET}"},
        {"body": f"token = {SECRET}"},
        {"metadata": {"token": SECRET}},
        {"writing": writing(reason=f"because of {SECRET}")},
    ],
    ids=["title", "body", "metadata", "reason"],
)
def test_secrets_are_refused_wherever_they_stand(given: dict[str, Any], blob_root: Path) -> None:
    before = footprint(blob_root)
    with pytest.raises(SecretFound) as refused:
        save_page(**given)
    assert SECRET not in json.dumps(refused.value.problem())
    assert footprint(blob_root) == before


def test_a_secret_of_a_citation_names_its_place() -> None:
    source = noted()
    with pytest.raises(SecretFound) as refused:
        save_page(evidence=[Evidence(source=source), Evidence(source=source, attribution=SECRET)])
    assert refused.value.members["findings"][0]["field"] == "evidence[1]"


# --- evidence ------------------------------------------------------------------------------------


def test_claims_and_relationships_stand_on_evidence() -> None:
    source = noted()
    with pytest.raises(EvidenceMissing):
        claim(source, evidence=[])
    written = claim(source)
    assert written.value.evidence == (
        Evidence(source=source, start_line=3, end_line=3, quote=CLAIM),
    )
    told: dict[str, Any] = {
        "subject": "pump",
        "predicate": "feeds",
        "object_": "tank",
        "placement": everywhere(),
    }
    with pytest.raises(EvidenceMissing):
        store().records.make_relationship(ALICE, writing(), **told)
    related = store().records.make_relationship(
        ALICE, writing(), **told, evidence=[Evidence(source=source)]
    )
    assert related.record.kind == RecordKind.RELATIONSHIP
    assert related.value.content == {"subject": "pump", "predicate": "feeds", "object": "tank"}


@pytest.mark.parametrize(
    ("cited", "error"),
    [
        ({"start_line": 5}, EvidenceLinesOutOfRange),
        ({"start_line": 3, "end_line": 9}, EvidenceLinesOutOfRange),
        ({"start_line": 0}, EvidenceLinesOutOfRange),
        ({"end_line": 3}, EvidenceLinesOutOfRange),
        ({"quote": "The wombat pump"}, QuoteNotFound),
        ({"quote": "the quokka pump"}, QuoteNotFound),
        ({"start_line": 4, "quote": CLAIM}, QuoteNotFound),
        ({"quote": "  "}, QuoteNotFound),
        ({"source": "0" * 64}, EvidenceUnknownSource),
    ],
)
def test_evidence_that_does_not_hold_changes_nothing(
    cited: dict[str, Any], error: type[Exception], blob_root: Path
) -> None:
    source = noted()
    before = footprint(blob_root)
    with pytest.raises(error) as refused:
        claim(source, evidence=[Evidence(source=source), Evidence(**{"source": source, **cited})])
    members = refused.value.members  # type: ignore[attr-defined]
    assert (members["list"], members["position"]) == ("evidence", 1)
    assert footprint(blob_root) == before


def test_a_digest_is_no_credential() -> None:
    """Whoever may not read a source cannot tell it from one that never was."""
    own = noted(by=BOB, visibility=Visibility.PRINCIPAL)
    foreign = source_of(admit(NOTE, by=principal(tenant="globex")), "globex")
    secret = source_of(admit(f"{NOTE}\nOnce.\n", by=BOB, sensitivity=Sensitivity.RESTRICTED))
    lower = replace(ALICE, sensitivity_ceiling=Sensitivity.INTERNAL)
    answers = set()
    for source in (own, foreign, secret, "0" * 64):
        with pytest.raises(EvidenceUnknownSource) as refused:
            claim(source, lower)
        answers.add(json.dumps(refused.value.problem(), sort_keys=True))
    assert len(answers) == 1
    assert claim(own, BOB).row.revision == 1


def test_a_source_is_read_on_behalf_of_the_project() -> None:
    source = noted(visibility=Visibility.PROJECT)
    with pytest.raises(EvidenceUnknownSource):
        claim(source, BOB)
    claim(source, BOB, writing=writing(current_scope="apollo"))


def test_lines_of_text_are_those_of_the_retained_bytes() -> None:
    """Not those of the normalised text, which has fewer blank lines."""
    text = "\ufeffPumps\r\n\r\n\r\n\r\n\r\nThe pump\r\nis old.\r\n"
    source = source_of(admit(text, filename="note.txt"))
    quote = "The pump\nis old."
    for said in (quote, quote.replace("\n", "\r\n")):
        claim(source, evidence=[Evidence(source=source, start_line=6, end_line=7, quote=said)])
    claim(source, evidence=[Evidence(source=source, start_line=1, quote="Pumps")])
    with pytest.raises(EvidenceLinesOutOfRange):
        claim(source, evidence=[Evidence(source=source, start_line=8)])


@pytest.mark.parametrize("kind", ["pdf", "docx", "html"])
def test_lines_of_what_had_to_be_parsed_are_those_of_the_stored_text(kind: str) -> None:
    texts = ("The quokka pump is started by hand.", "It stops at dusk.")
    content = {
        "pdf": pdf(lines(*texts)),
        "docx": docx(*(paragraph(text) for text in texts)),
        "html": f"<html><body><p><b>{texts[0]}</b></p><p>{texts[1]}</p></body></html>".encode(),
    }[kind]
    found = admit(content, filename=f"note.{kind}")
    chunk = store().get_chunk(found.chunk_ids[-1], ALICE)
    source = source_of(found)
    cited = Evidence(
        source=source,
        start_line=chunk.line_start,
        end_line=chunk.line_end,
        quote=chunk.text,
    )
    claim(source, evidence=[cited])
    with pytest.raises(EvidenceLinesOutOfRange):
        claim(source, evidence=[replace(cited, end_line=chunk.line_end + 100)])
    with pytest.raises(QuoteNotFound):
        claim(source, evidence=[Evidence(source=source, quote="<p>")])


def test_a_citation_may_say_whose_words_they_are() -> None:
    artifact = artifacts.put(
        ALICE, io.BytesIO(NOTE.encode()), filename="note.md", attribution="The operations team"
    )
    written = save_page(
        attachments=[attached(artifact), attached(artifact, start_line=3, attribution="Olga")]
    )
    _, resolved = store().resolve_evidence(written.record.pk, ALICE)
    assert [one.attribution for one in resolved] == ["The operations team", "Olga"]
    assert {one.descriptor["attribution"] for one in resolved if one.descriptor} == {
        "The operations team"
    }


# --- attachments ---------------------------------------------------------------------------------


def test_an_attachment_becomes_a_source_that_is_kept_for_good() -> None:
    artifact = upload(ALICE, NOTE)
    written = save_page(attachments=[attached(artifact, start_line=3, quote=CLAIM)])
    (cited,) = written.value.evidence
    with tenant_session("acme"):
        descriptor = SourceDescriptor.objects.get(pk=cited.source)
        kept = Artifact.objects.get(pk=artifact.pk)
    assert descriptor.artifact_id == artifact.pk
    assert hashlib.sha256(descriptor.canonical.encode()).hexdigest() == cited.source
    assert kept.expires_at is None
    # Whoever sees the record reads the original, by its reference and hash.
    _, content = artifacts.read_part(BOB, artifact.pk, artifact.sha256)
    assert content == NOTE.encode()
    with pytest.raises(NotFound):
        artifacts.read_part(BOB, artifact.pk, "0" * 64)
    # And may cite it, as a source that it can read now.
    claim(cited.source, BOB)
    # Attached again it is the same source.
    again = save_page(title="Other", attachments=[attached(artifact)])
    assert again.value.evidence == (Evidence(source=cited.source),)


def test_an_original_of_a_record_is_for_who_sees_the_record() -> None:
    artifact = upload(ALICE, NOTE)
    save_page(attachments=[attached(artifact)], placement=everywhere(Visibility.PROJECT))
    carol = principal("carol", projects=frozenset())
    for by, scope in ((BOB, None), (carol, None), (principal("dave", tenant="globex"), None)):
        with pytest.raises(NotFound):
            artifacts.get(by, artifact.pk, current_scope=scope)
    assert artifacts.get(BOB, artifact.pk, current_scope="apollo").pk == artifact.pk


def test_equal_bytes_under_another_attribution_are_another_source() -> None:
    sources = [
        save_page(
            attachments=[
                attached(
                    artifacts.put(
                        ALICE, io.BytesIO(b"same"), filename="a.txt", attribution=attribution
                    )
                )
            ]
        )
        .value.evidence[0]
        .source
        for attribution in ("Olga", "Piotr")
    ]
    assert len(set(sources)) == 2


@pytest.mark.parametrize("wrong", ["hash", "id", "foreign", "expired"])
def test_only_a_receipt_of_ones_own_attaches(wrong: str, blob_root: Path) -> None:
    artifact = upload(BOB if wrong == "foreign" else ALICE, NOTE)
    receipt = attached(artifact)
    if wrong == "hash":
        receipt = replace(receipt, sha256="0" * 64)
    if wrong == "id":
        receipt = replace(receipt, artifact_id=uuid4())
    if wrong == "expired":
        with tenant_session("acme"):
            Artifact.objects.filter(pk=artifact.pk).update(expires_at=Now())
    before = footprint(blob_root)
    with pytest.raises(EvidenceUnknownSource) as refused:
        save_page(attachments=[receipt])
    assert refused.value.members == {"list": "attachments", "position": 0}
    assert footprint(blob_root) == before


def test_a_documents_source_is_cited_and_not_attached() -> None:
    found = admit(NOTE)
    with tenant_session("acme"):
        source = SourceDescriptor.objects.select_related("artifact").get(pk=source_of(found))
    with pytest.raises(EvidenceUnknownSource):
        save_page(attachments=[attached(source.artifact)])


def test_a_failed_save_deletes_no_original_and_keeps_none_longer(blob_root: Path) -> None:
    artifact = upload(ALICE, NOTE)
    first = save_page()
    before = footprint(blob_root)
    for given, error in (
        ({"attachments": [attached(artifact, quote="never said")]}, QuoteNotFound),
        (
            {
                "attachments": [attached(artifact)],
                "expected": replace(seen(first), sha256="0" * 64),
            },
            RevisionConflict,
        ),
        ({"attachments": [attached(artifact)], "body": f"token = {SECRET}"}, SecretFound),
    ):
        with pytest.raises(error):
            save_page(**given)
    assert footprint(blob_root) == before
    with tenant_session("acme"):
        assert Artifact.objects.get(pk=artifact.pk).expires_at == artifact.expires_at
        assert not SourceDescriptor.objects.filter(artifact=artifact).exists()
    save_page(attachments=[attached(artifact)])


def test_a_file_without_text_is_cited_as_a_whole() -> None:
    picture = upload(ALICE, b"\x89PNG\r\n\x1a\n" + bytes(range(256)), filename="pump.png")
    written = save_page(attachments=[attached(picture)])
    source = written.value.evidence[0].source
    for cited in ({"start_line": 1}, {"quote": "PNG"}):
        with pytest.raises(EvidenceWithoutText) as refused:
            claim(source, evidence=[Evidence(source=source, **cited)])
        assert refused.value.members == {"list": "evidence", "position": 0}
    scan = upload(ALICE, pdf(lines("Some text.")), filename="note.pdf")
    with pytest.raises(EvidenceWithoutText):
        save_page(attachments=[attached(scan, quote="Some text.")])


@pytest.mark.parametrize(
    ("filename", "content"),
    [
        ("page.md", "<script>alert(1)</script>\nIt is markup.\n"),
        ("page.html", "<!doctype html>\n<p>It is markup.</p>\n"),
        ("drawing.svg", "<svg>\n<text>It is markup.</text>\n</svg>\n"),
        ("feed.xml", '<?xml version="1.0"?>\n<a>It is markup.</a>\n'),
        ("data.json", '{\n"a": "It is markup."}\n'),
    ],
)
def test_markup_that_is_no_document_is_cited_as_it_stands(filename: str, content: str) -> None:
    file = upload(ALICE, content, filename=filename)
    cited = attached(file, start_line=2, quote="It is markup.")
    assert save_page(attachments=[cited]).value.evidence[0].quote == "It is markup."


# --- annotations, corrections, reconciliation ----------------------------------------------------


def test_an_annotation_is_dated_and_stands_on_evidence() -> None:
    source = noted()
    first = claim(source)
    with pytest.raises(EvidenceMissing):
        store().records.annotate(BOB, writing(), expected=seen(first), note="Seen.", evidence=[])
    noted_again = store().records.annotate(
        BOB,
        writing(),
        expected=seen(first),
        note="Seen again.",
        evidence=[Evidence(source=source, start_line=4)],
    )
    assert noted_again.value.change is RecordChange.ANNOTATED
    assert noted_again.value.content == first.value.content
    assert noted_again.value.evidence == first.value.evidence
    (note,) = noted_again.value.annotations
    assert (note.id, note.note, note.by, note.at) == (
        "1",
        "Seen again.",
        "bob",
        noted_again.value.at,
    )
    assert note.evidence == (Evidence(source=source, start_line=4, end_line=4),)


def test_a_correction_has_a_reason_and_the_complete_evidence() -> None:
    source = noted()
    first = claim(source)
    anew = [Evidence(source=source, start_line=4, quote="It stops at dusk.")]
    given: dict[str, Any] = {
        "expected": seen(first),
        "content": {"statement": "It stops at dusk."},
    }
    with pytest.raises(ReasonMissing):
        store().records.correct(ALICE, writing(), **given, evidence=anew)
    with pytest.raises(EvidenceMissing):
        store().records.correct(ALICE, writing(reason="wrong"), **given, evidence=[])
    second = store().records.correct(ALICE, writing(reason="wrong"), **given, evidence=anew)
    assert second.value.content == {"statement": "It stops at dusk."}
    assert [one.quote for one in second.value.evidence] == ["It stops at dusk."]
    assert second.record.label == "It stops at dusk."
    assert store().get_record(first.record.pk, ALICE, revision=1).value == first.value


def test_only_claims_and_relationships_are_corrected_and_only_pages_saved() -> None:
    source = noted()
    page, first = save_page(), claim(source)
    told = writing(reason="wrong")
    cited = [Evidence(source=source)]
    for expected, content in (
        (seen(page), {"statement": "x"}),
        (seen(first), {"subject": "x"}),
    ):
        with pytest.raises(WrongKind):
            store().records.correct(ALICE, told, expected=expected, content=content, evidence=cited)
    with pytest.raises(WrongKind):
        save_page(expected=seen(first))


def test_reconciling_replaces_the_evidence_of_a_page_and_nothing_else(blob_root: Path) -> None:
    source, file = noted(), upload(ALICE, NOTE, filename="kept.md")
    first = save_page(
        metadata={"topic": "water"},
        evidence=[Evidence(source=source, quote=CLAIM)],
        attachments=[attached(file)],
    )
    own = first.value.evidence[1].source
    second = store().records.annotate(
        ALICE, writing(), expected=seen(first), note="Then.", evidence=[Evidence(source=own)]
    )
    before = footprint(blob_root)
    wanted = [Evidence(source=source, start_line=3), Evidence(source=source, quote=CLAIM)]
    preview = reconciled(second, evidence=wanted, dry_run=True)
    assert footprint(blob_root) == before
    assert preview.written is None
    assert (preview.added, preview.removed, preview.kept) == (1, 1, 1)
    assert (preview.before.associations, preview.after.associations) == (2, 2)
    assert preview.after.annotation_associations == 1
    done = reconciled(second, evidence=wanted)
    assert (done.before, done.added, done.removed) == (preview.before, 1, 1)
    assert done.after == preview.after
    third = done.written
    assert third.value.content == first.value.content
    assert third.value.annotations == second.value.annotations
    assert third.value.evidence == (
        Evidence(source=source, start_line=3, end_line=3),
        Evidence(source=source, quote=CLAIM),
    )
    # The note still cites the file, and so it is current; without it both would stay all the same.
    with tenant_session("acme"):
        assert RecordSource.objects.get(descriptor_id=own).current
        assert SourceDescriptor.objects.filter(pk=own).exists()
    fourth = reconciled(third, evidence=[]).written
    assert fourth.value.evidence == ()
    with tenant_session("acme"):
        assert not RecordSource.objects.get(descriptor_id=source).current
        assert SourceDescriptor.objects.filter(pk=source).exists()


def test_reconciling_writes_the_representation_anew() -> None:
    source = noted()
    first = claim(source)
    done = reconciled(first, representation=Representation.EXPANDED)
    assert (done.added, done.removed, done.kept) == (0, 0, 1)
    assert done.after.evidence_bytes > done.before.evidence_bytes
    said = json.loads(done.written.row.canonical)
    assert said["evidence"][0]["descriptor"]["filename"] == "note.md"
    assert done.written.value.evidence == first.value.evidence
    # What is written next is written alike, until it is reconciled again.
    noted_again = store().records.annotate(
        ALICE,
        writing(),
        expected=seen(done.written),
        note="Then.",
        evidence=[Evidence(source=source)],
    )
    said = json.loads(noted_again.row.canonical)
    assert said["annotations"][0]["evidence"][0]["descriptor"]["filename"] == "note.md"
    back = reconciled(noted_again)
    assert back.after.evidence_bytes < back.before.evidence_bytes


def test_expanding_tells_nothing_of_a_source_that_one_may_not_read() -> None:
    hidden = noted(visibility=Visibility.PRINCIPAL)
    first = claim(hidden)
    expanded = reconciled(first, BOB, representation=Representation.EXPANDED).written
    assert json.loads(expanded.row.canonical)["evidence"][0]["descriptor"] is None
    # Nor does it lose what was written before.
    own = reconciled(reconciled(expanded).written, representation=Representation.EXPANDED).written
    again = reconciled(own, BOB, representation=Representation.EXPANDED).written
    assert json.loads(again.row.canonical)["evidence"] == json.loads(own.row.canonical)["evidence"]


def test_reconciling_asks_for_a_reason_the_schema_and_a_page() -> None:
    source = noted()
    first = claim(source)
    with pytest.raises(ReasonMissing):
        reconciled(first, writing=writing())
    with pytest.raises(SchemaMismatch) as refused:
        reconciled(first, schema="record-0")
    assert refused.value.members == {"schema": RECORD_SCHEMA}
    with pytest.raises(WrongKind):
        reconciled(first, evidence=[Evidence(source=source)])
    with pytest.raises(RevisionConflict):
        reconciled(first, expected=replace(seen(first), revision=2), dry_run=True)


def test_a_dry_run_leaves_its_request_id_unused() -> None:
    told = writing(reason="tidying up")
    first = save_page(evidence=[Evidence(source=noted())])
    assert reconciled(first, writing=told, dry_run=True).written is None
    done = reconciled(first, writing=told)
    again = reconciled(first, writing=told)
    assert again == done or again.written.row.pk == done.written.row.pk
    assert (again.before, again.after) == (done.before, done.after)


# --- what goes and what stays --------------------------------------------------------------------


def test_deleting_a_document_leaves_the_records_that_cite_it() -> None:
    found = admit(NOTE, by=BOB, visibility=Visibility.PROJECT)
    source = source_of(found)
    open_to_all = claim(source, BOB, writing=writing(current_scope="apollo"))
    own = claim(
        source,
        BOB,
        writing=writing(current_scope="apollo"),
        placement=everywhere(Visibility.PRINCIPAL),
    )
    gone = store().delete(found.document_id, BOB, current_scope="apollo")
    assert set(vars(gone)["records"]) == {open_to_all.record.pk, own.record.pk}
    receipt = store().get_deletion(gone.pk, ALICE, current_scope="apollo")
    assert vars(receipt)["records"] == [open_to_all.record.pk]
    sweep()
    still, resolved = store().resolve_evidence(open_to_all.record.pk, BOB, current_scope="apollo")
    assert still.value == open_to_all.value
    assert [one.state for one in resolved] == [EvidenceState.SOURCE_DELETED]
    assert resolved[0].descriptor is None
    # That it was deleted is for those who could have seen it.
    _, elsewhere = store().resolve_evidence(open_to_all.record.pk, BOB)
    assert [one.state for one in elsewhere] == [EvidenceState.SOURCE_NOT_VISIBLE]
    found_left = store().verify_deletion(
        found.document_id, Principal.for_operator("acme", "olga"), NOTE.splitlines()
    )
    assert found_left.clean, found_left.left
    assert {"knowledge_recordsource", "knowledge_recordrevision", "knowledge_record"} <= {
        place.place for place in found_left.kept
    }
    with operations_session():
        assert not Artifact.objects.filter(pk__in=gone.sources).exists()
    # Its evidence stays as it was written, whatever is written next.
    noted_again = store().records.correct(
        BOB,
        writing(reason="clearer"),
        expected=seen(still),
        content={"statement": "By hand."},
        evidence=still.value.evidence,
    )
    assert noted_again.value.evidence == still.value.evidence
    with pytest.raises(EvidenceUnknownSource):
        claim(source, BOB, writing=writing(current_scope="apollo"))


def test_a_record_opens_no_document() -> None:
    """Not to whoever may see the record alone, and not after a rescope."""
    found = admit(NOTE, by=BOB, visibility=Visibility.PRINCIPAL)
    written = claim(source_of(found), BOB)
    _, resolved = store().resolve_evidence(written.record.pk, ALICE)
    assert [one.state for one in resolved] == [EvidenceState.SOURCE_NOT_VISIBLE]
    with tenant_session("acme"):
        artifact = SourceDescriptor.objects.get(pk=source_of(found)).artifact_id
    with pytest.raises(NotFound):
        artifacts.get(ALICE, artifact)


def test_the_sweeper_leaves_what_a_record_has_ever_cited() -> None:
    artifact = upload(ALICE, NOTE)
    first = save_page(attachments=[attached(artifact)])
    reconciled(first, evidence=[])
    with operations_session():
        # As something that does not know of records might have set it.
        Artifact.objects.filter(pk=artifact.pk).update(expires_at=Now() - timedelta(days=1))
    sweep()
    with operations_session():
        kept = Artifact.objects.get(pk=artifact.pk)
    assert artifacts.read_bytes(kept) == NOTE.encode()


def test_a_deleted_record_is_gone_and_its_originals_stay() -> None:
    artifact = upload(ALICE, NOTE)
    first = save_page(attachments=[attached(artifact)])
    save_page(expected=seen(first), body="Anew.")
    with pytest.raises(Forbidden):
        store().remove_record(first.record.pk, BOB)
    receipt = store().remove_record(first.record.pk, ALICE, reason="outdated")
    assert (receipt.revisions, receipt.sources, receipt.kind) == (2, 1, "page")
    with pytest.raises(NotFound):
        store().get_record(first.record.pk, ALICE)
    with operations_session():
        assert not Record.objects.exists()
        assert not RecordRevision.objects.exists()
        assert not RecordSource.objects.exists()
    sweep()
    assert artifacts.get(ALICE, artifact.pk).expires_at is None
    with pytest.raises(NotFound):
        artifacts.get(BOB, artifact.pk)
    (told,) = events(KnowledgeEvent.RECORD_DELETED)
    assert told == {
        "record_id": str(first.record.pk),
        "kind": "page",
        "reason": "outdated",
        "revisions": 2,
        "sources": 1,
    }


def test_who_may_delete() -> None:
    deleter = principal("carol", scopes=frozenset({Scope.DELETE}))
    for by in (ALICE, deleter, Principal.for_operator("acme", "olga")):
        store().remove_record(save_page().record.pk, by)
    hidden = save_page(placement=everywhere(Visibility.PRINCIPAL))
    with pytest.raises(NotFound):
        store().remove_record(hidden.record.pk, deleter)
    with tenant_session("acme"):
        Record.objects.filter(pk=hidden.record.pk).update(legal_hold=True)
    with pytest.raises(LegalHold):
        store().remove_record(hidden.record.pk, ALICE)
    assert events(KnowledgeEvent.RECORD_DELETE_REFUSED) == [
        {"record_id": str(hidden.record.pk), "reason": "legal_hold"}
    ]


def test_events_say_what_happened_and_no_word_of_it() -> None:
    source = noted()
    first = save_page(
        title="Wallaby title",
        body="Wallaby body.",
        metadata={"wallaby": "wallaby"},
        evidence=[Evidence(source=source, quote=CLAIM, attribution="Wallaby")],
    )
    second = store().records.annotate(
        ALICE, writing(), expected=seen(first), note="Wallaby.", evidence=[Evidence(source=source)]
    )
    reconciled(second)
    with tenant_session("acme"):
        told = list(
            KnowledgeEvent.objects.filter(name__startswith="knowledge.record.")
            .order_by("id")
            .values("name", "actor", "surface", "data")
        )
    assert [one["name"] for one in told] == [
        KnowledgeEvent.RECORD_CREATED,
        KnowledgeEvent.RECORD_ANNOTATED,
        KnowledgeEvent.RECORD_RECONCILED,
    ]
    assert told[0]["data"] == {
        "record_id": str(first.record.pk),
        "kind": "page",
        "revision": 1,
        "hash": first.row.sha256,
        "request_id": str(first.row.request_id),
        "associations": 1,
        "sources": 1,
        "reason": "",
    }
    assert "allaby" not in json.dumps(told)
    assert "quokka" not in json.dumps(told)


# --- two at once ---------------------------------------------------------------------------------


def _at_once(*acts: Any) -> list[Any]:
    """What came of acts that begin together, each on a connection of its own."""
    barrier = Barrier(len(acts))

    def run(act: Any) -> Any:
        barrier.wait()
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - it is what is looked at
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


@pytest.mark.django_db(transaction=True)
def test_of_two_writers_one_wins() -> None:
    first = save_page()
    store()
    for _ in range(3):
        latest = store().get_record(first.record.pk, ALICE)
        expected = seen(latest)
        won = _at_once(
            *(
                lambda by=by, expected=expected: save_page(
                    by, expected=expected, body=f"By {by.principal_id}."
                )
                for by in (ALICE, BOB)
            )
        )
        assert sorted(type(one) is RevisionConflict for one in won) == [False, True], won
        now = store().get_record(first.record.pk, ALICE)
        assert now.row.revision == latest.row.revision + 1
        assert now.row.previous_sha256 == latest.row.sha256


@pytest.mark.django_db(transaction=True)
def test_one_request_at_once_is_done_once() -> None:
    told, artifact = writing(), upload(ALICE, NOTE)
    store()
    answers = _at_once(
        *(lambda: save_page(writing=told, attachments=[attached(artifact)]) for _ in range(4))
    )
    assert len({one.row.pk for one in answers}) == 1, answers
    with operations_session():
        assert RecordRevision.objects.count() == Record.objects.count() == 1
        assert SourceDescriptor.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_record_and_the_deletion_of_its_source_take_turns() -> None:
    store()
    for number in range(4):
        found = admit(f"{NOTE}\n{number}\n")
        source = source_of(found)
        answers = _at_once(
            lambda source=source: claim(source),
            lambda found=found: store().delete(found.document_id, ALICE),
        )
        written, deleted = answers
        assert not isinstance(deleted, Exception), deleted
        if isinstance(written, Exception):
            assert isinstance(written, EvidenceUnknownSource), written
        else:
            _, resolved = store().resolve_evidence(written.record.pk, ALICE)
            assert [one.state for one in resolved] == [EvidenceState.SOURCE_DELETED]
