"""What a deleted document leaves: a row that says so, to those who could have seen it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access.errors import NotFound
from access.models import ApiKey
from access.tenancy import operations_session, tenant_session
from access.trust import Scope, Sensitivity
from artifacts.sweeper import sweep
from knowledge.adapters import term_index
from knowledge.core.errors import BeliefFromDocument, Deleted, DeletionIncomplete
from knowledge.core.provenance import Provenance
from knowledge.core.quoting import QuoteOutcome
from knowledge.core.types import ConnectorIdentity, IngestResult, Visibility
from knowledge.links import citation_link
from knowledge.models import (
    DeletedChunk,
    Deletion,
    Document,
    KnowledgeEvent,
    VisibilitySpace,
)
from knowledge.retrieval.verify import Quote
from knowledge.wiring import store
from tests.factories import PASSWORD, make_operator, make_superuser
from tests.inspection import every_row
from tests.support import admit, ask, bearer, principal

pytestmark = pytest.mark.django_db

NOTE = "# Pumps\n\nThe quokka pump is started by hand.\n"
SOURCE = ConnectorIdentity(type="wiki", id="pumps")


def deleted(**given: Any) -> tuple[IngestResult, Deletion]:
    result = admit(NOTE, **given)
    scope = "apollo" if given.get("visibility") is Visibility.PROJECT else None
    return result, store().delete(result.document_id, principal(), current_scope=scope)


def problem(client: Client, address: str, headers: dict[str, str], method: str = "get") -> Any:
    body = {} if method == "get" else {"data": {"title": "x", "origin_trust": "USER"}}
    answer = getattr(client, method)(
        address, headers=headers, **body, **({"content_type": "application/json"} if body else {})
    )
    return answer.status_code, answer.content


# --- who is told, and who is not ---------------------------------------------------------------


def test_whoever_could_have_seen_it_is_told_that_it_was_deleted(
    blob_root: Path, client: Client
) -> None:
    result, receipt = deleted()
    document, (chunk,) = f"/v1/documents/{result.document_id}", result.chunk_ids
    for method, address in (
        ("get", f"/v1/chunks/{chunk}"),
        ("get", document),
        ("get", f"{document}/versions"),
        ("delete", document),
        ("patch", document),
    ):
        status, body = problem(client, address, bearer("bob"), method)
        told = json.loads(body)
        assert (status, told["code"]) == (410, "deleted"), address
        assert told["deleted_at"] == receipt.deleted_at.isoformat().replace("+00:00", "Z")
        assert told["deletion_id"] == str(receipt.pk)
        assert b"quokka" not in body


@pytest.mark.parametrize(
    ("visibility", "sensitivity", "headers"),
    [
        (Visibility.PRINCIPAL, Sensitivity.INTERNAL, lambda: bearer("bob")),
        (
            Visibility.PRINCIPAL,
            Sensitivity.INTERNAL,
            lambda: bearer("bob", scopes=[Scope.DELETE, Scope.AUDIT]),
        ),
        (Visibility.PROJECT, Sensitivity.INTERNAL, lambda: bearer("bob")),
        (
            Visibility.TENANT,
            Sensitivity.CONFIDENTIAL,
            lambda: bearer("bob", sensitivity_ceiling=Sensitivity.INTERNAL),
        ),
        (Visibility.TENANT, Sensitivity.INTERNAL, lambda: bearer("alice", "globex")),
    ],
    ids=["another's", "another's, with every scope", "project", "ceiling", "tenant"],
)
def test_for_everybody_else_it_never_existed(
    blob_root: Path,
    client: Client,
    visibility: Visibility,
    sensitivity: Sensitivity,
    headers: Callable[[], dict[str, str]],
) -> None:
    result, receipt = deleted(visibility=visibility, sensitivity=sensitivity)
    headed = headers()
    never = f"kc_{'0' * 16}"
    for method, template, id_, unknown in (
        ("get", "/v1/chunks/{}", result.chunk_ids[0], never),
        ("get", "/v1/documents/{}", result.document_id, uuid4()),
        ("get", "/v1/documents/{}/versions", result.document_id, uuid4()),
        ("delete", "/v1/documents/{}", result.document_id, uuid4()),
        ("patch", "/v1/documents/{}", result.document_id, uuid4()),
        ("get", "/v1/deletions/{}", receipt.pk, uuid4()),
    ):
        told = problem(client, template.format(id_), headed, method)
        assert told == problem(client, template.format(unknown), headed, method)
        # Changing anything takes a scope of its own, whatever there is.
        assert told[0] == 404 or (method, told[0]) == ("patch", 403)


def test_a_project_is_named_to_be_told(blob_root: Path, client: Client) -> None:
    result, _ = deleted(visibility=Visibility.PROJECT)
    address = f"/v1/documents/{result.document_id}"
    assert problem(client, address, bearer("bob"))[0] == 404
    assert problem(client, f"{address}?current_scope=apollo", bearer("bob"))[0] == 410
    outsider = bearer("bob", projects=["zeus"])
    assert problem(client, f"{address}?current_scope=zeus", outsider)[0] == 404


def test_todays_access_decides(blob_root: Path) -> None:
    """What was narrowed before it was deleted is gone for those who saw it when it was wide."""
    result = admit(NOTE)
    with tenant_session("acme"):
        own, _ = VisibilitySpace.objects.get_or_create(
            tenant_id="acme",
            visibility=Visibility.PRINCIPAL,
            principal_id="alice",
            sensitivity=Sensitivity.INTERNAL,
        )
        Document.objects.filter(pk=result.document_id).update(space=own)
    store().delete(result.document_id, principal())
    with pytest.raises(NotFound):
        store().get_document(result.document_id, principal("bob"))
    with pytest.raises(Deleted):
        store().get_document(result.document_id, principal())


def test_an_id_that_lives_again_resolves_and_one_that_went_twice_says_when_last(
    blob_root: Path,
) -> None:
    result, first = deleted(source=SOURCE)
    again = admit(NOTE, source=SOURCE)
    assert again.chunk_ids == result.chunk_ids
    assert store().get_chunk(result.chunk_ids[0], principal()).text
    assert store().get_document(result.document_id, principal())
    second = store().delete(result.document_id, principal())
    with pytest.raises(Deleted) as told:
        store().get_chunk(result.chunk_ids[0], principal())
    assert told.value.deleted_at == second.deleted_at > first.deleted_at
    with tenant_session("acme"):
        assert Deletion.objects.filter(document_id=result.document_id).count() == 2
        assert DeletedChunk.objects.filter(chunk_id=result.chunk_ids[0]).count() == 2


def test_a_bare_document_id_stays_no_ground_for_a_belief(blob_root: Path) -> None:
    """Bob, who neither was shown it nor did anything with it, could have read it."""
    result, _ = deleted()
    belief = [Provenance(kind="episode", id=str(result.document_id))]
    with pytest.raises(BeliefFromDocument):
        store().check_provenance(belief, principal("bob"))
    store().check_provenance(belief, principal("bob", tenant="globex"))


def test_a_quote_of_what_is_deleted_is_found_nowhere(blob_root: Path) -> None:
    result, _ = deleted()
    quote = Quote(chunk_id=result.chunk_ids[0], text="The quokka pump is started by hand.")
    (checked,) = store().verify_quotes([quote], principal())
    assert (checked.outcome, checked.chunk) == (QuoteOutcome.NOT_FOUND, None)


# --- the page ----------------------------------------------------------------------------------


def link(chunk_id: str, headers: dict[str, str]) -> str:
    prefix = headers["Authorization"].split("_")[1]
    found = ApiKey.principal_of(prefix)
    assert found is not None
    return citation_link(chunk_id, found, None).removeprefix("http://testserver")


def test_the_bearer_of_a_link_gets_a_page_that_says_when(blob_root: Path, client: Client) -> None:
    result = admit(NOTE, title="Pumps of the quokka")
    address = link(result.chunk_ids[0], bearer("bob"))
    assert client.get(address).status_code == 200
    receipt = store().delete(result.document_id, principal())
    answer = client.get(address)
    page = answer.content.decode()
    assert answer.status_code == 410
    assert f"{receipt.deleted_at:%Y-%m-%d %H:%M}" in page
    assert "quokka" not in page
    assert "Pumps" not in page
    assert answer["X-Robots-Tag"] == "noindex, noarchive"
    assert client.get(address.replace("?s=", "?s=x")).status_code == 404


def test_a_link_of_who_may_not_see_it_any_more_is_no_page(blob_root: Path, client: Client) -> None:
    result = admit(NOTE, visibility=Visibility.PRINCIPAL)
    own, others = bearer(), bearer("bob")
    store().delete(result.document_id, principal())
    assert client.get(link(result.chunk_ids[0], own)).status_code == 410
    foreign = client.get(link(result.chunk_ids[0], others))
    unknown = client.get(link(f"kc_{'0' * 16}", others))
    assert (foreign.status_code, foreign.content) == (404, unknown.content)


def test_operators_of_the_tenant_are_told_and_no_other(blob_root: Path, client: Client) -> None:
    result, _ = deleted(visibility=Visibility.PRINCIPAL)
    address = f"/c/{result.chunk_ids[0]}"
    assert client.get(address).status_code == 404
    for user, status in (
        (make_operator("acme"), 410),
        (make_operator("globex"), 404),
        (make_superuser(), 410),
    ):
        client.login(username=user.username, password=PASSWORD)
        assert client.get(address).status_code == status, user.username
        client.logout()


# --- the receipt -------------------------------------------------------------------------------


def test_the_receipt_can_be_read_later_and_then_says_swept(blob_root: Path, client: Client) -> None:
    result, receipt = deleted()
    address = f"/v1/deletions/{receipt.pk}"
    shown = client.get(address, headers=bearer("bob")).json()
    assert shown["document_id"] == str(result.document_id)
    assert (shown["versions"], shown["chunks"], shown["index_rows"]) == (1, 1, 1)
    assert set(shown["proof"].values()) == {0}
    assert shown["bytes_state"] == "pending_sweep"
    sweep()
    assert client.get(address, headers=bearer("bob")).json()["bytes_state"] == "swept"


def test_what_is_kept_of_it_holds_no_word(blob_root: Path) -> None:
    deleted(title="Pumps of the quokka", filename="quokka.md")
    rows = every_row()
    kept = rows["knowledge_deletion"] + rows["knowledge_deletedchunk"]
    assert len(kept) == 2
    assert not [row for row in kept if "quokka" in row.lower() or "pumps" in row.lower()]


def test_nothing_is_deleted_when_something_would_be_left(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = admit(NOTE)
    ask("quokka")
    rows = every_row(without=["access_apikey"])
    monkeypatch.setattr(term_index, "remove", lambda document: 0)
    with pytest.raises(DeletionIncomplete) as refused:
        store().delete(result.document_id, principal())
    assert refused.value.members["left"]["index_rows"] == 1
    assert every_row(without=["access_apikey"]) == rows


def test_the_event_names_the_receipt(blob_root: Path) -> None:
    _, receipt = deleted()
    with tenant_session("acme"):
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.DELETED)
    assert event.data["deletion_id"] == str(receipt.pk)


# --- the command -------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    out = io.StringIO()
    call_command("delete_document", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_command_prints_the_receipt(blob_root: Path) -> None:
    result = admit(NOTE)
    who = ("--tenant", "acme", "--principal", "bob", "--reason", "outdated")
    receipt = run(str(result.document_id), *who)
    assert (receipt["versions"], receipt["bytes_state"]) == (1, "pending_sweep")
    with tenant_session("acme"):
        kept = Deletion.objects.get(pk=UUID(receipt["deletion_id"]))
    assert (kept.actor, kept.surface, kept.reason) == ("bob", "command", "outdated")
    with pytest.raises(CommandError, match="deleted"):
        run(str(result.document_id), *who)


def test_the_command_deletes_what_its_principal_may_see(blob_root: Path) -> None:
    result = admit(NOTE, visibility=Visibility.PRINCIPAL)
    for who in ("bob", "alice"):
        arguments = ("--tenant", "acme", "--principal", who, "--reason", "x")
        if who == "bob":
            with pytest.raises(CommandError, match="not_found"):
                run(str(result.document_id), *arguments)
        else:
            assert run(str(result.document_id), *arguments)["versions"] == 1


# --- what it costs -----------------------------------------------------------------------------


def test_what_exists_is_found_without_a_look_at_the_tombstones(blob_root: Path) -> None:
    result = admit(NOTE)
    with CaptureQueriesContext(connection) as asked:
        store().get_chunk(result.chunk_ids[0], principal())
        store().get_document(result.document_id, principal())
    assert not [query for query in asked if "knowledge_delet" in query["sql"]]


def _copies(kept: Deletion, number: int) -> Iterator[Deletion]:
    values = {field.attname: getattr(kept, field.attname) for field in kept._meta.fields}
    for _ in range(number):
        yield Deletion(**{**values, "deletion_id": uuid4(), "document_id": uuid4()})


def test_a_miss_is_looked_up_by_index(blob_root: Path) -> None:
    result, _ = deleted()
    with CaptureQueriesContext(connection) as asked, pytest.raises(Deleted):
        store().get_chunk(result.chunk_ids[0], principal())
    (looked_up,) = [q["sql"] for q in asked if 'FROM "knowledge_deletedchunk"' in q["sql"]]
    with operations_session(), connection.cursor() as cursor:
        kept = Deletion.objects.get()
        many = Deletion.objects.bulk_create(_copies(kept, 2_000))
        DeletedChunk.objects.bulk_create(
            DeletedChunk(
                chunk_id=f"kc_{n}", deletion=one, tenant_id="acme", number=n, readable=True
            )
            for n, one in enumerate(many)
        )
        cursor.execute("ANALYZE knowledge_deletedchunk, knowledge_deletion")
        cursor.execute(f"EXPLAIN {looked_up}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "knowledge_deletedchunk_pkey" in plan, plan
