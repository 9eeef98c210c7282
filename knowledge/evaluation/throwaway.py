"""Tenants that exist for the length of a measurement, and leave nothing."""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Iterator

from django.apps import apps
from django.db import connection

from access.errors import Malformed
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact
from knowledge.adapters import term_index
from knowledge.core.types import IngestRequest, Visibility
from knowledge.models import VisibilitySpace

PREFIXES = ("bench-", "evaluate-")
_APPS = ("knowledge", "artifacts", "access")


@contextlib.contextmanager
def throw_away_tenant(purpose: str) -> Iterator[str]:
    """A tenant `purpose-...` that is gone when the block ends, however it ends."""
    tenant_id = checked(f"{purpose}-{secrets.token_hex(6)}")
    try:
        yield tenant_id
    finally:
        remove_tenant(tenant_id)


def checked(tenant_id: str) -> str:
    """The name, when it is one that a measurement may fill and remove; raises `Malformed`."""
    if not tenant_id.startswith(PREFIXES):
        raise Malformed(f"A tenant of a measurement is named {' or '.join(PREFIXES)}...")
    return tenant_id


def member(tenant_id: str, who: str = "evaluator") -> Principal:
    """A person of the tenant who may admit documents and sees all that the tenant shares."""
    return Principal(
        tenant_id=tenant_id,
        principal_id=who,
        scopes=frozenset({Scope.WRITE}),
        projects=None,
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.RESTRICTED,
        surface="evaluation",
    )


@contextlib.contextmanager
def uploaded(
    principal: Principal, content: bytes, *, filename: str, media_type: str, title: str
) -> Iterator[IngestRequest]:
    """A request to admit bytes for the whole tenant; the upload expires with the block."""
    artifact = artifacts.put(
        principal, io.BytesIO(content), filename=filename, media_type=media_type
    )
    try:
        yield IngestRequest(
            artifact_id=artifact.pk,
            title=title,
            visibility=Visibility.TENANT,
            origin_trust=OriginTrust.USER,
        )
    finally:
        artifacts.expire_now(artifact)


def settle(*tables: str) -> None:
    """What the workers and the database do by themselves in time: merged and counted anew."""
    with operations_session():
        term_index.merge_statistics()
    with connection.cursor() as cursor:
        for table in tables or ("knowledge_chunk_index", "knowledge_chunk", "knowledge_chunkset"):
            cursor.execute(f"ANALYZE {table}")


def remove_tenant(tenant_id: str) -> None:
    """Removes every row and every byte of a measurement's tenant.

    Not the way to delete a document, which leaves a receipt: this leaves nothing at all. Foreign
    keys are checked when the transaction ends, so the order of the tables does not matter.
    """
    checked(tenant_id)
    with tenant_session(tenant_id), connection.cursor() as cursor:
        spaces = list(
            VisibilitySpace.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)
        )
        keys = list(
            Artifact.objects.filter(tenant_id=tenant_id).values_list("storage_key", flat=True)
        )
        # Deltas first: whoever is merging them right now has then put them where we look next.
        for table in ("knowledge_term_delta", "knowledge_term_statistic", "knowledge_chunk_index"):
            cursor.execute(f"DELETE FROM {table} WHERE space = ANY (%s)", [spaces])  # noqa: S608
        for table in _tables_with_a_tenant():
            cursor.execute(f"DELETE FROM {table} WHERE tenant_id = %s", [tenant_id])  # noqa: S608
    # A kill between the two leaves blobs without a row, which the sweeper removes.
    for key in keys:
        artifacts.discard_blob(key)


def _tables_with_a_tenant() -> list[str]:
    return [
        model._meta.db_table  # noqa: SLF001 - Django's documented interface
        for name in _APPS
        for model in apps.get_app_config(name).get_models()
        if any(field.name == "tenant_id" for field in model._meta.get_fields())  # noqa: SLF001
    ]
