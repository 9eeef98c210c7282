"""Background ingests: the row is the truth, and hints may come late, twice or never."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connections
from django.db.models.functions import Now
from django.test import Client

from access.errors import NotFound
from access.models import ApiKey
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from config.celery import app
from knowledge import tasks
from knowledge.adapters import leases
from knowledge.adapters.database import now
from knowledge.core.errors import IngestIncomplete, SecretFound, UnsupportedMediaType
from knowledge.core.types import (
    Authority,
    ConnectorIdentity,
    IngestProgress,
    JobState,
    Visibility,
)
from knowledge.ingest import jobs
from knowledge.ingest.pipeline import Ingestor
from knowledge.models import Chunk, DocumentVersion, IngestJob, UnfinishedVersion
from knowledge.models.job import MOST_ATTEMPTS
from knowledge.wiring import store
from tests.db.test_batches import (
    asked,
    embedding_ingestor,
    fails_at,
    in_thread,
    long_note,
    nothing_to_see,
)
from tests.factories import make_operator
from tests.inspection import (
    assert_statistics_are_those_of_the_live_rows,
    every_row,
    forge_secret,
    refusals,
)
from tests.support import admit, ask, bearer, principal, texts, upload

SOURCE = ConnectorIdentity(type="wiki", id="pumps", version="r1")


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """What the broker would have been told; nobody listens."""
    told: list[UUID] = []
    monkeypatch.setattr(tasks, "_send", lambda _, job_id: told.append(job_id))
    return told


def later(content: str = "", **given: Any) -> IngestJob:
    return store().ingest_later(asked(content or long_note(), **given), principal())


def look(job: IngestJob) -> IngestJob:
    with tenant_session("acme"):
        return IngestJob.objects.get(job_id=job.job_id)


def pass_time(job: IngestJob) -> None:
    """Lets leases run out and pauses end."""
    with tenant_session("acme"):
        of = IngestJob.objects.filter(job_id=job.job_id)
        of.filter(state=JobState.RUNNING).update(lease_until=Now() - timedelta(seconds=1))
        of.update(next_attempt_at=Now() - timedelta(seconds=1), hinted_at=None)


# --- one job ---------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_job_is_an_ingest_for_later(blob_root: Path) -> None:
    request = replace(
        asked(long_note()),
        doc_date=date(2026, 5, 2),
        visibility=Visibility.PROJECT,
        project_scope="apollo",
        sensitivity=Sensitivity.CONFIDENTIAL,
        authority=Authority.PRINCIPAL_AUTHORED,
        language="simple",
    )
    job = store().ingest_later(request, principal())
    assert (job.state, job.attempts, job.result, job.problem) == ("queued", 0, None, None)
    assert nothing_to_see()
    assert store().run_job(job.job_id) == []
    done = look(job)
    assert (done.state, done.attempts, done.problem) == ("done", 1, None)
    assert (done.embedded, done.total, done.batch, done.batches) == (7, 7, 4, 4)
    assert done.result is not None
    assert done.result["report"]["complete"]
    assert done.request == {}, "what was asked is kept no longer than needed"
    assert done.finished_at is not None
    with tenant_session("acme"):
        version = DocumentVersion.objects.select_related("document__space").get()
        assert str(version.document_id) == done.result["document_id"] == str(done.document_id)
        assert (version.doc_date, version.language) == (date(2026, 5, 2), "simple")
        assert version.authority == "principal_authored"
        space = version.document.space
        assert (space.project_scope, space.sensitivity) == ("apollo", "confidential")
    # Again, by whoever heard of it late: nothing happens.
    assert store().run_job(job.job_id) == []
    assert look(job) == done
    assert look(job).attempts == 1


@pytest.mark.django_db
def test_what_will_be_refused_is_refused_at_once_and_leaves_no_job(blob_root: Path) -> None:
    secret = forge_secret()
    with pytest.raises(SecretFound):
        later(title=f"token {secret}")
    with pytest.raises(SecretFound):
        later(source=replace(SOURCE, id=secret))
    picture = upload(principal(), b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "cat.png")
    with pytest.raises(UnsupportedMediaType):
        later(artifact_id=picture.pk)
    with pytest.raises(NotFound):
        later(artifact_id=uuid4())
    with tenant_session("acme"):
        assert not IngestJob.objects.exists()
    assert refusals() == {("acme", "secret_found"): 2, ("acme", "unsupported_media_type"): 1}


@pytest.mark.django_db
def test_a_refusal_in_the_background_is_final_and_says_why(blob_root: Path) -> None:
    secret = forge_secret()
    job = later(f"# Pumps\n\nThe token is {secret} for now.\n")
    store().run_job(job.job_id)
    refused = look(job)
    assert (refused.state, refused.request) == ("refused", {})
    assert refused.problem is not None
    assert refused.problem["code"] == "secret_found"
    assert refused.problem["findings"][0]["line"] == 3
    assert secret not in str(every_row())
    assert nothing_to_see()
    with tenant_session("acme"):
        assert jobs.retry(IngestJob.objects.all(), asked_by="operator:olga") == [], (
            "there is nothing to try again"
        )


@pytest.mark.django_db
def test_a_key_that_was_revoked_meanwhile_vouches_for_nothing(blob_root: Path) -> None:
    key, _ = ApiKey.issue(
        tenant_id="acme",
        principal_id="alice",
        scopes=[Scope.WRITE],
        max_origin_trust=OriginTrust.USER,
    )
    request = asked(long_note())
    allowed, forbidden = (store().ingest_later(request, key.principal()) for _ in range(2))
    store().run_job(allowed.job_id)
    assert look(allowed).state == "done"
    with tenant_session("acme"):
        ApiKey.objects.update(revoked_at=Now())
    store().run_job(forbidden.job_id)
    ended = look(forbidden)
    assert ended.state == "refused"
    assert ended.problem is not None
    assert ended.problem["code"] == "not_authenticated"


# --- attempts --------------------------------------------------------------------------------


def run_with(ingestor: Ingestor, job: IngestJob) -> IngestJob:
    jobs.run(ingestor, job.job_id)
    return look(job)


@pytest.mark.django_db
def test_a_failing_embedder_is_tried_again_after_a_pause(blob_root: Path) -> None:
    job = later()
    ingestor, _, sink = embedding_ingestor(fails_at(3))
    waiting = run_with(ingestor, job)
    assert (waiting.state, waiting.attempts, waiting.embedded) == ("queued", 1, 4)
    assert waiting.problem is not None
    assert waiting.problem["code"] == "ingest_incomplete"
    assert waiting.result is not None
    assert waiting.result["report"]["pending"] == 3
    assert waiting.next_attempt_at > waiting.started_at  # type: ignore[operator]
    assert run_with(ingestor, job).attempts == 1, "its time has not come"
    pass_time(job)
    done = run_with(ingestor, job)
    assert (done.state, done.attempts, done.embedded, done.problem) == ("done", 2, 7, None)
    assert done.result is not None
    assert (done.result["report"]["embedded"], done.result["report"]["skipped"]) == (3, 4)
    assert len(sink.vectors) == 7


@pytest.mark.django_db
def test_attempts_that_get_nowhere_come_to_an_end_and_an_operator_may_try_again(
    blob_root: Path,
) -> None:
    job = later()
    broken, _, _ = embedding_ingestor(lambda call: "error")
    pauses = []
    for attempt in range(1, MOST_ATTEMPTS + 1):
        tried = run_with(broken, job)
        assert tried.attempts == attempt
        if attempt < MOST_ATTEMPTS:
            assert tried.state == "queued"
            pauses.append(tried.next_attempt_at - now())
            pass_time(job)
    assert tried.state == "failed"
    assert pauses == sorted(pauses)
    assert tried.problem is not None
    assert tried.problem["code"] == "ingest_incomplete"
    assert run_with(broken, job).attempts == MOST_ATTEMPTS
    assert jobs.reconcile() == []
    with tenant_session("acme"):
        assert jobs.retry(IngestJob.objects.all(), asked_by="operator:olga") == [job.job_id]
    sound, _, _ = embedding_ingestor()
    assert run_with(sound, job).state == "done"


@pytest.mark.django_db
def test_a_long_document_may_need_more_attempts_than_one_that_gets_nowhere(
    blob_root: Path,
) -> None:
    job = later(long_note(12), batch_size=1)
    flaky, _, _ = embedding_ingestor(lambda call: "timeout" if call % 2 == 0 else None)
    while (tried := run_with(flaky, job)).state != "done":
        assert tried.state == "queued"
        pass_time(job)
    assert (tried.state, tried.embedded) == ("done", 12)
    assert tried.attempts > MOST_ATTEMPTS


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperationalError("gone"), "unavailable"),
        (OSError("disk full"), "unavailable"),
        (ZeroDivisionError(), "internal"),
    ],
)
def test_what_broke_an_attempt_is_told_without_its_message_and_tried_again(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    job = later()

    def broken(*given: Any, **named: Any) -> Any:
        raise error

    with monkeypatch.context() as now_broken:
        now_broken.setattr(Ingestor, "plan", broken)
        tried = run_with(store().ingestor, job)
    assert tried.state == "queued"
    assert tried.problem is not None
    assert tried.problem["code"] == code
    assert "gone" not in str(tried.problem)
    pass_time(job)
    assert run_with(store().ingestor, job).state == "done"


@pytest.mark.django_db
def test_a_worker_that_died_leaves_a_job_that_another_picks_up(
    blob_root: Path, hints: list[UUID]
) -> None:
    job = later()

    class Killed(BaseException):
        """Nothing of ours catches it."""

    def dies(progress: IngestProgress) -> None:
        if progress.batch == 2:
            raise Killed

    with operations_session():
        claimed = IngestJob.objects.claim(job.job_id, jobs.LEASE)
        assert claimed is not None
    attempt = replace(jobs._attempt_of(claimed), on_progress=dies)
    with pytest.raises(Killed):
        store().ingestor.ingest(jobs._request_of(claimed), principal(), attempt)
    with tenant_session("acme"):
        UnfinishedVersion.objects.update(lease_until=Now() + timedelta(minutes=1))
    assert tasks.reconcile_ingest_jobs() == 0, "it may be alive"
    pass_time(job)
    assert tasks.reconcile_ingest_jobs() == 1
    assert tasks.reconcile_ingest_jobs() == 0, "hinted at just now"
    # Its next attempt does not wait for the lease of the version, which is its own.
    tasks.run_ingest_job(str(job.job_id))
    done = look(job)
    assert (done.state, done.attempts) == ("done", 2)
    assert done.result is not None
    assert (done.result["report"]["embedded"], done.result["report"]["skipped"]) == (3, 4)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db
def test_a_job_that_kills_every_worker_fails_in_the_end(blob_root: Path) -> None:
    job = later()
    for attempt in range(MOST_ATTEMPTS):
        with operations_session():
            claimed = IngestJob.objects.claim(job.job_id, jobs.LEASE)
        assert claimed is not None
        assert claimed.attempts == attempt + 1, "counted before the work begins"
        assert jobs.reconcile() == []
        pass_time(job)
    assert jobs.reconcile() == []
    failed = look(job)
    assert failed.state == "failed"
    assert failed.problem is not None
    assert failed.problem["code"] == "attempts_exhausted"


@pytest.mark.django_db
def test_jobs_of_one_document_go_in_the_order_in_which_they_came(
    blob_root: Path, hints: list[UUID]
) -> None:
    first = later(long_note(2, "zebra"))
    second = later(long_note(2, "quagga"), source=replace(SOURCE, version="r2"))
    other = later(long_note(2, "okapi"), source=replace(SOURCE, id="cats"))
    assert store().run_job(second.job_id) == [], "its turn has not come"
    assert look(second).state == "queued"
    store().run_job(other.job_id)
    assert look(other).state == "done"
    assert store().run_job(first.job_id) == [second.job_id]
    store().run_job(second.job_id)
    assert {p.candidate.version for p in ask("quagga").passages} == {2}
    assert not ask("zebra").passages


@pytest.mark.django_db
def test_deleting_a_document_cancels_its_jobs(blob_root: Path) -> None:
    admit(long_note(2), source=replace(SOURCE, version="r0"))
    job = later()
    deleted: list[UUID] = []

    def deletes(progress: IngestProgress) -> None:
        if progress.batch == 2:
            assert job.document_id is not None
            deleted.append(store().delete(job.document_id, principal()).document_id)

    with operations_session():
        claimed = IngestJob.objects.claim(job.job_id, jobs.LEASE)
        assert claimed is not None
    attempt = replace(jobs._attempt_of(claimed), on_progress=deletes)
    with pytest.raises(Exception, match="cancelled"):
        store().ingestor.ingest(jobs._request_of(claimed), principal(), attempt)
    assert deleted
    assert not ask("zebra harbour").passages
    with tenant_session("acme"):
        assert not IngestJob.objects.exists()
        assert not Chunk.objects.exists()


@pytest.mark.django_db
def test_old_jobs_are_forgotten(blob_root: Path) -> None:
    job, waiting = later(), later(source=replace(SOURCE, version="r2"))
    store().run_job(job.job_id)
    with tenant_session("acme"):
        IngestJob.objects.update(created_at=Now() - timedelta(days=31))
        IngestJob.objects.filter(state="done").update(finished_at=Now() - timedelta(days=31))
    jobs.reconcile()
    with tenant_session("acme"):
        assert list(IngestJob.objects.values_list("job_id", flat=True)) == [waiting.job_id]


@pytest.mark.django_db
def test_a_foreground_ingest_of_an_unfinished_version_says_so_while_its_job_pauses(
    blob_root: Path,
) -> None:
    job = later()
    ingestor, _, _ = embedding_ingestor(fails_at(2))
    run_with(ingestor, job)
    request = asked(long_note())
    with pytest.raises(IngestIncomplete):
        ingestor.ingest(request, principal())
    assert ingestor.ingest(replace(request, resume=True), principal()).state == "live"
    pass_time(job)
    done = run_with(ingestor, job)
    assert done.state == "done"
    assert done.result is not None
    assert done.result["already_ingested"]


# --- at once ---------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_job_delivered_three_times_at_once_is_done_once(blob_root: Path) -> None:
    job = later()
    together = threading.Barrier(3, timeout=60)

    def deliver() -> None:
        together.wait()
        tasks.run_ingest_job(str(job.job_id))

    with ThreadPoolExecutor(3) as pool:
        for delivered in [pool.submit(in_thread(deliver)) for _ in range(3)]:
            delivered.result()
    assert (look(job).state, look(job).attempts) == ("done", 1)
    with tenant_session("acme"):
        assert DocumentVersion.objects.count() == 1
        assert Chunk.objects.count() == 7
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.django_db(transaction=True)
def test_every_other_task_delivered_three_times_at_once_does_its_work_once(
    blob_root: Path,
) -> None:
    from artifacts.tasks import sweep  # noqa: PLC0415 - as the worker finds them

    admit(long_note(2))
    works: list[Callable[[], Any]] = [
        tasks.merge_term_statistics,
        tasks.reconcile_ingest_jobs,
        tasks.discard_abandoned_versions,
        sweep,
    ]
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(in_thread(work)) for work in works for _ in range(3)]:
            done.result()
    assert_statistics_are_those_of_the_live_rows()
    assert texts(ask("zebra"))


@pytest.mark.django_db(transaction=True)
def test_the_lease_of_a_job_lasts_as_long_as_its_worker(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(jobs, "LEASE", timedelta(seconds=0.5))
    job = later()
    plan, renewed = Ingestor.plan, threading.Event()

    def slow(ingestor: Ingestor, admitted: Any) -> Any:
        assert renewed.wait(60)
        return plan(ingestor, admitted)

    monkeypatch.setattr(Ingestor, "plan", slow)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(in_thread(lambda: store().run_job(job.job_id)))
        try:
            while look(job).lease_until is None:
                pass
            first = look(job).lease_until
            while look(job).lease_until <= first + timedelta(seconds=0.6):  # type: ignore[operator]
                assert jobs.reconcile() == []
        finally:
            renewed.set()
        running.result()
    assert (look(job).state, look(job).attempts) == ("done", 1)
    connections.close_all()


# --- over HTTP -------------------------------------------------------------------------------


def send(client: Client, headers: dict[str, str], **given: Any) -> Any:
    body = {
        "artifact": str(upload(principal(), long_note()).pk),
        "title": "Pumps",
        "visibility": "tenant",
        "origin_trust": "USER",
        "background": True,
        **given,
    }
    return client.post(
        "/v1/tools/knowledge.ingest", body, content_type="application/json", headers=headers
    )


@pytest.mark.django_db
def test_a_background_ingest_over_http(
    blob_root: Path,
    client: Client,
    hints: list[UUID],
    django_capture_on_commit_callbacks: Any,
) -> None:
    alice = bearer()
    with django_capture_on_commit_callbacks(execute=True):
        answer = send(client, alice, batch_size=2)
    assert answer.status_code == 202
    job = answer.json()
    assert (job["state"], job["attempts"], job["result"]) == ("queued", 0, None)
    assert job["progress"] == {"embedded": 0, "total": 0, "batch": 0, "batches": 0}
    assert hints == [UUID(job["job_id"])]
    path = f"/v1/jobs/{job['job_id']}"
    assert client.get(path, headers=alice).json() == job
    for stranger in (bearer("bob"), bearer("alice", "globex")):
        refused = client.get(path, headers=stranger)
        unknown = client.get(f"/v1/jobs/{uuid4()}", headers=stranger)
        assert refused.status_code == unknown.status_code == 404
        assert refused.json() == unknown.json()
    assert client.get(path).status_code == 401
    tasks.run_ingest_job(job["job_id"])
    done = client.get(path, headers=alice).json()
    assert (done["state"], done["problem"]) == ("done", None)
    assert done["progress"] == {"embedded": 7, "total": 7, "batch": 4, "batches": 4}
    assert done["result"]["report"]["embedded"] == 7
    assert done["document_id"] == done["result"]["document_id"]
    again = send(client, alice, background=False)
    assert (again.status_code, again.json()["already_ingested"]) == (200, True)


@pytest.mark.django_db
@pytest.mark.parametrize("given", [{"batch_size": 0}, {"batch_size": 513}, {"resume": "maybe"}])
def test_a_malformed_request_makes_no_job(
    blob_root: Path, client: Client, given: dict[str, Any]
) -> None:
    assert send(client, bearer(), **given).status_code == 400


@pytest.mark.django_db
def test_a_partial_outcome_over_http_can_be_resumed(
    blob_root: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingestor, _, _ = embedding_ingestor(fails_at(2))
    monkeypatch.setattr("knowledge.api.views.store", lambda: replace(store(), ingestor=ingestor))
    given = {"background": False, "batch_size": 2}
    partial = send(client, bearer(), **given)
    assert partial.status_code == 201
    assert (partial.json()["state"], partial.json()["report"]["pending"]) == ("ingesting", 5)
    again = send(client, bearer(), **given)
    assert (again.status_code, again.json()["code"]) == (409, "ingest_incomplete")
    done = send(client, bearer(), **given, resume=True)
    assert (done.status_code, done.json()["state"]) == (201, "live")
    assert done.json()["report"]["skipped"] == 2


@pytest.mark.faults
@pytest.mark.django_db
def test_a_broker_that_is_away_loses_no_job(
    blob_root: Path,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    nowhere = app.connection_for_write("redis+socket:///nowhere/valkey.sock")
    send_it = tasks.run_ingest_job.apply_async
    monkeypatch.setattr(tasks.run_ingest_job, "apply_async", partial(send_it, connection=nowhere))  # type: ignore[call-arg]
    with django_capture_on_commit_callbacks(execute=True):
        answer = send(client, bearer())
    assert answer.status_code == 202
    with tenant_session("acme"):
        IngestJob.objects.update(hinted_at=Now() - timedelta(minutes=1))
    assert [str(due) for due in jobs.reconcile()] == [answer.json()["job_id"]]


@pytest.mark.django_db
def test_readiness_tells_how_long_work_has_been_waiting(blob_root: Path, client: Client) -> None:
    assert "oldest_waiting_seconds" not in client.get("/readyz").json()
    later()
    with tenant_session("acme"):
        IngestJob.objects.update(created_at=Now() - timedelta(minutes=2))
    assert client.get("/readyz").json()["oldest_waiting_seconds"] >= 120


# --- for operators ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_operator_sees_the_jobs_of_the_tenant_and_tries_failed_ones_again(
    blob_root: Path,
    client: Client,
    hints: list[UUID],
    django_capture_on_commit_callbacks: Any,
) -> None:
    job = later()
    store().ingest_later(
        replace(asked(""), artifact_id=upload(principal(tenant="globex"), long_note()).pk),
        principal(tenant="globex"),
    )
    with tenant_session("acme"):
        IngestJob.objects.update(
            state="failed", finished_at=Now(), attempts=5, attempts_left=0, problem={"code": "x"}
        )
    client.force_login(make_operator("acme"))
    page = client.get("/admin/knowledge/ingestjob/").content.decode()
    assert str(job.job_id) in page
    assert page.count("failed") >= 1
    with tenant_session("globex"):
        assert str(IngestJob.objects.get().job_id) not in page
    assert client.get(f"/admin/knowledge/ingestjob/{job.pk}/change/").status_code == 200
    with django_capture_on_commit_callbacks(execute=True):
        answer = client.post(
            "/admin/knowledge/ingestjob/",
            {"action": "try_again", "_selected_action": [job.pk]},
            follow=True,
        )
    assert "1 job will be tried again" in answer.content.decode()
    assert hints == [job.job_id]
    assert (look(job).state, look(job).attempts_left) == ("queued", MOST_ATTEMPTS)
    overview = client.get("/admin/").content.decode()
    assert "Jobs that failed" not in overview
