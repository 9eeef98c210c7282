"""Vectors follow their chunks: through versions, scopes, titles, quarantine and deletion."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust
from knowledge.adapters import catalogue
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.types import DocumentChange, PassageVector, RechunkRequest, Verdict, Visibility
from knowledge.lifecycle.pii_policy import set_pii_policy
from knowledge.models import Chunk, ChunkSet, VisibilitySpace
from knowledge.semantic import spaces
from knowledge.semantic.vectors import PostgresVectors
from knowledge.wiring import store
from tests.semantic.conftest import Semantic, moment
from tests.support import admit, ask, principal, texts

pytestmark = pytest.mark.usefixtures("semantic")

OLGA = Principal.for_operator("acme", "olga")
CAR = "# Garage\n\nThe car waits behind the house.\n"


def rows() -> list[dict[str, Any]]:
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT chunk, embedding, space, live, digest = '' FROM semantic_chunk_vector"
            " ORDER BY chunk, embedding"
        )
        names = ("chunk", "embedding", "space", "live", "outdated")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def numbers(document_id: UUID) -> set[int]:
    with operations_session():
        return set(
            Chunk.objects.filter(chunk_set__version__document_id=document_id).values_list(
                "pk", flat=True
            )
        )


def test_an_ingest_writes_one_vector_a_chunk_and_shows_it_when_it_is_live() -> None:
    done = admit(CAR)
    (row,) = rows()
    assert {row["chunk"]} == numbers(done.document_id)
    assert row["live"]
    assert not row["outdated"]
    with operations_session():
        assert row["space"] == VisibilitySpace.objects.get().pk
    (space,) = spaces.known()
    assert (space.model, space.dimensions, space.state) == ("words-1", 256, "live")


def test_title_and_headings_are_embedded_with_the_text(semantic: Semantic) -> None:
    admit("# Garage\n\n## Cellar\n\nThe car waits.\n", title="House rules")
    assert semantic.embedder.embedded == ["House rules\nGarage\nCellar\nThe car waits."]


def test_as_of_an_earlier_instant_the_former_version_is_found_by_meaning() -> None:
    first = admit("# Garage\n\nThe car waits.\n")
    before = moment()
    admit("# Garden\n\nThe tree bends.\n", document_id=first.document_id)
    assert [row["live"] for row in rows()] == [False, True]
    assert texts(ask("automobile")) == []
    assert texts(ask("automobile", as_of=before)) == ["The car waits."]


def test_a_rescoped_document_is_found_by_meaning_where_it_is_now() -> None:
    done = admit(CAR)
    store().update(
        done.document_id,
        principal(),
        DocumentChange(visibility=Visibility.PRINCIPAL, origin_trust=OriginTrust.USER),
    )
    assert texts(ask("automobile", by=principal("bob"))) == []
    assert texts(ask("automobile")) == ["The car waits behind the house."]


def test_vectors_of_former_versions_are_rescoped_as_well() -> None:
    first = admit("# Garage\n\nThe car waits.\n")
    before = moment()
    admit("# Garden\n\nThe tree bends.\n", document_id=first.document_id)
    assert texts(ask("automobile", by=principal("bob"), as_of=before)) == ["The car waits."]
    private = DocumentChange(visibility=Visibility.PRINCIPAL, origin_trust=OriginTrust.USER)
    store().update(first.document_id, principal(), private)
    with operations_session():
        (of_alice,) = VisibilitySpace.objects.filter(visibility=Visibility.PRINCIPAL)
    assert {row["space"] for row in rows()} == {of_alice.pk}
    assert texts(ask("automobile", by=principal("bob"), as_of=before)) == []
    assert texts(ask("automobile", as_of=before)) == ["The car waits."]


def test_another_title_is_embedded_in_time(semantic: Semantic) -> None:
    done = admit(CAR)
    retitled = DocumentChange(title="The couch", origin_trust=OriginTrust.USER)
    store().update(done.document_id, principal(), retitled)
    assert [row["outdated"] for row in rows()] == [True]
    assert texts(ask("automobile")), "until then it is found as before"
    (report,) = store().embed(OLGA)
    assert (report.embedded, report.missing) == (1, 0)
    assert semantic.embedder.embedded[-1].startswith("The couch\n")
    assert [row["outdated"] for row in rows()] == [False]
    assert texts(ask("sofa"))


def test_a_new_version_embeds_only_what_changed(semantic: Semantic) -> None:
    parts = [
        f"# Part {n}\n\nThe car number {n} waits. {'Filler words. ' * 60}\n\n" for n in range(4)
    ]
    first = admit("".join(parts))
    assert len(semantic.embedder.embedded) == 4
    parts[2] = f"# Part 2\n\nAnother car entirely. {'Filler words. ' * 60}\n\n"
    second = admit("".join(parts), document_id=first.document_id)
    assert second.version == 2
    assert len(semantic.embedder.embedded) == 5
    assert "Another car" in semantic.embedder.embedded[-1]
    assert sum(row["live"] for row in rows()) == 4


def test_what_one_tenant_embedded_is_no_others(semantic: Semantic) -> None:
    admit(CAR)
    admit(CAR, by=principal(tenant="globex"))
    assert len(semantic.embedder.embedded) == 2
    with operations_session(), connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT digest) FROM semantic_chunk_vector")
        assert cursor.fetchone() == (2,), "not even the digests are equal"


def test_the_cache_goes_with_its_last_chunk(semantic: Semantic) -> None:
    first, second = admit(CAR), admit(CAR, by=principal("bob"))
    assert first.document_id != second.document_id
    assert len(semantic.embedder.embedded) == 1
    store().delete(first.document_id, principal())
    assert len(rows()) == 1
    store().delete(second.document_id, principal("bob"))
    assert rows() == []
    admit(CAR)
    assert len(semantic.embedder.embedded) == 2


def test_a_deletion_counts_vectors_and_verifies_that_none_is_left() -> None:
    first = admit(CAR)
    admit("# Garage\n\nThe car is gone.\n", document_id=first.document_id)
    kept = admit("# Garden\n\nThe tree bends.\n")
    receipt = store().delete(first.document_id, principal())
    assert receipt.embeddings == 2
    assert receipt.left["embeddings"] == 0
    assert {row["chunk"] for row in rows()} == numbers(kept.document_id)
    told = store().verify_deletion(first.document_id, OLGA, CAR.splitlines())
    assert not told.left


def test_verify_deletion_looks_for_vectors_by_number() -> None:
    """None can be left: the database takes them with the chunk. It is looked for all the same."""
    columns = {
        (table, column.name): column.kind
        for table, found, _ in catalogue.tables()
        for column in found
    }
    assert columns["semantic_chunk_vector", "chunk"] is catalogue.Kind.NUMBER


def test_vectors_go_even_where_nothing_asks_them_to() -> None:
    """An installation that had an embedder once still deletes for real."""
    done = admit(CAR)
    object.__setattr__(store(), "ingestor", _without_embedding())
    store().delete(done.document_id, principal())
    assert rows() == []


def test_a_quarantined_passage_has_no_vector_and_can_have_none(semantic: Semantic) -> None:
    set_pii_policy(PiiRules(verdicts={Detector.EMAIL: Verdict.QUARANTINE}), OLGA)
    filler = "Words that fill a section up. " * 40
    admit(f"# One\n\nThe car waits. {filler}\n\n# Two\n\nAsk ann.lee@firma.de. {filler}\n")
    assert not any("ann.lee" in text for text in semantic.embedder.embedded)
    with operations_session():
        aside = Chunk.objects.get(verdict=Verdict.QUARANTINE)
    assert aside.pk not in {row["chunk"] for row in rows()}
    vector = PassageVector(digest=b"x", vector=[1.0] * 256)
    with pytest.raises(IntegrityError), tenant_session("acme"), transaction.atomic():
        PostgresVectors().write({aside.pk: vector}, model="words-1")
    store().release_chunk(aside.chunk_id, OLGA, reason="hers to give")
    assert aside.pk in {row["chunk"] for row in rows() if row["live"]}


def test_a_passage_of_a_superseded_version_is_released_into_the_past() -> None:
    set_pii_policy(PiiRules(verdicts={Detector.EMAIL: Verdict.QUARANTINE}), OLGA)
    filler = "Words that fill a section up. " * 40
    first = admit(f"# One\n\nThe car waits. {filler}\n\n# Two\n\nAsk ann.lee@firma.de. {filler}\n")
    admit("# Garden\n\nThe tree bends.\n", document_id=first.document_id)
    with operations_session():
        aside = Chunk.objects.get(verdict=Verdict.QUARANTINE)
    store().release_chunk(aside.chunk_id, OLGA, reason="hers to give")
    live = {row["chunk"] for row in rows() if row["live"]}
    with operations_session():
        assert live == set(
            Chunk.objects.filter(chunk_set__version__superseded_at__isnull=True).values_list(
                "pk", flat=True
            )
        )


def test_a_rechunking_hides_the_former_vectors_and_shows_the_new(semantic: Semantic) -> None:
    done = admit(
        "".join(f"# Part {n}\n\nThe car number {n}. {'Words. ' * 150}\n" for n in range(5))
    )
    before = len(semantic.embedder.embedded)
    store().rechunk(done.document_id, OLGA, RechunkRequest(profile="chat"))
    with operations_session():
        live = ChunkSet.objects.get(state="live")
        expected = set(live.chunks.values_list("pk", flat=True))
    assert {row["chunk"] for row in rows() if row["live"]} == expected
    assert len(semantic.embedder.embedded) >= before


WRONG = {
    "vector that is live or not, wrongly": "live = NOT live",
    "vector in another space": "space = space + 1",
    "vector of other words": "digest = sha256('other words')",
}


@pytest.mark.parametrize("problem", WRONG)
def test_a_verification_of_the_corpus_looks_at_vectors(problem: str) -> None:
    first = admit("# Garage\n\nThe car waits.\n")
    admit("# Garden\n\nThe tree bends.\n", document_id=first.document_id)
    retitled = DocumentChange(title="Couch", origin_trust=OriginTrust.USER)
    store().update(first.document_id, principal(), retitled)
    assert store().verify_corpus("acme").clean, "what is outdated is made anew in time"
    store().embed(OLGA)
    assert store().verify_corpus("acme").clean
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE semantic_chunk_vector SET {WRONG[problem]} WHERE NOT live")
        former = Chunk.objects.get(chunk_set__version__version=1).chunk_id
    report = store().verify_corpus("acme")
    assert [(one.problem, one.of) for one in report.findings] == [(problem, former)]


def _without_embedding() -> Any:
    from dataclasses import replace  # noqa: PLC0415 - one line of it

    return replace(store().ingestor, embedding=None)
