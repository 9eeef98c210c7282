"""The one place that binds a database session to a tenant or to the operations role.

Row-level security on every table with a `tenant_id` reads `verbatim.tenant`, a setting that
lasts until the transaction ends. Outside these two context managers it is empty, and a query
sees no row of any tenant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import RunSQL

OPERATIONS_ROLE = "verbatim_operations"
_OWN = "tenant_id = current_setting('verbatim.tenant', true)"
# An attribute of the connection: the role and tenant of its transaction.
_BINDING = "verbatim_binding"
_UNBOUND = ("none", "")
_BIND = "SELECT set_config('role', %s, true), set_config('verbatim.tenant', %s, true)"


@contextmanager
def tenant_session(tenant_id: str, *, using: str = "default") -> Iterator[None]:
    """A transaction that sees the rows of one tenant and of no other."""
    if not tenant_id:
        raise ValueError("a tenant session needs a tenant")
    with _bound("none", tenant_id, using):
        yield


@contextmanager
def operations_session(*, using: str = "default") -> Iterator[None]:
    """A transaction that sees every tenant, for the few jobs that have to cross tenants.

    Used for looking up a key before its tenant is known, the queues and sweeps of the workers,
    a superuser's pages and data migrations; nowhere else.
    """
    with _bound(OPERATIONS_ROLE, "", using):
        yield


@contextmanager
def snapshot_session(*, using: str = "default") -> Iterator[None]:
    """A transaction of its own that sees every tenant as of one instant, and can change nothing.

    Used for taking a corpus along: whatever happens meanwhile, all its rows are of that instant.
    """
    with transaction.atomic(using=using, durable=True):
        with connections[using].cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        with operations_session(using=using):
            yield


@contextmanager
def _bound(role: str, tenant_id: str, using: str) -> Iterator[None]:
    connection = connections[using]
    wanted = (role, tenant_id)
    # What the session around this one asked for; outside of any, nothing is bound.
    outer: tuple[str, str] = getattr(connection, _BINDING, _UNBOUND)
    nested = connection.in_atomic_block
    with transaction.atomic(using=using):
        if wanted != outer:
            _bind(connection, wanted)
        setattr(connection, _BINDING, wanted)
        try:
            yield
        finally:
            setattr(connection, _BINDING, outer)
        # A local setting outlives the savepoint it was made in unless that is rolled back, so
        # a nested session puts back what it found; an outermost one ends with its transaction.
        if nested and wanted != outer:
            _bind(connection, outer)


def _bind(connection: BaseDatabaseWrapper, binding: tuple[str, str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_BIND, binding)


def tenant_isolation(table: str) -> RunSQL:
    """A migration operation: forced row-level security on a table with a `tenant_id`.

    `FORCE` binds the owner too, who is the role that the application connects as.
    """
    return RunSQL(
        sql=[
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
            f"CREATE POLICY {table}_tenant ON {table} USING ({_OWN}) WITH CHECK ({_OWN})",
            (
                f"CREATE POLICY {table}_operations ON {table} TO {OPERATIONS_ROLE}"
                " USING (true) WITH CHECK (true)"
            ),
        ],
        reverse_sql=[
            f"DROP POLICY {table}_operations ON {table}",
            f"DROP POLICY {table}_tenant ON {table}",
            f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        ],
    )


def grant_operations_role(*, using: str, **_signal: object) -> None:
    """Lets the operations role reach the tables; which rows it sees is the policies' business."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"GRANT USAGE ON SCHEMA public TO {OPERATIONS_ROLE}")
        cursor.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
            f" TO {OPERATIONS_ROLE}"
        )
        cursor.execute(
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {OPERATIONS_ROLE}"
        )
