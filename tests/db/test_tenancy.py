"""Isolation of tenants by the database itself, with the application's filters taken away."""

from __future__ import annotations

import contextlib
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from access.checks import database_roles
from access.clock import now
from access.models import ApiKey, IdempotentAnswer, Operator
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust
from artifacts import uploads
from artifacts.quota import set_quota
from knowledge.core.admission import PiiRules
from knowledge.core.records import Evidence
from knowledge.core.types import BulkAction, IngestProgress, IngestRequest, Visibility
from knowledge.ingest.attempt import Attempt
from knowledge.lifecycle.figures import roll_up
from knowledge.lifecycle.pii_policy import set_pii_policy
from knowledge.models import ArmSwitch, Chunk, PreturnPolicy, RefusalCount, VisibilitySpace
from knowledge.retrieval import lexical
from knowledge.retrieval.citations import Cited
from knowledge.wiring import store
from tests.factories import make_attachment, make_golden_run, make_proposal
from tests.support import admit, ask, bearer, principal, save_page, source_of, upload

TENANT_TABLES = [
    model
    for name in ("access", "artifacts", "knowledge")
    for model in apps.get_app_config(name).get_models()
    if any(field.name == "tenant_id" for field in model._meta.get_fields())
    and not model._meta.proxy
]


class Stopped(Exception):
    """The process ends here."""


def long_request(tenant: str) -> IngestRequest:
    note = "# Pumps\n\nThe pump runs at night.\n\n" + "## Night\n\nIt runs again.\n\n" * 400
    return IngestRequest(
        artifact_id=upload(principal(tenant=tenant), note).pk,
        title="Pumps",
        visibility=Visibility.TENANT,
        origin_trust=OriginTrust.USER,
        batch_size=1,
    )


def leave_unfinished(request: IngestRequest, by: Principal) -> None:
    def stop(progress: IngestProgress) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        store().ingest(request, by, Attempt(on_progress=stop))


@pytest.fixture
def two_tenants(db: Any, blob_root: Path, django_user_model: Any) -> None:
    for tenant in ("acme", "globex"):
        bearer("alice", tenant)
        pumps = admit(
            f"# Pumps\n\nThe {tenant} pump runs at night. zebra\n", by=principal(tenant=tenant)
        )
        make_golden_run(tenant, pumps.chunk_ids[0])
        searched = ask("pump", by=principal(tenant=tenant))
        quoted = Cited(chunk_id=searched.passages[0].candidate.chunk_id)
        store().record_answer(
            searched.trace_id, principal(tenant=tenant), answered=True, citations=[quoted]
        )
        gone = admit(f"The {tenant} hose is gone.\n", by=principal(tenant=tenant))
        store().delete(gone.document_id, principal(tenant=tenant))
        store().ingest_later(long_request(tenant), principal(tenant=tenant))
        leave_unfinished(long_request(tenant), principal(tenant=tenant))
        make_attachment(tenant)
        empty = uploads.Piece(offset=0, content=b"", sha256=sha256(b"").hexdigest(), final=True)
        uploads.attach(principal(tenant=tenant), uuid4(), empty, filename="empty.txt")
        make_proposal(tenant)
        cited = Evidence(source=source_of(pumps, tenant))
        save_page(principal(tenant=tenant), evidence=[cited])
        operator = Principal.for_operator(tenant, "olga")
        store().begin_bulk(BulkAction.HOLD, [uuid4()], operator, reason="test")
        set_pii_policy(PiiRules(verdicts={}), operator)
        set_quota(operator, 10**9)
        user = django_user_model.objects.create_user(f"op-{tenant}")
        with tenant_session(tenant):
            Operator.objects.create(user=user, tenant_id=tenant)
            PreturnPolicy.objects.create(tenant_id=tenant, changed_by="olga")
            ArmSwitch.objects.create(tenant_id=tenant, arm="semantic", changed_by="olga")
            IdempotentAnswer.objects.create(
                tenant_id=tenant, key="k-1", claimed_at=now(), expires_at=now()
            )
    roll_up()


@pytest.mark.usefixtures("two_tenants")
def test_no_filter_still_sees_one_tenant(subtests: pytest.Subtests) -> None:
    for tenant in ("acme", "globex"):
        with tenant_session(tenant):
            RefusalCount.objects.create(tenant_id=tenant, day="2026-01-01", reason="x", count=1)
    for model in TENANT_TABLES:
        with subtests.test(model._meta.db_table):
            _assert_one_tenant_is_seen(model)


def _assert_one_tenant_is_seen(model: Any) -> None:
    with operations_session():
        assert set(model.objects.values_list("tenant_id", flat=True)) == {"acme", "globex"}
    with tenant_session("acme"):
        assert set(model.objects.values_list("tenant_id", flat=True)) == {"acme"}
        assert not model.objects.filter(tenant_id="globex").exists()
    assert not model.objects.exists(), "outside a session nobody's rows are visible"


@pytest.mark.django_db
def test_every_table_with_a_tenant_has_forced_row_level_security() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,"
            " (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid)"
            " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE a.attname = 'tenant_id' AND c.relkind = 'r'"
        )
        found = cursor.fetchall()
    assert {name for name, _, _ in found} == {model._meta.db_table for model in TENANT_TABLES}
    assert all(forced and policies == 2 for _, forced, policies in found), found


@pytest.mark.usefixtures("two_tenants")
def test_a_foreign_row_cannot_be_written() -> None:
    with tenant_session("acme"):
        with pytest.raises(ProgrammingError), transaction.atomic():
            VisibilitySpace.objects.create(
                tenant_id="globex", visibility="tenant", sensitivity="public"
            )
        assert Chunk.objects.filter(tenant_id="globex").update(text="x") == 0
        assert not ApiKey.objects.filter(tenant_id="globex").delete()[0]


@pytest.mark.usefixtures("two_tenants")
def test_a_search_without_its_space_predicate_returns_nothing_foreign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgetful = lexical._SEARCH.replace("AND i.space = ANY (%(spaces)s::int[])", "")
    assert forgetful != lexical._SEARCH
    monkeypatch.setattr(lexical, "_SEARCH", forgetful)
    everything = ask("zebra", by=principal(tenant="acme"), max_passages=50)
    assert [passage.candidate.text for passage in everything.passages] == [
        "The acme pump runs at night. zebra"
    ]
    assert not everything.omitted


@pytest.mark.usefixtures("two_tenants")
def test_reading_every_index_row_turns_into_own_text_only() -> None:
    with tenant_session("acme"), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM knowledge_chunk_index")
        assert cursor.fetchone()[0] == 2
        cursor.execute(
            "SELECT c.tenant_id FROM knowledge_chunk_index i JOIN knowledge_chunk c ON c.id = i.chunk"
        )
        assert cursor.fetchall() == [("acme",)]


@pytest.mark.usefixtures("two_tenants")
def test_an_inner_session_gives_back_the_outer_one() -> None:
    with tenant_session("acme"):
        with tenant_session("globex"):
            assert set(Chunk.objects.values_list("tenant_id", flat=True)) == {"globex"}
        assert set(Chunk.objects.values_list("tenant_id", flat=True)) == {"acme"}
        with operations_session():
            assert Chunk.objects.count() == 2
            with tenant_session("globex"):
                assert Chunk.objects.count() == 1
            assert Chunk.objects.count() == 2
        assert set(Chunk.objects.values_list("tenant_id", flat=True)) == {"acme"}
    assert not Chunk.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_context_never_outlives_its_transaction(blob_root: Path) -> None:
    """With real commits, since a local setting outlives a savepoint but not a transaction."""
    admit("# Pumps\n\nThe pump runs at night.\n")

    def visible() -> int:
        return Chunk.objects.count()

    with tenant_session("acme"):
        assert visible() == 1
    assert visible() == 0
    with pytest.raises(ZeroDivisionError), tenant_session("acme"):
        raise ZeroDivisionError
    assert visible() == 0
    with pytest.raises(ZeroDivisionError), operations_session():
        raise ZeroDivisionError
    assert visible() == 0
    with pytest.raises(IntegrityError), tenant_session("acme"):
        VisibilitySpace.objects.create(tenant_id="acme", visibility="nobody", sensitivity="public")
    assert visible() == 0
    with tenant_session("acme"):
        with pytest.raises(ZeroDivisionError), operations_session():
            raise ZeroDivisionError
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('role'), current_setting('verbatim.tenant')")
            assert cursor.fetchone() == ("none", "acme")
    assert visible() == 0


# A way into sessions: whom each is bound to, and whether it ends in an error that its parent catches.
_NESTINGS: st.SearchStrategy[list[Any]] = st.recursive(
    st.just([]),
    lambda within: st.lists(
        st.tuples(st.sampled_from(["", "acme", "globex"]), st.booleans(), within), max_size=3
    ),
    max_leaves=8,
)


def _bound_now() -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('role'), current_setting('verbatim.tenant', true)")
        role, tenant = cursor.fetchone()
        return role, tenant or ""


@pytest.mark.django_db
@given(_NESTINGS)
@settings(max_examples=60, deadline=None)
def test_however_sessions_are_nested_each_sees_its_own(nesting: list[Any]) -> None:
    def go(sessions: list[Any], around: tuple[str, str]) -> None:
        for tenant, fails, within in sessions:
            own = ("none", tenant) if tenant else ("verbatim_operations", "")
            session = tenant_session(tenant) if tenant else operations_session()
            with contextlib.suppress(Stopped), session:
                assert _bound_now() == own
                go(within, own)
                if fails:
                    raise Stopped
            assert _bound_now() == around

    go(nesting, ("none", ""))


@pytest.mark.django_db
def test_a_session_within_one_of_the_same_tenant_binds_nothing() -> None:
    with (
        tenant_session("acme"),
        CaptureQueriesContext(connection) as asked,
        tenant_session("acme"),
    ):
        pass
    assert [one["sql"].split()[0] for one in asked] == ["SAVEPOINT", "RELEASE"]


def test_a_session_needs_a_tenant() -> None:
    with pytest.raises(ValueError, match="needs a tenant"), tenant_session(""):
        pass


@pytest.mark.django_db
def test_the_application_cannot_bypass_the_policies() -> None:
    assert database_roles(databases=["default"]) == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = session_user")
        assert cursor.fetchone() == (False, False)
        cursor.execute("SELECT pg_has_role(session_user, 'verbatim_operations', 'USAGE')")
        assert cursor.fetchone() == (False,), "its privileges need a switch of role"
