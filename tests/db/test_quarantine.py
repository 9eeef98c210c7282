"""Passages that admission sets aside: stored and unreachable, then released or purged."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections
from django.test import Client
from pytest_django import Settings

from access.errors import Forbidden, NotFound
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust
from artifacts import store as artifacts
from knowledge.adapters.embedding import Embedding
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.errors import (
    EmbedderUnavailable,
    InvalidPiiRules,
    KnowledgeReleaseNotFinalized,
    NotQuarantined,
    ReasonMissing,
)
from knowledge.core.types import (
    ChunkDraft,
    ChunkSetState,
    IngestRequest,
    IngestResult,
    Verdict,
    Visibility,
)
from knowledge.lifecycle.pii_policy import set_pii_policy
from knowledge.models import (
    Chunk,
    ChunkIndex,
    ChunkSet,
    DocumentVersion,
    KnowledgeEvent,
    PiiPolicy,
)
from knowledge.wiring import host_admission_policy, store
from tests.embedding_fakes import FakeEmbedder, FakeVectors
from tests.factories import make_operator
from tests.inspection import assert_statistics_are_those_of_the_live_rows, every_row
from tests.support import admit, ask, bearer, footprint, principal, texts, upload
from tests.unit.test_pii import CARDS, iban_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

OLGA = Principal.for_operator("acme", "olga")
ADDRESS = "ann.lee@firma.de"
FILLER = " ".join(["The pump at the harbour runs at night and rests by day."] * 12)


def switch_on(*countries: str, tenant: str = "acme", **verdicts: str) -> None:
    set_pii_policy(
        PiiRules(
            verdicts={Detector(name): Verdict(word) for name, word in verdicts.items()},
            countries=countries,
        ),
        Principal.for_operator(tenant, "olga"),
    )


def note(*said: str) -> str:
    return "# Pumps\n\n" + "\n\n".join(
        f"## Part {number}\n\n{words} {FILLER}" for number, words in enumerate(said)
    )


@pytest.fixture
def set_aside() -> IngestResult:
    """A document of three passages, the second of which is in quarantine."""
    switch_on(email="quarantine")
    return admit(note("zebra one.", f"quagga of {ADDRESS}.", "zebra three."))


def quarantined() -> Chunk:
    with tenant_session("acme"):
        return Chunk.objects.select_related("chunk_set").get(verdict=Verdict.QUARANTINE)


def counts(result: IngestResult) -> tuple[int, int, int]:
    with tenant_session("acme"):
        row = ChunkSet.objects.get(pk=result.chunk_set_id)
    return row.chunk_count, row.quarantined_count, row.rejected_count


# --- the tenant's policy -----------------------------------------------------------------------


def test_nothing_is_looked_for_unless_a_tenant_says_so() -> None:
    switch_on(email="quarantine", tenant="globex")
    result = admit(note(f"quagga of {ADDRESS}."))
    assert result.report.quarantined == 0
    with tenant_session("acme"):
        assert ChunkSet.objects.get().admission_version == "admit-all-1"


def test_verdicts_are_the_tenants_and_the_version_is_part_of_the_plan() -> None:
    text = note("zebra", f"quagga of {ADDRESS}.", f"okapi paid by {CARDS[0]}.", "last")
    plain = admit(text)
    switch_on(email="quarantine", card="reject")
    result = admit(text, by=principal("bob"))
    report = result.report
    assert (report.chunks, report.embedded) == (4, 2)
    assert (report.quarantined, report.rejected, report.complete) == (1, 1, True)
    with tenant_session("acme"):
        ours = ChunkSet.objects.get(pk=result.chunk_set_id)
        other = ChunkSet.objects.get(pk=plain.chunk_set_id)
        kept = "".join(ours.chunks.values_list("text", flat=True))
    assert ours.admission_version.startswith("admit-all-1+pii-1/")
    assert ours.plan_fingerprint != other.plan_fingerprint
    assert ADDRESS in kept
    assert CARDS[0] not in kept


def test_reasons_say_what_and_where_and_never_the_value() -> None:
    switch_on("DE", email="quarantine", iban="quarantine", phone="quarantine")
    iban = iban_of("DE", "370400440532013000")
    admit(f"# Of {ADDRESS}\n\nPay {iban} or call 030/901820.\n")
    chunk = quarantined()
    found = {(each["detector"], each["part"]) for each in chunk.verdict_reasons}
    assert found == {("email", "heading"), ("iban", "text"), ("phone", "text")}
    for each in chunk.verdict_reasons:
        assert set(each) == {"detector", "part", "start", "end"}
        if each["detector"] == "iban":
            assert chunk.text[each["start"] : each["end"]] == iban
    assert ADDRESS not in json.dumps(chunk.verdict_reasons)


def test_only_an_operator_changes_it_and_it_leaves_an_event() -> None:
    with pytest.raises(Forbidden):
        set_pii_policy(PiiRules(verdicts={}), principal())
    with pytest.raises(InvalidPiiRules, match="XX"):
        switch_on("XX", national_id="quarantine")
    switch_on("US", national_id="quarantine")
    switch_on()
    with tenant_session("acme"):
        assert PiiPolicy.objects.get().verdicts == {}
        first, second = KnowledgeEvent.objects.filter(name=KnowledgeEvent.PII_POLICY_CHANGED)[::-1]
    assert first.data["verdicts"] == {"national_id": "quarantine"}
    assert (first.data["countries"], first.actor) == (["US"], "operator:olga")
    assert second.data["verdicts"] == {}
    assert admit(note(f"quagga of {ADDRESS}.")).report.quarantined == 0


# --- the host's own policy ---------------------------------------------------------------------


class HoldsBackQuaggas:
    version = "house-7"

    def classify(self, chunk: ChunkDraft) -> str:
        return "quarantine" if "quagga" in chunk.text else "admit"


class Versionless:
    def classify(self, chunk: ChunkDraft) -> str:
        return "admit"


class NeedsAnArgument(HoldsBackQuaggas):
    def __init__(self, needed: int) -> None:
        self.needed = needed


def test_a_hosts_policy_decides_beside_the_tenants(settings: Settings) -> None:
    wired = store().ingestor  # before the setting: the store of a process is made once
    settings.KNOWLEDGE_ADMISSION_POLICY = f"{__name__}.HoldsBackQuaggas"
    switch_on(card="reject")
    ingestor = replace(wired, admission_policy=host_admission_policy())
    text = note("zebra", "quagga", f"quagga paid by {CARDS[0]}.")
    result = ingestor.ingest(
        IngestRequest(
            artifact_id=upload(principal(), text).pk,
            title="Pumps",
            visibility=Visibility.TENANT,
            origin_trust=OriginTrust.USER,
        ),
        principal(),
    )
    assert (result.report.quarantined, result.report.rejected) == (1, 1)
    chunk = quarantined()
    assert chunk.verdict_reasons == [{"detector": "house-7"}]
    assert chunk.chunk_set.admission_version.startswith("house-7+pii-1/")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("nowhere.Policy", "ModuleNotFoundError"),
        (f"{__name__}.NoSuchPolicy", "ImportError"),
        (f"{__name__}.Versionless", "needs a `version`"),
        (f"{__name__}.NeedsAnArgument", "without arguments"),
        ("knowledge.core.admission.PII_RULES_VERSION", "not callable"),
    ],
)
def test_a_policy_that_is_none_ends_the_start(named: str, said: str, settings: Settings) -> None:
    settings.KNOWLEDGE_ADMISSION_POLICY = named
    with pytest.raises(ImproperlyConfigured, match=said) as raised:
        host_admission_policy()
    assert "KNOWLEDGE_ADMISSION_POLICY" in str(raised.value)


# --- unreachable -------------------------------------------------------------------------------


def test_a_quarantined_passage_is_nowhere_to_be_had(
    set_aside: IngestResult, client: Client
) -> None:
    chunk = quarantined()
    assert chunk.chunk_id not in set_aside.chunk_ids
    assert not any("quagga" in text for text in texts(ask("quagga zebra", max_passages=9)))
    for who in (principal(), principal("bob"), OLGA):
        with pytest.raises(NotFound):
            store().get_chunk(chunk.chunk_id, who)
    headers = bearer("bob")
    assert client.get(f"/v1/chunks/{chunk.chunk_id}", headers=headers).status_code == 404
    with tenant_session("acme"):
        assert not ChunkIndex.objects.filter(chunk=chunk.pk).exists()
    assert_statistics_are_those_of_the_live_rows()


def test_the_original_is_for_who_sent_it_while_something_is_held_back(
    set_aside: IngestResult,
) -> None:
    with tenant_session("acme"):
        source = DocumentVersion.objects.get().source_id
    assert artifacts.get(principal(), source)
    assert artifacts.get(OLGA, source)
    with pytest.raises(NotFound):
        artifacts.get(principal("bob"), source)
    store().release_chunk(quarantined().chunk_id, OLGA, reason="a role's address")
    assert artifacts.get(principal("bob"), source)


@pytest.mark.parametrize(
    "statement",
    [
        """INSERT INTO knowledge_chunk_index (chunk, space, live, sv, tsv)
        SELECT %s, space, live, sv, tsv FROM knowledge_chunk_index LIMIT 1""",
        "UPDATE knowledge_chunk SET verdict = 'quarantine' WHERE id < %s AND ordinal = 0",
        """UPDATE knowledge_chunk_index SET chunk = %s
        WHERE chunk IN (SELECT id FROM knowledge_chunk WHERE ordinal = 0)""",
    ],
    ids=["insert", "withdraw", "move"],
)
def test_the_database_refuses_an_index_row_of_it(statement: str, set_aside: IngestResult) -> None:
    number = quarantined().pk

    def write() -> None:
        with tenant_session("acme"), connection.cursor() as cursor:
            cursor.execute(statement, [number])
            assert cursor.rowcount == 1
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    with pytest.raises(IntegrityError, match="chunk_index_of_admitted"):
        write()


# --- release -----------------------------------------------------------------------------------


def test_a_released_passage_is_found_and_cited(set_aside: IngestResult) -> None:
    chunk = quarantined()
    store().release_chunk(chunk.chunk_id, OLGA, reason="  an address of nobody  ")
    found = [p.candidate.chunk_id for p in ask("quagga").passages]
    assert found[0] == chunk.chunk_id
    assert store().get_chunk(chunk.chunk_id, principal()).text == chunk.text
    assert counts(set_aside) == (3, 0, 0)
    assert_statistics_are_those_of_the_live_rows()
    with tenant_session("acme"):
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.RELEASED)
    assert (event.document_id, event.version, event.actor) == (
        set_aside.document_id,
        1,
        "operator:olga",
    )
    assert event.data == {
        "chunk_id": chunk.chunk_id,
        "chunk_set_id": str(set_aside.chunk_set_id),
        "reason": "an address of nobody",
        "detectors": {"email": 1},
    }
    again = admit(note("zebra one.", f"quagga of {ADDRESS}.", "zebra three."))
    assert again.already_ingested
    assert chunk.chunk_id in again.chunk_ids
    assert again.report.skipped == 3


def test_a_passage_is_embedded_when_it_is_released_and_not_before() -> None:
    embedder, vectors = FakeEmbedder(), FakeVectors()
    wired = store()
    by = replace(
        wired,
        ingestor=replace(wired.ingestor, embedding=Embedding(embedder=embedder, vectors=vectors)),
    )
    switch_on(email="quarantine")
    caller = principal()
    by.ingest(
        IngestRequest(
            artifact_id=upload(caller, note("zebra one.", f"quagga of {ADDRESS}.")).pk,
            title="Pumps",
            visibility=Visibility.TENANT,
            origin_trust=OriginTrust.USER,
        ),
        caller,
    )
    chunk = quarantined()
    assert not any("quagga" in text for call in embedder.calls for text in call)
    assert chunk.pk not in vectors.vectors

    embedder.failing = lambda _call: "timeout"
    before = every_row()
    with pytest.raises(EmbedderUnavailable):
        by.release_chunk(chunk.chunk_id, OLGA, reason="nobody's")
    assert every_row() == before
    assert chunk.pk not in vectors.vectors

    embedder.failing = lambda _call: None
    by.release_chunk(chunk.chunk_id, OLGA, reason="nobody's")
    (text,) = embedder.calls[-1]
    assert text.endswith(chunk.text)
    assert vectors.vectors[chunk.pk].vector == embedder.vector(text)
    assert chunk.chunk_set_id in vectors.published
    assert ask("quagga").passages


def test_a_released_passage_of_an_old_version_is_found_as_of_then(set_aside: IngestResult) -> None:
    chunk = quarantined()
    with tenant_session("acme"):
        then = DocumentVersion.objects.get().ingested_at
    admit(note("zebra anew."), document_id=set_aside.document_id)
    store().release_chunk(chunk.chunk_id, OLGA, reason="fine")
    assert not any("quagga" in text for text in texts(ask("quagga")))
    assert any("quagga" in text for text in texts(ask("quagga", as_of=then)))
    assert_statistics_are_those_of_the_live_rows()


ACTS: dict[str, Callable[..., Any]] = {
    "release": lambda chunk_id, who, reason: store().release_chunk(chunk_id, who, reason=reason),
    "purge": lambda chunk_id, who, reason: store().purge_chunk(chunk_id, who, reason=reason),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_is_not_done_changes_nothing(
    act: Callable[..., Any], set_aside: IngestResult, blob_root: Path
) -> None:
    chunk, first = quarantined(), set_aside.chunk_ids[0]
    before = footprint(blob_root), every_row()
    foreign = Principal.for_operator("globex", "olga")
    for chunk_id, who, reason, error in (
        (chunk.chunk_id, principal(), "why", Forbidden),
        (chunk.chunk_id, foreign, "why", NotFound),
        ("kc_0000000000000000", OLGA, "why", NotFound),
        (first, OLGA, "why", NotQuarantined),
        (chunk.chunk_id, OLGA, "  ", ReasonMissing),
        (chunk.chunk_id, OLGA, "x" * 501, ReasonMissing),
    ):
        with pytest.raises(error):
            act(chunk_id, who, reason)
    assert (footprint(blob_root), every_row()) == before
    with tenant_session("acme"):
        ChunkSet.objects.update(state=ChunkSetState.INGESTING)
    before = footprint(blob_root), every_row()
    with pytest.raises(KnowledgeReleaseNotFinalized) as raised:
        act(chunk.chunk_id, OLGA, "why")
    assert raised.value.status == 409
    assert (footprint(blob_root), every_row()) == before


@pytest.mark.django_db(transaction=True)
def test_of_two_operators_at_once_one_decides(blob_root: Path) -> None:
    switch_on(email="quarantine")
    admit(note("zebra one.", f"quagga of {ADDRESS}."))
    chunk = quarantined()

    def decide(act: Callable[..., Any]) -> str:
        try:
            act(chunk.chunk_id, OLGA, "why")
        except (NotQuarantined, NotFound) as late:
            return type(late).__name__
        finally:
            connections.close_all()
        return "done"

    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(decide, [*ACTS.values()] * 2))
    assert told.count("done") == 1
    with tenant_session("acme"):
        assert KnowledgeEvent.objects.filter(name__startswith="knowledge.chunk.").count() == 1
    assert_statistics_are_those_of_the_live_rows()


# --- purge -------------------------------------------------------------------------------------


def test_a_purged_passage_leaves_no_word(set_aside: IngestResult) -> None:
    chunk = quarantined()
    store().purge_chunk(chunk.chunk_id, OLGA, reason="not ours to keep")
    assert "quagga" not in str(every_row())
    assert counts(set_aside) == (3, 0, 1)
    with tenant_session("acme"):
        event = KnowledgeEvent.objects.get(name=KnowledgeEvent.PURGED)
        source = DocumentVersion.objects.get().source_id
    assert event.data["reason"] == "not ours to keep"
    with pytest.raises(NotFound):
        artifacts.get(principal("bob"), source)
    again = admit(note("zebra one.", f"quagga of {ADDRESS}.", "zebra three."))
    report = again.report
    assert (report.chunks, report.skipped, report.quarantined, report.rejected) == (3, 2, 0, 1)
    with pytest.raises(NotFound):
        store().purge_chunk(chunk.chunk_id, OLGA, reason="again")


# --- the command and the desk ------------------------------------------------------------------


def run_json(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command(*arguments, "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def test_the_command_shows_and_changes_a_policy() -> None:
    told = run_json("pii_policy", "--tenant", "acme")
    assert (told["detectors"]["email"], told["version"]) == ("off", None)
    told = run_json(
        *("pii_policy", "--tenant", "acme", "--detect", "email", "--detect", "card=reject"),
        *("--country", "de"),
    )
    assert told["detectors"] == {
        "email": "quarantine",
        "phone": "off",
        "card": "reject",
        "iban": "off",
        "national_id": "off",
    }
    assert told["countries"] == ["DE"]
    assert admit(f"# A\n\n{ADDRESS}\n").report.quarantined == 1
    assert run_json("pii_policy", "--tenant", "acme", "--off")["version"] is None
    with operations_session():
        assert PiiPolicy.objects.get().verdicts == {}


@pytest.mark.parametrize(
    "wrong",
    [
        ["--detect", "faces"],
        ["--detect", "email=delete"],
        ["--detect", "national_id"],
        ["--country", "DE"],
        ["--detect", "phone", "--country", "ZZ"],
    ],
)
def test_a_policy_that_cannot_be_is_not_made(wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        run_json("pii_policy", "--tenant", "acme", *wrong)
    with operations_session():
        assert not PiiPolicy.objects.exists()


DESK = "/admin/knowledge/quarantinedchunk/"


@pytest.fixture
def desk() -> Client:
    client = Client()
    client.force_login(make_operator("acme", "olga"))
    return client


def test_the_desk_lists_shows_and_releases(set_aside: IngestResult, desk: Client) -> None:
    chunk = quarantined()
    listed = desk.get(DESK).content.decode()
    assert chunk.chunk_id in listed
    assert "1 × email" in listed
    assert ADDRESS not in listed
    shown = desk.get(f"{DESK}{chunk.pk}/change/").content.decode()
    assert f'title="Found: email" data-rule="email">{ADDRESS}</mark>' in shown
    no_reason = desk.post(f"{DESK}{chunk.pk}/release/", {"release-reason": " "})
    assert "This field is required" in no_reason.content.decode()
    assert quarantined().pk == chunk.pk
    done = desk.post(f"{DESK}{chunk.pk}/release/", {"release-reason": "fine"}, follow=True)
    assert "searches find it" in done.content.decode()
    assert desk.get(f"{DESK}{chunk.pk}/change/").status_code == 404
    assert any("quagga" in text for text in texts(ask("quagga")))


def test_the_desk_purges_only_when_sure(set_aside: IngestResult, desk: Client) -> None:
    chunk = quarantined()
    path = f"{DESK}{chunk.pk}/purge/"
    assert desk.get(path).status_code == 405
    assert "required" in desk.post(path, {"purge-reason": "not ours"}).content.decode()
    assert quarantined().pk == chunk.pk
    done = desk.post(path, {"purge-reason": "not ours", "purge-sure": "on"}, follow=True)
    assert "its text is gone" in done.content.decode()
    assert "quagga" not in str(every_row())


def test_the_form_of_the_policy(desk: Client) -> None:
    path = "/admin/knowledge/piipolicy/"
    assert desk.get(f"{path}add/").status_code == 200
    wrong = desk.post(f"{path}add/", {"national_id": "reject", "countries": ""})
    assert "name at least one" in wrong.content.decode()
    wrong = desk.post(f"{path}add/", {"email": "reject", "countries": "ZZ"})
    assert "Not known: ZZ" in wrong.content.decode()
    desk.post(f"{path}add/", {"email": "quarantine", "countries": "de us"})
    with tenant_session("acme"):
        policy = PiiPolicy.objects.get()
    assert (policy.verdicts, policy.countries) == ({"email": "quarantine"}, ["DE", "US"])
    assert policy.changed_by == "operator:olga"
    assert desk.get(f"{path}add/").status_code == 403
    assert "DE US" in desk.get(f"{path}acme/change/").content.decode()
    desk.post(f"{path}acme/change/", {"card": "reject", "countries": ""})
    with tenant_session("acme"):
        assert PiiPolicy.objects.get().verdicts == {"card": "reject"}
        assert KnowledgeEvent.objects.filter(name=KnowledgeEvent.PII_POLICY_CHANGED).count() == 2
