"""The desks of background work: how far it is, trying again, a conversation's files, the sweeper."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage
from django.test import Client

from access.errors import Forbidden
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from artifacts import tasks as artifact_tasks
from artifacts.models import Artifact, SweepRun
from artifacts.sweeper import sweep
from knowledge.core.types import Actor, JobState
from knowledge.models import Attachment, Document, IngestJob, KnowledgeEvent
from knowledge.wiring import store
from tests.db.test_admin import Harmless, page, signed_in, statements
from tests.factories import make_attachment, make_operator, make_superuser
from tests.inspection import forge_secret
from tests.support import footprint, principal, upload, work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

JOBS = "/admin/knowledge/ingestjob/"
FILES = "/admin/knowledge/attachment/"
SWEEPER = "/admin/artifacts/sweeprun/"


@pytest.fixture
def olga() -> Client:
    return signed_in(make_operator("acme", "olga"))


def rows(model: Any) -> list[Any]:
    with operations_session():
        return list(model.objects.all())


def test_a_job_shows_how_far_it_is_and_then_its_document(olga: Client) -> None:
    make_attachment("acme")
    (job,) = rows(IngestJob)
    path = f"{JOBS}{job.pk}/change/"
    html = page(olga, path)
    Harmless().feed(html)
    assert "waits for a worker" in html
    (poll,) = re.findall(r'hx-get="([^"]*)"', html)
    with operations_session():
        IngestJob.objects.update(
            embedded=3, total=9, problem={"code": "unavailable", "title": "Later <b>on</b>."}
        )
    html = page(olga, path)
    assert "3 of 9 passages" in html
    assert "Later &lt;b&gt;on&lt;/b&gt;." in html
    work()
    (done,) = rows(IngestJob)
    document = f"/admin/knowledge/document/{done.document_id}/change/"
    assert document in page(olga, poll)
    html = page(olga, path)
    assert document in html
    assert "hx-get" not in html.replace("htmx", "")
    assert "Try it again" not in html


def test_a_refused_job_says_what_to_fix_and_never_the_value(olga: Client) -> None:
    secret = forge_secret()
    store().attach(
        io.BytesIO(f"# Keys\n\nIt is {secret}.\n".encode()),
        principal(),
        conversation_id="c-1",
        actor=Actor.PRINCIPAL,
        filename="keys.md",
    )
    work()
    (job,) = rows(IngestJob)
    (attachment,) = rows(Attachment)
    for path in (f"{JOBS}{job.pk}/change/", f"{FILES}{attachment.pk}/change/"):
        html = page(olga, path)
        assert "secret_found" in html
        assert "••••" in html
        assert secret not in html


def test_a_failed_job_is_tried_again_from_its_page(olga: Client) -> None:
    make_attachment("acme")
    with operations_session():
        IngestJob.objects.update(state=JobState.FAILED, finished_at="2026-01-01T00:00Z")
    (job,) = rows(IngestJob)
    html = page(olga, f"{JOBS}{job.pk}/change/")
    assert f'name="_selected_action" value="{job.pk}"' in html
    olga.post(JOBS, {"action": "try_again", "_selected_action": str(job.pk)})
    work()
    assert rows(IngestJob)[0].state == JobState.DONE


def test_an_operator_deletes_the_files_of_a_conversation(olga: Client, blob_root: Path) -> None:
    attachment = make_attachment("acme", filename="<b>a</b>.md", conversation_id="c-1")
    make_attachment("acme", filename="b.md", conversation_id="c-1")
    make_attachment("acme", filename="c.md", conversation_id="c-2")
    work()
    path = f"{FILES}{attachment.pk}/conversation/"
    asking = page(olga, path)
    Harmless().feed(asking)
    assert "2 files" in asking
    assert "&lt;b&gt;a&lt;/b&gt;.md" in asking
    assert b"This field is required" in olga.post(path, {"reason": " "}).content
    assert len(rows(Document)) == 3
    done = olga.post(path, {"reason": "asked by alice"}, follow=True).content.decode()
    assert "2 files handed to the sweeper; of their documents: 2 deleted." in done
    assert len(rows(Document)) == len(rows(Attachment)) == 1
    with operations_session():
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.CONVERSATION_DELETED)
    assert (event.actor, event.data["reason"]) == ("operator:olga", "asked by alice")
    assert olga.get(path).status_code == 404
    sweep()
    assert len(footprint(blob_root)["blobs"]) == 2


def test_nobody_else_deletes_somebodys_conversation(olga: Client) -> None:
    attachment = make_attachment("acme", conversation_id="c-1")
    with pytest.raises(Forbidden):
        store().delete_conversation("c-1", principal("bob"), owner="alice")
    store().delete_conversation("c-1", Principal.for_operator("globex", "zed"), owner="alice")
    stranger = signed_in(make_operator("globex"))
    path = f"{FILES}{attachment.pk}/conversation/"
    assert stranger.get(path).status_code == stranger.post(path, {"reason": "x"}).status_code == 404
    assert len(rows(Attachment)) == 1


def test_the_sweepers_desk_shows_what_is_due_what_is_stuck_and_runs(
    olga: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "It has not run yet" in page(olga, SWEEPER)
    for tenant in ("acme", "globex"):
        upload(principal(tenant=tenant), "x", "<b>stuck</b>.md")
        with tenant_session(tenant):
            Artifact.objects.update(expires_at="2026-01-01T00:00Z")
    html = page(olga, SWEEPER)
    assert re.search(r"<dt>Due now</dt>\s*<dd>\s*<a [^>]*>1</a>", html)

    assert olga.get(f"{SWEEPER}run/").status_code == 405
    with_messages = olga.post(f"{SWEEPER}run/", follow=True)
    assert b"A worker sweeps" in with_messages.content

    def away(*_: Any, **__: Any) -> None:
        raise OSError("the storage is away")

    monkeypatch.setattr(FileSystemStorage, "delete", away)
    artifact_tasks.sweep(by="operator:olga")
    html = page(olga, SWEEPER)
    Harmless().feed(html)
    assert "&lt;b&gt;stuck&lt;/b&gt;.md" in html
    assert "OSError" in html
    assert "the storage is away" not in html
    (run,) = rows(SweepRun)
    assert run.by == "operator:olga"
    assert olga.get(f"{SWEEPER}{run.pk}/change/").status_code == 404
    # A pass is over all tenants: how much it did is for who sees them all.
    assert "Orphans" not in html
    assert "Orphans" in page(signed_in(make_superuser()), SWEEPER)


@pytest.mark.django_db(transaction=True)
def test_sweeping_now_asks_a_worker_in_the_operators_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        artifact_tasks.sweep, "apply_async", lambda **given: asked.append(given["kwargs"])
    )
    signed_in(make_operator("acme", "olga")).post(f"{SWEEPER}run/")
    assert asked == [{"by": "operator:olga"}]


def test_desks_take_few_queries_however_long(olga: Client) -> None:
    attachment = make_attachment("acme")
    (job,) = rows(IngestJob)
    paths = (
        SWEEPER,
        JOBS,
        FILES,
        f"{JOBS}{job.pk}/change/",
        f"{FILES}{attachment.pk}/change/",
        f"{FILES}{attachment.pk}/conversation/",
    )
    for path in paths:
        page(olga, path)
    few = [len(statements(olga, path)) for path in paths]
    for number in range(60):
        make_attachment("acme", filename=f"f{number}.md")
    many = [len(statements(olga, path)) for path in paths]
    assert few == many
    assert max(many) <= 15
