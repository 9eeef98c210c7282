"""Records and descriptors in the admin: what is shown of them, and the little that is done."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission
from artifacts.models import Artifact, SourceDescriptor
from knowledge.admin.cited_lines import cited_lines
from knowledge.core.records import AttachedFile, Evidence
from knowledge.core.types import Visibility
from knowledge.models import KnowledgeEvent, Record
from knowledge.wiring import store
from tests.documents import lines, pdf
from tests.factories import make_operator
from tests.support import (
    admit,
    everywhere,
    principal,
    save_page,
    seen,
    source_of,
    upload,
    writing,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

NOTE = "# Pumps\n\nThe quokka pump is started by hand.\nIt stops at dusk.\n"
QUOTE = "quokka pump"


@pytest.fixture
def olga(client: Client) -> Client:
    client.force_login(make_operator("acme", "olga"))
    return client


def page_of(client: Client, record: Record, **query: Any) -> str:
    answer = client.get(reverse("admin:knowledge_record_change", args=[record.pk]), query)
    assert answer.status_code == 200
    return answer.content.decode()


def shown(cited: Evidence, text: str) -> list[tuple[int | None, str, bool]]:
    return [(one.number, str(one.html), one.cited) for one in cited_lines(cited, text)]


def test_cited_lines_stand_among_their_neighbours() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 11))
    cited = Evidence(source="0" * 64, start_line=5, end_line=6, quote="5\nline")
    assert shown(cited, text) == [
        (3, "line 3", False),
        (4, "line 4", False),
        (5, 'line <mark class="hit">5</mark>', True),
        (6, '<mark class="hit">line</mark> 6', True),
        (7, "line 7", False),
        (8, "line 8", False),
    ]
    by_words = Evidence(source="0" * 64, quote="line 1\n")
    assert [each[::2] for each in shown(by_words, text)] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
    ]
    for nowhere in ({"quote": "line 11"}, {"start_line": 11, "end_line": 11}, {}):
        assert shown(Evidence(source="0" * 64, **nowhere), text) == []


def test_of_many_cited_lines_the_first_and_the_last_are_shown() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 201))
    found = shown(Evidence(source="0" * 64, start_line=1, end_line=200), text)
    assert len(found) == 41
    assert [number for number, _, _ in found[-6:]] == [None, 196, 197, 198, 199, 200]
    long = shown(Evidence(source="0" * 64, start_line=1, end_line=1), "x" * 5_000)
    assert len(long[0][1]) == 2_001


def test_a_record_is_shown_with_the_lines_that_it_cites(olga: Client) -> None:
    source = source_of(admit(NOTE))
    scan = upload(principal(), pdf(lines("A scan.")), filename="scan.pdf")
    first = save_page(
        title="Pumps of the harbour",
        body="By <b>hand</b>.",
        metadata={"topic": "water"},
        evidence=[Evidence(source=source, start_line=3, quote=QUOTE, attribution="Piotr")],
        attachments=[AttachedFile(artifact_id=scan.pk, sha256=scan.sha256)],
    )
    second = store().records.annotate(
        principal("bob"),
        writing(reason="seen"),
        expected=seen(first),
        note="Still so.",
        evidence=[Evidence(source=source)],
    )
    body = page_of(olga, first.record)
    for told in (
        "Pumps of the harbour",
        "By &lt;b&gt;hand&lt;/b&gt;.",
        "water",
        f'<mark class="hit">{QUOTE}</mark>',
        "It stops at dusk.",
        "Piotr",
        "Still so.",
        "of note 1",
        "scan.pdf",
        reverse("admin:artifacts_artifact_download", args=[scan.pk]),
        reverse("admin:artifacts_sourcedescriptor_change", args=[source]),
        second.row.sha256,
    ):
        assert told in body, told
    old = page_of(olga, first.record, revision=1)
    assert "Still so." not in old
    assert "the latest is" in old
    for wrong in ("3", "0", "x", "9" * 40):
        answer = olga.get(
            reverse("admin:knowledge_record_change", args=[first.record.pk]), {"revision": wrong}
        )
        assert answer.status_code == 404


def test_revisions_are_compared_word_by_word(olga: Client) -> None:
    source = source_of(admit(NOTE))
    first = save_page(body="The pump is started by hand.")
    second = save_page(
        body="The pump is started by foot.",
        expected=seen(first),
        evidence=[Evidence(source=source)],
    )
    address = reverse("admin:knowledge_record_compare", args=[first.record.pk])
    body = olga.get(address, {"from": 1, "to": 2}).content.decode()
    assert '<del><span class="said">[removed: </span>hand<span' in body
    assert '<ins><span class="said">[added: </span>foot<span' in body
    assert source in body
    again = olga.get(address, {"from": 2, "to": 2}).content.decode()
    assert "Nothing differs" in again
    assert olga.get(address, {"from": 1}).status_code == 404
    assert second.row.revision == 2


def test_a_descriptor_names_all_that_cites_it(olga: Client) -> None:
    found = admit(NOTE, title="The document")
    source = source_of(found)
    cites = save_page(title="Cites it", evidence=[Evidence(source=source)])
    cited = save_page(title="Cited it", evidence=[Evidence(source=source)])
    store().records.reconcile(
        principal(),
        writing(reason="no more"),
        expected=seen(cited),
        schema="record-1",
        representation=cited.value.representation,
        evidence=[],
    )
    hidden = save_page(
        title="Of one principal",
        evidence=[Evidence(source=source)],
        placement=everywhere(Visibility.PRINCIPAL),
    )
    body = olga.get(
        reverse("admin:artifacts_sourcedescriptor_change", args=[source])
    ).content.decode()
    for told in ("The document", "Cites it", "Cited it", "Of one principal", "an earlier revision"):
        assert told in body, told
    with tenant_session("acme"):
        descriptor = SourceDescriptor.objects.select_related("artifact").get(pk=source)
    lists = reverse("admin:artifacts_sourcedescriptor_changelist")
    for term in (source, descriptor.artifact.sha256, str(descriptor.artifact_id), "note"):
        assert source in olga.get(lists, {"q": term}).content.decode(), term
    assert source not in olga.get(lists, {"q": "0" * 64}).content.decode()
    records = reverse("admin:knowledge_record_changelist")
    listed = olga.get(records, {"q": source}).content.decode()
    for record, there in ((cites, True), (cited, False), (hidden, True)):
        assert (str(record.record.pk) in listed) is there
    for query in ({"q": "cites"}, {"kind": "page"}, {"by": "alice"}, {"q": str(cites.record.pk)}):
        assert str(cites.record.pk) in olga.get(records, query).content.decode(), query
    assert str(cites.record.pk) not in olga.get(records, {"kind": "claim"}).content.decode()


def test_what_a_deleted_document_leaves_behind(olga: Client) -> None:
    found = admit(NOTE)
    source = source_of(found)
    record = save_page(title="It stays", evidence=[Evidence(source=source, quote=QUOTE)]).record
    receipt = store().delete(found.document_id, Principal.for_operator("acme", "olga"))
    body = page_of(olga, record)
    assert "its source was deleted with its document" in body
    assert QUOTE in body
    page = olga.get(reverse("admin:knowledge_deletion_change", args=[receipt.pk]))
    assert "It stays" in page.content.decode()
    descriptor = olga.get(reverse("admin:artifacts_sourcedescriptor_change", args=[source]))
    assert descriptor.status_code == 404


def test_an_original_that_is_gone_or_large_takes_no_page_down(
    olga: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = upload(principal(), NOTE)
    kept = AttachedFile(artifact_id=file.pk, sha256=file.sha256, quote=QUOTE)
    record = save_page(attachments=[kept]).record
    monkeypatch.setattr("knowledge.admin.cited_lines.LARGEST_SHOWN", 10)
    monkeypatch.setattr("knowledge.admin.records.LARGEST_SHOWN", 10)
    body = page_of(olga, record)
    assert "too large to be shown" in body
    assert f'<pre class="passage" dir="auto">{QUOTE}</pre>' in body
    monkeypatch.undo()
    with operations_session():
        Artifact.objects.filter(pk=file.pk).update(storage_key="gone/for/good")
    assert f'<pre class="passage" dir="auto">{QUOTE}</pre>' in page_of(olga, record)


def test_an_operator_holds_and_deletes(olga: Client) -> None:
    record = save_page().record
    hold = reverse("admin:knowledge_record_hold", args=[record.pk])
    delete = reverse("admin:knowledge_record_delete", args=[record.pk])
    assert olga.post(hold, {"reason": "dispute"}).status_code == 302
    assert "cannot be deleted" in olga.get(delete).content.decode()
    refused = olga.post(delete, {"reason": "tidy"})
    assert refused.status_code == 200
    assert olga.post(hold, {"reason": "settled"}).status_code == 302
    assert olga.post(delete, {}).status_code == 200
    assert olga.post(delete, {"reason": "tidy"}).status_code == 302
    with tenant_session("acme"):
        assert not Record.objects.exists()
        told = KnowledgeEvent.objects.filter(name__startswith="knowledge.record.").order_by("id")
        assert [(one.name, one.actor) for one in told][1:] == [
            (KnowledgeEvent.RECORD_HELD, "operator:olga"),
            (KnowledgeEvent.RECORD_DELETE_REFUSED, "operator:olga"),
            (KnowledgeEvent.RECORD_HOLD_LIFTED, "operator:olga"),
            (KnowledgeEvent.RECORD_DELETED, "operator:olga"),
        ]


def test_who_may_only_view_does_neither(client: Client) -> None:
    record = save_page().record
    client.force_login(make_operator("acme", "vera", [OperatorPermission.VIEW]))
    body = page_of(client, record)
    for name in ("knowledge_record_hold", "knowledge_record_delete"):
        address = reverse(f"admin:{name}", args=[record.pk])
        assert address not in body
        assert client.post(address, {"reason": "x"}).status_code == 403
