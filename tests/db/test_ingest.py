"""Ingest: what is stored, what a second one changes, and that a failure anywhere stores nothing."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections

from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust
from artifacts import store as artifacts
from artifacts.models import Artifact, ArtifactOrigin
from knowledge.adapters import term_index
from knowledge.adapters.database import lock_document
from knowledge.core.types import (
    ChunkDraft,
    ConnectorIdentity,
    IngestReport,
    IngestRequest,
    IngestResult,
    Verdict,
    Visibility,
)
from knowledge.models import (
    Chunk,
    ChunkIndex,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    VisibilitySpace,
)
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.support import admit, ask, footprint, principal, texts, upload

PARAGRAPH = " ".join(["The pump at the harbour runs at night and rests by day."] * 30)
SOURCE = ConnectorIdentity(type="wiki", id="pumps")


def long_note(parts: int = 4, word: str = "zebra") -> str:
    return "# Pumps\n\n" + "".join(
        f"## Part {number}\n\n{word} of part{number}. {PARAGRAPH}\n\n" for number in range(parts)
    )


def partitions(report: IngestReport) -> bool:
    admitted = report.embedded + report.skipped + report.pending
    return report.chunks == admitted + report.quarantined + report.rejected and report.complete == (
        report.pending == 0
    )


# --- one document ----------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_an_ingest_stores(blob_root: Path) -> None:
    content = long_note()
    caller = principal()
    mine = upload(caller, content, "pumps.md")
    before = footprint(blob_root)
    result = store().ingest(
        IngestRequest(
            artifact_id=mine.pk,
            title="  Pumps  ",
            visibility=Visibility.PROJECT,
            project_scope="apollo",
            doc_date=date(2026, 5, 2),
            source=replace(SOURCE, version="r1"),
            origin_trust=OriginTrust.USER,
        ),
        caller,
    )
    after = footprint(blob_root)
    grown = {t: after[t] - before[t] for t in after if t != "blobs" and after[t] != before[t]}
    deltas = grown.pop("knowledge_term_delta")
    assert grown == {
        "artifacts_artifact": 1,
        "artifacts_sourcedescriptor": 1,
        "knowledge_document": 1,
        "knowledge_documentversion": 1,
        "knowledge_chunkset": 1,
        "knowledge_chunk": 4,
        "knowledge_chunk_index": 4,
        "knowledge_visibilityspace": 1,
        "knowledge_knowledgeevent": 1,
        "knowledge_search_change": 1,
    }
    assert deltas > 0
    assert len(after["blobs"]) == len(before["blobs"]) + 1

    report = result.report
    assert partitions(report)
    assert (report.chunks, report.embedded, report.skipped, report.deleted) == (4, 4, 0, 0)
    assert report.complete
    assert (result.version, result.already_ingested, result.title) == (1, False, "Pumps")
    assert len(set(result.chunk_ids)) == 4

    with tenant_session("acme"):
        document = Document.objects.select_related("space").get()
        assert document.document_id == result.document_id
        assert (document.title, document.ingested_by_principal_id) == ("Pumps", "alice")
        assert (document.source_type, document.source_id) == ("wiki", "pumps")
        assert (document.space.visibility, document.space.project_scope) == ("project", "apollo")
        assert document.space.sensitivity == "internal"
        version = DocumentVersion.objects.select_related("source").get()
        assert (version.version, version.source_version, version.language) == (1, "r1", "english")
        assert (version.doc_date, version.media_type) == (date(2026, 5, 2), "text/markdown")
        assert version.superseded_at is None
        source = version.source
        assert (source.origin, source.expires_at) == (ArtifactOrigin.KNOWLEDGE_SOURCE, None)
        assert source.storage_key != mine.storage_key
        assert source.sha256 == mine.sha256 == hashlib.sha256(content.encode()).hexdigest()
        assert artifacts.read_bytes(source) == content.encode()
        kept = Artifact.objects.get(pk=mine.pk)
        assert (kept.expires_at, kept.origin) == (mine.expires_at, ArtifactOrigin.UPLOAD)
        chunk_set = ChunkSet.objects.get()
        assert (chunk_set.pk, chunk_set.state) == (result.chunk_set_id, "live")
        assert chunk_set.published_at == version.ingested_at
        assert (chunk_set.chunk_count, chunk_set.quarantined_count) == (4, 0)
        assert [c.chunk_id for c in Chunk.objects.order_by("ordinal")] == list(result.chunk_ids)
        (event,) = KnowledgeEvent.objects.all()
        assert (event.name, event.document_id) == (KnowledgeEvent.INGESTED, result.document_id)
        assert (event.actor, event.surface, event.version) == ("alice", "api", 1)
        assert event.at == version.ingested_at
        assert event.data["chunks"] == 4
        assert event.data["source_artifact_id"] == str(source.pk)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_the_current_text_again_is_a_no_op_that_says_so(blob_root: Path) -> None:
    first = admit(long_note(), title="Pumps")
    mine = upload(principal(), long_note())
    before = footprint(blob_root), every_row()
    request = IngestRequest(
        artifact_id=mine.pk,
        title="Another title",
        visibility=Visibility.TENANT,
        origin_trust=OriginTrust.USER,
    )
    again = store().ingest(request, principal())
    assert (footprint(blob_root), every_row()) == before
    assert again.already_ingested
    assert again.title == "Pumps", "the stored title is shown"
    assert (again.document_id, again.version) == (first.document_id, 1)
    assert (again.chunk_set_id, again.chunk_ids) == (first.chunk_set_id, first.chunk_ids)
    assert (again.report.embedded, again.report.skipped) == (0, first.report.embedded)
    assert partitions(again.report)


@pytest.mark.django_db
def test_equal_bytes_of_two_people_are_two_documents(blob_root: Path) -> None:
    mine, theirs = admit(long_note()), admit(long_note(), by=principal("bob"))
    assert mine.document_id != theirs.document_id
    assert not set(mine.chunk_ids) & set(theirs.chunk_ids)


@pytest.mark.django_db
def test_a_new_text_supersedes_the_old_one(blob_root: Path) -> None:
    old = admit(long_note(word="zebra"), source=SOURCE)
    new = admit(long_note(word="quagga"), source=SOURCE)
    assert (new.document_id, new.version) == (old.document_id, 2)
    assert not ask("zebra").passages
    assert {p.candidate.version for p in ask("quagga", max_passages=10).passages} == {2}
    assert {p.candidate.version for p in ask("harbour pump", max_passages=10).passages} == {2}
    with tenant_session("acme"):
        first, second = DocumentVersion.objects.order_by("version")
        assert first.superseded_at == second.ingested_at > first.ingested_at
        for version, live in ((first, False), (second, True)):
            rows = ChunkIndex.objects.filter(chunk__chunk_set__version=version)
            assert set(rows.values_list("live", flat=True)) == {live}
            assert rows.count() == 4
        then = first.ingested_at + timedelta(microseconds=1)
    assert {p.candidate.version for p in ask("zebra", as_of=then).passages} == {1}
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_an_older_text_again_is_a_newer_version(blob_root: Path) -> None:
    first = admit(long_note(word="zebra"), source=SOURCE)
    admit(long_note(word="quagga"), source=SOURCE)
    third = admit(long_note(word="zebra"), source=SOURCE)
    assert (third.version, third.already_ingested) == (3, False)
    assert not set(third.chunk_ids) & set(first.chunk_ids)
    assert not ask("quagga").passages
    assert {p.candidate.version for p in ask("zebra").passages} == {3}
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_new_version_by_document_id_and_by_connector_keep_the_document(blob_root: Path) -> None:
    first = admit(long_note(), source=SOURCE)
    second = admit(long_note(5), document_id=first.document_id)
    third = admit(long_note(3), source=replace(SOURCE, version="r3"))
    assert {first.document_id, second.document_id, third.document_id} == {first.document_id}
    assert (second.version, third.version) == (2, 3)


@pytest.mark.django_db
def test_instants_never_run_backwards_in_a_document(blob_root: Path) -> None:
    first = admit(long_note(), source=SOURCE)
    with tenant_session("acme"):
        version = DocumentVersion.objects.get()
        ahead = version.ingested_at + timedelta(days=400)
        DocumentVersion.objects.update(ingested_at=ahead)
    admit(long_note(5), document_id=first.document_id)
    with tenant_session("acme"):
        old, new = DocumentVersion.objects.order_by("version")
        assert new.ingested_at > old.ingested_at == ahead
        assert old.superseded_at == new.ingested_at


@pytest.mark.django_db
def test_a_tenants_spaces_are_shared_by_its_documents(blob_root: Path) -> None:
    for number in range(3):
        admit(long_note(word=f"w{number}"))
    admit(long_note(), visibility=Visibility.PRINCIPAL)
    with tenant_session("acme"):
        assert VisibilitySpace.objects.count() == 2
        shared = VisibilitySpace.objects.get(visibility="tenant")
        assert shared.languages == ["english"]


# --- languages and metadata ------------------------------------------------------------------


@pytest.mark.django_db
def test_a_german_question_finds_the_german_stem(blob_root: Path) -> None:
    result = admit(
        "# Betrieb\n\nDie alten Häuser am Hafen werden nachts von starken Pumpen entwässert, und"
        " der Wärter schreibt jede Störung in das Buch.\n"
    )
    with tenant_session("acme"):
        assert DocumentVersion.objects.get().language == "german"
    for question in ("Haus", "Häusern", "hauser", "Pumpe", "Störungen"):
        assert [p.candidate.document_id for p in ask(question).passages] == [result.document_id]


@pytest.mark.django_db
def test_documents_of_several_languages_are_found_by_one_question(blob_root: Path) -> None:
    admit("Die Pumpen laufen jede Nacht am Hafen und werden vom Wärter gewartet.", title="de")
    admit("The pumps are running every night and are looked after by the keeper.", title="en")
    admit("Les pompes tournent chaque nuit et le gardien du port les surveille.", title="fr")
    found = ask("pumpe pump pompe", max_passages=5)
    assert {p.candidate.title for p in found.passages} == {"de", "en", "fr"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("stated", "text", "language"),
    [
        (None, "x = 1; y = 2; z[0] = {a: 1};", "simple"),
        (None, "ok", "simple"),
        ("french", "The pumps are running every night and are looked after.", "french"),
        ("simple", "The pumps are running every night and are looked after.", "simple"),
    ],
)
def test_the_language_is_the_one_given_or_detected_or_simple(
    blob_root: Path, stated: str | None, text: str, language: str
) -> None:
    admit(text, language=stated)
    with tenant_session("acme"):
        assert DocumentVersion.objects.get().language == language


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("front", "given", "expected"),
    [
        ("date: 2026-05-02", None, date(2026, 5, 2)),
        ("date: 2026-05-02T23:30:00-08:00", None, date(2026, 5, 2)),
        ("date: 2026-02-30", None, None),
        ("date: soon", None, None),
        ("a: &x [1]\nb: *x\ndate: 2026-05-02", None, None),
        ("date: 2026-05-02", date(2025, 1, 1), date(2025, 1, 1)),
        ("title: Pumps", None, None),
    ],
)
def test_the_date_of_the_front_matter_stands_in_for_one_that_is_not_given(
    blob_root: Path, front: str, given: date | None, expected: date | None
) -> None:
    result = admit(f"---\n{front}\n---\n\n# Pumps\n\nThe pump runs.\n", doc_date=given)
    with tenant_session("acme"):
        assert DocumentVersion.objects.get().doc_date == expected
        assert not [c for c in Chunk.objects.all() if "date" in f"{c.heading_path}{c.text}"]
    assert result.title == "A note", "a title that was given is never overruled"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "line", [">" * 30_000, "](" * 15_000, "- " * 15_000, "|" * 30_000, " " * 480 + "- x"]
)
def test_a_run_of_marks_costs_no_more_than_its_length(blob_root: Path, line: str) -> None:
    """Minutes, not a failure, are what a pattern of quadratic cost would show here."""
    lines = "\n".join([line] * (120_000 // len(line)))
    assert admit(f"zebra\n\n{lines} end\n").report.complete


# --- admission per chunk ---------------------------------------------------------------------


class ByWord:
    """Quarantines what says so and rejects what says so."""

    version = "by-word-1"

    def classify(self, chunk: ChunkDraft) -> Verdict:
        if "keepout" in chunk.text:
            return Verdict.REJECT
        return Verdict.QUARANTINE if "holdback" in chunk.text else Verdict.ADMIT


@pytest.mark.django_db
def test_a_profile_is_part_of_the_plan_and_of_the_ids(blob_root: Path) -> None:
    content = "# Pumps\n\n" + "\n\n".join(f"Part {n}. {PARAGRAPH[:500]}" for n in range(8))
    told = {
        name: admit(content, source=ConnectorIdentity(type="wiki", id=name), profile=name)
        for name in ("default", "chat", "reference", "chat-1")
    }
    with tenant_session("acme"):
        sets = {name: ChunkSet.objects.get(pk=each.chunk_set_id) for name, each in told.items()}
    assert {name: each.chunker_version for name, each in sets.items()} == {
        "default": "markdown-1/normal-1/structure-1/default",
        "chat": "markdown-1/normal-1/structure-1/chat-1",
        "reference": "markdown-1/normal-1/structure-1/reference-1",
        "chat-1": "markdown-1/normal-1/structure-1/chat-1",
    }
    prints = {name: each.plan_fingerprint for name, each in sets.items()}
    assert prints["chat"] == prints["chat-1"]
    assert len(set(prints.values())) == 3
    assert len(told["chat"].chunk_ids) > len(told["default"].chunk_ids)


@pytest.mark.django_db
def test_quarantined_chunks_are_stored_unseen_and_rejected_ones_not_at_all(
    blob_root: Path,
) -> None:
    words = ("zebra", "holdback", "keepout", "zebra")
    content = "# Pumps\n\n" + "".join(
        f"## Part {number}\n\n{word} {number}. {PARAGRAPH}\n\n" for number, word in enumerate(words)
    )
    ingestor = replace(store().ingestor, admission_policy=ByWord())
    result = ingestor.ingest(
        IngestRequest(
            artifact_id=upload(principal(), content).pk,
            title="Pumps",
            visibility=Visibility.TENANT,
            origin_trust=OriginTrust.USER,
        ),
        principal(),
    )
    report = result.report
    assert partitions(report)
    assert (report.chunks, report.embedded) == (4, 2)
    assert (report.quarantined, report.rejected) == (1, 1)
    assert len(result.chunk_ids) == 2
    with tenant_session("acme"):
        assert Chunk.objects.count() == 3
        assert ChunkIndex.objects.count() == 2
        held = Chunk.objects.get(verdict=Verdict.QUARANTINE)
        with pytest.raises(Exception, match="nothing by that name"):
            store().get_chunk(held.chunk_id, principal())
    assert not ask("holdback").passages
    assert not ask("holdback").omitted
    assert not ask("keepout").passages
    assert len(ask("zebra", max_passages=10, max_per_document=10).passages) == 2
    assert_statistics_are_those_of_the_live_rows()


# --- failures --------------------------------------------------------------------------------


class Broken(Exception):
    """Something that no code of ours expects."""


STEPS = {
    "admit": "knowledge.ingest.pipeline.admit",
    "extract": "knowledge.adapters.extractors.markdown.MarkdownExtractor.extract",
    "normalise": "knowledge.ingest.pipeline.normalised",
    "chunk": "knowledge.core.chunking.StructureChunker.chunk",
    "scan": "knowledge.core.scanning.SecretGate.check",
    "flag": "knowledge.ingest.pipeline.flag_instructions",
    "index": "knowledge.ingest.pipeline.index_rows",
    "commit: lock": "knowledge.ingest.commit.lock_document",
    "commit: document": "knowledge.ingest.publishing._document",
    "commit: instant": "knowledge.ingest.publishing._instant",
    "commit: version": "knowledge.ingest.publishing.DocumentVersion.objects.create",
    "commit: chunks": "knowledge.ingest.publishing.write_chunks",
    "commit: index rows": "knowledge.adapters.term_index.publish",
    "commit: event": "knowledge.ingest.publishing.KnowledgeEvent.objects.create",
    "commit: all": "knowledge.ingest.commit.publish",
}


def breaks_after(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Lets a step do its work and fail at the end of it."""
    from pkgutil import resolve_name  # noqa: PLC0415 - for this alone

    owner, _, name = target.rpartition(".")
    real: Callable[..., Any] = getattr(resolve_name(owner), name)

    def broken(*given: Any, **named: Any) -> Any:
        real(*given, **named)
        raise Broken

    monkeypatch.setattr(target, broken)


@pytest.mark.django_db
@pytest.mark.parametrize("first", [True, False], ids=["first version", "next version"])
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_after_any_step_leaves_nothing(
    blob_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    first: bool,
) -> None:
    if not first:
        admit(long_note(2, "quagga"), source=SOURCE)
    mine = upload(principal(), long_note())
    request = IngestRequest(
        artifact_id=mine.pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        source=SOURCE,
        origin_trust=OriginTrust.USER,
    )
    before = footprint(blob_root), every_row()
    breaks_after(monkeypatch, STEPS[step])
    with pytest.raises(Broken):
        store().ingest(request, principal())
    monkeypatch.undo()
    assert (footprint(blob_root), every_row()) == before
    assert bool(ask("quagga").passages) is not first
    assert not ask("zebra").passages
    result = store().ingest(request, principal())
    assert (result.version, result.report.embedded) == (1 if first else 2, 4)


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["knowledge_chunk", "knowledge_chunk_index"])
@pytest.mark.parametrize("nth", [1, 12, 30])
def test_a_failure_at_the_nth_insert_leaves_nothing(blob_root: Path, table: str, nth: int) -> None:
    """The database itself fails, after it has taken the rows before."""
    mine = upload(principal(), long_note(30))
    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE counted_inserts")
        cursor.execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF nextval('counted_inserts') = {nth} THEN RAISE 'disk on fire'; END IF;"
            " RETURN NEW; END $$"
        )
        cursor.execute(
            f"CREATE TRIGGER fails BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fails()"
        )
    before = footprint(blob_root), every_row()
    request = IngestRequest(
        artifact_id=mine.pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        origin_trust=OriginTrust.USER,
    )
    with pytest.raises(DatabaseError, match="disk on fire"):
        store().ingest(request, principal())
    assert (footprint(blob_root), every_row()) == before
    assert not ask("zebra").passages


@pytest.mark.django_db
def test_a_blob_store_that_fails_leaves_nothing(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = upload(principal(), long_note())
    before = footprint(blob_root), every_row()

    def full(content: bytes) -> str:
        raise OSError("no space left")

    monkeypatch.setattr("artifacts.store.store_blob", full)
    request = IngestRequest(
        artifact_id=mine.pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        origin_trust=OriginTrust.USER,
    )
    with pytest.raises(OSError, match="no space"):
        store().ingest(request, principal())
    assert (footprint(blob_root), every_row()) == before


# --- at the same time ------------------------------------------------------------------------


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Runs on a connection of its own, which is closed afterwards."""

    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    return run


@pytest.mark.django_db(transaction=True)
def test_two_equal_ingests_at_once_make_one_version(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from knowledge.ingest import commit  # noqa: PLC0415 - to hold both at its lock

    mine = upload(principal(), long_note())
    request = IngestRequest(
        artifact_id=mine.pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        source=SOURCE,
        origin_trust=OriginTrust.USER,
    )
    both_there = threading.Barrier(2, timeout=60)
    lock = lock_document

    def together(document_id: Any) -> None:
        both_there.wait()
        lock(document_id)

    monkeypatch.setattr(commit, "lock_document", together)
    blobs = len(footprint(blob_root)["blobs"])
    with ThreadPoolExecutor(2) as pool:
        work = in_thread(lambda: store().ingest(request, principal()))
        results: list[IngestResult] = [
            future.result() for future in [pool.submit(work), pool.submit(work)]
        ]
    assert sorted(result.already_ingested for result in results) == [False, True]
    assert {result.version for result in results} == {1}
    assert len({result.chunk_ids for result in results}) == 1
    assert all(partitions(result.report) for result in results)
    with tenant_session("acme"):
        assert DocumentVersion.objects.count() == 1
        assert KnowledgeEvent.objects.count() == 1
    assert len(footprint(blob_root)["blobs"]) == blobs + 1
    assert_statistics_are_those_of_the_live_rows()

    # Of two different texts at once, the second becomes the version after the first's.
    others = [upload(principal(), long_note(2, word)) for word in ("quagga", "okapi")]
    works = [
        in_thread(
            lambda pk=artifact.pk: store().ingest(  # type: ignore[misc]
                replace(request, artifact_id=pk), principal()
            )
        )
        for artifact in others
    ]
    with ThreadPoolExecutor(2) as pool:
        versions = [f.result().version for f in [pool.submit(work) for work in works]]
    assert sorted(versions) == [2, 3]
    found = ask("zebra quagga okapi", max_passages=20, max_per_document=20).passages
    assert {p.candidate.version for p in found} == {3}
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db(transaction=True)
def test_a_reader_sees_all_of_the_old_or_all_of_the_new(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit(long_note(6, "zebra old"), source=SOURCE)
    newer = upload(principal(), long_note(9, "zebra new"))
    written, may_end = threading.Event(), threading.Event()
    publish = term_index.publish

    def halfway(*given: Any, **named: Any) -> None:
        publish(*given, **named)
        written.set()
        assert may_end.wait(60)

    def seen() -> list[int]:
        found = ask("zebra harbour", max_passages=50, max_per_document=50, budget_tokens=100_000)
        return sorted(passage.candidate.version for passage in found.passages)

    monkeypatch.setattr(term_index, "publish", halfway)
    request = IngestRequest(
        artifact_id=newer.pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        source=SOURCE,
        origin_trust=OriginTrust.USER,
    )
    with ThreadPoolExecutor(1) as pool:
        try:
            ingest = pool.submit(in_thread(lambda: store().ingest(request, principal())))
            assert written.wait(60)
            # Everything is written and nothing is committed.
            assert seen() == [1] * 6
            assert_statistics_are_those_of_the_live_rows()
        finally:
            may_end.set()
        ingest.result()
    assert seen() == [2] * 9
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db(transaction=True)
def test_a_new_space_is_made_once_by_ingests_at_once(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from knowledge.ingest import commit  # noqa: PLC0415 - to hold all at its lock

    there = threading.Barrier(3, timeout=60)
    lock = lock_document

    def together(document_id: Any) -> None:
        there.wait()
        lock(document_id)

    monkeypatch.setattr(commit, "lock_document", together)
    works = [
        in_thread(lambda who=who: admit(long_note(2), by=principal(who)))  # type: ignore[misc]
        for who in ("alice", "bob", "carol")
    ]
    with ThreadPoolExecutor(3) as pool:
        results = [future.result() for future in [pool.submit(work) for work in works]]
    assert len({result.document_id for result in results}) == 3
    with tenant_session("acme"):
        assert VisibilitySpace.objects.count() == 1
    assert_statistics_are_those_of_the_live_rows()


# --- statistics ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_statistics_are_those_of_the_live_rows_after_every_change(blob_root: Path) -> None:
    def merge() -> int:
        with operations_session():
            return term_index.merge_statistics()

    def sound() -> None:
        assert_statistics_are_those_of_the_live_rows()

    first = admit(long_note(3, "zebra"), source=SOURCE)
    sound()
    admit(long_note(2, "quagga"), visibility=Visibility.PRINCIPAL)
    admit(long_note(2, "okapi"), by=principal(tenant="globex"))
    sound()
    assert merge() > 0
    assert merge() == 0
    sound()
    admit(long_note(2, "okapi"), source=SOURCE)
    sound()
    merge()
    sound()
    scores = [(p.candidate.chunk_id, p.score) for p in ask("okapi pump").passages]
    store().delete(first.document_id, principal())
    sound()
    merge()
    sound()
    admit(long_note(2, "okapi"), source=SOURCE)
    merge()
    sound()
    assert scores
    assert texts(ask("okapi pump"))
