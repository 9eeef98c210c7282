"""What an operator does to documents in the admin: asked for, said before, done by the store."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import Client

from access.tenancy import operations_session, tenant_session
from access.trust import Sensitivity
from artifacts.models import Artifact
from knowledge.admin.change_forms import consequences
from knowledge.core.types import Visibility
from knowledge.models import BulkTask, Document, KnowledgeEvent, VisibilitySpace
from tests.db.test_admin import Harmless, document_path, page, signed_in, statements
from tests.factories import make_document, make_many_documents, make_operator, make_superuser
from tests.support import admit, ask, work_in_bulk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

LIST = "/admin/knowledge/document/"


@pytest.fixture
def olga() -> Client:
    return signed_in(make_operator("acme", "olga"))


def post(client: Client, path: str, **given: Any) -> str:
    response = client.post(path, {"asked": "yes", **given}, follow=True)
    assert response.status_code == 200, path
    html = response.content.decode()
    Harmless().feed(html)
    return html


def now(document: Any) -> Document:
    with operations_session():
        return Document.objects.select_related("space").get(pk=document)


def test_retitling_reaches_the_next_search(olga: Client) -> None:
    found = admit("# Pumps\n\nIt runs at night.\n", title="Old zebra")
    path = f"{LIST}{found.document_id}/retitle/"
    assert 'value="Old zebra"' in page(olga, path)
    assert "This field is required" in post(olga, path, title="New <b>yak</b>", reason="")
    assert now(found.document_id).title == "Old zebra"
    html = post(olga, path, title="New <b>yak</b>", reason="renamed")
    assert "It has its new title" in html
    assert "<h1><bdi>New &lt;b&gt;yak&lt;/b&gt;</bdi></h1>" in html
    assert ask("yak").passages
    assert not ask("zebra").passages
    with operations_session():
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.RETITLED)
    assert (event.actor, event.data["reason"]) == ("operator:olga", "renamed")
    secret = "AKIA" + "Q3EGRZ5XW2K7YTLM"
    refused = post(olga, path, title=f"Key {secret}", reason="oops")
    assert "Rule" in refused
    assert now(found.document_id).title == "New <b>yak</b>"


def test_a_rescope_says_for_whom_it_disappears_before_it_does(olga: Client) -> None:
    found = admit("# Pumps\n\nThe pump runs at night.\n")
    path = f"{LIST}{found.document_id}/rescope/"
    page(olga, path)
    assert "Say what is to be different" in post(olga, path, reason="x")
    assert "Which project?" in post(olga, path, visibility="project", reason="x")
    asked = {"visibility": "project", "project_scope": "apollo", "reason": "of theirs"}
    preview = post(olga, path, **asked)
    assert "It disappears for everybody in the tenant, except for the project apollo." in preview
    assert ask("pump").passages, "nothing is done yet"
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', preview))
    assert hidden["confirmed"] == "yes"
    done = post(olga, path, **{**asked, "confirmed": "yes"})
    assert "the next search obeys" in done
    assert not ask("pump").passages
    assert ask("pump", current_scope="apollo").passages
    assert now(found.document_id).space.project_scope == "apollo"


@pytest.mark.parametrize(
    ("former", "change", "told"),
    [
        (
            ("tenant", None, "internal"),
            {"visibility": "principal"},
            ["It disappears for everybody in the tenant, except for alice."],
        ),
        (
            ("project", "apollo", "internal"),
            {"visibility": "project", "project_scope": "gemini"},
            [
                "It disappears for the project apollo, except for the project gemini.",
                "It appears to the project gemini.",
            ],
        ),
        (
            ("principal", None, "internal"),
            {"visibility": "tenant"},
            ["It appears to everybody in the tenant."],
        ),
        (
            ("tenant", None, "internal"),
            {"sensitivity": "restricted"},
            ["It disappears for every key whose ceiling is below restricted."],
        ),
        (
            ("tenant", None, "restricted"),
            {"sensitivity": "public"},
            ["It appears to keys with a ceiling of public or more."],
        ),
        (
            ("tenant", None, "internal"),
            {"visibility": "tenant"},
            ["Nothing changes: it is so already."],
        ),
    ],
)
def test_consequences_name_who_loses_and_who_gains(
    former: tuple[str, str | None, str], change: dict[str, str], told: list[str]
) -> None:
    names = ("visibility", "project_scope", "sensitivity")
    scope = dict(zip(names, former, strict=True))
    assert consequences(scope, change, ingester="alice") == told


def test_a_hold_is_put_and_lifted_with_a_reason(olga: Client) -> None:
    document = make_document("acme")
    path = document_path(document, "hold")
    assert "Nobody can delete it" in page(olga, path)
    assert "It is under a legal hold now" in post(olga, path, reason="case 7")
    assert now(document.pk).legal_hold
    assert "cannot be deleted" in page(olga, document_path(document, "delete"))
    assert "is lifted" in post(olga, path, reason="case closed")
    assert not now(document.pk).legal_hold


def test_dividing_anew_is_a_task_of_one(olga: Client) -> None:
    found = admit("# Pumps\n\nThe pump runs at night.\n")
    html = post(olga, f"{LIST}{found.document_id}/rechunk/", reason="new rules")
    assert "0 of 1" in html
    assert 'hx-trigger="every 2s"' in html
    work_in_bulk()
    with operations_session():
        task = BulkTask.objects.get()
    progress = page(olga, f"/admin/knowledge/bulktask/{task.pk}/progress/")
    assert "1 were so already" in progress
    assert "hx-get" not in progress


def test_an_export_has_the_originals_and_the_passages(olga: Client) -> None:
    hostile = "../../</b>\u202eevil.md"
    found = admit("# Pumps\n\nThe <pump> runs.\n", filename=hostile, title="T")
    admit("# Pumps\n\nThe pump stands.\n", document_id=found.document_id, title="T")
    path = f"{LIST}{found.document_id}/export/"
    assert olga.get(path).status_code == 405
    response = olga.post(path)
    assert isinstance(response, StreamingHttpResponse)
    assert response["Content-Disposition"] == f'attachment; filename="{found.document_id}.zip"'
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]
    with zipfile.ZipFile(io.BytesIO(response.getvalue())) as archive:
        names = archive.namelist()
        described = json.loads(archive.read("document.json"))
        passages = [json.loads(line) for line in archive.read("passages.jsonl").splitlines()]
        original = archive.read(described["versions"][0]["original"]["path"])
    assert original == b"# Pumps\n\nThe <pump> runs.\n"
    assert described["versions"][0]["original"]["filename"] == hostile
    assert all(".." not in name and "\u202e" not in name and "<" not in name for name in names)
    assert [(each["version"], each["text"]) for each in passages] == [
        (1, "The <pump> runs."),
        (2, "The pump stands."),
    ]
    assert passages[0]["chunk_id"] in found.chunk_ids
    with operations_session():
        assert KnowledgeEvent.objects.get(name=KnowledgeEvent.EXPORTED).actor == "operator:olga"
        assert Artifact.objects.count() == 4


# --- many


def choose(client: Client, action: str, *documents: Document, **given: Any) -> str:
    form = {"action": action, "_selected_action": [str(each.pk) for each in documents]}
    return post(client, LIST, **form, **given)


def test_several_are_deleted_in_the_background_and_a_held_one_stays(olga: Client) -> None:
    going = [make_document("acme", f"Going {number}") for number in range(3)]
    held = make_document("acme", "Held", legal_hold=True)
    response = olga.post(
        LIST, {"action": "delete_selected", "_selected_action": [str(d.pk) for d in (*going, held)]}
    )
    asking = response.content.decode()
    assert "Delete 4 documents" in asking
    assert re.search(r"1 of them is under a legal hold", asking)
    assert re.search(r"<dt>Chunks</dt>\s*<dd>\s*8\s*</dd>", asking)
    html = choose(olga, "delete_selected", *going, held, reason="old")
    assert "0 of 4" in html
    assert now(going[0].pk), "nothing is gone before a worker comes"
    work_in_bulk()
    with operations_session():
        assert list(Document.objects.values_list("title", flat=True)) == ["Held"]
        task = BulkTask.objects.get()
    ended = page(olga, f"/admin/knowledge/bulktask/{task.pk}/change/")
    assert "4 of 4" in ended
    assert "<code>legal_hold</code>" in ended
    assert "<bdi>Held</bdi>" in ended
    assert "Going" not in ended
    assert str(going[0].pk) in page(
        olga, f"/admin/knowledge/bulktask/{task.pk}/change/", show="all"
    )


def test_all_that_match_are_taken_in_order_and_no_more(olga: Client) -> None:
    make_many_documents("acme", 130)
    make_document("acme", "Lunch menu")
    with tenant_session("acme"):
        first = Document.objects.filter(title__contains="zebra").first()
    assert first is not None
    across = {"action": "hold_selected", "select_across": "1", "_selected_action": str(first.pk)}
    asking = olga.post(f"{LIST}?q=zebra", {**across}).content.decode()
    assert "Put 26 documents under legal hold" in asking
    assert "and 16 more" in asking
    post(olga, f"{LIST}?q=zebra", **across, reason="case 7")
    work_in_bulk()
    with tenant_session("acme"):
        held = Document.objects.filter(legal_hold=True)
        assert held.count() == 26
        assert all("zebra" in document.title for document in held)


def test_many_are_rescoped_after_a_look_at_what_changes(olga: Client) -> None:
    one = make_document("acme", "One")
    two = make_document("acme", "Two", visibility=Visibility.PROJECT)
    asked = {"visibility": "principal", "reason": "tidy"}
    preview = choose(olga, "rescope_selected", one, two, **asked)
    assert "except for alice" in preview
    assert preview.count("1 document</strong>") == 2
    with operations_session():
        assert not BulkTask.objects.exists()
    choose(olga, "rescope_selected", one, two, **asked, confirmed="yes")
    work_in_bulk()
    with operations_session():
        space = VisibilitySpace.objects.get(documents=one)
        assert (space.visibility, space.principal_id) == (Visibility.PRINCIPAL, "alice")
        assert space == VisibilitySpace.objects.get(documents=two)


def test_too_many_and_several_tenants_are_refused(
    olga: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knowledge.admin.document_actions.MOST_DOCUMENTS", 2)
    three = [make_document("acme", f"Number {number}") for number in range(3)]
    assert "Nothing was done" in choose(olga, "hold_selected", *three, reason="x")
    root = signed_in(make_superuser())
    html = choose(root, "hold_selected", three[0], make_document("globex"), reason="x")
    assert "several tenants" in html
    choose(root, "hold_selected", three[0], reason="by root")
    work_in_bulk()
    assert now(three[0].pk).legal_hold
    with operations_session():
        assert BulkTask.objects.get().tenant_id == "acme"


def test_a_task_is_stopped_by_its_page(olga: Client) -> None:
    choose(olga, "hold_selected", make_document("acme"), make_document("acme"), reason="x")
    with operations_session():
        task = BulkTask.objects.get()
    path = f"/admin/knowledge/bulktask/{task.pk}/"
    assert "Stop here" in page(olga, f"{path}change/")
    assert olga.get(f"{path}cancel/").status_code == 405
    stranger = signed_in(make_operator("globex"))
    for action in ("change", "progress", "cancel"):
        assert stranger.get(f"{path}{action}/").status_code in {404, 405}
    assert stranger.post(f"{path}cancel/").status_code == 404
    html = post(olga, f"{path}cancel/")
    assert "Nothing more of it is begun" in html
    assert "Stop here" not in html
    assert work_in_bulk() == 0


def test_lists_and_pages_of_tasks_take_few_queries(olga: Client) -> None:
    def begin(count: int) -> BulkTask:
        with tenant_session("acme"):
            documents = list(Document.objects.all()[:count])
        choose(olga, "hold_selected", *documents, reason="x")
        with operations_session():
            return BulkTask.objects.latest("number")

    make_many_documents("acme", 300)
    few, many = begin(10), begin(300)
    for _ in range(20):
        begin(1)
    for path, query in (
        (f"/admin/knowledge/bulktask/{few.pk}/change/", {"show": "all"}),
        (f"/admin/knowledge/bulktask/{many.pk}/change/", {"show": "all"}),
        ("/admin/knowledge/bulktask/", {}),
    ):
        assert len(statements(olga, path, **query)) <= 15


def test_strict_ones_stay_visible_to_an_operator(olga: Client) -> None:
    document = make_document("acme", sensitivity=Sensitivity.RESTRICTED)
    post(
        olga, document_path(document, "rescope"), visibility="principal", reason="x", confirmed="y"
    )
    assert "alice" in page(olga, document_path(document))
