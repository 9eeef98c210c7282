"""Traces: who may look at one, and what is withheld from whom."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from django.test import Client

from access.tenancy import tenant_session
from access.trust import Scope, Sensitivity
from knowledge.core.types import Visibility
from knowledge.models import Document, RecallTrace, VisibilitySpace
from tests.support import admit, ask, bearer, principal

pytestmark = pytest.mark.django_db

AUDIT = (Scope.AUDIT,)


def test_the_shape(client: Client, blob_root: Path) -> None:
    admit("The zebra pump starts by hand.", title="Pumps")
    result = ask("zebra pump", beliefs=({"id": "b1", "tokens": 3},))
    answer = client.get(f"/v1/traces/{result.trace_id}", headers=bearer())
    assert answer.status_code == 200
    told = answer.json()
    assert told["trace_id"] == str(result.trace_id)
    assert (told["text"], told["live"]) == ("zebra pump", True)
    assert told["beliefs"] == [{"id": "b1", "tokens": 3}]
    assert (told["block"], told["block_state"]) == (result.block.text, "reproduced")
    (passage,) = told["passages"]
    assert (passage["state"], passage["title"]) == ("shown", "Pumps")
    assert passage["text"] == "The zebra pump starts by hand."
    assert set(passage["terms"]) == {"match", "authority", "scope", "recency", "penalty"}
    assert passage["arms"].keys() == {"lexical"}


def test_own_ones_and_with_audit_any_of_the_tenant(client: Client, blob_root: Path) -> None:
    admit("The zebra pump starts by hand.")
    trace_id = ask("zebra").trace_id
    assert (
        client.get(f"/v1/traces/{trace_id}", headers=bearer("bob", scopes=AUDIT)).json()[
            "block_state"
        ]
        == "reproduced"
    )
    missing = client.get(f"/v1/traces/{uuid4()}", headers=bearer())
    assert missing.status_code == 404
    for headers in (bearer("bob"), bearer("eve", tenant="rival", scopes=AUDIT)):
        answer = client.get(f"/v1/traces/{trace_id}", headers=headers)
        assert (answer.status_code, answer.content) == (404, missing.content)


def test_a_private_passage_is_withheld_from_an_auditor(client: Client, blob_root: Path) -> None:
    admit("The zebra pump starts by hand.", title="Mine", visibility=Visibility.PRINCIPAL)
    admit("Another zebra is painted on the wall.", title="Ours")
    hidden = admit("A third zebra sleeps.", title="Also mine", visibility=Visibility.PRINCIPAL)
    result = ask("zebra pump", max_passages=2)
    answer = client.get(f"/v1/traces/{result.trace_id}", headers=bearer("bob", scopes=AUDIT))
    told = answer.json()
    assert (told["block"], told["block_state"]) == (None, "incomplete")
    states = {passage["state"]: passage for passage in told["passages"]}
    assert set(states) <= {"shown", "withheld"}
    withheld = states["withheld"]
    assert {name for name, value in withheld.items() if value is not None} == {
        "position",
        "state",
        "text",
    }
    assert withheld["text"] == "This passage is not visible to you."
    assert told["withheld"] + len(told["omitted"]) == len(result.omitted)
    for secret in ("starts by hand", "Mine", "sleeps", str(hidden.document_id)):
        assert secret.encode() not in answer.content
    assert client.get(f"/v1/traces/{result.trace_id}", headers=bearer()).json()["block"]


@pytest.mark.parametrize(
    ("of_the_search", "of_the_viewer", "state"),
    [
        (Sensitivity.RESTRICTED, Sensitivity.RESTRICTED, "reproduced"),
        (Sensitivity.RESTRICTED, Sensitivity.INTERNAL, "incomplete"),
        (Sensitivity.INTERNAL, Sensitivity.RESTRICTED, "incomplete"),
    ],
)
def test_the_stricter_of_two_ceilings(
    client: Client,
    blob_root: Path,
    of_the_search: Sensitivity,
    of_the_viewer: Sensitivity,
    state: str,
) -> None:
    made = admit("The zebra pump starts by hand.", sensitivity=Sensitivity.INTERNAL)
    result = ask("zebra pump", by=principal(sensitivity_ceiling=of_the_search))
    with tenant_session("acme"):  # what was internal is restricted from now on
        space = VisibilitySpace.objects.create(
            tenant_id="acme", visibility=Visibility.TENANT, sensitivity=Sensitivity.RESTRICTED
        )
        Document.objects.filter(document_id=made.document_id).update(space=space)
    headers = bearer(sensitivity_ceiling=of_the_viewer)
    told = client.get(f"/v1/traces/{result.trace_id}", headers=headers).json()
    assert told["block_state"] == state


def test_a_project_s_passages_are_seen_on_its_behalf(client: Client, blob_root: Path) -> None:
    admit("The zebra pump starts by hand.", visibility=Visibility.PROJECT)
    trace_id = ask("zebra pump", current_scope="apollo").trace_id
    told = client.get(f"/v1/traces/{trace_id}", headers=bearer()).json()
    assert told["block_state"] == "incomplete"
    named = client.get(f"/v1/traces/{trace_id}?current_scope=apollo", headers=bearer()).json()
    assert named["block_state"] == "reproduced"
    other = client.get(f"/v1/traces/{trace_id}?current_scope=zeus", headers=bearer())
    assert other.status_code == 403


def test_a_record_that_was_changed_is_found_out(client: Client, blob_root: Path) -> None:
    admit("The zebra pump starts by hand.")
    trace_id = ask("zebra pump").trace_id
    with tenant_session("acme"):
        RecallTrace.objects.filter(pk=trace_id).update(policy="knowledge-v0")
    told = client.get(f"/v1/traces/{trace_id}", headers=bearer()).json()
    assert (told["block"], told["block_state"]) == (None, "differs")
