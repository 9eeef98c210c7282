"""A corpus that is taken along and taken in again is the same corpus."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.db.models.functions import Now

from access.errors import VerbatimError
from access.models import ApiKey
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope
from artifacts.models import Artifact, ArtifactOrigin
from artifacts.sweeper import sweep
from knowledge.adapters import term_index
from knowledge.core.errors import Deleted
from knowledge.core.types import (
    DocumentChange,
    IngestRequest,
    JobState,
    RechunkRequest,
    Visibility,
)
from knowledge.models import Chunk, ChunkSet, Document, DocumentVersion, IngestJob, KnowledgeEvent
from knowledge.transfer import exporting, importing
from knowledge.transfer.errors import (
    ArchiveInTheWay,
    ImportConflict,
    NothingToExport,
    OriginalsMissing,
)
from knowledge.transfer.rows import Rows
from knowledge.transfer.tables import APPS_STAY, STAYS, TABLES, undeclared
from knowledge.wiring import store
from tests.db.test_commands import run
from tests.db.test_commands import told as command
from tests.db.test_tenancy import leave_unfinished, long_request
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.rechunk_fakes import FinerChunker, later
from tests.support import (
    admit,
    ask,
    bearer,
    footprint,
    principal,
    save_page,
    texts,
    upload,
    work,
)
from tests.transferring import (
    OLGA,
    contents,
    documents_here,
    export,
    make_corpus,
    note,
    observed,
    rows_in,
    take_in,
    wipe,
)

pytestmark = pytest.mark.django_db(transaction=True)


def two_documents() -> tuple[Any, Any]:
    return admit(note("zebra one.", "zebra two.")), admit("# Okapi\n\nThe okapi rests.\n")


def forget_uploads() -> None:
    with operations_session():
        Artifact.objects.filter(origin=ArtifactOrigin.UPLOAD).update(expires_at=Now())


def refused(folder: Path, **given: Any) -> VerbatimError:
    with pytest.raises(VerbatimError) as refusal:
        take_in(folder, **given)
    return refusal.value


# --- which tables ------------------------------------------------------------------------------


def test_every_model_travels_or_stays_for_a_reason() -> None:
    assert undeclared() == [], "add each to TABLES, or to STAYS with a reason"
    assert all(STAYS.values())
    assert all(APPS_STAY.values())
    for name, table in TABLES.items():
        assert all(table.left_out.values()), name
        # A left-out column that is no more would leave out nothing.
        assert set(table.left_out) <= {one.name for one in table.model._meta.get_fields()}, name


def test_a_key_of_the_api_is_in_no_archive(blob_root: Path, tmp_path: Path) -> None:
    header = bearer(scopes=[Scope.WRITE])
    admit("# Okapi\n\nThe okapi rests.\n")
    export(tmp_path / "out", traces=True)
    with operations_session():
        key = ApiKey.objects.get()
    written = b"".join(contents(tmp_path / "out").values())
    assert key.secret_sha256.encode() not in written
    assert header["Authorization"].removeprefix("Bearer ").encode() not in written


# --- out and in --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tar", [False, pytest.param(True, marks=pytest.mark.long)], ids=["folder", "tar"]
)
def test_out_and_in_again(blob_root: Path, tmp_path: Path, tar: bool) -> None:
    """Ids, searches of now and then with their scores, citations, deletions: all as before."""
    made = make_corpus()
    before = observed(made)
    first, second = tmp_path / "first", tmp_path / "second"
    done = export(first, traces=True, tar=tar)
    assert set(done.tenants) == {"acme", "globex"}
    empty = [name for name, count in done.rows.items() if not count]
    assert not empty, "the corpus of this test has to hold something of everything"
    wipe(blob_root)
    assert documents_here() == 0
    taken = take_in(first)
    assert taken.new == done.rows
    assert not any(taken.kept.values())
    # And out again: byte for byte what it was.
    export(second, traces=True)
    if not tar:
        here, there = contents(second), contents(first)
        assert {name for name in here if here[name] != there.get(name)} == set()
        assert here.keys() == there.keys()
    assert observed(made) == before
    assert_statistics_are_those_of_the_live_rows()
    again = take_in(first)
    assert again.kept == done.rows
    assert not any(again.new.values())
    # It goes on living: what was waiting is done, what was set aside can be let in.
    assert work() == 2
    assert ask("waits.md").passages


def test_a_tenant_leaves_the_others_at_home(blob_root: Path, tmp_path: Path) -> None:
    two_documents()
    admit("# Globex\n\nThe zebra of globex.\n", by=principal(tenant="globex"))
    export(tmp_path / "out", tenant_id="globex")
    written = b"".join(contents(tmp_path / "out").values())
    assert b"acme" not in written
    assert b"okapi" not in written
    with pytest.raises(NothingToExport):
        export(tmp_path / "none", tenant_id="initech")
    # Taken in beside the others: here is nothing of it, and nothing of theirs changes.
    before = texts(ask("zebra"))
    assert take_in(tmp_path / "out").kept["documents"] == 1
    assert texts(ask("zebra")) == before


def test_what_stays_at_home(blob_root: Path, tmp_path: Path) -> None:
    """Traces unless they are asked for, what expired, what no ingest has finished."""
    admit("# Okapi\n\nThe okapi rests.\n")
    ask("okapi")
    leave_unfinished(long_request("acme"), principal())
    done = export(tmp_path / "out")
    assert "traces" not in done.rows
    assert done.rows["documents"] == done.rows["chunk_sets"] == done.rows["versions"] == 1
    sources = [row for row in rows_in(tmp_path / "out", "artifacts") if "SOURCE" in row["origin"]]
    assert len(sources) == 1
    written = b"".join(path.read_bytes() for path in (tmp_path / "out" / "rows").iterdir())
    assert b"It runs again." not in written, "of an unfinished version not even the original"
    with operations_session():
        assert Artifact.objects.filter(origin="KNOWLEDGE_SOURCE").count() == 2


def test_the_export_and_the_import_are_on_record(blob_root: Path, tmp_path: Path) -> None:
    two_documents()
    export(tmp_path / "out", tenant_id="acme")
    wipe(blob_root)
    take_in(tmp_path / "out")
    with operations_session():
        names = list(KnowledgeEvent.objects.order_by("id").values_list("name", flat=True))
    ingested, imported = KnowledgeEvent.INGESTED, KnowledgeEvent.CORPUS_IMPORTED
    assert names == [ingested, ingested, imported], "that it was exported happened elsewhere"


def test_a_job_that_runs_waits_wherever_it_is_taken_in(blob_root: Path, tmp_path: Path) -> None:
    artifact = upload(principal(), "# Okapi\n\nThe okapi rests.\n")
    request = IngestRequest(
        artifact_id=artifact.pk,
        title="Okapi",
        visibility=Visibility.TENANT,
        origin_trust=OriginTrust.USER,
    )
    job = store().ingest_later(request, principal())
    with operations_session():
        assert IngestJob.objects.claim(job.job_id, timedelta(minutes=5)) is not None
    export(tmp_path / "out")
    wipe(blob_root)
    take_in(tmp_path / "out")
    with operations_session():
        (taken,) = IngestJob.objects.all()
        assert (taken.job_id, taken.state, taken.lease_until) == (job.job_id, JobState.QUEUED, None)
    assert work() == 1
    assert texts(ask("okapi")) == ["The okapi rests."]


def test_all_rows_are_of_one_instant(
    blob_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that another connection admits between two tables is in none of them."""
    two_documents()
    real = Rows.of
    admitted: list[Any] = []

    def of(rows: Any, name: str, **chosen: Any) -> Any:
        if name == "deletions" and not admitted:
            with ThreadPoolExecutor(1) as elsewhere:
                admitted.append(elsewhere.submit(_admit_elsewhere).result())
        return real(rows, name, **chosen)

    monkeypatch.setattr(Rows, "of", of)
    done = export(tmp_path / "out")
    assert admitted
    assert (done.rows["documents"], done.rows["events"]) == (2, 2)
    assert b"quagga" not in b"".join(contents(tmp_path / "out").values())


def _admit_elsewhere() -> Any:
    try:
        return admit("# Quagga\n\nThe quagga came later.\n")
    finally:
        connections.close_all()


# --- into what is there already ----------------------------------------------------------------


def test_what_is_there_and_the_same_is_kept(blob_root: Path, tmp_path: Path) -> None:
    two_documents()
    done = export(tmp_path / "out")
    before = every_row()
    assert take_in(tmp_path / "out").kept == done.rows
    before["knowledge_knowledgeevent"] = every_row()["knowledge_knowledgeevent"]
    assert every_row() == before


def test_what_is_missing_comes_back(blob_root: Path, tmp_path: Path) -> None:
    """In a database that has lost some of it, as no deletion would have left it."""
    _, second = two_documents()
    export(tmp_path / "out")
    found = [asdict(one.candidate) for one in ask("okapi zebra", max_passages=9).passages]
    lose(second.document_id)
    assert not ask("okapi").passages
    taken = take_in(tmp_path / "out")
    assert (taken.new["documents"], taken.kept["documents"]) == (1, 1)
    again = [asdict(one.candidate) for one in ask("okapi zebra", max_passages=9).passages]
    assert again == found
    assert_statistics_are_those_of_the_live_rows()


def lose(document_id: UUID) -> None:
    with operations_session():
        document = Document.objects.get(pk=document_id)
        term_index.remove(document)
        Chunk.objects.filter(chunk_set__version__document=document).delete()
        ChunkSet.objects.filter(version__document=document).delete()
        sources = list(
            DocumentVersion.objects.filter(document=document).values_list("source", flat=True)
        )
        DocumentVersion.objects.filter(document=document).delete()
        document.delete()
        Artifact.objects.filter(pk__in=sources).delete()


def retitled(made: Any) -> None:
    store().update(made.document_id, OLGA, DocumentChange(title="Another title", reason="x"))


def superseded(made: Any) -> None:
    artifact = upload(principal(), "# Okapi\n\nThe okapi has left.\n", filename="okapi.md")
    store().ingest(
        IngestRequest(
            artifact_id=artifact.pk,
            title="Okapi",
            visibility=Visibility.TENANT,
            document_id=made.document_id,
            origin_trust=OriginTrust.USER,
        ),
        principal(),
    )


def deleted(made: Any) -> None:
    store().delete(made.document_id, principal())


def rechunked(made: Any) -> None:
    later(chunker=FinerChunker()).rechunk(made.document_id, OLGA, RechunkRequest())


def held(made: Any) -> None:
    store().update(made.document_id, OLGA, DocumentChange(legal_hold=True, reason="x"))


@pytest.mark.parametrize("moved_on", [retitled, superseded, deleted, rechunked, held])
def test_what_has_moved_on_refuses_all_of_it(
    blob_root: Path, tmp_path: Path, moved_on: Callable[[Any], None]
) -> None:
    first, second = two_documents()
    export(tmp_path / "out")
    lose(second.document_id)  # which the archive could bring back
    moved_on(first)
    before, bytes_before = every_row(), footprint(blob_root)
    for given in ({"dry_run": True}, {}):
        conflict = refused(tmp_path / "out", **given)
        assert isinstance(conflict, ImportConflict)
        told = conflict.members["conflicts"]
        assert str(first.document_id) in {one["id"] for one in told}
        assert not any(str(second.document_id) == one["id"] for one in told)
        assert conflict.members["conflicting"] >= 1
        assert (every_row(), footprint(blob_root)) == (before, bytes_before)


def test_what_the_archive_deleted_is_not_here_any_more_either(
    blob_root: Path, tmp_path: Path
) -> None:
    """A tombstone and the document that it is of cannot both come to be."""
    first, _ = two_documents()
    with_it, without = tmp_path / "with", tmp_path / "without"
    export(with_it)
    store().delete(first.document_id, principal())
    export(without)
    wipe(blob_root)
    take_in(with_it)
    before = every_row()
    told = refused(without).members["conflicts"]
    assert {"deletions"} == {one["table"] for one in told}
    assert every_row() == before


def test_a_record_that_was_removed_here_does_not_come_back(blob_root: Path, tmp_path: Path) -> None:
    page = save_page()
    export(tmp_path / "out")
    store().remove_record(page.record.pk, principal())
    before = every_row()
    told = refused(tmp_path / "out").members["conflicts"]
    assert [(one["table"], one["id"]) for one in told] == [("records", str(page.record.pk))]
    assert every_row() == before


def test_a_document_that_is_being_ingested_here_is_not_taken_in(
    blob_root: Path, tmp_path: Path
) -> None:
    request = long_request("acme")
    with tenant_session("acme"):
        artifact = Artifact.objects.get(pk=request.artifact_id)
    store().ingest(request, principal())
    done = export(tmp_path / "out")
    assert done.rows["documents"] == 1
    wipe(blob_root)
    with tenant_session("acme"):
        kept = b"# Pumps\n\nThe pump runs at night.\n\n" + b"## Night\n\nIt runs again.\n\n" * 400
    again = upload(principal(), kept, artifact.filename)
    leave_unfinished(replace(request, artifact_id=again.pk), principal())
    before = every_row()
    told = refused(tmp_path / "out").members["conflicts"]
    assert "it is being ingested here" in {one["why"] for one in told}
    assert every_row() == before


def test_somebody_admits_it_in_the_meantime(
    blob_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_documents()
    export(tmp_path / "out")
    wipe(blob_root)
    real = importing._Import._sources

    def sources(work: Any, bundle: Any) -> Any:
        monkeypatch.undo()
        admit("# Okapi\n\nThe okapi rests.\n")
        admit(note("zebra one.", "zebra two."))
        return real(work, bundle)

    monkeypatch.setattr(importing._Import, "_sources", sources)
    assert refused(tmp_path / "out").code == "import_conflict"
    with operations_session():
        assert Document.objects.count() == 2
        named = set(Artifact.objects.values_list("storage_key", flat=True))
    stored = {
        path.relative_to(blob_root).as_posix() for path in blob_root.rglob("*") if path.is_file()
    }
    assert stored == named, "bytes whose transaction failed are taken back"
    assert_statistics_are_those_of_the_live_rows()


def test_a_dry_run_writes_nothing(blob_root: Path, tmp_path: Path) -> None:
    two_documents()
    done = export(tmp_path / "out")
    wipe(blob_root)
    nothing = footprint(blob_root)
    tried = take_in(tmp_path / "out", dry_run=True)
    assert (tried.new, tried.dry_run) == (done.rows, True)
    assert footprint(blob_root) == nothing


# --- where it is written -----------------------------------------------------------------------


def test_nothing_that_is_there_is_written_over(blob_root: Path, tmp_path: Path) -> None:
    two_documents()
    folder, tar = tmp_path / "out", tmp_path / "out.tar"
    export(folder)
    export(tar, tar=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("Dear Bob")
    for given in ({"destination": folder}, {"destination": tar, "tar": True}):
        with pytest.raises(ArchiveInTheWay):
            store().export_corpus(actor="test", **given)
    with pytest.raises(ArchiveInTheWay, match=r"letter\.txt"):
        export(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["letter.txt"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


class Stopped(BaseException):
    """The process ends here."""


def test_an_interrupted_export_goes_on(
    blob_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rows of its instant, and without writing again what is there."""
    two_documents()
    folder = tmp_path / "out"
    real = exporting._FolderOriginals.put
    put: list[str] = []

    def once(writer: Any, artifact: Artifact) -> None:
        if put:
            raise Stopped
        put.append(artifact.sha256)
        real(writer, artifact)

    monkeypatch.setattr(exporting._FolderOriginals, "put", once)
    with pytest.raises(Stopped):
        export(folder)
    monkeypatch.undo()
    assert refused(folder).code == "archive_malformed", "what has not ended is no archive"
    admit("# Quagga\n\nThe quagga came later.\n")
    with pytest.raises(ArchiveInTheWay):
        export(folder, traces=True)
    with pytest.raises(ArchiveInTheWay):
        export(folder, tenant_id="globex")
    (folder / "originals" / put[0][:2] / put[0]).write_bytes(b"half of i")  # as if by a full disk
    done = export(folder)
    assert (done.rows["documents"], done.kept) == (2, 0)
    wipe(blob_root)
    assert take_in(folder).new == done.rows


def test_a_document_that_is_deleted_meanwhile_is_in_no_archive(
    blob_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_documents()
    for name, given in (("out", {}), ("out.tar", {"tar": True})):
        doomed = admit(f"# Quagga\n\nThe quagga of {name}.\n")
        forget_uploads()
        real = exporting._write_originals

        def deleting(*args: Any, one: Any = doomed, real: Any = real) -> Any:
            monkeypatch.undo()
            store().delete(one.document_id, principal())
            sweep()
            return real(*args)

        monkeypatch.setattr(exporting, "_write_originals", deleting)
        done = export(tmp_path / name, **given)
        assert done.rows["documents"] == 2
    assert b"quagga" not in b"".join(contents(tmp_path / "out").values())
    assert b"quagga" not in (tmp_path / "out.tar").read_bytes()
    wipe(blob_root)
    take_in(tmp_path / "out.tar")
    with pytest.raises(Deleted):
        store().get_document(doomed.document_id, principal())


@pytest.mark.parametrize("harm", ["gone", "changed"])
@pytest.mark.parametrize("tar", [False, True], ids=["folder", "tar"])
def test_a_corpus_that_lost_bytes_is_not_exported_as_if_it_were_whole(
    blob_root: Path, tmp_path: Path, harm: str, tar: bool
) -> None:
    made, _ = two_documents()
    forget_uploads()  # in which the same bytes are
    with operations_session():
        source = DocumentVersion.objects.get(document=made.document_id).source
    path = blob_root / source.storage_key
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"zebra", b"okapi"))
    with pytest.raises(OriginalsMissing) as missing:
        export(tmp_path / "out", tar=tar)
    assert missing.value.members["artifacts"] == [str(source.pk)]
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert tar is False or not (tmp_path / "out").exists()


# --- commands ----------------------------------------------------------------------------------


def test_the_commands_say_what_they_did(blob_root: Path, tmp_path: Path) -> None:
    first, _ = two_documents()
    status, (told,) = command("export_corpus", tmp_path / "out", tenant="acme")
    assert (status, told["tenants"], told["rows"]["documents"]) == (0, ["acme"], 2)
    assert set(told) == {
        *("path", "tenants", "snapshot_at", "rows", "originals", "originals_kept"),
        "original_bytes",
    }
    status, (again,) = command("export_corpus", tmp_path / "out", tenant="acme")
    assert (status, again["code"]) == (1, "archive_in_the_way")
    wipe(blob_root)
    for dry_run, outcome in ((True, "checked"), (False, "imported"), (False, "unchanged")):
        status, (told,) = command("import_corpus", tmp_path / "out", dry_run=dry_run)
        assert (status, told["outcome"]) == (0, outcome)
    retitled(first)
    status, (told,) = command("import_corpus", tmp_path / "out")
    assert (status, told["code"]) == (1, "import_conflict")
    status, out = run("import_corpus", tmp_path / "out")
    assert (status, str(first.document_id) in out) == (1, True)
    status, (told,) = command("import_corpus", tmp_path / "nowhere")
    assert (status, told["code"]) == (1, "archive_malformed")
