"""What hosts tell of their answers: verdicts, idempotence, who may, and that nothing ranks by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client

from access.principal import Principal
from access.tenancy import operations_session
from access.trust import Scope
from knowledge.core.errors import CitationConflict
from knowledge.core.types import CitationVerdict, KnowledgeQuery, SearchResult, Visibility
from knowledge.models import Citation, CitedAnswer
from knowledge.retrieval.citations import Cited
from knowledge.wiring import store
from tests.support import admit, ask, bearer, principal

pytestmark = pytest.mark.django_db

ADDRESS = "/v1/citations"
NOTE = "# Start\n\nThe zebra pump starts by hand – “slowly”.\n\n# Stop\n\nThe valve stops it.\n"


@pytest.fixture
def searched(blob_root: Path) -> SearchResult:
    admit(NOTE, title="Pumps")
    admit("A wallaby sleeps in the shade.", title="Elsewhere", filename="elsewhere.md")
    return ask("zebra pump")


def told(client: Client, body: dict[str, Any], **headers: str) -> Any:
    return client.post(ADDRESS, body, content_type="application/json", headers=headers or bearer())


def chunk_of(words: str) -> str:
    return ask(words).passages[0].candidate.chunk_id


def verdicts(searched: SearchResult, *cited: Cited, by: Principal | None = None) -> list[str]:
    recorded = store().record_answer(
        searched.trace_id,
        by or principal(),
        answered=True,
        citations=cited,
        answer_id=uuid4().hex,
    )
    return [str(verdict) for _, verdict in recorded.citations]


def test_the_shape_and_once_is_enough(client: Client, searched: SearchResult) -> None:
    chunk_id = searched.passages[0].candidate.chunk_id
    body = {
        "trace_id": str(searched.trace_id),
        "answer_id": "answer-7",
        "answered": True,
        "citations": [{"chunk_id": chunk_id, "quote": "The zebra pump"}, {"chunk_id": chunk_id}],
    }
    headers = bearer()
    first = told(client, body, **headers)
    assert first.status_code == 201
    answer = first.json()
    assert answer["citations"] == [
        {"chunk_id": chunk_id, "verdict": "exact"},
        {"chunk_id": chunk_id, "verdict": "unquoted"},
    ]
    assert (answer["answer_id"], answer["already_recorded"]) == ("answer-7", False)
    again = told(client, body, **headers)
    assert (again.status_code, again.json()) == (200, {**answer, "already_recorded": True})
    other = told(client, {**body, "citations": []}, **headers)
    assert (other.status_code, other.json()["code"]) == (409, "citation_conflict")
    assert told(client, {**body, "answer_id": "answer-8"}, **headers).status_code == 201
    with operations_session():
        assert CitedAnswer.objects.count() == 2
        assert {answer.cited for answer in CitedAnswer.objects.all()} == {1}
        assert Citation.objects.count() == 4


def test_a_verdict_stays_what_it_was(searched: SearchResult) -> None:
    chunk_id = searched.passages[0].candidate.chunk_id
    asked = {"answered": True, "citations": [Cited(chunk_id=chunk_id, quote="zebra pump")]}
    store().record_answer(searched.trace_id, principal(), **asked)  # type: ignore[arg-type]
    store().delete(searched.passages[0].candidate.document_id, principal())
    again = store().record_answer(searched.trace_id, principal(), **asked)  # type: ignore[arg-type]
    assert again.already_recorded
    assert [verdict for _, verdict in again.citations] == [CitationVerdict.EXACT]
    # Told anew of another answer, there is nothing to check it against any more.
    assert verdicts(searched, *asked["citations"]) == ["unknown"]  # type: ignore[misc]


def test_each_verdict(searched: SearchResult) -> None:
    pump, wallaby = searched.passages[0].candidate.chunk_id, chunk_of("wallaby sleeps")
    assert verdicts(
        searched,
        Cited(chunk_id=pump, quote="The zebra pump starts by hand"),
        Cited(chunk_id=pump, quote='the ZEBRA pump  starts by hand - "slowly"'),
        Cited(chunk_id=pump, quote="A wallaby sleeps"),
        Cited(chunk_id=pump, quote="The zebra pump starts by itself"),
        Cited(chunk_id=pump),
        Cited(chunk_id=wallaby, quote="A wallaby sleeps"),
        Cited(chunk_id="kc_0123456789abcdef"),
        Cited(chunk_id="Section 3 of the manual", quote="The zebra pump"),
    ) == [
        "exact",
        "normalised",
        "misattributed",
        "not_found",
        "unquoted",
        "not_in_block",
        "unknown",
        "unknown",
    ]


def test_neither_quotes_nor_other_words_are_kept(searched: SearchResult) -> None:
    pump = searched.passages[0].candidate.chunk_id
    verdicts(
        searched,
        Cited(chunk_id=pump, quote="The zebra pump starts by hand"),
        Cited(chunk_id="see the okapi page", quote="an okapi"),
    )
    with operations_session(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT string_agg(a::text, '') || string_agg(c::text, '')"
            " FROM knowledge_citedanswer a JOIN knowledge_citation c ON c.answer_id = a.id"
        )
        (kept,) = cursor.fetchone()
    assert pump in kept
    assert not [word for word in ("zebra", "okapi", "hand") if word in kept]


def test_what_may_not_be_seen_is_like_what_never_was(blob_root: Path) -> None:
    admit(NOTE, title="Pumps")
    hers = admit(
        "The zebra vault is in the cellar.",
        by=principal("carol"),
        filename="hers.md",
        visibility=Visibility.PRINCIPAL,
    )
    searched = ask("zebra pump")
    cited = [
        Cited(chunk_id=hers.chunk_ids[0], quote="The zebra vault"),
        Cited(chunk_id=hers.chunk_ids[0]),
        Cited(chunk_id="kc_0123456789abcdef"),
    ]
    assert verdicts(searched, *cited) == ["unknown"] * 3
    # Nor is what only she may see named as what a quote is really from.
    pump = searched.passages[0].candidate.chunk_id
    assert verdicts(searched, Cited(chunk_id=pump, quote="The zebra vault")) == ["not_found"]


def test_a_citation_is_judged_in_the_project_of_its_search(blob_root: Path) -> None:
    admit(NOTE, visibility=Visibility.PROJECT)
    searched = ask("zebra pump", current_scope="apollo")
    cited = Cited(chunk_id=searched.passages[0].candidate.chunk_id, quote="The zebra pump")
    assert verdicts(searched, cited) == ["exact"]
    # A key that may not name the project any more does not see what it held.
    assert verdicts(searched, cited, by=principal(projects=frozenset())) == ["unknown"]


def test_only_who_asked_or_an_auditor_of_the_tenant(client: Client, searched: SearchResult) -> None:
    body = {"trace_id": str(searched.trace_id), "answered": False}
    missing = told(client, {**body, "trace_id": str(uuid4())})
    assert missing.status_code == 404
    audit = (Scope.AUDIT,)
    for headers in (bearer("bob"), bearer("eve", tenant="rival", scopes=audit)):
        answer = told(client, body, **headers)
        assert (answer.status_code, answer.content) == (404, missing.content)
    assert told(client, body, **bearer("bob", scopes=audit)).status_code == 201


@pytest.mark.parametrize(
    "wrong",
    [
        {"answered": False, "citations": [{"chunk_id": "kc_0123456789abcdef"}]},
        {"answered": True, "citations": [{"chunk_id": "kc_0123456789abcdef"}] * 51},
        {"answered": True, "citations": [{"chunk_id": "kc_0123456789abcdef", "quote": " "}]},
        {"answered": True, "citations": [{"quote": "zebra"}]},
        {"answered": True, "rating": 5},
        {},
    ],
)
def test_what_is_malformed_is_refused(
    client: Client, searched: SearchResult, wrong: dict[str, Any]
) -> None:
    answer = told(client, {"trace_id": str(searched.trace_id), **wrong})
    assert answer.status_code == 400
    with operations_session():
        assert not CitedAnswer.objects.exists()


def test_a_search_with_nothing_to_cite_is_told_of_too(blob_root: Path) -> None:
    searched = ask("zebra pump")
    recorded = store().record_answer(searched.trace_id, principal(), answered=False)
    assert (recorded.answer.cited, recorded.answer.answered) == (0, False)
    with pytest.raises(CitationConflict):
        store().record_answer(searched.trace_id, principal(), answered=True)


def test_a_thousand_citations_change_no_search(blob_root: Path) -> None:
    for number in range(6):
        admit(f"The zebra pump of hall {number} turns at {number}.", title=f"Hall {number}")
    asked = KnowledgeQuery(text="zebra pump hall", max_passages=3, min_score=0.0)

    def found() -> list[tuple[str, float, Any]]:
        result = store().search(asked, principal())
        ranked = [(p.candidate.chunk_id, p.score, p.terms) for p in result.passages]
        return ranked + [(left.chunk_id, left.score, left.terms) for left in result.omitted]

    before = found()
    searched = store().search(asked, principal())
    last = Cited(chunk_id=searched.passages[-1].candidate.chunk_id)
    for number in range(20):
        store().record_answer(
            searched.trace_id,
            principal(),
            answered=True,
            citations=[last] * 50,
            answer_id=f"answer {number}",
        )
    with operations_session():
        assert Citation.objects.count() == 1_000
    # Letter for letter, but for recency: midnight may pass between the two.
    assert found() == before
