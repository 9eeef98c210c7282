"""The same file again: renamed, as another type, a newline longer, by somebody else, all at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from access.tenancy import tenant_session
from access.trust import OriginTrust
from knowledge.core.types import ConnectorIdentity, IngestRequest, Visibility
from knowledge.models import Chunk, DocumentVersion
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, principal, upload

NOTE = "# Relay Handbook\n\nThe amber valve is opened first.\n\n## Rollback\n\nRestore the tag.\n"
SOURCE = ConnectorIdentity(type="wiki", id="relay")


@pytest.mark.django_db
def test_the_same_bytes_under_another_name_are_the_same_document(blob_root: Path) -> None:
    first = admit(NOTE, filename="relay.md", title="Relay")
    renamed = admit(NOTE, filename="relay-copy.md", title="Relay copy")
    assert renamed.already_ingested
    assert (renamed.document_id, renamed.chunk_set_id) == (first.document_id, first.chunk_set_id)
    assert renamed.title == "Relay", "the first title stays, and the answer shows it"


@pytest.mark.django_db
def test_the_same_bytes_as_another_type_are_read_by_their_own_rules(blob_root: Path) -> None:
    markdown = admit(NOTE, filename="relay.md")
    plain = admit(NOTE, filename="relay.txt")
    assert plain.document_id != markdown.document_id
    assert not plain.already_ingested
    with tenant_session("acme"):
        paths = {
            result.document_id: {
                tuple(path)
                for path in Chunk.objects.filter(chunk_set=result.chunk_set_id).values_list(
                    "heading_path", flat=True
                )
            }
            for result in (markdown, plain)
        }
    assert ("Relay Handbook",) in paths[markdown.document_id]
    assert paths[plain.document_id] == {()}


@pytest.mark.django_db
def test_one_newline_more_is_another_document_whose_passages_are_duplicates(
    blob_root: Path,
) -> None:
    first, longer = admit(NOTE), admit(NOTE + "\n", filename="longer.md")
    assert longer.document_id != first.document_id
    answer = ask("amber valve", max_passages=9)
    assert len(answer.passages) == 1
    assert [str(one.reason) for one in answer.omitted] == ["duplicate"]


@pytest.mark.django_db
def test_another_principal_has_a_document_of_their_own(blob_root: Path) -> None:
    mine = admit(NOTE, visibility=Visibility.PRINCIPAL)
    theirs = admit(NOTE, by=principal("bob"), visibility=Visibility.PRINCIPAL)
    assert mine.document_id != theirs.document_id
    assert not set(mine.chunk_ids) & set(theirs.chunk_ids)


@pytest.mark.django_db
def test_an_edited_file_is_a_new_version_and_an_edit_undone_one_more(
    blob_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "relay.md"

    def ingest(text: str) -> tuple[str, int]:
        import json  # noqa: PLC0415 - for this alone

        file.write_text(text)
        who = ("--tenant", "acme", "--principal", "alice", "--visibility", "tenant")
        call_command("ingest", str(file), *who, "--json")
        told = json.loads(capsys.readouterr().out)
        return told["outcome"], told["version"]

    edited = NOTE.replace("first", "last")
    assert ingest(NOTE) == ("ingested", 1)
    assert ingest(NOTE) == ("unchanged", 1)
    assert ingest(edited) == ("ingested", 2)
    assert ingest(NOTE) == ("ingested", 3)
    assert ingest(NOTE) == ("unchanged", 3)


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    def run(work: Callable[[], Any]) -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(run, work) for work in works]]


@pytest.mark.django_db(transaction=True)
def test_many_new_versions_at_once_are_one_after_the_other(blob_root: Path) -> None:
    """Numbered without gaps or twins, one live at any instant, whatever wins."""
    requests = [
        IngestRequest(
            artifact_id=upload(principal(), NOTE.replace("amber", f"amber{number}")).pk,
            title="Relay",
            visibility=Visibility.TENANT,
            source=SOURCE,
            origin_trust=OriginTrust.USER,
        )
        for number in range(6)
    ]
    results = at_once(
        [
            lambda request=request: store().ingest(request, principal())  # type: ignore[misc]
            for request in requests
        ]
    )
    assert sorted(result.version for result in results) == [1, 2, 3, 4, 5, 6]
    assert len({result.document_id for result in results}) == 1
    with tenant_session("acme"):
        versions = list(DocumentVersion.objects.order_by("version"))
    for former, latter in zip(versions, versions[1:], strict=False):  # noqa: RUF007
        assert former.superseded_at == latter.ingested_at
        assert former.ingested_at < latter.ingested_at
    assert versions[-1].superseded_at is None
    (found,) = ask("valve", max_passages=9, max_per_document=9).passages
    assert found.candidate.version == 6
    assert_statistics_are_those_of_the_live_rows()
