"""Near-duplicates of two tenants, and of people within one: nobody is shown another's."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from django.db import connection

from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.types import Visibility
from knowledge.semantic import arm
from tests.semantic.conftest import Semantic
from tests.support import admit, ask, principal

_THINGS = ("car", "couch", "doctor", "pump", "valve", "tree", "harbour", "ledger")
_DEEDS = ("waits", "sleeps", "turns", "hums", "leaks", "stands")
_ASKED = ("automobile", "sofa", "physician", "vehicle", *_THINGS, *_DEEDS)


def near_duplicates(count: int) -> dict[Principal, set[UUID]]:
    """The same sentences in both tenants and for several people; who may see which documents."""
    callers = [principal(who, tenant) for tenant in ("acme", "globex") for who in ("alice", "bob")]
    seen: dict[Principal, set[UUID]] = {caller: set() for caller in callers}
    dice = random.Random(8)
    for _ in range(count):
        sentence = f"The {dice.choice(_THINGS)} {dice.choice(_DEEDS)} in hall {dice.randrange(9)}."
        for caller in callers:
            shared = dice.random() < 0.5
            visibility = Visibility.TENANT if shared else Visibility.PRINCIPAL
            # A word more or less, so that each is a document of its own.
            text = f"{sentence} {caller.tenant_id} {caller.principal_id}{dice.randrange(999)}.\n"
            made = admit(text, by=caller, visibility=visibility)
            for other in callers:
                if other is caller or (shared and other.tenant_id == caller.tenant_id):
                    seen[other].add(made.document_id)
    return seen


def leaks(seen: dict[Principal, set[UUID]], searches: int) -> tuple[int, int]:
    """Documents that a caller was told of and may not see, and how many were told of at all."""
    dice, callers = random.Random(9), list(seen)
    foreign = told = 0
    for _ in range(searches):
        caller = dice.choice(callers)
        found = ask(" ".join(dice.sample(_ASKED, 3)), by=caller, max_passages=10)
        named = [one.candidate.document_id for one in found.passages]
        named += [one.document_id for one in found.omitted]
        foreign += sum(document not in seen[caller] for document in named)
        told += len(named)
    return foreign, told


@pytest.mark.long
@pytest.mark.parametrize("small_view", [0, 10_000], ids=["walked", "compared"])
def test_no_leak_in_a_thousand_searches(semantic: Semantic, small_view: int) -> None:
    semantic.use(semantic.embedder, small_view=small_view)
    semantic.switch_on("globex")
    seen = near_duplicates(30)
    foreign, told = leaks(seen, 500)
    assert told > 5_000
    assert foreign == 0


def test_a_search_without_its_space_predicate_returns_nothing_foreign(
    semantic: Semantic, monkeypatch: pytest.MonkeyPatch
) -> None:
    semantic.switch_on("globex")
    seen = near_duplicates(3)
    forgetful = arm._EXACT.replace("AND v.space = ANY (%(spaces)s::int[])", "")
    assert forgetful != arm._EXACT
    monkeypatch.setattr(arm, "_EXACT", forgetful)
    foreign, told = leaks(seen, 20)
    assert told
    assert foreign == 0


def test_a_tenants_session_turns_vectors_into_its_own_passages_only(semantic: Semantic) -> None:
    near_duplicates(2)
    with tenant_session("acme"), connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT c.tenant_id FROM semantic_chunk_vector v"
            " JOIN knowledge_chunk c ON c.id = v.chunk"
        )
        assert cursor.fetchall() == [("acme",)]
