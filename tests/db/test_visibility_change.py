"""After a document is made private or moves to another project, nothing returns it that should not.

Not before the change is committed, at once afterwards, over any connection, as of any instant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connections
from django.test import Client

from access.errors import NotFound
from access.principal import Principal
from access.trust import OriginTrust
from knowledge.adapters import term_index
from knowledge.adapters.database import now
from knowledge.core.types import ConnectorIdentity, DocumentChange, Visibility
from knowledge.retrieval.verify import Quote
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, bearer, principal

SOURCE = ConnectorIdentity(type="wiki", id="relay")
OLD = "# Relay\n\nThe amber valve is opened by the quokka.\n"
NEW = "# Relay\n\nThe amber valve is opened by the wombat.\n"
BOTH = frozenset({"apollo", "zeus"})
ALICE, BOB = principal(projects=BOTH), principal("bob", projects=BOTH)


def on_another_connection(work: Callable[[], Any]) -> Any:
    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(timeout=60)


def versions(by: Principal, **given: Any) -> tuple[list[str], datetime, Any]:
    first = admit(OLD, by=by, source=SOURCE, **given)
    then = now()
    second = admit(NEW, by=by, source=SOURCE, **given)
    return [*first.chunk_ids, *second.chunk_ids], then, second.document_id


def seen(by: Principal, project: str | None, ids: list[str], then: datetime) -> list[bool]:
    """By each way of reading: search now and as of then, the passages, the document, a quote."""
    given: dict[str, Any] = {"by": by, "current_scope": project}
    answers = [ask("amber valve", **given), ask("amber valve", as_of=then, **given)]
    told = [bool(answer.passages or answer.omitted) for answer in answers]
    for chunk_id in ids:
        try:
            chunk = store().get_chunk(chunk_id, by, current_scope=project)
            told.append(chunk.chunk_id == chunk_id)
        except NotFound:
            told.append(False)
    (checked,) = store().verify_quotes(
        [Quote(chunk_id=ids[0], text="amber valve")], by, current_scope=project
    )
    return [*told, checked.chunk is not None]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["tenant to principal", "one project to another"])
def test_a_change_is_obeyed_from_its_commit_on(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    private = kind == "tenant to principal"
    project = None if private else "apollo"
    given: dict[str, Any] = {} if private else {"visibility": Visibility.PROJECT}
    ids, then, document_id = versions(ALICE, **given)
    wanted = DocumentChange(
        visibility=Visibility.PRINCIPAL if private else Visibility.PROJECT,
        project_scope=None if private else "zeus",
        origin_trust=OriginTrust.USER,
    )
    moved, may_end = threading.Event(), threading.Event()
    move = term_index.move

    def halfway(*given: Any, **named: Any) -> int:
        rows = move(*given, **named)
        moved.set()
        assert may_end.wait(60)
        return rows

    def rescope() -> None:
        try:
            store().update(document_id, ALICE, wanted, current_scope=project)
        finally:
            connections.close_all()

    monkeypatch.setattr(term_index, "move", halfway)
    with ThreadPoolExecutor(1) as pool:
        try:
            act = pool.submit(rescope)
            assert moved.wait(60)
            # Everything is written and nothing is committed: readers see it where it was.
            assert all(seen(BOB, project, ids, then))
            assert_statistics_are_those_of_the_live_rows()
        finally:
            may_end.set()
        act.result(timeout=60)
    for look in (lambda work: work(), on_another_connection):
        assert not any(look(lambda: seen(BOB, project, ids, then)))
        assert all(look(lambda: seen(ALICE, None if private else "zeus", ids, then)))
        if not private:
            assert all(look(lambda: seen(BOB, "zeus", ids, then)))
            assert not any(look(lambda: seen(ALICE, "apollo", ids, then)))
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_links_and_traces_of_before_obey_too(client: Client, blob_root: Path) -> None:
    ids, _, document_id = versions(ALICE)
    headers = bearer("bob")
    body = {"text": "amber valve", "min_score": 0}
    found = client.post(
        "/v1/tools/knowledge.search", body, content_type="application/json", headers=headers
    ).json()
    (passage,) = found["passages"]
    link = urlsplit(passage["citation_url"])
    address = f"{link.path}?{link.query}"
    trace = f"/v1/traces/{found['trace_id']}"
    source = client.get(f"/v1/chunks/{ids[1]}", headers=headers).json()["source"]["artifact_id"]
    assert client.get(address).status_code == 200
    assert client.get(trace, headers=headers).json()["block"] == found["block"]
    original = client.get(f"/v1/artifacts/{source}/content", headers=headers)
    assert b"".join(original).decode() == NEW

    store().update(
        document_id,
        ALICE,
        DocumentChange(visibility=Visibility.PRINCIPAL, origin_trust=OriginTrust.USER),
    )
    assert client.get(address).status_code == 404
    told = client.get(trace, headers=headers).json()
    assert (told["block"], told["block_state"]) == (None, "incomplete")
    assert [one["state"] for one in told["passages"]] == ["withheld"]
    for path in (f"/v1/chunks/{ids[0]}", f"/v1/artifacts/{source}/content"):
        assert client.get(path, headers=headers).status_code == 404
