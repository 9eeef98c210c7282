"""What many tests need: callers, uploads, admitted documents, and a count of all that exists."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from django.apps import apps
from django.db import connection

from access.models import ApiKey
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact
from knowledge.core.records import Expected, Placement, Writing
from knowledge.core.types import (
    IngestRequest,
    IngestResult,
    KnowledgeQuery,
    SearchResult,
    Visibility,
)
from knowledge.evidence.writing import WrittenRevision
from knowledge.models import BulkTask, DocumentVersion, IngestJob
from knowledge.wiring import store


def principal(who: str = "alice", tenant: str = "acme", **given: Any) -> Principal:
    """A person of a tenant who may admit documents, and name the project `apollo`."""
    return Principal(
        **{
            "tenant_id": tenant,
            "principal_id": who,
            "scopes": frozenset({Scope.WRITE}),
            "projects": frozenset({"apollo"}),
            "max_origin_trust": OriginTrust.USER,
            "sensitivity_ceiling": Sensitivity.RESTRICTED,
            **given,
        }
    )


def bearer(
    who: str = "alice",
    tenant: str = "acme",
    *,
    scopes: Iterable[Scope] = (Scope.WRITE,),
    projects: Iterable[str] | None = ("apollo",),
    max_origin_trust: OriginTrust = OriginTrust.USER,
    sensitivity_ceiling: Sensitivity = Sensitivity.RESTRICTED,
) -> dict[str, str]:
    """The header of a fresh API key, for `client.get(..., headers=bearer())`."""
    _, plain = ApiKey.issue(
        tenant_id=tenant,
        principal_id=who,
        scopes=scopes,
        projects=projects,
        max_origin_trust=max_origin_trust,
        sensitivity_ceiling=sensitivity_ceiling,
    )
    return {"Authorization": f"Bearer {plain}"}


def upload(
    by: Principal, content: str | bytes, filename: str = "note.md", media_type: str = ""
) -> Artifact:
    data = content.encode() if isinstance(content, str) else content
    return artifacts.put(by, io.BytesIO(data), filename=filename, media_type=media_type)


def admit(
    content: str | bytes,
    *,
    by: Principal | None = None,
    filename: str = "note.md",
    media_type: str = "",
    title: str = "A note",
    visibility: Visibility = Visibility.TENANT,
    **given: Any,
) -> IngestResult:
    """Uploads and ingests, on behalf of a person."""
    caller = by or principal()
    if visibility is Visibility.PROJECT:
        given.setdefault("project_scope", "apollo")
    return store().ingest(
        IngestRequest(
            artifact_id=upload(caller, content, filename, media_type).pk,
            title=title,
            visibility=visibility,
            **{"origin_trust": OriginTrust.USER, **given},
        ),
        caller,
    )


def ask(text: str, *, by: Principal | None = None, **given: Any) -> SearchResult:
    return store().search(
        KnowledgeQuery(text=text, **{"min_score": 0.0, **given}), by or principal()
    )


def work() -> int:
    """Runs the background jobs that are due, in the order in which they came. Returns how many."""
    done = 0
    while True:
        with operations_session():
            due = list(IngestJob.objects.due().order_by("number").values_list("job_id", flat=True))
        if not due:
            return done
        for job_id in due:
            store().run_job(job_id)
            done += 1


def work_in_bulk() -> int:
    """Gives every bulk action that is due its turns until none has more to do. Returns how many."""
    turns = 0
    while True:
        with operations_session():
            due = list(BulkTask.objects.due().order_by("number").values_list("task_id", flat=True))
        if not due:
            return turns
        for task_id in due:
            store().run_bulk(task_id)
            turns += 1


def texts(result: SearchResult) -> list[str]:
    return [passage.candidate.text for passage in result.passages]


def other_process(blob_root: Path, **given: str) -> dict[str, str]:
    """The environment of a process that works on this test's database and blobs."""
    address = urlsplit(os.environ["DATABASE_URL"])
    own = urlunsplit(address._replace(path=f"/{connection.settings_dict['NAME']}"))
    return {**os.environ, "DATABASE_URL": own, "ARTIFACT_ROOT": str(blob_root), **given}


def footprint(blob_root: Path, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """The number of rows in every table of ours, and every blob: what an act leaves behind."""
    left_out = set(without)
    tables = sorted(
        model._meta.db_table
        for name in ("access", "artifacts", "knowledge")
        for model in apps.get_app_config(name).get_models()
    )
    with operations_session(), connection.cursor() as cursor:
        counted: dict[str, Any] = {}
        for table in tables:
            if table not in left_out:
                cursor.execute(f"SELECT count(*) FROM {table}")
                counted[table] = cursor.fetchone()[0]
    counted["blobs"] = sorted(
        (str(path.relative_to(blob_root)), path.read_bytes())
        for path in blob_root.rglob("*")
        if path.is_file()
    )
    return counted


def writing(**given: Any) -> Writing:
    """What a person says with a write of a record, under a request id of its own."""
    return Writing(**{"request_id": uuid4(), "origin_trust": OriginTrust.USER, **given})


def everywhere(visibility: Visibility = Visibility.TENANT, **given: Any) -> Placement:
    if visibility is Visibility.PROJECT:
        given.setdefault("project_scope", "apollo")
    return Placement(visibility=visibility, **given)


def seen(written: WrittenRevision) -> Expected:
    """What whoever writes next has to have seen."""
    return Expected(
        record_id=written.record.pk, revision=written.row.revision, sha256=written.row.sha256
    )


def source_of(admitted: IngestResult, tenant: str = "acme") -> str:
    """The descriptor of a document's source."""
    with tenant_session(tenant):
        version = DocumentVersion.objects.select_related("source__descriptor").get(
            document_id=admitted.document_id, version=admitted.version
        )
        return version.source.descriptor.pk


def save_page(by: Principal | None = None, **given: Any) -> WrittenRevision:
    """A new page of a person, or the next revision of one that is `expected`."""
    told = given.pop("writing", None) or writing()
    if "expected" not in given:
        given.setdefault("placement", everywhere())
    given = {"title": "Pumps", "body": "The pump is started by hand.", **given}
    return store().records.save_page(by or principal(), told, **given)
