"""`as_of` on every path that reads: what there was at an instant, for whoever may see it today."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.test import Client

from access.errors import Malformed, NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.quoting import QuoteOutcome
from knowledge.core.types import ConnectorIdentity, DocumentChange, Visibility
from knowledge.models import ChunkSet, DocumentVersion
from knowledge.retrieval.verify import Quote
from knowledge.wiring import store
from tests.rechunk_fakes import FinerChunker, later
from tests.support import admit, ask, bearer, principal

pytestmark = pytest.mark.django_db

SOURCE = ConnectorIdentity(type="wiki", id="pumps")
TICK = timedelta(microseconds=1)
OLGA = Principal.for_operator("acme", "olga")


@dataclass(frozen=True, slots=True)
class History:
    """A document of three versions, the second of which was divided anew.

    `sets` are its chunk sets in the order in which they were published: each one's version, first
    passage, and when it was published; it was replaced when the next one was.
    """

    document_id: UUID
    sets: tuple[tuple[int, str, datetime], ...]

    def at(self, moment: datetime) -> int | None:
        """Which of the sets was the one to be found."""
        published = [n for n, (_, _, since) in enumerate(self.sets) if since <= moment]
        return published[-1] if published else None


@pytest.fixture
def history(blob_root: Path) -> History:
    for word in ("quokka", "wombat"):
        result = admit(f"# Pumps\n\nThe {word} pump hums.\n", source=SOURCE, title="Pumps")
    later(chunker=FinerChunker("structure-2")).rechunk(result.document_id, OLGA)
    admit("# Pumps\n\nThe numbat pump hums.\n", source=SOURCE, title="Pumps")
    with tenant_session("acme"):
        sets = ChunkSet.objects.order_by("published_at").select_related("version")
        told = tuple(
            (one.finalized_version.version, one.chunks.get().chunk_id, one.published_at)
            for one in sets
            if one.published_at is not None
        )
    assert [version for version, _, _ in told] == [1, 2, 2, 3]
    return History(result.document_id, told)


def moments(history: History) -> list[datetime]:
    """Exactly when something happened, one microsecond to each side, and far away."""
    edges = [since for _, _, since in history.sets]
    near = [edge + step for edge in edges for step in (-TICK, timedelta(0), TICK)]
    return [*near, edges[0] - timedelta(days=365), edges[-1] + timedelta(days=365)]


def test_search_and_resolve_agree_at_every_boundary(history: History) -> None:
    for moment in moments(history):
        there = history.at(moment)
        expected = set() if there is None else {history.sets[there][1]}
        found = ask("pump hums", as_of=moment, max_passages=9).passages
        assert {passage.candidate.chunk_id for passage in found} == expected, moment
        for number, (version, chunk_id, since) in enumerate(history.sets):
            if since > moment:
                with pytest.raises(NotFound):
                    store().get_chunk(chunk_id, principal(), as_of=moment)
                continue
            assert there is not None
            newest = history.sets[there][0]
            chunk: Any = store().get_chunk(chunk_id, principal(), as_of=moment)
            assert chunk.live is (number == there)
            assert chunk.superseded_by_version == (newest if newest > version else None)
            # Of the second version the first division was replaced by the other one.
            divided_anew = number == 1 and since + TICK <= moment and there >= 2
            by = chunk.superseded_by_chunker_version
            assert (by is not None and "structure-2" in by) is divided_anew


def test_a_document_and_its_versions_are_those_of_then(client: Client, history: History) -> None:
    address = f"/v1/documents/{history.document_id}"
    for moment in moments(history):
        there = history.at(moment)
        query = urlencode({"as_of": moment.isoformat()})
        answers = [
            client.get(f"{where}?{query}", headers=bearer())
            for where in ("/v1/documents", address, f"{address}/versions")
        ]
        listed = answers[0].json()["results"]
        if there is None:
            assert [answer.status_code for answer in answers] == [200, 404, 404]
            assert listed == []
            continue
        newest = history.sets[there][0]
        (shown,) = listed
        detail, versions = answers[1].json(), answers[2].json()
        assert shown["version"] == detail["version"] == newest
        assert detail["versions"] == versions
        assert [one["version"] for one in versions] == list(range(newest, 0, -1))
        # Superseded is what was by then, at the very instant at which the next one came.
        assert versions[0]["superseded_at"] is None
        for newer, older in itertools.pairwise(versions):
            assert older["superseded_at"] == newer["ingested_at"]


def test_without_as_of_it_is_now(client: Client, history: History) -> None:
    (shown,) = client.get("/v1/documents", headers=bearer()).json()["results"]
    detail = client.get(f"/v1/documents/{history.document_id}", headers=bearer()).json()
    assert shown["version"] == detail["version"] == 3
    assert [one["superseded_at"] is None for one in detail["versions"]] == [True, False, False]


def test_instants_of_a_document_never_overlap_or_leave_a_gap(history: History) -> None:
    with tenant_session("acme"):
        versions = list(DocumentVersion.objects.order_by("version"))
    for former, latter in itertools.pairwise(versions):
        assert former.superseded_at == latter.ingested_at
        assert former.ingested_at < latter.ingested_at


def test_quotes_are_checked_against_what_was_there(history: History) -> None:
    (_, first, _), (_, second, since), (_, divided, anew), (_, third, _) = history.sets
    quotes = [Quote(chunk_id=first, text="quokka pump"), Quote(chunk_id=first, text="wombat pump")]

    def outcomes(as_of: datetime | None) -> list[tuple[QuoteOutcome, str | None]]:
        checked = store().verify_quotes(quotes, principal(), as_of=as_of)
        return [(one.outcome, one.chunk.chunk_id if one.chunk else None) for one in checked]

    exact, not_found = (QuoteOutcome.EXACT, first), (QuoteOutcome.NOT_FOUND, None)
    assert outcomes(history.sets[0][2] - TICK) == [not_found, not_found]
    assert outcomes(since - TICK) == [exact, not_found]
    assert outcomes(since) == [exact, (QuoteOutcome.MISATTRIBUTED, second)]
    assert outcomes(anew) == [exact, (QuoteOutcome.MISATTRIBUTED, divided)]
    assert outcomes(None) == [exact, not_found]
    (checked,) = store().verify_quotes(
        [Quote(chunk_id=third, text="numbat pump")], principal(), as_of=anew
    )
    assert checked.outcome is QuoteOutcome.NOT_FOUND


def test_quotes_as_of_an_instant_over_the_api(client: Client, history: History) -> None:
    _, first, since = history.sets[0]
    body = {
        "quotes": [{"chunk_id": first, "quote": "The quokka pump"}],
        "as_of": since.isoformat(),
    }
    answer = client.post(
        "/v1/tools/knowledge.verify_quote",
        body,
        content_type="application/json",
        headers=bearer(),
    )
    (checked,) = answer.json()["results"]
    assert checked["outcome"] == "exact"
    # As of then it was live, and superseded by nothing.
    assert (checked["found_in"]["live"], checked["found_in"]["superseded_by_version"]) == (
        True,
        None,
    )


def test_a_trace_is_of_the_instant_that_was_asked(client: Client, history: History) -> None:
    moment = history.sets[0][2]
    asked = ask("quokka", as_of=moment)
    address = f"/v1/traces/{asked.trace_id}"
    told = client.get(address, headers=bearer()).json()
    assert datetime.fromisoformat(told["as_of"]) == asked.as_of == moment
    assert (told["live"], told["block_state"]) == (False, "reproduced")
    now = client.get(f"/v1/traces/{ask('numbat').trace_id}", headers=bearer()).json()
    assert now["live"] is True
    # A trace is of its own instant and of no other.
    refused = client.get(f"{address}?as_of=2026-01-01T00:00:00Z", headers=bearer())
    assert refused.status_code == 400


def test_any_offset_names_the_same_instant(history: History) -> None:
    moment = history.sets[1][2]
    for hours in (-8, 0, 5.75, 14):
        zoned = moment.astimezone(timezone(timedelta(hours=hours)))
        (found,) = ask("pump", as_of=zoned).passages
        assert found.candidate.chunk_id == history.sets[1][1]
        chunk: Any = store().get_chunk(history.sets[0][1], principal(), as_of=zoned)
        assert chunk.superseded_by_version == 2


def test_who_may_see_it_is_decided_today(history: History) -> None:
    """And so is under what title: time travel is for texts, not for permission."""
    moment = history.sets[0][2]
    wanted = DocumentChange(title="Private", visibility=Visibility.PRINCIPAL)
    store().update(history.document_id, OLGA, wanted)
    shown = store().get_document(history.document_id, principal(), as_of=moment)
    assert (shown.title, shown.space.visibility) == ("Private", "principal")
    bob = principal("bob")
    for read in (
        lambda: store().get_document(history.document_id, bob, as_of=moment),
        lambda: store().get_chunk(history.sets[0][1], bob, as_of=moment),
    ):
        with pytest.raises(NotFound):
            read()


def test_a_page_s_next_page_is_of_the_same_instant(client: Client, blob_root: Path) -> None:
    made = [admit(f"# Note {n}\n\nText {n}.\n", filename=f"{n}.md") for n in range(5)]
    with tenant_session("acme"):
        then = DocumentVersion.objects.get(document=made[2].document_id).ingested_at
    zoned = then.astimezone(timezone(timedelta(hours=2))).isoformat()
    address: str | None = f"/v1/documents?{urlencode({'as_of': zoned, 'page_size': 2})}"
    listed = []
    while address:
        page = client.get(address, headers=bearer()).json()
        listed += [UUID(one["document_id"]) for one in page["results"]]
        address = page["next"]
    assert listed == [one.document_id for one in reversed(made[:3])]


# --- instants that are none ------------------------------------------------------------------

READS = (
    "/v1/documents",
    "/v1/documents/{document}",
    "/v1/documents/{document}/versions",
    "/v1/chunks/{chunk}",
)
NO_INSTANTS = (
    "2026-07-28T00:00:00+02:00",  # in a query string the plus is a space
    "2026-07-28T00:00:00",
    "2026-07-28",
    "2026-02-30T00:00:00Z",
    "yesterday",
    "",
    "null",
    "1700000000",
    "0001-01-01T00:00:00%2B14:00",
    "2026-07-28T00:00:00Z&as_of=2026-07-29T00:00:00Z",
)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("as_of", NO_INSTANTS)
def test_what_is_no_instant_is_refused_and_never_ignored(
    client: Client, blob_root: Path, read: str, as_of: str
) -> None:
    result = admit("# Pumps\n\nThe quokka pump hums.\n")
    address = read.format(document=result.document_id, chunk=result.chunk_ids[0])
    answer = client.get(f"{address}?as_of={as_of}", headers=bearer())
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert answer.json()["fields"][0]["field"] == "as_of"
    well = client.get(f"{address}?as_of=2126-07-28T00:00:00%2B02:00", headers=bearer())
    assert well.status_code == 200


@pytest.mark.parametrize(
    "as_of", ["2026-07-28T00:00:00", "yesterday", 1, "2026-07-28T00:00:00 02:00"]
)
def test_nor_in_a_body(client: Client, blob_root: Path, as_of: Any) -> None:
    result = admit("# Pumps\n\nThe quokka pump hums.\n")
    quote = {"chunk_id": result.chunk_ids[0], "quote": "pump"}
    for call, body in (
        ("knowledge.search", {"text": "pump", "as_of": as_of}),
        ("knowledge.verify_quote", {"quotes": [quote], "as_of": as_of}),
    ):
        answer = client.post(
            f"/v1/tools/{call}", body, content_type="application/json", headers=bearer()
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    "address",
    [
        "/v1/tools/knowledge.search?as_of=2026-07-28T00:00:00Z",
        "/v1/tools/knowledge.verify_quote?as_of=2026-07-28T00:00:00Z",
        "/v1/tools/knowledge.ingest?origin_trust=USER",
        "/v1/context/assemble?current_scope=apollo",
    ],
)
def test_a_call_with_a_body_takes_no_query_string(
    client: Client, blob_root: Path, address: str
) -> None:
    body = {"text": "pump"} if "search" in address else {}
    answer = client.post(address, body, content_type="application/json", headers=bearer())
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert answer.json()["fields"][0]["message"] == "There is no such member."


def test_a_change_and_a_deletion_are_of_now(client: Client, blob_root: Path) -> None:
    result = admit("# Pumps\n\nThe quokka pump hums.\n")
    address = f"/v1/documents/{result.document_id}?as_of=2026-07-28T00:00:00Z"
    for answer in (
        client.delete(address, headers=bearer()),
        client.patch(
            address,
            {"title": "x", "origin_trust": "USER"},
            content_type="application/json",
            headers=bearer(),
        ),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert ask("quokka").passages


def test_a_naive_instant_is_refused_below_the_api_too(history: History) -> None:
    naive = datetime.now(tz=UTC).replace(tzinfo=None)
    chunk_id = history.sets[0][1]
    for read in (
        lambda: ask("pump", as_of=naive),
        lambda: store().get_chunk(chunk_id, principal(), as_of=naive),
        lambda: store().get_document(history.document_id, principal(), as_of=naive),
        lambda: store().verify_quotes(
            [Quote(chunk_id=chunk_id, text="pump")], principal(), as_of=naive
        ),
    ):
        with pytest.raises(Malformed):
            read()
