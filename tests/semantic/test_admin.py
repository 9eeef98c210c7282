"""What the admin shows of models, vectors and switches; and that nothing of it is another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.urls import reverse

from access.principal import Principal
from access.tenancy import operations_session
from access.trust import OriginTrust
from knowledge.core.types import DocumentChange
from knowledge.models import ArmSwitch, Chunk
from knowledge.semantic import spaces
from knowledge.semantic.models import EmbeddingSpace
from knowledge.wiring import store
from tests.admin_world import (
    FACTORIES,
    PLAUSIBLE,
    Address,
    addresses,
    an_arm_switch,
    state_of_everything,
)
from tests.db import test_admin_crawl as crawl
from tests.factories import make_operator, make_superuser
from tests.semantic.conftest import Semantic
from tests.semantic.embedders import WordsEmbedder
from tests.support import admit, ask, principal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

OURS = (ArmSwitch, EmbeddingSpace)


def of_ours() -> Iterator[Address]:
    return (address for address in addresses() if address.model in OURS)


@pytest.fixture
def ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the admin is crawled where there is no semantic arm."""

    def rows(tenant: str, word: str) -> dict[Any, Any]:
        return {model: FACTORIES[model](tenant, word) for model in OURS}

    monkeypatch.setattr(crawl, "addresses", of_ours)
    monkeypatch.setattr(crawl, "one_of_everything", rows)
    monkeypatch.setattr(crawl, "FACTORIES", {})


def page(client: Client, row: Any) -> str:
    options = row._meta
    name = f"admin:{options.app_label}_{options.model_name}_change"
    return client.get(reverse(name, args=[row.pk])).content.decode()


def listed(client: Client) -> str:
    return client.get(reverse("admin:semantic_embeddingspace_changelist")).content.decode()


def facts(body: str) -> str:
    return " ".join(body.partition('<div id="content-main">')[2].split())


def test_every_registered_model_has_a_row_to_crawl_with() -> None:
    assert set(FACTORIES) == set(admin.site._registry)


@pytest.mark.usefixtures("ours_alone")
@pytest.mark.parametrize(
    "crawled",
    [
        crawl.test_every_address_of_a_foreign_row_is_the_404_of_one_that_never_was,
        crawl.test_no_list_shows_or_finds_a_foreign_row,
        pytest.param(crawl.test_no_list_finds_a_foreign_row_by_any_field, marks=pytest.mark.long),
        crawl.test_no_page_holds_a_script_a_style_or_an_unescaped_word,
    ],
)
def test_nothing_foreign_and_nothing_that_runs(crawled: Callable[[], None]) -> None:
    crawled()


def test_whoever_may_do_everything_changes_nothing_here() -> None:
    rows: dict[Any, Any] = {model: FACTORIES[model]("acme", "ours") for model in OURS}
    everything = crawl.signed_in(make_operator("acme", "everything"))
    before = state_of_everything()
    for address in of_ours():
        path = address.path(address.key_of(rows))
        answers = [everything.get(path).status_code, everything.post(path, PLAUSIBLE).status_code]
        assert set(answers) <= {200, 302, 403, 405}, address
        assert state_of_everything() == before, address


def test_a_space_says_how_many_passages_of_the_tenant_have_a_vector(semantic: Semantic) -> None:
    done = [admit(f"The car number {one} waits.\n", title=f"Car {one}") for one in range(3)]
    admit("A car of theirs.\n", by=principal(tenant="globex"))
    following = WordsEmbedder("words-2", dimensions=192)
    semantic.use(semantic.embedder, following)
    spaces.made(following.model, dimensions=following.dimensions)
    live, filling = EmbeddingSpace.objects.order_by("pk")
    alice = crawl.signed_in(make_operator("acme"))
    assert "words-2" not in listed(alice), "it holds nothing of theirs yet"
    store().embed(Principal.for_operator("acme", "olga"))
    assert "words-2" in listed(alice)
    assert "With a vector</dt><dd>3</dd>" in facts(page(alice, filling))
    retitled = DocumentChange(title="Couch", origin_trust=OriginTrust.USER)
    store().update(done[0].document_id, principal(), retitled)
    shown = facts(page(alice, live))
    assert "Passages of yours</dt><dd>3</dd>" in shown
    assert "With a vector</dt><dd>3</dd>" in shown
    assert "Without one</dt><dd>0</dd>" in shown
    assert "Of a former title</dt><dd>1</dd>" in shown
    assert "Size of the graph" not in shown, "it is over the vectors of all tenants"
    shown = facts(page(crawl.signed_in(make_superuser()), live))
    assert "Passages</dt><dd>4</dd>" in shown
    assert "Size of the graph" in shown


def test_a_switch_says_since_when_and_by_what(semantic: Semantic) -> None:
    switch = an_arm_switch("acme", "words-1")
    admit("The car waits.\n")
    alice = crawl.signed_in(make_operator("acme"))
    shown = facts(page(alice, switch))
    (space,) = spaces.known()
    assert f'href="{reverse("admin:semantic_embeddingspace_change", args=[space.number])}"' in shown
    assert '<th scope="row">nDCG@10</th> <td class="number">0.500</td>' in shown
    assert '<td class="number">0.520</td>' in shown
    assert "Lift of nDCG@10: +0.020" in shown
    back = facts(page(alice, EmbeddingSpace.objects.get(pk=space.number)))
    assert f'href="{reverse("admin:knowledge_armswitch_change", args=[switch.pk])}"' in back


def test_a_document_says_which_passages_lack_a_vector(semantic: Semantic) -> None:
    filler = "Words that fill a section up. " * 40
    done = admit(f"# One\n\nThe car waits. {filler}\n\n# Two\n\nThe tree bends. {filler}\n")
    alice = crawl.signed_in(make_operator("acme"))
    address = reverse("admin:knowledge_document_change", args=[done.document_id])
    shown = facts(alice.get(address).content.decode())
    assert "2 of 2 passages" in shown
    assert "no vector yet" not in shown
    with operations_session(), connection.cursor() as cursor:
        first = Chunk.objects.earliest("ordinal")
        cursor.execute("DELETE FROM semantic_chunk_vector WHERE chunk = %s", [first.pk])
    shown = facts(alice.get(address).content.decode())
    assert "1 of 2 passages" in shown
    assert shown.count("no vector yet") == 1
    retitled = DocumentChange(title="Couch", origin_trust=OriginTrust.USER)
    store().update(done.document_id, principal(), retitled)
    assert facts(alice.get(address).content.decode()).count("vector of a former title") == 1


def test_a_trace_says_which_arms_were_on(semantic: Semantic) -> None:
    admit("The car waits.\n")
    alice = crawl.signed_in(make_operator("acme"))
    for down, said in ((False, "lexical, semantic"), (True, "lexical")):
        semantic.embedder.down = down
        trace = reverse("admin:knowledge_recalltrace_change", args=[ask("car").trace_id])
        shown = facts(alice.get(trace).content.decode())
        assert f"<dt>Arms</dt><dd> {said} " in shown
        assert ("without semantic" in shown) is down
