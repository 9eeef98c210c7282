"""Quotes checked against the passages they are ascribed to, through the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from access.trust import Scope, Sensitivity
from knowledge.core.types import Visibility
from tests.support import admit, bearer, principal

pytestmark = pytest.mark.django_db

VERIFY = "/v1/tools/knowledge.verify_quote"
PUMPS = "# Pumps\n\n## Start\n\nThe zebra pump is started\nby hand at “noon”.\n"
VALVES = "# Valves\n\nThe okapi valve closes at midnight and stays shut.\n"


@pytest.fixture
def chunks(blob_root: Path) -> dict[str, str]:
    return {
        title: admit(text, title=title, media_type="text/markdown").chunk_ids[0]
        for title, text in (("Pumps", PUMPS), ("Valves", VALVES))
    }


def verified(client: Client, *quotes: tuple[str, str], **given: Any) -> list[dict[str, Any]]:
    headers = given.pop("headers", None) or bearer()
    body = {"quotes": [{"chunk_id": c, "quote": q} for c, q in quotes], **given}
    answer = client.post(VERIFY, body, content_type="application/json", headers=headers)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_the_four_outcomes(client: Client, chunks: dict[str, str]) -> None:
    pumps, valves = chunks["Pumps"], chunks["Valves"]
    exact, alike, elsewhere, nowhere = verified(
        client,
        (pumps, "by hand at “noon”."),
        (pumps, 'the ZEBRA pump is started by hand at "noon"'),
        (pumps, "closes at midnight"),
        (pumps, "The zebra pump starts by itself."),
    )
    assert (exact["outcome"], alike["outcome"]) == ("exact", "normalised")
    text = exact["found_in"]["text"]
    assert text[exact["start"] : exact["end"]] == "by hand at “noon”."
    assert (exact["line_start"], exact["line_end"]) == (6, 6)
    assert (alike["line_start"], alike["line_end"]) == (5, 6)
    assert alike["found_in"]["chunk_id"] == pumps

    assert elsewhere["outcome"] == "misattributed"
    assert elsewhere["chunk_id"] == pumps
    assert elsewhere["found_in"]["chunk_id"] == valves
    words = elsewhere["found_in"]["text"][elsewhere["start"] : elsewhere["end"]]
    assert words == "closes at midnight"

    assert nowhere["outcome"] == "not_found"
    assert {nowhere[name] for name in ("start", "end", "line_start", "line_end", "found_in")} == {
        None
    }


def test_a_superseded_passage_still_says_what_it_said(client: Client, blob_root: Path) -> None:
    first = admit(PUMPS, title="Pumps", media_type="text/markdown")
    admit(
        PUMPS.replace("noon", "dusk"),
        title="Pumps",
        media_type="text/markdown",
        document_id=first.document_id,
    )
    (old,) = verified(client, (first.chunk_ids[0], "by hand at “noon”."))
    assert (old["outcome"], old["found_in"]["live"]) == ("exact", False)
    # Nothing that is live says so any more: a quote is only found elsewhere in the present.
    (gone,) = verified(client, ("kc_0000000000000000", "by hand at “noon”."))
    assert gone["outcome"] == "not_found"


def test_what_may_not_be_seen_is_as_if_it_did_not_exist(client: Client, blob_root: Path) -> None:
    secretly = principal("bob", scopes=frozenset({Scope.WRITE}))
    hidden = admit(PUMPS, by=secretly, visibility=Visibility.PRINCIPAL).chunk_ids[0]
    foreign = admit(VALVES, by=principal("eve", tenant="rival")).chunk_ids[0]
    never = "kc_0000000000000000"
    for quote in ("by hand at “noon”.", "closes at midnight"):
        answers = verified(client, (hidden, quote), (foreign, quote), (never, quote))
        assert [{**answer, "chunk_id": ""} for answer in answers] == [
            {**answers[2], "chunk_id": ""}
        ] * 3
        assert answers[2]["outcome"] == "not_found"


def test_a_passage_above_the_ceiling_holds_nothing(client: Client, blob_root: Path) -> None:
    high = admit(PUMPS, sensitivity=Sensitivity.CONFIDENTIAL).chunk_ids[0]
    (seen,) = verified(
        client, (high, "started"), headers=bearer(sensitivity_ceiling=Sensitivity.CONFIDENTIAL)
    )
    (unseen,) = verified(
        client, (high, "started"), headers=bearer(sensitivity_ceiling=Sensitivity.INTERNAL)
    )
    assert (seen["outcome"], unseen["outcome"]) == ("exact", "not_found")


def test_answers_are_the_same_every_time(client: Client, chunks: dict[str, str]) -> None:
    for number in range(3):
        admit(f"Notes {number}: {VALVES}", title=f"copy {number}")
    asked = (chunks["Pumps"], "closes at midnight")
    first = verified(client, asked)
    assert first[0]["outcome"] == "misattributed"
    assert all(verified(client, asked) == first for _ in range(3))


@pytest.mark.parametrize(
    "quotes",
    [
        [],
        [{"chunk_id": "kc_x", "quote": " \n"}],
        [{"chunk_id": "kc_x", "quote": ""}],
        [{"chunk_id": "kc_x"}],
        [{"chunk_id": "kc_x", "quote": "a", "page": 3}],
        [{"chunk_id": "kc_x", "quote": "a\x00b"}],
        [{"chunk_id": "kc_x", "quote": "a"}] * 51,
        [{"chunk_id": "kc_x", "quote": "a" * 20_001}],
    ],
)
def test_what_is_no_quote_is_malformed(
    client: Client, blob_root: Path, quotes: list[dict[str, Any]]
) -> None:
    answer = client.post(
        VERIFY, {"quotes": quotes}, content_type="application/json", headers=bearer()
    )
    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed"
