"""Verifying a deletion: what it searches, what it finds, and what may stay."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from artifacts import store as artifacts
from artifacts.models import Artifact
from artifacts.sweeper import sweep
from knowledge.core.types import ConnectorIdentity
from knowledge.lifecycle.verify_deletion import ADMITTED_AGAIN, Verification
from knowledge.models import (
    Deletion,
    KnowledgeEvent,
    RecallTrace,
    TermDelta,
    TermStatistic,
    TracedPassage,
)
from knowledge.wiring import store
from tests.factories import make_proposal
from tests.inspection import every_row
from tests.support import admit, ask, principal, upload

pytestmark = pytest.mark.django_db

OLGA = Principal.for_operator("acme", "olga")
SOURCE = ConnectorIdentity(type="wiki", id="pumps")
TITLE = "Handbook of the quokka pump"
NOTE = (
    "# Pumps of the harbour\n\nThe quokka pump is started by hand at dawn.\n\n"
    'It says "start" and 100% of it\\is true.\n'
)


def deleted(blob_root: Path) -> Deletion:
    """Two versions that a trace showed, deleted and swept."""
    admit("# Other\n\nThe wallaby stays with the pump.\n", filename="other.md", title="Other")
    admit(NOTE, source=SOURCE, title=TITLE)
    result = admit(NOTE + "\nThe wombat stops it at dusk.\n", source=SOURCE, title=TITLE)
    ask("pump started by hand")
    receipt = store().delete(result.document_id, principal())
    sweep()
    return receipt


def verify(document_id: UUID, *, words: bool = True) -> Verification:
    return store().verify_deletion(document_id, OLGA, NOTE.splitlines() if words else None)


def places(found: Verification) -> set[tuple[str, str]]:
    return {(one.place, one.column) for one in found.left}


def test_nothing_is_left_but_what_may_stay(blob_root: Path) -> None:
    receipt = deleted(blob_root)
    rows = every_row()
    found = verify(receipt.document_id)
    assert every_row() == rows
    assert found.clean, found
    assert found.tables >= 25
    assert found.lines == 3
    assert {(one.place, one.why) for one in found.kept if one.what == "ids"} == {
        ("knowledge_deletion", "the tombstone"),
        ("knowledge_deletedchunk", "the tombstone"),
        ("knowledge_tracedpassage", "a scrubbed trace"),
        ("knowledge_knowledgeevent", "an event with ids"),
    }
    assert all(one.why for one in found.kept)


def test_before_the_sweep_the_bytes_wait(blob_root: Path) -> None:
    result = admit(NOTE, source=SOURCE, title=TITLE)
    store().delete(result.document_id, principal())
    found = verify(result.document_id)
    assert not found.left
    assert {one.place for one in found.waiting} == {"artifacts_artifact", "blob store"}
    assert not found.clean
    sweep()
    assert verify(result.document_id).clean


def plant(sql: str, *values: Any) -> None:
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(sql, values)


LEFTOVERS: dict[str, Any] = {
    "an id in JSON of another table": (
        "knowledge_ingestjob",
        "result",
        lambda r: (
            (
                "INSERT INTO knowledge_ingestjob (job_id, tenant_id, principal_id, principal, request,"
                " state, attempts, attempts_left, next_attempt_at, embedded, total, batch, batches,"
                " result, created_at, finished_at, discards_upload)"
                " VALUES (gen_random_uuid(), 'acme', 'alice', '{}',"
                " '{}', 'done', 1, 1, now(), 0, 0, 0, 0, %s, now() - interval '1 day', now(), false)"
            ),
            Jsonb({"deep": [{"document_id": str(r.document_id)}]}),
        ),
    ),
    "a chunk id in the middle of a text": (
        "knowledge_document",
        "title",
        lambda r: (
            (
                "UPDATE knowledge_document SET title = 'See ' || (SELECT min(chunk_id)"
                " FROM knowledge_deletedchunk) || '.'"
            ),
        ),
    ),
    "a source in a column of UUIDs": (
        "knowledge_document",
        "source_id",
        lambda r: ("UPDATE knowledge_document SET source_id = %s", r.sources[0].hex),
    ),
    "a title in somebody's session": (
        "django_session",
        "session_data",
        lambda r: (
            (
                "INSERT INTO django_session (session_key, session_data, expire_date)"
                " VALUES ('x', %s, now())"
            ),
            "Not deleted: The quokka pump is started by hand at dawn.",
        ),
    ),
    "a line with marks of JSON": (
        "knowledge_knowledgeevent",
        "data",
        lambda r: (
            "UPDATE knowledge_knowledgeevent SET data = %s WHERE name LIKE '%%deleted'",
            Jsonb({"said": ['It says "start" and 100% of it\\is true.']}),
        ),
    ),
    "a trace that was not scrubbed": (
        "knowledge_tracedpassage",
        "document_id",
        lambda r: (
            "UPDATE knowledge_tracedpassage SET title = 'x' WHERE document_id = %s",
            r.document_id,
        ),
    ),
    "a table that somebody else made": (
        "elsewhere",
        "ids",
        lambda r: (
            (
                "CREATE TABLE elsewhere (ids uuid[]); GRANT SELECT ON elsewhere TO public;"
                f" INSERT INTO elsewhere VALUES (ARRAY['{r.document_id}'::uuid])"
            ),
        ),
    ),
}


@pytest.mark.parametrize("planted", LEFTOVERS)
def test_a_leftover_is_found_wherever_it_is(blob_root: Path, planted: str) -> None:
    receipt = deleted(blob_root)
    table, column, statement = LEFTOVERS[planted]
    sql, *values = statement(receipt)
    if "CREATE TABLE" in sql:
        with connection.cursor() as cursor:
            cursor.execute(sql)
    else:
        plant(sql, *values)
    found = verify(receipt.document_id)
    assert (table, column) in places(found), found.left
    assert not found.clean


def test_an_index_row_without_its_chunk_is_found(blob_root: Path) -> None:
    """The constraint forbids it; what a constraint forbids is looked for all the same."""
    receipt = deleted(blob_root)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        cursor.execute(
            "INSERT INTO knowledge_chunk_index (chunk, space, live, sv, tsv)"
            " SELECT min(number), 1, true, '{1:1}/1000000000'::sparsevec, 'quokka:1'::tsvector"
            " FROM (SELECT set_config('verbatim.tenant', 'acme', true)) AS bound,"
            " knowledge_deletedchunk"
        )
        cursor.execute("SELECT set_config('verbatim.tenant', '', true)")
    assert ("knowledge_chunk_index", "chunk") in places(verify(receipt.document_id))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM knowledge_chunk_index WHERE tsv @@ 'quokka'::tsquery")


def test_bytes_that_nobody_would_sweep_are_found(blob_root: Path) -> None:
    receipt = deleted(blob_root)
    key = receipt.storage_keys[0]
    (blob_root / key).parent.mkdir(parents=True, exist_ok=True)
    (blob_root / key).write_bytes(b"still here")
    assert ("blob store", "") in places(verify(receipt.document_id))


def test_a_source_that_lives_on_is_found(blob_root: Path) -> None:
    result = admit(NOTE, source=SOURCE, title=TITLE)
    receipt = store().delete(result.document_id, principal())
    with operations_session():
        Artifact.objects.filter(pk__in=receipt.sources).update(expires_at=None)
    found = verify(result.document_id)
    assert ("artifacts_artifact", "id") in places(found)
    assert ("blob store", "") in places(found)


@pytest.mark.parametrize("table", [TermStatistic, TermDelta])
def test_a_word_in_the_statistics_that_occurs_nowhere_is_found(blob_root: Path, table: Any) -> None:
    receipt = deleted(blob_root)
    with operations_session():
        space = Deletion.objects.get(pk=receipt.pk).space_id
        table.objects.create(space=space, lexeme="quokka", chunks=1)
    assert ("knowledge_term_statistic", "lexeme") in places(verify(receipt.document_id))
    assert verify(receipt.document_id, words=False).clean


def test_a_word_that_waits_for_the_merge_is_said_to_wait(blob_root: Path) -> None:
    receipt = deleted(blob_root)
    with operations_session():
        space = Deletion.objects.get(pk=receipt.pk).space_id
        for chunks in (1, -1):
            TermDelta.objects.create(space=space, lexeme="quokka", chunks=chunks)
    found = verify(receipt.document_id)
    assert not found.left
    assert [one.rows for one in found.waiting] == [2]


def test_what_was_never_the_documents_is_listed_as_that(blob_root: Path) -> None:
    """The caller's own file and question, another document and a proposal that say the same."""
    mine = upload(principal(), NOTE, filename="Pumps of the harbour.md")
    admit(NOTE + "\nAnd more.\n", filename="same.md", title="Pumps of the harbour")
    make_proposal("acme", text=NOTE)
    result = admit(NOTE, source=SOURCE, title=TITLE)
    ask("The quokka pump is started by hand at dawn.")
    store().delete(result.document_id, principal())
    sweep()
    found = verify(result.document_id)
    assert found.clean, found.left
    assert {(one.place, one.why) for one in found.kept if one.what == "words"} == {
        ("artifacts_artifact", "an artifact of the caller's own"),
        ("knowledge_chunk", "another document"),
        ("knowledge_document", "another document"),
        ("knowledge_recalltrace", "what a caller asked, and believed"),
        ("knowledge_retentionproposal", "another proposal"),
        ("knowledge_tracedpassage", "another document"),
    }
    assert artifacts.read_bytes(mine) == NOTE.encode()


def test_one_that_was_admitted_again_is_told_from_its_former_self(blob_root: Path) -> None:
    receipt = deleted(blob_root)
    admit(NOTE, source=SOURCE, title=TITLE)
    ask("pump started by hand")
    found = verify(receipt.document_id)
    assert found.admitted_again
    assert found.clean, found.left
    assert ADMITTED_AGAIN in {one.why for one in found.kept}


def test_only_an_operator_and_only_what_the_tenant_deleted(blob_root: Path) -> None:
    receipt = deleted(blob_root)
    with pytest.raises(Forbidden):
        store().verify_deletion(receipt.document_id, principal())
    with pytest.raises(NotFound):
        store().verify_deletion(receipt.document_id, Principal.for_operator("globex", "olga"))
    living = admit("# Other\n\nAlive.\n")
    with pytest.raises(NotFound):
        store().verify_deletion(living.document_id, OLGA)


def test_the_command_says_where_and_exits_1(blob_root: Path, tmp_path: Path) -> None:
    receipt = deleted(blob_root)
    original = tmp_path / "note.md"
    original.write_text(NOTE)
    arguments = (str(receipt.document_id), "--tenant", "acme", "--text", str(original), "--json")
    out = io.StringIO()
    call_command("verify_deletion", *arguments, stdout=out)
    shown = json.loads(out.getvalue())
    assert (shown["clean"], shown["left"], shown["waiting"]) == (True, [], [])
    with tenant_session("acme"):
        TracedPassage.objects.filter(document_id=receipt.document_id).update(title="left")
        KnowledgeEvent.objects.update(at=Now() - timedelta(days=1))
        assert RecallTrace.objects.exists()
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("verify_deletion", *arguments[:-1], stdout=out)
    assert ended.value.code == 1
    assert "knowledge_tracedpassage.document_id: ids in 1" in out.getvalue()
