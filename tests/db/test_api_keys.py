"""Keys: shown once, kept as a hash, gone when expired or revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from access.models import ApiKey
from access.tenancy import operations_session
from access.trust import OriginTrust, Scope, Sensitivity

pytestmark = pytest.mark.django_db


def issue(**given: Any) -> tuple[ApiKey, str]:
    return ApiKey.issue(**{"tenant_id": "acme", "principal_id": "alice", **given})


def change(key: ApiKey, **values: Any) -> None:
    with operations_session():
        ApiKey.objects.filter(pk=key.pk).update(**values)


def test_a_key_is_its_principal() -> None:
    _, plain = issue(
        scopes=[Scope.WRITE],
        projects=["apollo"],
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.CONFIDENTIAL,
        surface="chat",
    )
    principal = ApiKey.authenticate(plain)
    assert principal is not None
    assert (principal.tenant_id, principal.principal_id) == ("acme", "alice")
    assert principal.scopes == {Scope.WRITE}
    assert principal.projects == frozenset({"apollo"})
    assert principal.max_origin_trust is OriginTrust.USER
    assert principal.sensitivity_ceiling is Sensitivity.CONFIDENTIAL
    assert principal.surface == "chat"
    assert not principal.operator


def test_all_projects_are_none_and_no_project_is_empty() -> None:
    _, everywhere = issue(projects=None)
    _, nowhere = issue()
    all_projects, none = ApiKey.authenticate(everywhere), ApiKey.authenticate(nowhere)
    assert all_projects is not None
    assert none is not None
    assert all_projects.projects is None
    assert none.projects == frozenset()


def test_the_secret_is_in_no_column() -> None:
    key, plain = issue()
    marker, prefix, secret = plain.split("_", 2)
    assert (marker, prefix, len(prefix)) == ("vk", key.prefix, 8)
    assert len(secret) >= 43, "256 random bits"
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(k)::text FROM access_apikey k")
        (row,) = cursor.fetchone()
    assert key.prefix in row
    assert secret not in row
    assert secret not in f"{key} {key!r}"


@pytest.mark.parametrize(
    "presented",
    ["", "vk", "vk_", "vk__", "vk_00000000_", "vk_00000000_x", "xx_{prefix}_{secret}",
     "vk_{prefix}_{secret}x", "vk_{prefix}_", "vk_{prefix}", "vk_{prefix}_\x00", "vk_é_é"],
)  # fmt: skip
def test_what_is_no_key_is_nobody(presented: str) -> None:
    _, plain = issue()
    _, prefix, secret = plain.split("_", 2)
    assert ApiKey.authenticate(presented.format(prefix=prefix, secret=secret)) is None


def test_an_expired_key_is_nobody() -> None:
    now = timezone.now()
    _, past = issue(expires_at=now - timedelta(seconds=1))
    _, future = issue(expires_at=now + timedelta(hours=1))
    assert ApiKey.authenticate(past) is None
    assert ApiKey.authenticate(future) is not None


def test_a_revoked_key_is_nobody_and_vouches_for_nothing() -> None:
    key, plain = issue()
    assert ApiKey.principal_of(key.prefix) is not None
    change(key, revoked_at=timezone.now())
    assert ApiKey.authenticate(plain) is None
    assert ApiKey.principal_of(key.prefix) is None


def test_last_use_is_noted_once_a_minute() -> None:
    key, plain = issue()

    def last_use() -> Any:
        with operations_session():
            return ApiKey.objects.get(pk=key.pk).last_used_at

    assert last_use() is None
    ApiKey.authenticate(plain)
    first = last_use()
    assert first is not None
    ApiKey.authenticate(plain)
    assert last_use() == first
    change(key, last_used_at=first - timedelta(minutes=2))
    ApiKey.authenticate(plain)
    assert last_use() >= first
