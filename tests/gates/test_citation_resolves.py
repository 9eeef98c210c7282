"""Gate: every chunk id in a rendered block leads to a chunk whose text holds what was quoted."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.db.models import F
from django.test import Client

from access.principal import Principal
from access.tenancy import operations_session
from knowledge.core.rendering import parse_block
from knowledge.core.types import ConnectorIdentity, SearchResult, Visibility
from knowledge.lifecycle.retention import retain_traces
from knowledge.models import RecallTrace, TracedPassage
from knowledge.wiring import store
from tests.rechunk_fakes import FinerChunker, later
from tests.support import admit, ask, bearer, principal

WORDS = ["pump", "valve", "hose", "gauge", "filter", "motor", "timer", "switch", "tank", "pipe"]


def section(chance: random.Random, number: int) -> str:
    words = " ".join(chance.choice(WORDS) for _ in range(120))
    return f"## Part {number}\n\nThe zebra says: {words}.\n\n"


def document(seed: int, parts: int = 6) -> str:
    chance = random.Random(seed)
    return f"# Notes {seed}\n\n" + "".join(section(chance, number) for number in range(parts))


def resolved(answer: SearchResult, **given: Any) -> list[Any]:
    """Each passage of a block looked up by the id that stands in the block and nothing else."""
    chunks = []
    for shown in parse_block(answer.block.text).passages:
        chunk = store().get_chunk(shown.chunk_id, principal(), **given)
        assert shown.text in chunk.text
        assert chunk.chunk_set.finalized_version.document.title == shown.title
        assert tuple(chunk.heading_path) == shown.heading_path
        chunks.append(chunk)
    assert chunks
    return chunks


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_every_id_in_a_block_resolves_to_what_was_quoted(blob_root: Path, seed: int) -> None:
    for number in range(4):
        admit(document(seed * 10 + number))
    chance = random.Random(seed)
    for _ in range(10):
        question = " ".join(["zebra", *chance.sample(WORDS, 2)])
        for chunk in resolved(ask(question, max_passages=8)):
            assert chunk.live
            assert chunk.superseded_by_version is None


@pytest.mark.django_db
def test_an_id_still_resolves_after_newer_versions_and_says_so(blob_root: Path) -> None:
    source = ConnectorIdentity(type="wiki", id="notes")
    admit(document(1), source=source)
    first = ask("zebra pump", max_passages=6, max_per_document=6)
    admit(document(2), source=source)
    second = ask("zebra pump", max_passages=6, max_per_document=6)
    admit(document(3), source=source)
    for answer, version in ((first, 1), (second, 2)):
        for chunk in resolved(answer):
            assert not chunk.live
            assert chunk.chunk_set.version.version == version
            # The newest, not merely the next: it is what a reader should look at.
            assert chunk.superseded_by_version == 3
    assert {c.superseded_by_version for c in resolved(ask("zebra pump", max_passages=6))} == {None}
    ids = {p.candidate.chunk_id for answer in (first, second) for p in answer.passages}
    assert len(ids) == len(first.passages) + len(second.passages), "ids are of one version each"


@pytest.mark.django_db
def test_an_id_still_resolves_after_its_document_is_divided_anew(
    client: Client, blob_root: Path
) -> None:
    """Twice over, and then superseded by a new version: the words never change."""
    source = ConnectorIdentity(type="wiki", id="notes")
    document_id = admit(document(6), source=source).document_id
    operator = Principal.for_operator("acme", "olga")
    answers = [ask("zebra pump", max_passages=6, max_per_document=6)]
    for number in (2, 3):
        by = later(chunker=FinerChunker(f"structure-{number}", target=30 * number))
        by.rechunk(document_id, operator)
        answers.append(ask("zebra pump", max_passages=6, max_per_document=6))
    *former, current = answers
    for answer in former:
        for chunk in resolved(answer):
            assert not chunk.live
            assert chunk.superseded_by_version is None
            assert chunk.superseded_by_chunker_version.split("/")[2] == "structure-3"
    for chunk in resolved(current):
        assert chunk.live
        assert chunk.superseded_by_chunker_version is None
    ids = [p.candidate.chunk_id for answer in answers for p in answer.passages]
    assert len(ids) == len(set(ids)), "an id is of one chunk set"

    passage = former[0].passages[0].candidate
    shown = client.get(f"/v1/chunks/{passage.chunk_id}", headers=bearer()).json()
    assert (shown["text"], shown["live"]) == (passage.text, False)
    assert shown["chunker_version"].split("/")[2] == "structure-1"
    assert shown["superseded_by_chunker_version"].split("/")[2] == "structure-3"

    admit(document(7), source=source)
    for answer in answers:
        for chunk in resolved(answer):
            assert (chunk.live, chunk.superseded_by_version) == (False, 2)


@pytest.mark.django_db
def test_the_api_resolves_what_the_api_handed_out(client: Client, blob_root: Path) -> None:
    admit(document(4), visibility=Visibility.PROJECT)
    headers = bearer()
    body = {"text": "zebra valve", "current_scope": "apollo", "min_score": 0}
    found = client.post(
        "/v1/tools/knowledge.search", body, content_type="application/json", headers=headers
    ).json()
    assert found["passages"]
    for passage in found["passages"]:
        address = f"/v1/chunks/{passage['chunk_id']}"
        chunk = client.get(f"{address}?current_scope=apollo", headers=headers).json()
        for member in ("text", "title", "heading_path", "version", "line_start", "line_end"):
            assert chunk[member] == passage[member]
        assert client.get(address, headers=headers).status_code == 404
        source = chunk["source"]["artifact_id"]
        content = client.get(
            f"/v1/artifacts/{source}/content?current_scope=apollo", headers=headers
        )
        lines = b"".join(content).decode().split("\n")
        cited = "\n".join(lines[chunk["line_start"] - 1 : chunk["line_end"]])
        assert chunk["text"] in cited


@pytest.mark.django_db(transaction=True)
def test_an_id_resolves_in_another_process(blob_root: Path) -> None:
    """Over a connection of its own, to the same words: those of today, of an earlier version, of
    an earlier chunk set, and those that a trace names after it was thinned."""
    source = ConnectorIdentity(type="wiki", id="notes")
    document_id = admit(document(5), source=source).document_id
    answers = [ask("zebra hose")]
    admit(document(8), source=source)
    answers.append(ask("zebra hose"))
    later(chunker=FinerChunker("structure-2", target=60)).rechunk(
        document_id, Principal.for_operator("acme", "olga")
    )
    answers.append(ask("zebra hose"))
    wanted = {p.candidate.chunk_id: p.candidate.text for a in answers for p in a.passages}
    assert len(wanted) == sum(len(answer.passages) for answer in answers) >= 6
    with operations_session():
        RecallTrace.objects.update(created_at=F("created_at") - timedelta(days=31))
    assert retain_traces(full=timedelta(days=30), whole=timedelta(days=365)).thinned == 3
    with operations_session():
        hashes = dict(TracedPassage.objects.values_list("chunk_id", "content_sha256"))
    assert hashes == {
        chunk_id: hashlib.sha256(text.encode()).hexdigest() for chunk_id, text in wanted.items()
    }
    script = (
        "import django, json, sys; django.setup();"
        "from knowledge.wiring import store; from access.principal import Principal;"
        "me = Principal(tenant_id='acme', principal_id='bob');"
        "print(json.dumps({i: store().get_chunk(i, me).text for i in sys.argv[1:]}))"
    )
    database = connection.settings_dict["NAME"]
    address = re.sub(r"(://[^/]*/)[^?]*", rf"\g<1>{database}", os.environ["DATABASE_URL"])
    done = subprocess.run(
        [sys.executable, "-c", script, *wanted],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=django_settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": address, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
    )
    assert json.loads(done.stdout) == wanted
