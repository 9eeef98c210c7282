"""Every address of the admin: nothing foreign, nothing that runs, no change without permission."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote_plus

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.db.models import ForeignKey, Model, OneToOneField
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from access.trust import OperatorPermission
from tests.admin_world import (
    FACTORIES,
    PLAUSIBLE,
    Address,
    addresses,
    never_was,
    one_of_everything,
    plausible,
    state_of_everything,
)
from tests.factories import make_operator

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

FOREIGN = "zebra"
# Every word of a document, a caller or a file may be one of these.
HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7|add:7 }}"

# What changes something, and what it takes. A page or action that is new and changes something
# is added here, or the test that looks for it fails.
CHANGES = {
    "access_apikey_add": OperatorPermission.MANAGE,
    "access_apikey_revoke": OperatorPermission.MANAGE,
    "access_apikey_changelist#revoke_selected": OperatorPermission.MANAGE,
    "artifacts_upload_changelist#cancel_selected": OperatorPermission.MANAGE,
    "artifacts_uploadquota_change": OperatorPermission.MANAGE,
    "knowledge_attachment_conversation": OperatorPermission.DELETE,
    "knowledge_attachment_changelist#try_again": OperatorPermission.MANAGE,
    "knowledge_bulktask_cancel": OperatorPermission.MANAGE,
    "knowledge_document_add": OperatorPermission.MANAGE,
    "knowledge_document_one_add": OperatorPermission.MANAGE,
    "knowledge_document_delete": OperatorPermission.DELETE,
    # It is on record who took it along.
    "knowledge_document_export": OperatorPermission.VIEW,
    "knowledge_document_hold": OperatorPermission.MANAGE,
    "knowledge_document_rechunk": OperatorPermission.MANAGE,
    "knowledge_document_rescope": OperatorPermission.MANAGE,
    "knowledge_document_retitle": OperatorPermission.MANAGE,
    "knowledge_document_changelist#hold_selected": OperatorPermission.MANAGE,
    "knowledge_document_changelist#lift_hold_selected": OperatorPermission.MANAGE,
    "knowledge_document_changelist#rechunk_selected": OperatorPermission.MANAGE,
    "knowledge_document_changelist#rescope_selected": OperatorPermission.MANAGE,
    "knowledge_document_changelist#delete_selected": OperatorPermission.DELETE,
    "knowledge_goldenset_add": OperatorPermission.MANAGE,
    "knowledge_goldenset_add_question": OperatorPermission.MANAGE,
    "knowledge_goldenset_delete": OperatorPermission.MANAGE,
    # It is on record who took it along.
    "knowledge_goldenset_export": OperatorPermission.MANAGE,
    "knowledge_goldenset_remove_question": OperatorPermission.MANAGE,
    "knowledge_goldenset_run": OperatorPermission.MANAGE,
    "knowledge_ingestjob_changelist#try_again": OperatorPermission.MANAGE,
    "knowledge_piipolicy_change": OperatorPermission.MANAGE,
    "knowledge_quarantinedchunk_purge": OperatorPermission.RELEASE,
    "knowledge_quarantinedchunk_release": OperatorPermission.RELEASE,
    "knowledge_recalltrace_keep": OperatorPermission.MANAGE,
    # A search is recorded: it leaves a trace and an event.
    "knowledge_recalltrace_playground": OperatorPermission.VIEW,
    "knowledge_record_delete": OperatorPermission.DELETE,
    "knowledge_record_hold": OperatorPermission.MANAGE,
    "knowledge_retentionproposal_approve": OperatorPermission.APPROVE,
    "knowledge_retentionproposal_decline": OperatorPermission.APPROVE,
}
# These end the session or are the person's own affair.
_OWN = {"logout", "password_change", "login"}


# A shorter word stands in a page by chance.
_TELLING = 5


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


class Harmless(HTMLParser):
    """Fails on what the content policy forbids: scripts and styles that are in the page."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        assert tag not in {"style", "iframe", "object", "base"}
        assert tag != "script" or "src" in names
        assert not any(name.startswith("on") or name == "style" for name in names), attrs


def content(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else bytes(response.content)


def without(body: bytes, *words: str) -> bytes:
    """A page without what is of the asker alone: the address asked for and the form's token."""
    for word in words:
        if len(word) >= _TELLING:
            for spelt in (quote_plus(word), escape(word), word):
                body = body.replace(spelt.encode(), b"...")
    return re.sub(rb'(csrfmiddlewaretoken" value=")[^"]+', rb"\1", body)


def test_every_registered_model_has_a_row_to_crawl_with() -> None:
    assert set(FACTORIES) == set(admin.site._registry)


def test_every_address_of_a_foreign_row_is_the_404_of_one_that_never_was() -> None:
    alice = signed_in(make_operator("acme"))
    foreign = one_of_everything("globex", FOREIGN)
    before = state_of_everything()
    visited = 0
    for address in addresses():
        if address.subject is None:
            continue
        key = address.key_of(foreign)
        answers = []
        for pk in (key, never_was(key)):
            path = address.path(pk)
            answers += [
                (response.status_code, without(content(response), path, str(pk)))
                for response in (alice.get(path), alice.post(path, {}), alice.post(path, PLAUSIBLE))
            ]
        assert answers[:3] == answers[3:], address
        statuses = [status for status, _ in answers[:3]]
        # A page that takes one method alone says so whatever the id.
        assert set(statuses) in ({404}, {404, 405}), (address, statuses)
        assert all(FOREIGN.encode() not in body for _, body in answers), address
        visited += 1
    assert visited > 3 * len(FACTORIES)
    assert state_of_everything() == before


Queries = Callable[[type[Model], Any], Iterator[dict[str, Any]]]


def _common_queries(_: type[Model], obj: Any) -> Iterator[dict[str, Any]]:
    yield from ({}, {"p": "2"}, {"all": ""}, {"_popup": "1"}, {"_popup": "1", "_to_field": "id"})
    yield from ({"q": FOREIGN}, {"q": str(obj.pk)}, {"o": "1"}, {"tenant_id": "globex"})


def _field_queries(model: type[Model], obj: Any) -> Iterator[dict[str, Any]]:
    for field in model._meta.concrete_fields:
        value = getattr(obj, field.attname)
        if isinstance(value, dict | list) or value is None:
            continue
        yield {field.name: value}
        if isinstance(field, ForeignKey | OneToOneField):
            yield {f"{field.name}__{field.target_field.name}": value}
            yield {f"{field.name}__tenant_id": "globex"}


def test_no_list_shows_or_finds_a_foreign_row() -> None:
    _assert_no_list_shows_a_foreign_row(_common_queries)


@pytest.mark.long
def test_no_list_finds_a_foreign_row_by_any_field() -> None:
    _assert_no_list_shows_a_foreign_row(_field_queries)


def _assert_no_list_shows_a_foreign_row(queries: Queries) -> None:
    alice = signed_in(make_operator("acme"))
    foreign = one_of_everything("globex", FOREIGN)
    for address in addresses():
        if address.subject is not None or address.model is None:
            continue
        obj = foreign[address.model]
        listed = address.name.endswith("_changelist")
        for query in queries(address.model, obj) if listed else ({}, {"q": FOREIGN}):
            # What is sent to a list with a form is an action, which has a test of its own.
            methods = (alice.get,) if query.keys() - {"q"} else (alice.get, alice.post)
            for method in methods:
                response = method(address.path(), query, follow=True)
                asked = [str(value) for value in query.values() if value != ""]
                body = without(content(response), *asked).decode()
                assert response.status_code in {200, 400, 403, 404, 405}, (address, query)
                assert FOREIGN not in body, (address, query)
                assert f"/{obj.pk}/" not in body, (address, query)


def test_no_action_reaches_a_foreign_row() -> None:
    alice = signed_in(make_operator("acme"))
    foreign = one_of_everything("globex", FOREIGN)
    before = state_of_everything()
    for address, action in _actions():
        assert address.model is not None
        obj = foreign[address.model]
        answers = []
        for pk in (obj.pk, never_was(obj.pk)):
            data = {**PLAUSIBLE, "action": action, "_selected_action": str(pk)}
            response = alice.post(address.path(), data, follow=True)
            answers.append((response.status_code, without(content(response), str(pk))))
        assert answers[0] == answers[1], (address, action)
        assert FOREIGN.encode() not in answers[0][1]
    assert state_of_everything() == before


def test_no_picker_or_shortcut_finds_a_foreign_row() -> None:
    alice = signed_in(make_operator("acme"))
    foreign = one_of_everything("globex", FOREIGN)
    for model in admin.site._registry:
        for field in model._meta.get_fields():
            if not (field.concrete and field.remote_field):
                continue
            for term in ("", FOREIGN):
                response = alice.get(
                    reverse("admin:autocomplete"),
                    {
                        "app_label": model._meta.app_label,
                        "model_name": str(model._meta.model_name),
                        "field_name": field.name,
                        "term": term,
                    },
                )
                assert response.status_code in {200, 403, 404}
                assert FOREIGN not in response.content.decode()
    anything = next(iter(foreign.values()))
    for kind in ContentType.objects.all():
        shown = kind.model_class()
        obj = foreign.get(shown, anything) if shown else anything
        assert alice.get(f"/admin/r/{kind.pk}/{obj.pk}/").status_code == 404
    for app in {model._meta.app_label for model in admin.site._registry}:
        response = alice.get(reverse("admin:app_list", args=[app]))
        assert FOREIGN not in response.content.decode()


def test_pages_of_the_site_show_nothing_foreign() -> None:
    alice = signed_in(make_operator("acme"))
    one_of_everything("globex", FOREIGN)
    for address in addresses():
        if address.model is None and address.name not in _OWN:
            for response in (alice.get(address.path()), alice.post(address.path())):
                assert FOREIGN.encode() not in content(response), address


def test_no_page_holds_a_script_a_style_or_an_unescaped_word() -> None:
    alice = signed_in(make_operator("acme"))
    own = one_of_everything("acme", HOSTILE)
    shown = 0
    for address in addresses():
        if address.name in _OWN:
            continue
        path = address.path(address.key_of(own))
        response = alice.get(path)
        assert response.status_code in {200, 302, 403, 404, 405}, (address, response.status_code)
        policy = response["Content-Security-Policy"]
        assert "unsafe" not in policy, address
        assert "default-src 'none'" in policy, address
        body = content(response).decode()
        if response.get("Content-Disposition"):
            assert response["Content-Disposition"].startswith("attachment"), address
            assert response["X-Content-Type-Options"] == "nosniff"
            assert "html" not in response["Content-Type"]
            continue
        if response.status_code == 200 and response["Content-Type"].startswith("text/html"):
            assert "<script>alert" not in body, address
            assert "<img src=x" not in body, address
            assert "14" not in re.findall(r"\{\{ 7\|add:7 \}\}|>14<", body), address
            Harmless().feed(body)
            shown += 1
    assert shown > len(FACTORIES)


# --- what it takes to change something


def _actions() -> Iterator[tuple[Address, str]]:
    """All that there are, whoever may use them."""
    for address in addresses():
        if address.model is None or not address.name.endswith("_changelist"):
            continue
        model_admin: Any = admin.site._registry[address.model]
        for _, name, _ in model_admin._get_base_actions():
            yield address, name


def _posts(own: dict[type[Model], Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, address and body of everything that can be sent."""
    data = plausible(own)
    for address in addresses():
        if address.name in _OWN:
            continue
        yield address.name, address.path(address.key_of(own)), data
    for address, action in _actions():
        assert address.model is not None
        chosen = {"action": action, "_selected_action": str(own[address.model].pk)}
        yield f"{address.name}#{action}", address.path(), data | chosen


def _changing(
    client: Client, own: dict[type[Model], Any], names: Container[str] | None = None
) -> set[str]:
    """What of these changed something when it was sent, each time put back; of all by default."""
    before = state_of_everything()
    changed = set()
    for name, path, data in _posts(own):
        if names is not None and name not in names:
            continue
        with transaction.atomic():
            file = SimpleUploadedFile("new.md", b"# New\n\nSomething new.\n", "text/markdown")
            response = client.post(path, {**data, "upload": file})
            content(response)
            assert response.status_code < 500, name
            if state_of_everything() != before:
                changed.add(name)
            transaction.set_rollback(True)
    return changed


def test_what_changes_something_is_known_and_a_viewer_changes_nothing() -> None:
    own = one_of_everything("acme", "ours")
    everything = signed_in(make_operator("acme", "everything"))
    assert _changing(everything, own) == set(CHANGES)
    viewer = signed_in(make_operator("acme", "viewer", [OperatorPermission.VIEW]))
    assert _changing(viewer, own) == _needing(OperatorPermission.VIEW)


@pytest.mark.parametrize("permission", [p for p in OperatorPermission if p != "view"])
def test_every_change_takes_its_own_permission(permission: OperatorPermission) -> None:
    own = one_of_everything("acme", "ours")
    allowed = [OperatorPermission.VIEW, permission]
    client = signed_in(make_operator("acme", "one", allowed))
    # The others change nothing for somebody with every permission either.
    assert _changing(client, own, CHANGES) == _needing(*allowed)


def _needing(*permissions: OperatorPermission) -> set[str]:
    return {name for name, needed in CHANGES.items() if needed in permissions}


def test_reading_changes_nothing() -> None:
    own = one_of_everything("acme", "ours")
    client = signed_in(make_operator("acme"))
    before = state_of_everything()
    for address in addresses():
        if address.name in _OWN:
            continue
        content(client.get(address.path(address.key_of(own))))
        assert state_of_everything() == before, address
