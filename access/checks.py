"""System checks of the database roles on which the isolation of tenants stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

from access.tenancy import OPERATIONS_ROLE


@register(Tags.database)
def database_roles(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The application's role must not bypass row-level security, except by switching roles."""
    return [found for using in databases or () for found in _roles_of(using)]


def _roles_of(using: str) -> list[CheckMessage]:
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user"
        )
        role, bypasses = cursor.fetchone()
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [OPERATIONS_ROLE])
        exists = cursor.fetchone() is not None
        member = inherits = False
        if exists:
            cursor.execute(
                "SELECT pg_has_role(session_user, %s, 'MEMBER'),"
                " pg_has_role(session_user, %s, 'USAGE')",
                [OPERATIONS_ROLE, OPERATIONS_ROLE],
            )
            member, inherits = cursor.fetchone()
    if bypasses:
        return [
            Error(
                f"The database role {role} bypasses row-level security.",
                hint=f"As a superuser: ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS;",
                id="access.E001",
            )
        ]
    if not member:
        return [
            Error(
                f"The database role {role} cannot switch to {OPERATIONS_ROLE}.",
                hint=f"As a superuser: CREATE ROLE {OPERATIONS_ROLE} NOLOGIN;"
                f" GRANT {OPERATIONS_ROLE} TO {role} WITH INHERIT FALSE, SET TRUE;"
                f" (PostgreSQL 15: ALTER ROLE {role} NOINHERIT; GRANT {OPERATIONS_ROLE} TO {role};)",
                id="access.E002",
            )
        ]
    if inherits:
        return [
            Error(
                f"The database role {role} inherits {OPERATIONS_ROLE}, so it sees every tenant.",
                hint=f"As a superuser: GRANT {OPERATIONS_ROLE} TO {role} WITH INHERIT FALSE;"
                f" (PostgreSQL 15: ALTER ROLE {role} NOINHERIT;)",
                id="access.E003",
            )
        ]
    return []
