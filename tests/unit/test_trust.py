"""Who vouches for a request, and what a caller may name."""

from __future__ import annotations

from itertools import product

import pytest

from access.errors import ProjectForbidden, ScopeMissing
from access.principal import Principal
from access.trust import OriginTrust, Scope, Sensitivity
from knowledge.core.scope import resolve_scope

LOWEST_FIRST = ["EXTERNAL_UNTRUSTED", "TOOL", "MODEL", "USER", "SYSTEM"]


def caller(**given: object) -> Principal:
    return Principal(**{"tenant_id": "acme", "principal_id": "alice", **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(("claimed", "ceiling"), list(product([None, *LOWEST_FIRST], LOWEST_FIRST)))
def test_effective_trust_is_the_lower_of_claim_and_key(claimed: str | None, ceiling: str) -> None:
    effective = OriginTrust.effective(
        OriginTrust(claimed) if claimed else None, OriginTrust(ceiling)
    )
    stated = claimed or "EXTERNAL_UNTRUSTED"
    assert effective == min(stated, ceiling, key=LOWEST_FIRST.index)
    assert effective.at_least(OriginTrust.USER) == (LOWEST_FIRST.index(effective) >= 3)


def test_a_ceiling_admits_what_is_no_more_sensitive() -> None:
    assert [level.value for level in Sensitivity] == [
        "public",
        "internal",
        "confidential",
        "restricted",
    ]
    assert Sensitivity.up_to(Sensitivity.INTERNAL) == (Sensitivity.PUBLIC, Sensitivity.INTERNAL)


def test_a_caller_names_the_projects_of_its_key_and_no_other() -> None:
    assert resolve_scope(caller(projects=frozenset({"apollo"})), "apollo").project == "apollo"
    assert resolve_scope(caller(projects=None), "zeus").project == "zeus"
    for projects in (frozenset[str](), frozenset({"apollo"})):
        with pytest.raises(ProjectForbidden):
            resolve_scope(caller(projects=projects), "zeus")
        assert resolve_scope(caller(projects=projects), None).project is None


def test_nobody_has_a_scope_by_default_and_no_key_makes_an_operator() -> None:
    for scope in Scope:
        with pytest.raises(ScopeMissing, match=scope.value):
            caller().require(scope)
    assert not resolve_scope(caller(projects=None), None).whole_tenant
    operator = Principal.for_operator("acme", "olga")
    assert resolve_scope(operator, None).whole_tenant
    assert operator.principal_id == "operator:olga"
