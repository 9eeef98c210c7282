"""Verifying the corpus: each kind of damage is named by its ids, and nothing else is."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction
from pytest_django import Settings

from access.tenancy import operations_session
from artifacts import store as artifacts
from artifacts.models import Artifact, Upload
from artifacts.sweeper import sweep
from artifacts.workspace import attach_file
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.records import Evidence
from knowledge.core.types import ConnectorIdentity, Verdict
from knowledge.lifecycle.corpus import CorpusReport
from knowledge.models import Chunk, ChunkIndex, DocumentVersion, Record
from knowledge.wiring import store
from tests.documents import docx, lines, paragraph, pdf
from tests.storages import Storage
from tests.support import (
    admit,
    everywhere,
    footprint,
    principal,
    save_page,
    seen,
    source_of,
    writing,
)
from tests.uploading import pieces, send, sha

pytestmark = pytest.mark.django_db

ALICE = principal()
CLAIM = "The quokka pump is started by hand."
NOTE = f"# Pumps\n\n{CLAIM}\nIt stops at dusk.\n\n## Valves\n\nAsk alice@example.org of them.\n"
OLGA = ALICE.for_operator("acme", "olga")


@dataclass(frozen=True)
class Corpus:
    """Some of everything; ids of what tests damage."""

    document_id: UUID
    chunk_id: str
    source: UUID
    descriptor: str
    uploaded: UUID
    whole: UUID
    half: UUID
    record: UUID


@pytest.fixture
def corpus(blob_root: Path, settings: Settings, tmp_path: Path) -> Corpus:
    return filled(settings, tmp_path)


def filled(settings: Settings, tmp_path: Path) -> Corpus:
    """Versions, a passage set aside, uploads of every kind, and records that cite."""
    store().set_pii_policy(PiiRules(verdicts={Detector.EMAIL: Verdict.QUARANTINE}), OLGA)
    wiki = ConnectorIdentity(type="wiki", id="pumps")
    admit("# Pumps\n\nThe wombat pump.\n", source=wiki)
    result = admit(NOTE, source=wiki)
    admit("# Theirs\n\nThe zebra pump.\n", by=principal(tenant="globex"))

    data = random.Random(1).randbytes(100_000)
    whole, half = uuid4(), uuid4()
    for one in pieces(data):
        receipt = send(ALICE, whole, one)
    for one in pieces(data)[:2]:
        send(ALICE, half, one)
    settings.WORKSPACE_ROOT = tmp_path / "workspace"
    settings.WORKSPACE_ROOT.mkdir()
    (settings.WORKSPACE_ROOT / "log").write_bytes(data)
    attach_file(ALICE, uuid4(), "log", sha(data), filename="log")

    source = source_of(result)
    cited = Evidence(source=source, start_line=3, quote=CLAIM)
    first = store().records.make_claim(
        ALICE, writing(), statement=CLAIM, evidence=[cited], placement=everywhere()
    )
    page = save_page(evidence=[Evidence(source=source, quote="It stops at dusk.")])
    save_page(title="Again", expected=seen(page), writing=writing(reason="more"))
    with operations_session():
        version = DocumentVersion.objects.get(
            document_id=result.document_id, superseded_at__isnull=True
        )
    assert receipt.artifact_id is not None
    return Corpus(
        document_id=result.document_id,
        chunk_id=result.chunk_ids[0],
        source=version.source_id,
        descriptor=source,
        uploaded=receipt.artifact_id,
        whole=whole,
        half=half,
        record=first.record.pk,
    )


def verify(tenant: str | None = None) -> CorpusReport:
    return store().verify_corpus(tenant)


def sql(statement: str, *given: Any) -> None:
    """Past all that our own code would refuse: as a broken disk, or a person at a prompt, does."""
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(statement, given)
        assert cursor.rowcount == 1


def unguarded(table: str, trigger: str, statement: str, *given: Any) -> None:
    """The same in a table whose rows the database lets nobody change."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
        sql(statement, *given)
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {trigger}")


def described(report: CorpusReport) -> set[tuple[str, str, str, str]]:
    return {(one.kind, one.problem, one.id, one.of) for one in report.findings}


def key_of(artifact: UUID) -> str:
    with operations_session():
        return Artifact.objects.get(pk=artifact).storage_key


# --- nothing is wrong --------------------------------------------------------------------------


def test_a_corpus_as_it_was_written_is_clean_and_left_as_it_is(
    corpus: Corpus, blob_root: Path
) -> None:
    admit(pdf(lines("A wallaby stops the pump.")), filename="a.pdf", title="A")
    admit(docx(paragraph("A bilby looks on.")), filename="b.docx", title="B")
    admit("<p>A numbat leaves.</p>", filename="c.html", title="C")
    before = footprint(blob_root)
    report = verify()
    assert report.findings == []
    assert report.clean
    assert not report.unchecked
    assert set(report.checked) == {
        *("artifact", "descriptor", "upload", "version", "chunk set", "record"),
    }
    assert report.checked["version"] == report.checked["chunk set"] == 6
    assert report.checked["record"] == 2
    assert footprint(blob_root) == before


def test_one_tenants_corpus_is_looked_at_alone(corpus: Corpus, blob_root: Path) -> None:
    (blob_root / key_of(corpus.source)).unlink()
    assert verify("globex").clean
    assert verify("globex").checked["version"] == 1
    assert not verify("acme").clean
    assert not verify().clean


def test_what_goes_away_by_itself_is_no_finding(corpus: Corpus) -> None:
    with operations_session():
        Record.objects.all().delete()
    store().delete(corpus.document_id, ALICE)
    with operations_session():
        artifacts.expire([corpus.uploaded])
    assert verify().findings == []
    sweep()
    assert verify().findings == []


def test_what_is_gone_before_it_is_looked_at_again_was_never_wrong(
    corpus: Corpus, blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from knowledge.lifecycle.corpus import verifying  # noqa: PLC0415 - its inside is interrupted

    look = verifying._again
    (blob_root / key_of(corpus.uploaded)).unlink()

    def deleting(*given: Any) -> Any:
        with operations_session():
            Artifact.objects.filter(pk=corpus.uploaded).delete()
        return look(*given)

    monkeypatch.setattr(verifying, "_again", deleting)
    assert verify().findings == []


def test_passages_of_an_extractor_that_is_not_here_are_counted(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knowledge.lifecycle.corpus.documents.NORMALISER_VERSION", "normal-0")
    report = verify()
    assert report.clean
    assert report.unchecked == {"chunk set": 3}


# --- everything that can be wrong --------------------------------------------------------------

Damage = Callable[[Corpus, Path], tuple[str, str, str, str]]


def _of_chunk(change: str, problem: str, *given: Any) -> Damage:
    def damage(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
        sql(f"UPDATE knowledge_chunk SET {change} WHERE chunk_id = %s", *given, corpus.chunk_id)
        return ("chunk set", problem, _set_of(corpus.chunk_id), corpus.chunk_id)

    return damage


def _set_of(chunk_id: str) -> str:
    with operations_session():
        return str(Chunk.objects.get(chunk_id=chunk_id).chunk_set_id)


def _set_of_document(corpus: Corpus) -> str:
    with operations_session():
        version = DocumentVersion.objects.get(
            document_id=corpus.document_id, superseded_at__isnull=True
        )
        return str(version.chunk_sets.get().pk)


def _of_index(statement: str, problem: str) -> Damage:
    def damage(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
        with operations_session():
            number = Chunk.objects.get(chunk_id=corpus.chunk_id).pk
        sql(statement, number)
        return ("chunk set", problem, _set_of(corpus.chunk_id), corpus.chunk_id)

    return damage


def _blob_gone(corpus: Corpus, root: Path) -> tuple[str, str, str, str]:
    (root / key_of(corpus.source)).unlink()
    return ("artifact", "bytes missing", str(corpus.source), "")


def _blob_flipped(corpus: Corpus, root: Path) -> tuple[str, str, str, str]:
    path = root / key_of(corpus.uploaded)
    content = bytearray(path.read_bytes())
    content[50_000] ^= 1
    path.write_bytes(content)
    return ("artifact", "bytes of another hash", str(corpus.uploaded), "")


def _blob_longer(corpus: Corpus, root: Path) -> tuple[str, str, str, str]:
    path = root / key_of(corpus.uploaded)
    path.write_bytes(path.read_bytes() + b"x")
    return ("artifact", "bytes of another length", str(corpus.uploaded), "")


def _blob_cut(corpus: Corpus, root: Path) -> tuple[str, str, str, str]:
    path = root / key_of(corpus.uploaded)
    path.write_bytes(path.read_bytes()[:-1])
    return ("artifact", "bytes of another length", str(corpus.uploaded), "")


def _source_flipped(corpus: Corpus, root: Path) -> tuple[str, str, str, str]:
    path = root / key_of(corpus.source)
    path.write_bytes(path.read_bytes().replace(b"by hand", b"by heat"))
    return ("artifact", "bytes of another hash", str(corpus.source), "")


def _of_descriptor(statement: str, problem: str) -> Damage:
    def damage(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
        table = "artifacts_sourcedescriptor"
        unguarded(table, "artifacts_immutable", statement, corpus.descriptor)
        return ("descriptor", problem, corpus.descriptor, "")

    return damage


def _artifact_renamed(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("UPDATE artifacts_artifact SET filename = 'other.md' WHERE id = %s", corpus.source)
    told = "says something else than its artifact"
    return ("descriptor", told, corpus.descriptor, str(corpus.source))


def _descriptor_gone(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("DELETE FROM artifacts_sourcedescriptor WHERE descriptor_id = %s", corpus.descriptor)
    return ("version", "source has no descriptor", _version(corpus), str(corpus.source))


def _version(corpus: Corpus) -> str:
    with operations_session():
        return str(DocumentVersion.objects.get(source=corpus.source).pk)


def _source_expires(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql(
        "UPDATE artifacts_artifact SET expires_at = now() + interval '1 day' WHERE id = %s",
        corpus.source,
    )
    return ("version", "source is to be swept", _version(corpus), str(corpus.source))


def _source_of_another_kind(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("UPDATE artifacts_artifact SET origin = 'UPLOAD' WHERE id = %s", corpus.source)
    return ("version", "source is none of its own", _version(corpus), str(corpus.source))


def _no_live_set(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql(
        "UPDATE knowledge_chunkset SET state = 'retired' WHERE id = %s",
        _set_of(corpus.chunk_id),
    )
    return ("version", "no live chunk set", _version(corpus), "")


def _passage_gone(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    chunk_set = _set_of(corpus.chunk_id)
    with operations_session():
        number = Chunk.objects.get(chunk_id=corpus.chunk_id).pk
    sql("DELETE FROM knowledge_chunk_index WHERE chunk = %s", number)
    sql("DELETE FROM knowledge_chunk WHERE id = %s", number)
    return ("chunk set", "passages are not as many as it says", chunk_set, "")


def _of_upload(which: str, statement: str, problem: str, of: str = "") -> Damage:
    def damage(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
        with operations_session():
            upload = Upload.objects.get(request_id=getattr(corpus, which))
        sql(statement, upload.pk)
        return ("upload", problem, str(upload.pk), of or "")

    return damage


def _journal_of_another_file(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("UPDATE artifacts_upload SET sha256 = %s WHERE request_id = %s", "0" * 64, corpus.whole)
    with operations_session():
        upload = Upload.objects.get(request_id=corpus.whole)
    told = "another file than its artifact"
    return ("upload", told, str(upload.pk), str(corpus.uploaded))


def _of_revision(change: str, problem: str) -> Damage:
    def damage(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
        table = "knowledge_recordrevision"
        statement = f"UPDATE {table} SET {change} WHERE record_id = %s"
        unguarded(table, "knowledge_revision_stays", statement, corpus.record)
        return ("record", problem, str(corpus.record), "revision 1")

    return damage


def _cited_words_gone(corpus: Corpus, root: Path) -> tuple[str, str, str, str]:
    """The bytes and all that is told of them are others: only the record knows better."""
    with operations_session():
        source = Artifact.objects.get(pk=corpus.source)
    content = (root / source.storage_key).read_bytes().replace(b"by hand", b"by heat")
    (root / source.storage_key).write_bytes(content)
    sql("UPDATE artifacts_artifact SET sha256 = %s WHERE id = %s", sha(content), source.pk)
    told = "cited words do not stand there: quote_not_found"
    of = f"revision 1, source {corpus.descriptor}"
    return ("record", told, str(corpus.record), of)


def _latest_is_another(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("UPDATE knowledge_record SET sha256 = %s WHERE record_id = %s", "0" * 64, corpus.record)
    return ("record", "latest revision is another", str(corpus.record), "")


def _cited_source_forgotten(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("DELETE FROM knowledge_recordsource WHERE record_id = %s", corpus.record)
    return ("record", "sources are not those that it cites", str(corpus.record), "")


def _no_longer_current(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("UPDATE knowledge_recordsource SET current = false WHERE record_id = %s", corpus.record)
    told = "current sources are not those of the latest revision"
    return ("record", told, str(corpus.record), "")


def _cited_source_gone(corpus: Corpus, _: Path) -> tuple[str, str, str, str]:
    sql("DELETE FROM artifacts_sourcedescriptor WHERE descriptor_id = %s", corpus.descriptor)
    of = f"source {corpus.descriptor}"
    return ("record", "cited source is gone", str(corpus.record), of)


DAMAGES: dict[str, Damage] = {
    "blob gone": _blob_gone,
    "blob with another byte": _blob_flipped,
    "blob that is longer": _blob_longer,
    "blob that is cut": _blob_cut,
    "source with another byte": _source_flipped,
    "descriptor that says something else": _of_descriptor(
        "UPDATE artifacts_sourcedescriptor SET canonical = replace(canonical, 'note', 'rote')"
        " WHERE descriptor_id = %s",
        "id is not its hash",
    ),
    "descriptor spelt otherwise": _of_descriptor(
        "UPDATE artifacts_sourcedescriptor SET canonical = canonical || ' '"
        " WHERE descriptor_id = %s",
        "not canonical JSON",
    ),
    "artifact of another name": _artifact_renamed,
    "descriptor gone": _descriptor_gone,
    "source that expires": _source_expires,
    "source of another kind": _source_of_another_kind,
    "no live set": _no_live_set,
    "passage of other words": _of_chunk(
        "text = replace(text, 'hand', 'heat')", "passage of another hash"
    ),
    "passage of other words and hash": _of_chunk(
        "text = replace(text, 'hand', 'heat'),"
        " content_sha256 = encode(sha256(convert_to(replace(text, 'hand', 'heat'), 'UTF8')), 'hex')",
        "passage of another id",
    ),
    "passage at another place": _of_chunk(
        'start = start + 1, "end" = "end" + 1', "passage is not its slice"
    ),
    "passage that ends elsewhere": _of_chunk('"end" = "end" + 1', "passage of another length"),
    "passage on another line": _of_chunk(
        "line_start = line_start + 1, line_end = line_end + 1", "passage is on other lines"
    ),
    "passage of another heading": _of_chunk(
        "heading_path = '{Elsewhere}'", "passage of another id"
    ),
    "passage of another tenant": _of_chunk("tenant_id = 'globex'", "passage of another tenant"),
    "passage gone": _passage_gone,
    "no index row": _of_index("DELETE FROM knowledge_chunk_index WHERE chunk = %s", "no index row"),
    "index row not live": _of_index(
        "UPDATE knowledge_chunk_index SET live = false WHERE chunk = %s",
        "index row that is live or not, wrongly",
    ),
    "index row in another space": _of_index(
        "UPDATE knowledge_chunk_index SET space = space + 1000 WHERE chunk = %s",
        "index row in another space",
    ),
    "journal of another file": _journal_of_another_file,
    "journal of another length": _of_upload(
        "whole",
        "UPDATE artifacts_upload SET received = received + 1 WHERE id = %s",
        "pieces are not what was received",
    ),
    "piece gone": _of_upload(
        "whole",
        'DELETE FROM artifacts_uploadpiece WHERE upload_id = %s AND "offset" = 49152',
        "pieces do not follow one another",
        "98304",
    ),
    "piece with another byte": _of_upload(
        "half",
        "UPDATE artifacts_uploadpiece SET content = set_byte(content, 7, get_byte(content, 7) # 1)"
        ' WHERE upload_id = %s AND "offset" = 49152',
        "piece of another hash",
        "49152",
    ),
    "piece without bytes": _of_upload(
        "half",
        'UPDATE artifacts_uploadpiece SET content = NULL WHERE upload_id = %s AND "offset" = 0',
        "piece of another hash",
        "0",
    ),
    "revision of other words": _of_revision(
        "canonical = replace(canonical, 'hand', 'heat')", "revision of another hash"
    ),
    "revision spelt otherwise": _of_revision(
        "canonical = canonical || ' '", "revision is not canonical JSON"
    ),
    "revision that cannot be read": _of_revision("canonical = '{}'", "revision cannot be read"),
    "revision with a gap before it": _of_revision("revision = 2, previous_sha256 = sha256", ""),
    "cited words gone": _cited_words_gone,
    "latest revision is another": _latest_is_another,
    "cited source forgotten": _cited_source_forgotten,
    "cited source not current": _no_longer_current,
    "cited source gone": _cited_source_gone,
}


def test_each_damage_is_named_and_only_by_ids(
    corpus: Corpus, blob_root: Path, subtests: pytest.Subtests
) -> None:
    for how, damage in DAMAGES.items():
        with subtests.test(how), put_back(blob_root):
            named = damage(corpus, blob_root)
            report = verify()
            assert not report.clean
            if named[1]:
                assert named in described(report)
            else:
                told = (named[0], "revisions are no chain", named[2], "revision 2")
                assert told in described(report)
            said = json.dumps([*map(str, report.findings), *report.problems])
            for word in ("quokka", "wombat", "hand", "heat", "note.md", "alice"):
                assert word not in said
    assert verify().clean


@contextlib.contextmanager
def put_back(blob_root: Path) -> Iterator[None]:
    """Rows and bytes are those of before afterwards: making them takes longer than all else."""
    kept = blob_root.with_name("kept")
    shutil.copytree(blob_root, kept)
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        shutil.rmtree(blob_root)
        kept.rename(blob_root)


def test_an_index_row_of_no_passage_is_found(corpus: Corpus) -> None:
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'f'"
            " AND conrelid = 'knowledge_chunk_index'::regclass"
        )
        names = [name for (name,) in cursor.fetchall()]
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f'ALTER TABLE knowledge_chunk_index DROP CONSTRAINT "{name}"')
    with operations_session():
        row = ChunkIndex.objects.earliest("pk")
        ChunkIndex.objects.filter(pk=row.pk).update(chunk_id=2**40)
    assert ("index row", "of no passage", str(2**40), "") in described(verify())


# --- the command -------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = 0
    try:
        call_command("verify_corpus", "--json", *arguments, stdout=out)
    except SystemExit as ended:
        status = int(str(ended.code))
    return status, json.loads(out.getvalue())


def test_the_command_reports_and_exits_as_it_found(
    corpus: Corpus, blob_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = run()
    assert (status, told["clean"], told["findings"]) == (0, True, [])
    _blob_gone(corpus, blob_root)
    _blob_flipped(corpus, blob_root)
    status, told = run("--tenant", "acme")
    assert (status, told["clean"]) == (1, False)
    assert told["problems"] == {
        "artifact: bytes missing": 1,
        "artifact: bytes of another hash": 1,
        "record: cited source cannot be read": 2,
    }
    assert {
        "kind": "artifact",
        "problem": "bytes missing",
        "tenant_id": "acme",
        "id": str(corpus.source),
        "of": "",
    } in told["findings"]
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("verify_corpus", stdout=out)
    assert f"artifact {corpus.source} of acme: bytes missing" in out.getvalue()
    assert "Looked at:" in out.getvalue()


def test_more_findings_than_are_named_are_counted(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, blob_root: Path
) -> None:
    monkeypatch.setattr("knowledge.lifecycle.corpus.findings.MOST_NAMED", 3)
    for path in blob_root.rglob("*"):
        if path.is_file():
            path.unlink()
    report = verify()
    assert len(report.findings) == 3
    assert report.problems["artifact: bytes missing"] > 3


# --- in a bucket -------------------------------------------------------------------------------


@pytest.fixture
def stored_somewhere(
    storage: Storage, settings: Settings, tmp_path: Path
) -> tuple[Storage, Corpus]:
    return storage, filled(settings, tmp_path)


def test_in_any_storage(stored_somewhere: tuple[Storage, Corpus]) -> None:
    storage, corpus = stored_somewhere
    assert verify().findings == []
    storage.flip(key_of(corpus.uploaded))
    storage.blobs.delete(key_of(corpus.source))
    found = described(verify())
    assert ("artifact", "bytes of another hash", str(corpus.uploaded), "") in found
    assert ("artifact", "bytes missing", str(corpus.source), "") in found
    storage.take_away()
    with pytest.raises(CommandError, match="storage_unavailable"):
        call_command("verify_corpus", stdout=io.StringIO())
