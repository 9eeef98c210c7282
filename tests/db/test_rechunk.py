"""Dividing documents anew: one flip, old citations stand, and whatever interrupts it is harmless."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope
from knowledge.adapters.embedding import Embedding
from knowledge.core.errors import (
    ChunkSetRetired,
    Deleted,
    InvalidBatchSize,
    NotInstalled,
    PassagesPurged,
    RechunkBusy,
    SecretFound,
)
from knowledge.core.types import (
    ChunkDraft,
    ConnectorIdentity,
    IngestProgress,
    IngestRequest,
    IngestResult,
    RechunkOutcome,
    RechunkRequest,
    Verdict,
    Visibility,
)
from knowledge.lifecycle.abandoned import discard_abandoned
from knowledge.models import (
    Chunk,
    ChunkIndex,
    ChunkSet,
    Document,
    DocumentVersion,
    KnowledgeEvent,
)
from knowledge.retrieval import lexical, search
from knowledge.store import KnowledgeStore
from knowledge.wiring import store
from tests.embedding_fakes import FakeEmbedder, FakeVectors
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.rechunk_fakes import FinerChunker, LaterMarkdown, WordIsSecret, later, reading_better
from tests.support import admit, ask, footprint, principal, texts, upload

OPERATOR = Principal.for_operator("acme", "olga")
FILLER = " ".join(["The pump at the harbour runs at night and rests by day."] * 12)
TWO_AT_ONCE = RechunkRequest(batch_size=2)
SOURCE = ConnectorIdentity(type="wiki", id="pumps")

ONE = "markdown-1/normal-1/structure-1/default"
TWO = "markdown-1/normal-1/structure-2/default"


def long_note(parts: int = 3, word: str = "zebra") -> str:
    """One chunk a part for `structure-1`, and several for whatever is finer."""
    return "# Pumps\n\n" + "".join(
        f"## Part {number}\n\n{word} of part{number}. {FILLER}\n\n" for number in range(parts)
    )


def everything(word: str = "harbour", **given: Any) -> list[str]:
    """The ids of all passages that a search finds, those that say the same as another included."""
    found = ask(word, max_passages=50, max_per_document=50, budget_tokens=100_000, **given)
    return sorted(
        [one.candidate.chunk_id for one in found.passages] + [one.chunk_id for one in found.omitted]
    )


def ids_of(chunk_set: Any) -> list[str]:
    with tenant_session("acme"):
        return sorted(
            Chunk.objects.filter(chunk_set=chunk_set, verdict="admit").values_list(
                "chunk_id", flat=True
            )
        )


def sets() -> list[tuple[str, str]]:
    """State and chunker version of every chunk set."""
    with operations_session():
        return sorted(ChunkSet.objects.values_list("state", "chunker_version"))


def events(name: str) -> list[KnowledgeEvent]:
    with tenant_session("acme"):
        return list(KnowledgeEvent.objects.filter(name=name))


def sql_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        instant: datetime = cursor.fetchone()[0]
    return instant


# --- the flip --------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("batch_size", [1, 4, 512])
def test_a_new_chunk_set_takes_the_place_of_the_old_one(blob_root: Path, batch_size: int) -> None:
    old = admit(long_note())
    before, searched_before = sql_now(), everything()
    assert searched_before == sorted(old.chunk_ids)
    blobs = footprint(blob_root)["blobs"]

    done = later().rechunk(old.document_id, OPERATOR, RechunkRequest(batch_size=batch_size))

    assert (done.outcome, done.version) == (RechunkOutcome.RECHUNKED, 1)
    assert (done.former_chunker_version, done.chunker_version) == (ONE, TWO)
    assert sets() == [("live", TWO), ("retired", ONE)]
    with tenant_session("acme"):
        live, retired = ChunkSet.objects.get(state="live"), ChunkSet.objects.get(state="retired")
        version = DocumentVersion.objects.get()
        flip = live.published_at
        assert flip is not None
        assert flip == retired.retired_at
        assert flip > version.ingested_at == retired.published_at
        assert version.superseded_at is None
        assert ChunkIndex.objects.filter(live=True).count() == live.chunk_count
        assert ChunkIndex.objects.filter(live=False).count() == retired.chunk_count == 3
    new_ids = ids_of(live)
    assert len(new_ids) == done.report.chunks == done.report.embedded > 3
    assert not set(new_ids) & set(old.chunk_ids)
    assert everything() == new_ids
    assert_statistics_are_those_of_the_live_rows()

    # As of an instant there is one of the two, and never both.
    assert everything(as_of=before) == sorted(old.chunk_ids)
    assert everything(as_of=flip - timedelta(microseconds=1)) == sorted(old.chunk_ids)
    assert everything(as_of=flip) == new_ids
    assert everything(as_of=sql_now()) == new_ids
    assert everything(as_of=version.ingested_at - timedelta(microseconds=1)) == []

    for chunk_id in old.chunk_ids:
        chunk: Any = store().get_chunk(chunk_id, principal())
        assert (chunk.live, chunk.superseded_by_version) == (False, None)
        assert (chunk.chunk_set.chunker_version, chunk.superseded_by_chunker_version) == (ONE, TWO)
    current: Any = store().get_chunk(new_ids[0], principal())
    assert (current.live, current.superseded_by_chunker_version) == (True, None)

    (event,) = events(KnowledgeEvent.RECHUNKED)
    assert (event.document_id, event.version, event.at) == (old.document_id, 1, flip)
    assert (event.actor, event.surface) == ("operator:olga", "admin")
    assert event.data == {
        "chunk_set_id": str(live.pk),
        "chunker_version": TWO,
        "former_chunk_set_id": str(retired.pk),
        "former_chunker_version": ONE,
        "chunks": done.report.chunks,
        "quarantined": 0,
        "rejected": 0,
        "flagged": 0,
    }
    assert footprint(blob_root)["blobs"] == blobs, "the source is read and not copied"


@pytest.mark.django_db
def test_what_is_of_todays_versions_is_left_alone(blob_root: Path) -> None:
    old = admit(long_note())
    before = every_row()
    same = store().rechunk(old.document_id, OPERATOR)
    assert (same.outcome, same.chunker_version) == (RechunkOutcome.UNCHANGED, ONE)
    assert (same.report.chunks, same.report.embedded, same.report.skipped) == (3, 0, 3)
    assert every_row() == before
    later().rechunk(old.document_id, OPERATOR)
    before = every_row()
    again = later().rechunk(old.document_id, OPERATOR)
    assert (again.outcome, again.chunker_version) == (RechunkOutcome.UNCHANGED, TWO)
    assert every_row() == before


@pytest.mark.django_db
def test_the_same_release_gives_the_ids_that_a_fresh_ingest_would(blob_root: Path) -> None:
    old = admit(long_note(), source=SOURCE)
    later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    rechunked = everything()
    store().delete(old.document_id, principal())
    fresh = _ingest(later(), long_note())
    assert fresh.document_id == old.document_id
    assert sorted(fresh.chunk_ids) == rechunked


def _ingest(by: KnowledgeStore, content: str) -> IngestResult:
    return by.ingest(
        IngestRequest(
            artifact_id=upload(principal(), content).pk,
            title="A note",
            visibility=Visibility.TENANT,
            source=SOURCE,
            origin_trust=OriginTrust.USER,
        ),
        principal(),
    )


@pytest.mark.django_db
def test_older_versions_keep_theirs(blob_root: Path) -> None:
    first = admit(long_note(word="quagga"), source=SOURCE)
    between = sql_now()
    second = admit(long_note(4), source=SOURCE)
    later().rechunk(second.document_id, OPERATOR)
    with tenant_session("acme"):
        by_version = sorted(
            ChunkSet.objects.values_list("version__version", "state", "chunker_version")
        )
    assert by_version == [(1, "live", ONE), (2, "live", TWO), (2, "retired", ONE)]
    assert everything(as_of=between) == sorted(first.chunk_ids)
    old: Any = store().get_chunk(first.chunk_ids[0], principal())
    assert (old.superseded_by_version, old.superseded_by_chunker_version) == (2, None)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_new_version_after_a_rechunking_supersedes_it(blob_root: Path) -> None:
    old = admit(long_note(), source=SOURCE)
    later().rechunk(old.document_id, OPERATOR)
    between, of_two = sql_now(), everything()
    new = admit(long_note(5), source=SOURCE)
    assert everything() == sorted(new.chunk_ids)
    assert everything(as_of=between) == of_two
    chunk: Any = store().get_chunk(old.chunk_ids[0], principal())
    assert (chunk.superseded_by_version, chunk.superseded_by_chunker_version) == (2, TWO)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_instants_never_run_backwards(blob_root: Path) -> None:
    old = admit(long_note())
    with tenant_session("acme"):
        ahead = ChunkSet.objects.get().published_at
        assert ahead is not None
        ahead += timedelta(days=400)
        ChunkSet.objects.update(published_at=ahead)
    later().rechunk(old.document_id, OPERATOR)
    with tenant_session("acme"):
        live, retired = ChunkSet.objects.get(state="live"), ChunkSet.objects.get(state="retired")
        assert live.published_at == retired.retired_at == ahead + timedelta(microseconds=1)
    admit(long_note(5), document_id=old.document_id)
    with tenant_session("acme"):
        first = DocumentVersion.objects.get(version=1)
        assert first.superseded_at == ahead + timedelta(microseconds=2)


@pytest.mark.django_db
def test_what_a_version_was_divided_by_once_is_not_brought_back(blob_root: Path) -> None:
    """As of an instant in between, two chunk sets would be live."""
    old = admit(long_note())
    later().rechunk(old.document_id, OPERATOR)
    found = everything()
    with pytest.raises(ChunkSetRetired):
        store().rechunk(old.document_id, OPERATOR)
    assert everything() == found
    (event,) = events(KnowledgeEvent.RECHUNK_REFUSED)
    assert event.data == {"reason": "chunk_set_retired", "chunker_version": TWO}


@pytest.mark.django_db
def test_deleting_takes_every_chunk_set(blob_root: Path) -> None:
    old = admit(long_note())
    later().rechunk(old.document_id, OPERATOR)
    interrupted(later(chunker=FinerChunker("structure-3")), old.document_id)
    assert [state for state, _ in sets()] == ["ingesting", "live", "retired"]
    with tenant_session("acme"):
        chunks, rows = Chunk.objects.count(), ChunkIndex.objects.count()
    receipt = store().delete(old.document_id, principal())
    assert (receipt.versions, receipt.chunk_sets) == (1, 3)
    assert (receipt.chunks, receipt.index_rows) == (chunks, rows)
    assert (len(receipt.sources), sets()) == (1, [])
    with operations_session():
        assert not Chunk.objects.exists()
        assert not ChunkIndex.objects.exists()
    for chunk_id in old.chunk_ids:
        with pytest.raises(Deleted):
            store().get_chunk(chunk_id, principal())
    assert_statistics_are_those_of_the_live_rows()


# --- interruptions ---------------------------------------------------------------------------


class Cut(Exception):
    """The process ends here."""


def cut_at(batch: int) -> Callable[[IngestProgress], None]:
    def on_progress(told: IngestProgress) -> None:
        if told.batch == batch:
            raise Cut

    return on_progress


def interrupted(by: KnowledgeStore, document_id: UUID, batch: int = 2) -> None:
    """A rechunking of which so many batches of two chunks were committed."""
    with pytest.raises(Cut):
        by.rechunk(document_id, OPERATOR, TWO_AT_ONCE, cut_at(batch))


@pytest.mark.django_db
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_run_that_was_killed_is_gone_on_with(blob_root: Path, batch: int) -> None:
    old = admit(long_note())
    interrupted(later(), old.document_id, batch)
    assert everything() == sorted(old.chunk_ids)
    assert sets() == [("ingesting", TWO), ("live", ONE)]
    assert_statistics_are_those_of_the_live_rows()
    with tenant_session("acme"):
        committed = set(
            Chunk.objects.filter(chunk_set__state="ingesting").values_list("pk", "text")
        )
        hidden = Chunk.objects.filter(chunk_set__state="ingesting").values_list("chunk_id")
        for (chunk_id,) in list(hidden):
            with pytest.raises(NotFound):
                store().get_chunk(chunk_id, principal())
    assert len(committed) == 2 * batch

    seen: list[IngestProgress] = []
    done = later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE, seen.append)
    assert done.outcome == RechunkOutcome.RECHUNKED
    assert (done.report.skipped, done.report.pending) == (2 * batch, 0)
    assert (seen[0].embedded, seen[-1].embedded) == (2 * batch, seen[-1].total)
    with tenant_session("acme"):
        live = Chunk.objects.filter(chunk_set__state="live")
        assert committed <= set(live.values_list("pk", "text"))
    assert len(everything()) == done.report.chunks
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_what_was_begun_under_another_plan_is_given_up(blob_root: Path) -> None:
    old = admit(long_note())
    interrupted(later(), old.document_id)
    third = later(chunker=FinerChunker("structure-3", target=40))
    third.rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    assert [state for state, _ in sets()] == ["live", "retired"]
    with tenant_session("acme"):
        assert Chunk.objects.count() == 3 + len(everything())


STEPS = {
    "retire": "knowledge.adapters.term_index.retire",
    "chunks": "knowledge.ingest.publishing.write_chunks",
    "publish": "knowledge.adapters.term_index.publish",
    "event": "knowledge.ingest.publishing.KnowledgeEvent.objects.create",
    "all": "knowledge.ingest.rechunking.publish_anew",
}


@pytest.mark.django_db
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_after_any_step_leaves_nothing(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old = admit(long_note())
    before = every_row()
    owner, _, name = STEPS[step].rpartition(".")
    real = getattr(resolve_name(owner), name)

    def broken(*given: Any, **named: Any) -> Any:
        real(*given, **named)
        raise Cut

    monkeypatch.setattr(STEPS[step], broken)
    with pytest.raises(Cut):
        later().rechunk(old.document_id, OPERATOR)
    monkeypatch.undo()
    assert every_row() == before
    assert later().rechunk(old.document_id, OPERATOR).outcome == RechunkOutcome.RECHUNKED


@pytest.mark.django_db
def test_an_embedder_that_fails_is_a_partial_outcome(blob_root: Path) -> None:
    old = admit(long_note())
    embedder = FakeEmbedder(failing=lambda call: "timeout" if call == 2 else None)
    vectors = FakeVectors()
    by = later(chunker=FinerChunker(), embedding=Embedding(embedder=embedder, vectors=vectors))
    partial = by.rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    assert partial.outcome == RechunkOutcome.UNFINISHED
    assert (partial.report.embedded, partial.report.skipped) == (2, 0)
    assert partial.report.pending == partial.report.chunks - 2
    assert "embedder failed" in partial.report.warnings[-1]
    assert everything() == sorted(old.chunk_ids)
    done = by.rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    assert (done.outcome, done.report.skipped) == (RechunkOutcome.RECHUNKED, 2)
    with tenant_session("acme"):
        live, retired = ChunkSet.objects.get(state="live"), ChunkSet.objects.get(state="retired")
        numbers = set(live.chunks.values_list("pk", flat=True))
    assert (set(vectors.published), vectors.retired) == ({live.pk}, [retired.pk])
    assert set(vectors.vectors) == numbers


@pytest.mark.django_db
def test_what_nobody_came_back_for_is_given_up(blob_root: Path) -> None:
    old = admit(long_note())
    interrupted(later(), old.document_id)
    assert discard_abandoned(timedelta(days=7)) == 0
    with tenant_session("acme"):
        ChunkSet.objects.update(begun_at=Now() - timedelta(days=8))
    assert discard_abandoned(timedelta(days=7)) == 1
    assert sets() == [("live", ONE)]
    assert everything() == ids_of(_only_set()) == sorted(old.chunk_ids)


def _only_set() -> ChunkSet:
    with tenant_session("acme"):
        return ChunkSet.objects.get()


# --- rivals ----------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("by_later", [True, False], ids=["of today", "of before"])
def test_a_new_version_in_between_wins(blob_root: Path, by_later: bool) -> None:
    old = admit(long_note(), source=SOURCE)
    came: list[IngestResult] = []

    def new_version(told: IngestProgress) -> None:
        if told.batch == 2 and not came:
            came.append(_ingest(later() if by_later else store(), long_note(4, "quagga")))
            assert all(state == "live" for state, _ in sets()), "what was begun is given up"

    done = later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE, new_version)
    assert done.version == came[0].version == 2
    assert done.outcome == (RechunkOutcome.UNCHANGED if by_later else RechunkOutcome.RECHUNKED)
    assert done.chunker_version == TWO
    assert len(everything("quagga")) >= 4
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_deletion_in_between_wins(blob_root: Path) -> None:
    old = admit(long_note())

    def delete(told: IngestProgress) -> None:
        if told.batch == 2:
            assert store().delete(old.document_id, principal()).chunk_sets == 2

    with pytest.raises(NotFound):
        later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE, delete)
    assert (sets(), everything()) == ([], [])
    with operations_session():
        assert not Chunk.objects.exists()
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_title_that_changes_in_between_is_indexed(blob_root: Path) -> None:
    old = admit(long_note(), title="Before")

    def retitle(told: IngestProgress) -> None:
        if told.batch == 2:
            with tenant_session("acme"):
                Document.objects.update(title="Wombats")

    done = later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE, retitle)
    assert (done.outcome, done.report.skipped) == (RechunkOutcome.RECHUNKED, 4)
    assert len(everything("wombats")) == done.report.chunks
    assert everything("before") == []


@pytest.mark.django_db
def test_of_two_runs_at_one_document_the_one_that_wrote_last_goes_on(blob_root: Path) -> None:
    old = admit(long_note())
    finished: list[Any] = []

    def overtaken(told: IngestProgress) -> None:
        if told.batch == 2:
            with pytest.raises(Cut):
                later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE, cut_at(1))
            finished.append(told)

    with pytest.raises(RechunkBusy):
        later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE, overtaken)
    assert finished
    assert everything() == sorted(old.chunk_ids)
    done = later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    assert (done.outcome, done.report.skipped) == (RechunkOutcome.RECHUNKED, 6)
    assert_statistics_are_those_of_the_live_rows()


def in_thread(work: Callable[[], Any]) -> Any:
    try:
        return work()
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_a_reader_who_never_stops_looking_sees_all_of_one_chunk_set(blob_root: Path) -> None:
    old = admit(long_note(4))
    ended = threading.Event()
    looks: list[tuple[str, ...]] = []

    def look() -> None:
        while True:
            last = ended.is_set()
            looks.append(tuple(everything()))
            if last:
                return

    def flips() -> None:
        for number in range(2, 14):
            by = later(chunker=FinerChunker(f"structure-{number}", target=40 + 5 * number))
            size = 1 if number % 2 else 512
            by.rechunk(old.document_id, OPERATOR, RechunkRequest(batch_size=size))

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(in_thread, look)
        try:
            pool.submit(in_thread, flips).result()
        finally:
            ended.set()
        reader.result()
    with tenant_session("acme"):
        of_set = {pk: tuple(ids_of(pk)) for pk in ChunkSet.objects.values_list("pk", flat=True)}
    assert len(of_set) == 13
    assert set(looks) <= set(of_set.values())
    assert len(set(looks)) > 2, "it looked while sets took each other's places"
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["rechunked", "superseded"])
@pytest.mark.parametrize(
    "before",
    [(lexical, "document_frequencies"), (lexical, "_score"), (search, "load_candidates")],
    ids=lambda step: step[1],
)
def test_what_is_replaced_while_a_search_is_under_way_is_found_anew(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch, how: str, before: tuple[Any, str]
) -> None:
    """Before its words are counted, before their passages are scored, before those are loaded.

    What takes the place has more than twice the passages.
    """
    old = admit(long_note(), source=SOURCE)
    acts: list[Callable[[], Any]] = [
        (lambda: later().rechunk(old.document_id, OPERATOR))
        if how == "rechunked"
        else (lambda: admit(long_note(9), source=SOURCE))
    ]
    real = getattr(*before)

    def replaced_first(*given: Any, **named: Any) -> Any:
        while acts:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(in_thread, acts.pop()).result()
        return real(*given, **named)

    monkeypatch.setattr(*before, replaced_first)
    found = everything()
    assert found == everything()
    assert len(found) > 2 * len(old.chunk_ids)
    assert not set(found) & set(old.chunk_ids)


@pytest.mark.django_db(transaction=True)
def test_several_runs_at_once_make_one_chunk_set(blob_root: Path) -> None:
    old = admit(long_note())
    together = threading.Barrier(4, timeout=60)

    def run() -> str:
        together.wait()
        return str(later().rechunk(old.document_id, OPERATOR).outcome)

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(lambda _: in_thread(run), range(4)))
    assert outcomes == ["rechunked", "unchanged", "unchanged", "unchanged"]
    assert sets() == [("live", TWO), ("retired", ONE)]
    assert_statistics_are_those_of_the_live_rows()


# --- what today's rules say ------------------------------------------------------------------


@pytest.mark.django_db
def test_a_secret_that_todays_rules_see_leaves_the_document_as_it_is(blob_root: Path) -> None:
    old = admit(long_note(word="tapioca"))
    by = later(chunker=FinerChunker(), secret_scanner=WordIsSecret("tapioca"))
    before = every_row(without=["knowledge_knowledgeevent"])
    with pytest.raises(SecretFound):
        by.rechunk(old.document_id, OPERATOR)
    assert every_row(without=["knowledge_knowledgeevent"]) == before
    assert everything() == sorted(old.chunk_ids)
    (event,) = events(KnowledgeEvent.RECHUNK_REFUSED)
    assert event.data == {"reason": "secret_found", "chunker_version": ONE}
    assert (event.document_id, event.version) == (old.document_id, 1)
    with pytest.raises(SecretFound):
        by.rechunk(old.document_id, OPERATOR, RechunkRequest(dry_run=True))
    assert len(events(KnowledgeEvent.RECHUNK_REFUSED)) == 1


class ByWord:
    """Quarantines one part and rejects another."""

    version = "by-word-1"

    def classify(self, chunk: ChunkDraft) -> Verdict:
        if "part1" in chunk.text:
            return Verdict.REJECT
        return Verdict.QUARANTINE if "part2" in chunk.text else Verdict.ADMIT


@pytest.mark.django_db
def test_todays_policy_decides_over_the_new_chunks(blob_root: Path) -> None:
    old = admit(long_note())
    by = later(chunker=FinerChunker(), admission_policy=ByWord())
    done = by.rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    report = done.report
    assert (report.quarantined, report.rejected) == (1, 1)
    assert report.chunks == report.embedded + 2
    assert everything("part0")
    assert not {*everything("part1"), *everything("part2")} & set(old.chunk_ids)
    for word in ("part1", "part2"):
        assert not any(f"of {word}" in text for text in texts(ask(word)))
    assert len(texts(ask("harbour", max_passages=50, max_per_document=50))) > 1
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_what_was_purged_does_not_come_back(blob_root: Path) -> None:
    strict = replace(store(), ingestor=replace(store().ingestor, admission_policy=ByWord()))
    old = _ingest(strict, long_note())
    with tenant_session("acme"):
        held = Chunk.objects.get(verdict="quarantine").chunk_id
    store().purge_chunk(held, OPERATOR, reason="not ours to keep")
    with pytest.raises(PassagesPurged):
        later().rechunk(old.document_id, OPERATOR)
    assert [state for state, _ in sets()] == ["live"]
    (event,) = events(KnowledgeEvent.RECHUNK_REFUSED)
    assert event.data["reason"] == "passages_purged"


@pytest.mark.django_db
def test_a_document_is_read_again_by_a_later_extractor(blob_root: Path) -> None:
    old = admit(f"# Pumps\n\nThe pump is at hom0e.\n\n{FILLER}\n")
    assert "hom0e" in texts(ask("pump"))[0]
    by = reading_better()
    done = by.rechunk(old.document_id, OPERATOR)
    assert done.chunker_version == "markdown-2/normal-1/structure-1/default"
    assert done.report.warnings == ("read_better",)
    assert "at home" in texts(ask("pump"))[0]
    assert ask("hom0e").passages == ()
    with tenant_session("acme"):
        assert DocumentVersion.objects.get().warnings == ["read_better"]
    cited: Any = store().get_chunk(old.chunk_ids[0], principal())
    assert "hom0e" in cited.text


@pytest.mark.django_db
def test_the_charset_that_was_stated_is_not_forgotten(blob_root: Path) -> None:
    content = f"Grüße vom Kran am Hafen.\n\n{FILLER}\n".encode("latin-1")
    old = admit(content, filename="kran.txt", media_type="text/plain; charset=iso-8859-1")
    done = later().rechunk(old.document_id, OPERATOR)
    assert done.outcome == RechunkOutcome.RECHUNKED
    assert any("Grüße" in text for text in texts(ask("kran")))


@pytest.mark.django_db
def test_it_keeps_its_profile_unless_another_is_named(blob_root: Path) -> None:
    content = "# Talk\n\n" + "".join(f"Ann: {FILLER}\n\nBob: {FILLER}\n\n" for _ in range(4))
    chat = admit(content, profile="chat")
    done = later().rechunk(chat.document_id, OPERATOR)
    assert done.chunker_version == "markdown-1/normal-1/structure-2/chat-1"
    plain = admit(content + "The end.\n")
    recut = store().rechunk(plain.document_id, OPERATOR, RechunkRequest(profile="chat"))
    assert recut.chunker_version == "markdown-1/normal-1/structure-1/chat-1"
    assert recut.report.chunks > plain.report.chunks


@pytest.mark.django_db
@pytest.mark.parametrize("visibility", list(Visibility))
def test_who_may_see_it_stays_as_it_was(blob_root: Path, visibility: Visibility) -> None:
    old = admit(long_note(), visibility=visibility)
    interrupted(later(), old.document_id)
    done = later().rechunk(old.document_id, OPERATOR, TWO_AT_ONCE)
    assert done.report.skipped == 4, "the same plan, whoever runs it"
    scope = {"current_scope": "apollo"} if visibility is Visibility.PROJECT else {}
    assert len(everything(**scope)) == done.report.chunks
    seen_by_bob = everything(by=principal("bob", projects=frozenset()))
    assert bool(seen_by_bob) is (visibility is Visibility.TENANT)


# --- who and what ----------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_dry_run_changes_nothing(blob_root: Path) -> None:
    old = admit(long_note())
    before = footprint(blob_root), every_row()
    planned = later().rechunk(old.document_id, OPERATOR, RechunkRequest(dry_run=True))
    assert planned.outcome == RechunkOutcome.PLANNED
    assert (planned.former_chunker_version, planned.chunker_version) == (ONE, TWO)
    assert planned.report.pending == planned.report.chunks > 3
    assert (footprint(blob_root), every_row()) == before


@pytest.mark.django_db
def test_it_is_for_operators_of_the_tenant(blob_root: Path) -> None:
    ours = admit(long_note())
    theirs = admit(long_note(), by=principal("bea", tenant="bravo"))
    writer = principal(scopes=frozenset(Scope))
    for call in (
        lambda: later().rechunk(ours.document_id, writer),
        lambda: later().documents_to_rechunk(writer),
    ):
        with pytest.raises(Forbidden):
            call()
    before = every_row()
    with pytest.raises(NotFound):
        later().rechunk(theirs.document_id, OPERATOR)
    assert every_row() == before
    assert later().documents_to_rechunk(OPERATOR) == [ours.document_id]


@pytest.mark.django_db
def test_documents_are_chosen_by_what_reads_them_today(blob_root: Path) -> None:
    markdown = admit(long_note()).document_id
    plain = admit(FILLER, filename="a.txt").document_id
    both = sorted([markdown, plain])
    unknown = UUID(int=7)
    by = reading_better()
    assert by.documents_to_rechunk(OPERATOR) == both
    assert by.documents_to_rechunk(OPERATOR, extractor_version="text-1") == [plain]
    assert by.documents_to_rechunk(OPERATOR, extractor_version=LaterMarkdown.version) == [markdown]
    # Installed, and shadowed by the other: it reads nothing today.
    assert by.documents_to_rechunk(OPERATOR, extractor_version="markdown-1") == []
    assert by.documents_to_rechunk(OPERATOR, chunker_version="structure-1") == both
    named = by.documents_to_rechunk(
        OPERATOR, documents=[plain, unknown, markdown], extractor_version="text-1"
    )
    assert named == [plain, unknown]
    for wrong in ({"extractor_version": "pdf-9"}, {"chunker_version": "structure-2"}):
        with pytest.raises(NotInstalled):
            by.documents_to_rechunk(OPERATOR, **wrong)  # type: ignore[arg-type]


@pytest.mark.django_db
@pytest.mark.parametrize("size", [0, 513])
def test_a_batch_has_1_to_512_chunks(blob_root: Path, size: int) -> None:
    with pytest.raises(InvalidBatchSize):
        store().rechunk(UUID(int=7), OPERATOR, RechunkRequest(batch_size=size))
