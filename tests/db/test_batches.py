"""Batches: a version is seen whole or not at all, and what was begun can be gone on with."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models.functions import Now
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access.errors import Forbidden, NotFound
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope
from artifacts.models import Artifact, ArtifactOrigin
from artifacts.sweeper import sweep
from knowledge.adapters.embedding import Embedding
from knowledge.core.errors import (
    IngestBusy,
    IngestIncomplete,
    IngestInterrupted,
    IngestPlanMismatch,
    IngestScopeMismatch,
    InvalidBatchSize,
    KnowledgeReleaseNotFinalized,
)
from knowledge.core.types import (
    ChunkDraft,
    ConnectorIdentity,
    IngestProgress,
    IngestReport,
    IngestRequest,
    IngestResult,
    Verdict,
    Visibility,
)
from knowledge.ingest import commit
from knowledge.ingest.attempt import Attempt
from knowledge.ingest.pipeline import Ingestor
from knowledge.lifecycle.abandoned import discard_abandoned
from knowledge.models import (
    Chunk,
    ChunkIndex,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
    UnfinishedVersion,
)
from knowledge.wiring import store
from tests.embedding_fakes import FAILURES, FakeEmbedder, FakeVectors
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.support import admit, ask, footprint, principal, upload

SOURCE = ConnectorIdentity(type="wiki", id="pumps", version="r1")
FILLER = " ".join(["The pump at the harbour runs at night and rests by day."] * 12)


def long_note(parts: int = 7, word: str = "zebra") -> str:
    """One chunk a part."""
    return "# Pumps\n\n" + "".join(
        f"## Part {number}\n\n{word} of part{number}. {FILLER}\n\n" for number in range(parts)
    )


def asked(content: str, **given: Any) -> IngestRequest:
    return IngestRequest(
        **{
            "artifact_id": upload(principal(), content).pk,
            "title": "Pumps",
            "visibility": Visibility.TENANT,
            "source": SOURCE,
            "origin_trust": OriginTrust.USER,
            "batch_size": 2,
            **given,
        }
    )


def embedding_ingestor(
    failing: Callable[[int], str | None] = lambda call: None, sink: FakeVectors | None = None
) -> tuple[Ingestor, FakeEmbedder, FakeVectors]:
    embedder, vectors = FakeEmbedder(failing=failing), sink or FakeVectors()
    embedding = Embedding(embedder=embedder, vectors=vectors)
    return replace(store().ingestor, embedding=embedding), embedder, vectors


def partitions(report: IngestReport) -> bool:
    admitted = report.chunks - report.quarantined - report.rejected
    return (
        admitted == report.embedded + report.skipped + report.pending
        and min(report.embedded, report.skipped, report.pending) >= 0
        and report.complete == (report.pending == 0)
    )


def nothing_to_see() -> bool:
    """Whatever reads the corpus: search of now and of then, the list, the tables behind them."""
    with tenant_session("acme"):
        rows = (
            Document.objects.count(),
            DocumentVersion.objects.count(),
            ChunkIndex.objects.count(),
        )
        events = KnowledgeEvent.objects.exclude(name=KnowledgeEvent.DELETED).count()
    return rows == (0, 0, 0) and not events and not ask("zebra harbour", min_score=0.0).passages


def fails_at(*calls: int, how: str = "timeout") -> Callable[[int], str | None]:
    return lambda call: how if call in calls else None


# --- a long document -------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_long_document_is_committed_in_batches_and_published_once(blob_root: Path) -> None:
    seen: list[IngestProgress] = []
    hidden: list[bool] = []

    def watch(progress: IngestProgress) -> None:
        seen.append(progress)
        if progress.batch < progress.batches:
            hidden.append(nothing_to_see())

    result = store().ingest(asked(long_note()), principal(), Attempt(on_progress=watch))
    assert [(p.embedded, p.total, p.batch, p.batches) for p in seen] == [
        (0, 7, 0, 4),
        (2, 7, 1, 4),
        (4, 7, 2, 4),
        (6, 7, 3, 4),
        (7, 7, 4, 4),
    ]
    assert hidden == [True] * 4
    assert (result.state, result.version, result.already_ingested) == ("live", 1, False)
    assert (result.report.embedded, result.report.skipped, result.report.chunks) == (7, 0, 7)
    assert len(set(result.chunk_ids)) == 7
    with tenant_session("acme"):
        assert list(Chunk.objects.order_by("ordinal").values_list("chunk_id", flat=True)) == list(
            result.chunk_ids
        )
        assert ChunkIndex.objects.filter(live=True).count() == 7
        version = DocumentVersion.objects.get()
        chunk_set = ChunkSet.objects.get()
        assert (chunk_set.state, chunk_set.published_at) == ("live", version.ingested_at)
        assert version.source_version == "r1"
        document = Document.objects.get()
        assert (document.source_type, document.source_id) == ("wiki", "pumps")
        assert not UnfinishedVersion.objects.exists()
        (event,) = KnowledgeEvent.objects.all()
        assert (event.data["chunks"], event.at) == (7, version.ingested_at)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_the_same_text_has_the_same_chunks_whatever_the_batches(blob_root: Path) -> None:
    one = store().ingest(asked(long_note(), batch_size=512), principal())
    rows = _chunk_rows()
    store().delete(one.document_id, principal())
    other = store().ingest(asked(long_note(), batch_size=3), principal())
    assert other.chunk_ids == one.chunk_ids
    assert _chunk_rows() == rows


def _chunk_rows() -> list[Any]:
    with tenant_session("acme"):
        return list(
            Chunk.objects.order_by("ordinal").values_list(
                "chunk_id", "text", "heading_path", "index_row__tsv", "index_row__live"
            )
        )


@pytest.mark.django_db
@pytest.mark.parametrize("size", [0, -1, 513])
def test_a_batch_has_1_to_512_chunks(blob_root: Path, size: int) -> None:
    with pytest.raises(InvalidBatchSize):
        store().ingest(asked(long_note(), batch_size=size), principal())


# --- an embedder that fails ------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("how", FAILURES)
def test_a_failing_embedder_is_a_partial_outcome_that_nobody_sees(
    blob_root: Path, how: str
) -> None:
    ingestor, embedder, vectors = embedding_ingestor(fails_at(3, how=how))
    request = asked(long_note())
    partial = ingestor.ingest(request, principal())
    report = partial.report
    assert (partial.state, partial.chunk_ids, partial.version) == ("ingesting", (), 1)
    assert (report.embedded, report.skipped, report.pending, report.complete) == (4, 0, 3, False)
    assert "embedder failed" in report.warnings[-1]
    assert nothing_to_see()
    with tenant_session("acme"):
        first = Chunk.objects.order_by("ordinal").values_list("chunk_id", flat=True)[0]
    with pytest.raises(NotFound):
        store().get_chunk(first, principal())
    with pytest.raises(NotFound):
        store().get_document(partial.document_id, principal())

    with pytest.raises(IngestIncomplete):
        ingestor.ingest(request, principal())
    done = ingestor.ingest(replace(request, resume=True), principal())
    assert (done.state, done.report.embedded, done.report.skipped) == ("live", 3, 4)
    assert done.chunk_set_id == partial.chunk_set_id
    assert partitions(done.report)
    # Of the seven texts each was embedded once and kept, the failed batch's twice asked for.
    texts = Counter(text for call in embedder.calls for text in call)
    assert len(texts) == 7
    assert sorted(texts.values()) == [1] * 5 + [2] * 2
    with tenant_session("acme"):
        admitted = set(Chunk.objects.values_list("pk", flat=True))
    assert set(vectors.vectors) == admitted
    assert list(vectors.published) == [done.chunk_set_id]
    assert ask("zebra").passages
    assert_statistics_are_those_of_the_live_rows()

    again = ingestor.ingest(request, principal())
    assert (again.already_ingested, again.report.embedded, again.report.skipped) == (True, 0, 7)


@pytest.mark.django_db
def test_even_a_short_document_waits_for_its_vectors(blob_root: Path) -> None:
    ingestor, embedder, _ = embedding_ingestor(fails_at(1))
    request = asked("The zebra pump runs at night.", batch_size=64)
    partial = ingestor.ingest(request, principal())
    assert (partial.state, partial.report.pending) == ("ingesting", 1)
    assert nothing_to_see()
    done = ingestor.ingest(replace(request, resume=True), principal())
    assert done.state == "live"
    assert embedder.calls[-1] == ["Pumps\nThe zebra pump runs at night."]


class ByWord:
    """Quarantines what says so and rejects what says so."""

    version = "by-word-1"

    def classify(self, chunk: ChunkDraft) -> Verdict:
        if "keepout" in chunk.text:
            return Verdict.REJECT
        return Verdict.QUARANTINE if "holdback" in chunk.text else Verdict.ADMIT


def mixed_note(words: list[str]) -> str:
    return "# Pumps\n\n" + "".join(
        f"## Part {number}\n\n{word} {number}. {FILLER}\n\n" for number, word in enumerate(words)
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    "words",
    [
        ["zebra", "holdback", "keepout", "zebra", "holdback"],
        ["zebra", "zebra", "zebra", "holdback", "holdback", "holdback"],
        ["holdback", "holdback", "holdback"],
        ["keepout", "keepout", "keepout"],
    ],
)
def test_only_admitted_chunks_are_embedded(blob_root: Path, words: list[str]) -> None:
    ingestor, embedder, vectors = embedding_ingestor()
    ingestor = replace(ingestor, admission_policy=ByWord())
    result = ingestor.ingest(asked(mixed_note(words), batch_size=1), principal())
    count = Counter(words)
    report = result.report
    assert (report.chunks, report.embedded) == (len(words), count["zebra"])
    assert (report.quarantined, report.rejected) == (count["holdback"], count["keepout"])
    assert result.state == "live"
    assert not any("holdback" in t or "keepout" in t for call in embedder.calls for t in call)
    assert len(vectors.vectors) == count["zebra"]
    with tenant_session("acme"):
        assert ChunkSet.objects.get().state == "live"
        assert Chunk.objects.count() == count["zebra"] + count["holdback"]


# --- the equations ---------------------------------------------------------------------------


class Cut(Exception):
    """The process ends here."""


# After any failures and interruptions a resume completes it, and every report adds up.
interrupted = given(
    words=st.lists(
        st.sampled_from(["zebra", "zebra", "holdback", "keepout"]), min_size=1, max_size=9
    ),
    sizes=st.lists(st.integers(1, 512) | st.integers(1, 3), min_size=1, max_size=4),
    failing=st.lists(st.sampled_from([None, None, *FAILURES]), max_size=12),
    cuts=st.sets(st.integers(0, 12), max_size=3),
    embeds=st.booleans(),
)
patiently = partial(
    settings,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.django_db
@pytest.mark.usefixtures("blob_root")
@patiently(max_examples=8)
@interrupted
def test_the_report_partitions_whatever_fails_and_wherever_it_is_cut_off(**drawn: Any) -> None:
    completes_and_adds_up(**drawn)


@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.usefixtures("blob_root")
@patiently(max_examples=200)
@interrupted
def test_the_report_partitions_at_length(**drawn: Any) -> None:
    completes_and_adds_up(**drawn)


def completes_and_adds_up(
    words: list[str],
    sizes: list[int],
    failing: list[str | None],
    cuts: set[int],
    *,
    embeds: bool,
) -> None:
    sink = FakeVectors()
    ingestor, _, _ = embedding_ingestor(
        lambda call: failing[call - 1] if call <= len(failing) else None, sink
    )
    if not embeds:
        ingestor = replace(ingestor, embedding=None)
    ingestor = replace(ingestor, admission_policy=ByWord())
    request = asked(mixed_note(words), source=None)
    count, steps, before = Counter(words), iter(range(10_000)), 0
    report = None
    try:
        for call in range(40):
            told: list[IngestProgress] = []

            def on_progress(progress: IngestProgress, told: list[IngestProgress] = told) -> None:
                told.append(progress)
                # A cut right after the last batch comes too late to change anything.
                if next(steps) in cuts and progress.batch < progress.batches:
                    raise Cut

            size = sizes[call % len(sizes)]
            try:
                result = ingestor.ingest(
                    replace(request, resume=True, batch_size=size),
                    principal(),
                    Attempt(on_progress=on_progress),
                )
            except Cut:
                before = told[-1].embedded
                assert nothing_to_see()
                continue
            report = result.report
            assert partitions(report)
            assert (report.chunks, report.quarantined, report.rejected) == (
                len(words),
                count["holdback"],
                count["keepout"],
            )
            assert report.skipped == before
            assert (result.state == "live") is report.complete
            before += report.embedded
            if report.complete:
                break
            assert nothing_to_see()
        assert report is not None
        assert report.complete
        assert_statistics_are_those_of_the_live_rows()
        with tenant_session("acme"):
            assert Chunk.objects.count() == count["zebra"] + count["holdback"]
            admitted = set(Chunk.objects.filter(verdict="admit").values_list("pk", flat=True))
        if embeds:
            assert set(sink.vectors) == admitted
        again = ingestor.ingest(request, principal())
        assert again.already_ingested
        assert (again.report.embedded, again.report.skipped) == (0, count["zebra"])
    finally:
        for document_id in _documents():
            store().delete(document_id, principal())
        with operations_session():
            KnowledgeEvent.objects.all().delete()


def _documents() -> set[Any]:
    with tenant_session("acme"):
        return {
            *Document.objects.values_list("pk", flat=True),
            *UnfinishedVersion.objects.values_list("pk", flat=True),
        }


# --- resume ----------------------------------------------------------------------------------


def begun(content: str = "", **given: Any) -> tuple[IngestRequest, IngestResult]:
    """A version of which two chunks were committed before the embedder failed."""
    ingestor, _, _ = embedding_ingestor(fails_at(2))
    request = asked(content or long_note(), **given)
    partial = ingestor.ingest(request, principal())
    assert (partial.state, partial.report.embedded) == ("ingesting", 2)
    return request, partial


@pytest.mark.django_db
def test_a_resume_needs_the_same_plan(blob_root: Path) -> None:
    request, _ = begun()
    ingestor, _, _ = embedding_ingestor()
    other_model = FakeEmbedder()
    other_model.model = "fake-2"
    changed: list[tuple[Ingestor, IngestRequest]] = [
        (ingestor, replace(request, artifact_id=upload(principal(), long_note(8)).pk)),
        (replace(ingestor, admission_policy=ByWord()), request),
        (
            replace(ingestor, embedding=Embedding(embedder=other_model, vectors=FakeVectors())),
            request,
        ),
        (replace(ingestor, embedding=None), request),
    ]
    before = every_row(without=["artifacts_artifact"])
    for other, asked_for in changed:
        for resume in (False, True):
            with pytest.raises(IngestPlanMismatch, match="source version"):
                other.ingest(replace(asked_for, resume=resume), principal())
    assert every_row(without=["artifacts_artifact"]) == before
    # A language or a title is no part of what was committed: it counts when it is finalized.
    done = ingestor.ingest(
        replace(request, resume=True, title="Harbour pumps", language="simple"), principal()
    )
    assert (done.state, done.title) == ("live", "Harbour pumps")


@pytest.mark.django_db
def test_other_detectors_are_another_plan_with_or_without_a_policy(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, _ = begun()
    ingestor, _, _ = embedding_ingestor()
    for part in ("secret_scanner", "instruction_scanner"):
        with monkeypatch.context() as changed:
            changed.setattr(getattr(ingestor, part), "version", "newer", raising=False)
            with pytest.raises(IngestPlanMismatch):
                ingestor.ingest(replace(request, resume=True), principal())
    assert ingestor.ingest(replace(request, resume=True), principal()).state == "live"


@pytest.mark.django_db
def test_another_scope_is_no_resume(blob_root: Path) -> None:
    request, _ = begun()
    ingestor, _, _ = embedding_ingestor()
    for change in (
        {"visibility": Visibility.PRINCIPAL},
        {"sensitivity": "public"},
        {"visibility": Visibility.PROJECT, "project_scope": "apollo"},
    ):
        with pytest.raises(IngestScopeMismatch):
            ingestor.ingest(replace(request, resume=True, **change), principal())
    theirs = replace(request, artifact_id=upload(principal("bob"), long_note()).pk, resume=True)
    with pytest.raises(Forbidden):
        ingestor.ingest(theirs, principal("bob"))


@pytest.mark.django_db
def test_a_private_unfinished_version_does_not_exist_for_others(blob_root: Path) -> None:
    request, partial = begun(visibility=Visibility.PRINCIPAL)
    ingestor, _, _ = embedding_ingestor()
    bob = principal("bob", scopes=frozenset({Scope.WRITE, Scope.DELETE}))
    theirs = replace(request, artifact_id=upload(bob, long_note()).pk, resume=True)
    with pytest.raises(NotFound):
        ingestor.ingest(theirs, bob)
    with pytest.raises(NotFound):
        store().delete(partial.document_id, bob)


@pytest.mark.django_db
def test_a_new_source_version_takes_the_place_of_an_unfinished_one(blob_root: Path) -> None:
    ingestor, _, sink = embedding_ingestor(fails_at(2))
    request = asked(long_note())
    old = ingestor.ingest(request, principal())
    newer = replace(
        request,
        artifact_id=upload(principal(), long_note(3, "quagga")).pk,
        source=replace(SOURCE, version="r2"),
        resume=True,
    )
    new = ingestor.ingest(newer, principal())
    assert (new.document_id, new.version, new.state) == (old.document_id, 1, "live")
    assert (new.report.deleted, new.report.embedded) == (2, 3)
    assert partitions(new.report)
    assert ask("quagga").passages
    assert not ask("zebra").passages
    assert len(sink.vectors) == 3
    with tenant_session("acme"):
        assert ChunkSet.objects.count() == 1
        sources = Artifact.objects.filter(origin=ArtifactOrigin.KNOWLEDGE_SOURCE)
        assert sources.filter(expires_at__isnull=True).count() == 1
    sweep()
    assert len(footprint(blob_root)["blobs"]) == 3  # two uploads and the source that is named
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_without_a_source_version_another_text_starts_over_and_a_resume_says_no(
    blob_root: Path,
) -> None:
    plain = ConnectorIdentity(type="file", id="/pumps.md")
    request, _ = begun(source=plain)
    ingestor, _, _ = embedding_ingestor()
    edited = replace(request, artifact_id=upload(principal(), long_note(3, "quagga")).pk)
    with pytest.raises(IngestPlanMismatch, match="without `resume`"):
        ingestor.ingest(replace(edited, resume=True), principal())
    done = ingestor.ingest(edited, principal())
    assert (done.state, done.report.deleted, done.report.embedded) == ("live", 2, 3)


@pytest.mark.django_db
def test_a_source_version_stands_for_one_content(blob_root: Path) -> None:
    first = admit(long_note(2), source=SOURCE)
    assert admit(long_note(2), source=SOURCE).already_ingested
    with pytest.raises(IngestPlanMismatch, match="'r1'"):
        admit(long_note(3), source=SOURCE)
    second = admit(long_note(3), source=replace(SOURCE, version="r2"))
    assert (second.document_id, second.version) == (first.document_id, 2)
    # The same text under a new name for it is a new version, an older one again is too.
    third = admit(long_note(3), source=replace(SOURCE, version="r3"))
    assert (third.version, third.already_ingested) == (3, False)
    assert admit(long_note(2), source=SOURCE).version == 4
    with pytest.raises(IngestPlanMismatch):
        admit(long_note(4), source=replace(SOURCE, version="r2"))


@pytest.mark.django_db
def test_another_profile_is_no_no_op(blob_root: Path) -> None:
    admit(long_note(2), source=SOURCE)
    with pytest.raises(IngestPlanMismatch, match="'default'"):
        admit(long_note(2), source=SOURCE, profile="chat")
    anew = admit(long_note(2), source=replace(SOURCE, version="r2"), profile="chat")
    assert anew.version == 2
    # Its name is `chat`, whichever version of it cut the text.
    assert admit(long_note(2), source=replace(SOURCE, version="r2"), profile="chat").version == 2
    with pytest.raises(IngestPlanMismatch, match="'chat-1'"):
        admit(long_note(2), source=replace(SOURCE, version="r2"))


@pytest.mark.django_db
def test_an_unfinished_new_version_leaves_the_live_one_as_it_is(blob_root: Path) -> None:
    old = admit(long_note(3, "quagga"), source=replace(SOURCE, version="r0"))
    request, partial = begun()
    assert (partial.document_id, partial.version) == (old.document_id, 2)
    assert {p.candidate.version for p in ask("quagga harbour", max_passages=9).passages} == {1}
    document = store().get_document(old.document_id, principal())
    assert [version.version for version in document.versions.all()] == [1]
    assert store().get_chunk(old.chunk_ids[0], principal()).live  # type: ignore[attr-defined]
    assert_statistics_are_those_of_the_live_rows()
    ingestor, _, vectors = embedding_ingestor()
    # The current text is still no news, and the unfinished one waits.
    again = admit(long_note(3, "quagga"), source=replace(SOURCE, version="r0"))
    assert (again.already_ingested, again.version) == (True, 1)
    done = ingestor.ingest(replace(request, resume=True), principal())
    assert (done.version, done.state) == (2, "live")
    assert len(vectors.retired) == 1
    assert {p.candidate.version for p in ask("zebra harbour", max_passages=9).passages} == {2}
    with tenant_session("acme"):
        first, second = DocumentVersion.objects.order_by("version")
        assert first.superseded_at == second.ingested_at
        then = first.ingested_at + timedelta(microseconds=1)
    assert ask("quagga", as_of=then).passages
    assert not ask("zebra", as_of=then).passages
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_chunk_of_an_unfinished_version_has_no_version_to_show(blob_root: Path) -> None:
    begun()
    with tenant_session("acme"), pytest.raises(KnowledgeReleaseNotFinalized):
        _ = ChunkSet.objects.get().finalized_version


# --- leases ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_who_finds_another_at_work_waits_and_then_says_how_far_it_is(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "WAIT_SECONDS", 0.2)
    request, partial = begun()
    with tenant_session("acme"):
        UnfinishedVersion.objects.update(lease_until=Now() + timedelta(minutes=1))
    ingestor, embedder, _ = embedding_ingestor()
    for resume in (False, True):
        seen = ingestor.ingest(replace(request, resume=resume), principal())
        assert (seen.state, seen.chunk_set_id) == ("ingesting", partial.chunk_set_id)
        assert (seen.report.embedded, seen.report.skipped, seen.report.pending) == (0, 2, 5)
    other = replace(
        request,
        artifact_id=upload(principal(), long_note(3)).pk,
        source=replace(SOURCE, version="r2"),
    )
    with pytest.raises(IngestBusy):
        ingestor.ingest(other, principal())
    assert embedder.calls == []


@pytest.mark.django_db
def test_who_lost_its_lease_writes_nothing_more(blob_root: Path) -> None:
    """A worker that was taken for dead comes back after another has finished its work."""
    request = asked(long_note())
    ingestor, _, _ = embedding_ingestor()
    finished: list[IngestResult] = []

    def overtaken(progress: IngestProgress) -> None:
        if progress.batch == 2:
            with tenant_session("acme"):
                UnfinishedVersion.objects.update(lease_until=Now() - timedelta(seconds=1))
            finished.append(ingestor.ingest(replace(request, resume=True), principal()))

    late = ingestor.ingest(request, principal(), Attempt(on_progress=overtaken))
    (winner,) = finished
    assert (winner.report.embedded, winner.report.skipped) == (3, 4)
    assert (late.state, late.chunk_ids) == ("live", winner.chunk_ids)
    assert (late.report.embedded, late.report.skipped) == (4, 3)
    assert partitions(late.report)
    with tenant_session("acme"):
        assert DocumentVersion.objects.count() == 1
        assert Chunk.objects.count() == 7
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_deletion_ends_an_ingest_that_is_under_way(blob_root: Path) -> None:
    request = asked(long_note())
    ingestor, _, _ = embedding_ingestor()

    def deleting(progress: IngestProgress) -> None:
        if progress.batch == 2:
            (document_id,) = _documents()
            receipt = store().delete(document_id, principal(), reason="changed my mind")
            assert (receipt.versions, receipt.chunk_sets, receipt.chunks) == (0, 1, 4)

    with pytest.raises(IngestInterrupted):
        ingestor.ingest(request, principal(), Attempt(on_progress=deleting))
    assert nothing_to_see()
    with tenant_session("acme"):
        assert not Chunk.objects.exists()
        assert not ChunkSet.objects.exists()
        assert not UnfinishedVersion.objects.exists()
    sweep()
    assert len(footprint(blob_root)["blobs"]) == 1, "the upload"
    again = store().ingest(request, principal())
    assert (again.version, again.state) == (1, "live")


@pytest.mark.django_db
def test_deleting_a_document_takes_its_unfinished_version_along(blob_root: Path) -> None:
    old = admit(long_note(3), source=replace(SOURCE, version="r0"))
    begun()
    receipt = store().delete(old.document_id, principal())
    assert (receipt.versions, receipt.chunk_sets, receipt.chunks) == (1, 2, 5)
    assert len(receipt.sources) == 2
    with tenant_session("acme"):
        assert not Chunk.objects.exists()
        assert not UnfinishedVersion.objects.exists()


@pytest.mark.django_db
def test_what_nobody_came_back_for_is_given_up(blob_root: Path) -> None:
    begun()
    blobs = len(footprint(blob_root)["blobs"])
    assert discard_abandoned(timedelta(days=7)) == 0
    with tenant_session("acme"):
        UnfinishedVersion.objects.update(lease_until=Now() - timedelta(days=8))
    assert discard_abandoned(timedelta(days=7)) == 1
    with tenant_session("acme"):
        assert not Chunk.objects.exists()
        assert not ChunkSet.objects.exists()
    sweep()
    assert len(footprint(blob_root)["blobs"]) == blobs - 1


@pytest.mark.django_db
@pytest.mark.parametrize("first", [True, False])
def test_a_guard_that_says_no_leaves_nothing(blob_root: Path, first: bool) -> None:
    def gone() -> None:
        raise IngestInterrupted

    request = asked(long_note(2) if first else long_note())
    before = footprint(blob_root)
    with pytest.raises(IngestInterrupted):
        store().ingest(request, principal(), Attempt(guard=gone))
    assert footprint(blob_root) == before


# --- readers and rivals ----------------------------------------------------------------------


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    return run


@pytest.mark.django_db(transaction=True)
def test_a_reader_who_never_stops_looking_sees_all_of_the_old_or_all_of_the_new(
    blob_root: Path,
) -> None:
    admit(long_note(6, "zebra old"), source=replace(SOURCE, version="r0"))
    request = asked(long_note(9, "zebra new"))
    ended = threading.Event()
    looks: list[tuple[int, ...]] = []

    def look() -> None:
        while True:
            last = ended.is_set()
            found = ask(
                "zebra harbour", max_passages=50, max_per_document=50, budget_tokens=100_000
            )
            looks.append(tuple(sorted(passage.candidate.version for passage in found.passages)))
            if last:
                return

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(in_thread(look))
        try:
            for failing in (3, 2, None):
                ingestor, _, _ = embedding_ingestor(fails_at(failing or 0))
                result = pool.submit(
                    in_thread(
                        lambda ingestor=ingestor: ingestor.ingest(  # type: ignore[misc]
                            replace(request, resume=True, batch_size=1), principal()
                        )
                    )
                ).result()
        finally:
            ended.set()
        reader.result()
    assert result.state == "live"
    assert set(looks) == {(1,) * 6, (2,) * 9}
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("batch_size", [2, 64])
def test_twenty_equal_ingests_at_once_are_one_version(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    monkeypatch.setattr(commit, "WAIT_SECONDS", 300)
    request = asked(long_note(), batch_size=batch_size)
    together = threading.Barrier(20, timeout=120)

    def send() -> IngestResult:
        together.wait()
        return store().ingest(request, principal())

    with ThreadPoolExecutor(20) as pool:
        results = [future.result() for future in [pool.submit(in_thread(send)) for _ in range(20)]]
    assert all(result.state == "live" for result in results)
    assert sum(not result.already_ingested for result in results) == 1
    assert len({result.chunk_ids for result in results}) == 1
    assert all(partitions(result.report) for result in results)
    with tenant_session("acme"):
        assert DocumentVersion.objects.count() == 1
        assert ChunkSet.objects.count() == 1
        assert Chunk.objects.count() == 7
        assert KnowledgeEvent.objects.count() == 1
    assert len(footprint(blob_root)["blobs"]) == 2
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db(transaction=True)
def test_ten_new_texts_at_once_are_ten_versions_without_gaps(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "WAIT_SECONDS", 300)
    requests = [
        asked(long_note(3, f"word{number}"), source=replace(SOURCE, version=f"r{number}"))
        for number in range(10)
    ]
    with ThreadPoolExecutor(10) as pool:
        sent = [
            pool.submit(in_thread(lambda request=request: store().ingest(request, principal())))  # type: ignore[misc]
            for request in requests
        ]
        versions = sorted(future.result().version for future in sent)
    assert versions == list(range(1, 11))
    with tenant_session("acme"):
        current = DocumentVersion.objects.filter(superseded_at__isnull=True)
        assert [version.version for version in current] == [10]
    assert_statistics_are_those_of_the_live_rows()
