"""Who may do what in the admin, and that every change of it is on the tenant's record."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from access.errors import Forbidden
from access.models import ApiKey, Operator
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, Scope
from knowledge.admin import event_export
from knowledge.models import KnowledgeEvent
from knowledge.wiring import store
from tests.factories import PASSWORD, make_operator, make_proposal, make_superuser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

EVENTS = "/admin/knowledge/knowledgeevent/"
VIEW, MANAGE = OperatorPermission.VIEW, OperatorPermission.MANAGE


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, path: str, **query: Any) -> str:
    response = client.get(path, query)
    assert response.status_code == 200, (path, response.status_code)
    return response.content.decode()


def body_of(response: Any) -> str:
    return b"".join(response.streaming_content).decode()


def events(tenant: str, prefix: str) -> list[KnowledgeEvent]:
    with tenant_session(tenant):
        found = KnowledgeEvent.objects.filter(name__startswith=prefix)
        return list(found.order_by("at", "id"))


def make_event(tenant: str = "acme", **given: Any) -> KnowledgeEvent:
    with tenant_session(tenant):
        return KnowledgeEvent.objects.create(
            **{
                "tenant_id": tenant,
                "name": KnowledgeEvent.INGESTED,
                "document_id": uuid4(),
                "actor": "alice",
                "surface": "api",
                **given,
            }
        )


# --- permissions


def test_a_viewer_is_offered_nothing_that_changes() -> None:
    viewer = signed_in(make_operator("acme", "viewer", [VIEW]))
    proposal = make_proposal("acme")
    shown = page(viewer, reverse("admin:knowledge_retentionproposal_change", args=[proposal.pk]))
    assert "Approve it" not in shown
    assert "needs the permission" in shown
    assert viewer.get("/admin/access/apikey/add/").status_code == 403
    assert "addlink" not in page(viewer, "/admin/access/apikey/")


def test_nobody_grants_a_key_more_than_they_have() -> None:
    manager = signed_in(make_operator("acme", "manager", [VIEW, MANAGE]))
    shown = page(manager, "/admin/access/apikey/add/")
    assert Scope.WRITE.value in shown
    assert Scope.DELETE.value not in shown
    refused = manager.post(
        "/admin/access/apikey/add/",
        {
            "principal_id": "bot",
            "scopes": [Scope.DELETE.value],
            "max_origin_trust": "USER",
            "sensitivity_ceiling": "internal",
        },
    )
    assert b"Select a valid choice" in refused.content
    with operations_session():
        assert not ApiKey.objects.exists()


def test_the_store_asks_for_the_permission_too() -> None:
    proposal = make_proposal("acme")
    viewer = Principal.for_operator("acme", "viewer", frozenset({VIEW}))
    with pytest.raises(Forbidden, match="approve"):
        store().approve_proposal(proposal.pk, viewer)
    with pytest.raises(Forbidden, match="approve"):
        store().decline_proposal(proposal.pk, viewer, reason="no")
    with pytest.raises(Forbidden, match="release"):
        store().release_chunk("kc_0000000000000000", viewer, reason="no")
    with pytest.raises(Forbidden, match="manage"):
        store().documents_to_rechunk(viewer)
    assert viewer.scopes == {Scope.AUDIT}
    agent = Principal(tenant_id="acme", principal_id="agent")
    with pytest.raises(Forbidden, match="Only an operator"):
        store().approve_proposal(proposal.pk, agent)


def test_every_operator_may_view_and_no_word_is_invented() -> None:
    user = User.objects.create_user("pat", password=PASSWORD, is_staff=True)
    for wrong in ([], ["manage"], ["view", "everything"]):
        with pytest.raises(IntegrityError), transaction.atomic(), tenant_session("acme"):
            Operator.objects.create(user=user, tenant_id="acme", permissions=wrong)


# --- the record of who may do what


def test_keys_leave_events_that_say_who_and_what_and_no_secret() -> None:
    client = signed_in(make_operator("acme", "olga"))
    made = client.post(
        "/admin/access/apikey/add/",
        {
            "principal_id": "bot",
            "scopes": [Scope.WRITE.value],
            "projects": "apollo\nzeus",
            "max_origin_trust": "USER",
            "sensitivity_ceiling": "internal",
        },
    )
    assert made.status_code == 200
    with tenant_session("acme"):
        key = ApiKey.objects.get()
    client.post(reverse("admin:access_apikey_revoke", args=[key.pk]))
    client.post(reverse("admin:access_apikey_revoke", args=[key.pk]))
    issued, revoked = events("acme", "access.key.")
    assert (issued.name, issued.actor, issued.surface) == (
        "access.key.issued",
        "operator:olga",
        "admin",
    )
    assert issued.data["key"] == key.prefix
    assert issued.data["scopes"] == ["knowledge.write"]
    assert issued.data["projects"] == 2
    assert (revoked.name, revoked.data) == ("access.key.revoked", {"key": key.prefix})
    assert key.secret_sha256 not in json.dumps([issued.data, revoked.data])
    call_command("create_api_key", "--tenant", "acme", "--principal", "bot", stdout=io.StringIO())
    assert (events("acme", "access.key.")[-1].actor) == "command"


def test_operators_are_added_changed_moved_and_removed_on_the_record() -> None:
    root = signed_in(make_superuser())
    user = User.objects.create_user("pat", password=PASSWORD, is_staff=True)
    path = reverse("admin:auth_user_change", args=[user.pk])
    form = {
        "username": "pat",
        "is_active": "on",
        "is_staff": "on",
        "operator-TOTAL_FORMS": "1",
        "operator-0-tenant_id": "acme",
    }
    assert root.post(path, {**form, "operator-INITIAL_FORMS": "0"}).status_code == 302
    with tenant_session("acme"):
        operator = Operator.objects.get(user=user)
    assert operator.permissions == ["view"]
    row = {"operator-INITIAL_FORMS": "1", "operator-0-id": operator.pk, "operator-0-user": user.pk}
    more = {**form, **row, "operator-0-permissions": ["delete", "manage"]}
    assert root.post(path, more).status_code == 302
    assert root.post(path, more).status_code == 302, "the same again is no change"
    moved = {**more, "operator-0-tenant_id": "globex"}
    assert root.post(path, moved).status_code == 302
    password = {"password1": "a new and long one", "password2": "a new and long one"}
    answer = root.post(
        reverse("admin:auth_user_password_change", args=[user.pk]),
        {**password, "usable_password": "true"},
    )
    assert answer.status_code == 302
    assert root.post(path, {**moved, "is_active": ""}).status_code == 302
    root.post(reverse("admin:auth_user_delete", args=[user.pk]), {"post": "yes"})
    assert [event.name for event in events("acme", "access.operator.")] == [
        "access.operator.added",
        "access.operator.changed",
        "access.operator.removed",
    ]
    told = events("globex", "access.operator.")
    assert [event.name for event in told] == [
        "access.operator.added",
        "access.operator.changed",
        "access.operator.changed",
        "access.operator.removed",
    ]
    assert {event.actor for event in told} == {"operator:root"}
    assert told[1].data["changed"] == "password"
    assert (told[2].data["signs_in"], told[2].data["before"]["signs_in"]) == (False, True)
    changed = events("acme", "access.operator.changed")[0].data
    assert changed["operator"] == "operator:pat"
    assert changed["permissions"] == ["view", "manage", "delete"]


def test_the_membership_page_tells_as_well() -> None:
    root = signed_in(make_superuser())
    user = User.objects.create_user("pat", password=PASSWORD, is_staff=True)
    root.post(
        "/admin/access/operator/add/",
        {"user": user.pk, "tenant_id": "acme", "permissions": ["release"]},
    )
    with tenant_session("acme"):
        operator = Operator.objects.get(user=user)
    path = reverse("admin:access_operator_change", args=[operator.pk])
    root.post(path, {"user": user.pk, "tenant_id": "acme", "permissions": ["approve"]})
    root.post(
        "/admin/access/operator/",
        {"action": "delete_selected", "_selected_action": operator.pk, "post": "yes"},
    )
    assert [event.data["permissions"] for event in events("acme", "access.operator.")] == [
        ["view", "release"],
        ["view", "approve"],
        ["view", "approve"],
    ]
    assert not Operator.objects.exists()


# --- the event log


def test_filters_narrow_the_log() -> None:
    client = signed_in(make_operator("acme"))
    old = make_event(actor="zoe", surface="mcp", at=timezone.now() - timedelta(days=40))
    new = make_event(actor="bob", name=KnowledgeEvent.DELETED)
    for query, expected in (
        ({}, {old, new}),
        ({"actor": "zoe"}, {old}),
        ({"actor": "ZOE"}, set()),
        ({"surface": "mcp"}, {old}),
        ({"document": str(new.document_id)}, {new}),
        ({"document": "nothing"}, set()),
        ({"name": KnowledgeEvent.DELETED}, {new}),
        ({"since": f"{timezone.now() - timedelta(days=1):%Y-%m-%d}"}, {new}),
        ({"until": f"{timezone.now() - timedelta(days=39):%Y-%m-%d}"}, {old}),
        ({"since": f"{old.at:%Y-%m-%d}", "until": f"{old.at:%Y-%m-%d}"}, {old}),
        ({"actor": "zoe", "surface": "api"}, set()),
    ):
        listed = page(client, EVENTS, **query)
        exported = [
            json.loads(line)["document_id"]
            for line in body_of(client.get(f"{EVENTS}export.jsonl", query)).splitlines()
        ]
        for event in (old, new):
            assert (str(event.document_id) in exported) == (event in expected), query
            found = f"/knowledgeevent/{event.pk}/change/" in listed
            assert found == (event in expected), query


@pytest.mark.parametrize("wrong", ["yesterday", "2026-13-01", "9999-12-31", "x" * 999])
def test_a_day_that_is_none_is_said_to_be_wrong(wrong: str) -> None:
    client = signed_in(make_operator("acme"))
    response = client.get(EVENTS, {"since": wrong}, follow=True)
    assert response.status_code == 200
    assert response.redirect_chain, "it is not ignored silently"
    exported = client.get(f"{EVENTS}export.csv", {"since": wrong})
    assert exported.status_code == 302


def test_the_log_is_exported_whole_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_export, "BATCH", 3)
    client = signed_in(make_operator("acme"))
    at = timezone.now()
    # Several at one instant, and across the edges of batches.
    made = [
        make_event(at=at - timedelta(seconds=number // 4), version=number) for number in range(11)
    ]
    make_event("globex", actor="zebra")
    response = client.get(f"{EVENTS}export.csv")
    assert response["Content-Disposition"] == 'attachment; filename="events.csv"'
    assert response["X-Content-Type-Options"] == "nosniff"
    rows = list(csv.DictReader(io.StringIO(body_of(response))))
    assert len(rows) == 11
    assert {row["document_id"] for row in rows} == {str(event.document_id) for event in made}
    assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)
    assert {row["tenant_id"] for row in rows} == {"acme"}
    root = body_of(signed_in(make_superuser()).get(f"{EVENTS}export.csv"))
    assert len(list(csv.DictReader(io.StringIO(root)))) == 12


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", '=HYPERLINK("http://x")', "＝1"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_is_a_formula(formula: str) -> None:
    client = signed_in(make_operator("acme"))
    make_event(actor=formula, surface=formula)
    (row,) = csv.DictReader(io.StringIO(body_of(client.get(f"{EVENTS}export.csv")), newline=""))
    assert row["actor"] == f"'{formula}"
    assert row["surface"] == f"'{formula}"
    (line,) = body_of(client.get(f"{EVENTS}export.jsonl")).splitlines()
    assert json.loads(line)["actor"] == formula, "JSON says it as it is"


def test_a_longer_log_takes_as_many_queries() -> None:
    client = signed_in(make_operator("acme"))
    make_event()
    page(client, EVENTS)
    counts = []
    for more in (10, 1_000):
        with tenant_session("acme"):
            KnowledgeEvent.objects.bulk_create(
                KnowledgeEvent(tenant_id="acme", name="x", actor="a", surface="api")
                for _ in range(more)
            )
        with CaptureQueriesContext(connection) as captured:
            page(client, EVENTS)
        # A test's sessions are nested in its own transaction.
        nesting = ("SAVEPOINT", "RELEASE")
        counts.append(sum(not one["sql"].startswith(nesting) for one in captured.captured_queries))
    assert counts[0] == counts[1] <= 15


@pytest.mark.django_db(transaction=True)
def test_the_export_is_streamed_under_asgi_as_well() -> None:
    for _ in range(3):
        make_event()
    client = AsyncClient()
    client.force_login(make_operator("acme"))

    async def read() -> bytes:
        response: Any = await client.get(f"{EVENTS}export.jsonl")
        assert response.is_async, "else the server gathers all of it first"
        return b"".join([piece async for piece in response.streaming_content])

    assert len(async_to_sync(read)().splitlines()) == 3
