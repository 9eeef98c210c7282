"""The receipts of deletions in the admin."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from access.tenancy import tenant_session
from artifacts.sweeper import sweep
from knowledge.models import Deletion, TracedPassage
from knowledge.wiring import store
from tests.factories import PASSWORD, make_document, make_operator, make_superuser
from tests.support import admit, ask, principal

pytestmark = pytest.mark.django_db

LIST = reverse("admin:knowledge_deletion_changelist")


def signed_in(tenant: str = "acme") -> Client:
    client = Client()
    client.login(username=make_operator(tenant).username, password=PASSWORD)
    return client


def deleted() -> Deletion:
    result = admit("# Pumps\n\nThe quokka pump runs.\n", title="Pumps of the quokka")
    ask("quokka")
    return store().delete(result.document_id, principal(), reason="outdated")


def address(deletion: Deletion, what: str = "change") -> str:
    return reverse(f"admin:knowledge_deletion_{what}", args=[deletion.pk])


def test_deleting_one_ends_on_its_receipt(blob_root: Path) -> None:
    document = make_document("acme", "Rolling back")
    path = reverse("admin:knowledge_document_delete", args=[document.pk])
    done = signed_in().post(path, {"confirmed": "yes", "reason": "old"}, follow=True)
    with tenant_session("acme"):
        deletion = Deletion.objects.get()
    assert done.redirect_chain == [(address(deletion), 302)]
    html = done.content.decode()
    assert str(document.pk) in html
    assert "Rolling back" not in html
    assert "pending sweep" in html


def test_a_receipt_is_read_only_and_of_the_tenant(blob_root: Path) -> None:
    deletion = deleted()
    olga, other = signed_in(), signed_in("globex")
    assert olga.get(address(deletion)).status_code == 200
    assert olga.post(address(deletion), {"reason": "x"}).status_code == 403
    assert olga.get(address(deletion, "delete")).status_code == 403
    assert str(deletion.document_id) in olga.get(LIST).content.decode()
    assert str(deletion.document_id) not in other.get(LIST).content.decode()
    never = address(deletion).replace(str(deletion.pk)[:8], "0" * 8)
    foreign, unknown = other.get(address(deletion)), other.get(never)
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert other.post(address(deletion, "verify")).status_code == 404
    assert olga.get(address(deletion, "verify")).status_code == 405


def test_a_receipt_is_found_by_the_document_it_was(blob_root: Path) -> None:
    deletion, olga = deleted(), signed_in()
    make_document("acme", "Other")
    for sought, found in (
        (str(deletion.document_id), True),
        (str(deletion.pk), True),
        ("alice", True),
        ("bob", False),
    ):
        html = olga.get(LIST, {"q": sought}).content.decode()
        assert (address(deletion) in html) is found, sought


def test_verifying_says_what_waits_what_is_left_and_what_may_stay(blob_root: Path) -> None:
    deletion, olga = deleted(), signed_in()
    html = olga.post(address(deletion, "verify")).content.decode()
    assert "Something waits to be removed" in html
    sweep()
    html = olga.post(address(deletion, "verify")).content.decode()
    assert "Nothing is left of it but what stays by design" in html
    assert "a scrubbed trace" in html
    # The request that verified could not change a row; the next one can.
    with tenant_session("acme"):
        TracedPassage.objects.update(title="left")
    html = olga.post(address(deletion, "verify")).content.decode()
    assert "Something is left of it that must not be" in html
    assert "knowledge_tracedpassage.document_id" in html


def test_a_superuser_verifies_in_the_tenant_of_the_deletion(blob_root: Path) -> None:
    deletion = deleted()
    sweep()
    client = Client()
    client.login(username=make_superuser().username, password=PASSWORD)
    html = client.post(address(deletion, "verify")).content.decode()
    assert "Nothing is left of it" in html
    assert "acme" in html


def test_a_longer_list_of_receipts_costs_no_more_queries(blob_root: Path) -> None:
    olga, costs = signed_in(), []
    for number in range(8):
        result = admit(f"# Pumps\n\nPump {number} runs.\n", filename=f"{number}.md")
        store().delete(result.document_id, principal())
        if number in {1, 7}:
            with CaptureQueriesContext(connection) as asked:
                assert olga.get(LIST).status_code == 200
            costs.append(len(asked))
    assert costs[0] == costs[1]
