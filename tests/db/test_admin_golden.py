"""Golden sets as files in the admin: one is taken along and made again of what it was taken as."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, Sensitivity
from knowledge.core.types import Visibility
from knowledge.evaluation import golden_archive
from knowledge.models import GoldenAnswer, GoldenQuestion, GoldenSet, KnowledgeEvent
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.golden import GoldenAsked
from knowledge.wiring import store
from tests.factories import make_operator, make_superuser
from tests.support import admit, principal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

ADD = "/admin/knowledge/goldenset/add/"
OLGA = Principal.for_operator("acme", "olga")
GUIDE = "# Guide\n\nThe quokka drains the node before anything else.\n"
QUESTION = {"_id": "1", "text": "What does the quokka drain?"}
REFERENCE = {"query_id": "1", "doc_id": "g", "quote": "quokka drains the node"}
PARTS: Mapping[str, bytes] = {
    "queries.jsonl": json.dumps(QUESTION).encode(),
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\n1\tg\t1\n",
    "references.jsonl": json.dumps(REFERENCE).encode(),
}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def olga() -> Client:
    return signed_in(make_operator("acme", "olga"))


def make_set(*asked: GoldenAsked) -> GoldenSet:
    viewpoint = Viewpoint(
        principal_id="bob", current_scope=None, sensitivity_ceiling=Sensitivity.INTERNAL
    )
    golden = store().create_golden_set("Run/books", viewpoint, OLGA)
    for one in asked:
        store().keep_golden_question(golden.pk, one, OLGA)
    return golden


def exported(client: Client, golden: GoldenSet) -> Any:
    return client.post(reverse("admin:knowledge_goldenset_export", args=[golden.pk]), follow=True)


def zipped(parts: Mapping[str, bytes], *, encrypted: bool = False) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        for entry in archive.filelist:
            entry.flag_bits |= 1 if encrypted else 0
    return packed.getvalue()


def made_of(client: Client, archive: bytes, **given: str) -> str:
    form = {
        "name": "Again",
        "principal_id": "bob",
        "current_scope": "",
        "sensitivity_ceiling": "internal",
        "archive": SimpleUploadedFile("again.zip", archive, "application/zip"),
    }
    response = client.post(ADD, form | given, follow=True)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_a_set_is_taken_along_and_made_again(olga: Client) -> None:
    guide = admit(GUIDE, title="Guide").chunk_ids[0]
    admit("# Secret\n\nThe tapir is not for bob.\n", visibility=Visibility.PRINCIPAL)
    golden = make_set(
        GoldenAsked(
            text="What does the quokka drain?",
            answers={guide: "quokka drains the node"},
            objective="drain",
        )
    )
    response = exported(olga, golden)
    assert response["Content-Type"] == "application/zip"
    assert response["Content-Disposition"].startswith("attachment")
    archive = b"".join(response.streaming_content)
    assert response["Content-Length"] == str(len(archive))
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        assert packed.namelist() == [
            *("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "references.jsonl")
        ]
        corpus = packed.read("corpus.jsonl").decode()
    assert "quokka" in corpus
    assert "tapir" not in corpus, "what the set's principal may not find stays here"
    with tenant_session("acme"):
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.GOLDEN_SET_EXPORTED)
    assert (event.actor, event.surface) == ("operator:olga", "admin")
    assert event.data == {"golden_set_id": str(golden.pk), "documents": 1}

    assert "Made, with 1 question." in made_of(olga, archive)
    with tenant_session("acme"):
        again = GoldenSet.objects.get(name="Again")
        kept = GoldenQuestion.objects.get(golden_set=again)
        answer = GoldenAnswer.objects.get(question=kept)
    assert (kept.text, kept.objective) == ("What does the quokka drain?", "drain")
    assert (answer.chunk_id, answer.quote) == (guide, "quokka drains the node")


def test_a_folder_that_somebody_packed_by_hand_is_taken_and_says_what_it_lacks(
    olga: Client,
) -> None:
    admit(GUIDE)
    other = {"_id": "2", "text": "Where is the dodo?"}
    quoted = {"query_id": "2", "doc_id": "g", "quote": "the dodo is gone"}
    parts = {
        f"runbooks/{name}": content + more
        for (name, content), more in zip(
            PARTS.items(),
            (f"\n{json.dumps(other)}".encode(), b"2\tg\t1\n", f"\n{json.dumps(quoted)}".encode()),
            strict=True,
        )
    }
    told = made_of(olga, zipped(parts))
    assert "Made, with 1 question." in told
    assert "Left out: 1. No passage here holds the words that answer 2." in told


def test_a_superuser_says_whose_it_is() -> None:
    admit(GUIDE, by=principal(tenant="globex"))
    told = made_of(signed_in(make_superuser()), zipped(PARTS), tenant_id="globex")
    assert "Made, with 1 question." in told
    with operations_session():
        assert GoldenSet.objects.get().tenant_id == "globex"


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (b"questions", "no zip that can be read"),
        (zipped(PARTS, encrypted=True), "no zip that can be read"),
        (zipped({}), "There is no queries.jsonl in this file."),
        (zipped({**PARTS, "old/queries.jsonl": b""}), "2 files called queries.jsonl"),
        (zipped({**PARTS, "queries.jsonl": b"{"}), "queries.jsonl, line 1: "),
        (zipped({**PARTS, "queries.jsonl": b"\xff"}), "queries.jsonl, line 1 is not UTF-8."),
        (zipped({**PARTS, "queries.jsonl": b"[" * 10_000}), "line 1 is no JSON that can be read"),
        (zipped({**PARTS, "queries.jsonl": b"1" * 10_000}), "line 1 is no JSON that can be read"),
        (
            zipped({**PARTS, "queries.jsonl": rb'{"_id": "1", "text": "\u0000"}'}),
            "'text' is missing or no text",
        ),
        (
            zipped({**PARTS, "queries.jsonl": rb'{"_id": "\ud800", "text": "x"}'}),
            "'_id' is missing or no text",
        ),
        (
            zipped(
                {
                    **PARTS,
                    "queries.jsonl": json.dumps({**QUESTION, "aliases": {"a": ["\0"]}}).encode(),
                }
            ),
            "it holds no NUL",
        ),
        (zipped({**PARTS, "qrels/test.tsv": b"1\tg\tyes\n"}), "is no number"),
        (zipped({**PARTS, "qrels/test.tsv": b"1\tg\n"}), "has 2 columns instead of 3"),
        (zipped({**PARTS, "qrels/test.tsv": b"\xff\tg\t1\n"}), "test.tsv is not UTF-8."),
        (
            zipped({**PARTS, "qrels/test.tsv": b"3\tg\t1\n"}),
            "No question of this file has a document that answers it.",
        ),
        (
            zipped({**PARTS, "references.jsonl": b"[]"}),
            "references.jsonl, line 1 is no JSON object",
        ),
    ],
    ids=range(16),
)
def test_a_bad_file_says_what_is_wrong_and_leaves_no_set(
    olga: Client, archive: bytes, said: str
) -> None:
    admit(GUIDE)
    told = made_of(olga, archive).replace("&#x27;", "'")
    assert "Not made. " in told
    assert said in told
    with operations_session():
        assert not GoldenSet.objects.exists()


def test_what_a_browser_would_wait_for_too_long_is_for_the_command(
    olga: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = admit(GUIDE).chunk_ids[0]
    golden = make_set(GoldenAsked(text="What is drained?", answers={guide: ""}))
    monkeypatch.setattr(golden_archive, "MOST_PASSAGES", 0)
    refused = exported(olga, golden).content.decode()
    assert "Not exported. " in refused
    assert "manage.py golden export" in refused
    with operations_session():
        assert not KnowledgeEvent.objects.filter(name=KnowledgeEvent.GOLDEN_SET_EXPORTED).exists()

    monkeypatch.setattr("knowledge.admin.golden.MOST_QUESTIONS", 0)
    assert "at most 0 are taken here" in made_of(olga, zipped(PARTS))
    monkeypatch.setattr(golden_archive, "_LARGEST", 8)
    assert "queries.jsonl is larger than" in made_of(olga, zipped(PARTS))


def test_who_may_only_look_takes_nothing_along() -> None:
    golden = make_set()
    viewer = signed_in(make_operator("acme", "vera", [OperatorPermission.VIEW]))
    assert exported(viewer, golden).status_code == 403
    assert viewer.post(ADD, {"name": "Again"}).status_code == 403
