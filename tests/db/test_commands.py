"""Management commands: what they print, what they refuse and how they exit."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from access.models import ApiKey
from access.tenancy import operations_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from artifacts.models import Artifact
from knowledge.models import Document, DocumentVersion, KnowledgeEvent
from tests.inspection import forge_secret
from tests.rechunk_fakes import FinerChunker, WordIsSecret, later
from tests.support import admit, ask, principal, upload

pytestmark = pytest.mark.django_db

WHO = {"tenant": "acme", "principal": "alice"}


def run(name: str, *args: Any, **options: Any) -> tuple[int, str]:
    """Exit status and standard output."""
    out = io.StringIO()
    status = 0
    try:
        call_command(name, *map(str, args), stdout=out, stderr=io.StringIO(), **options)
    except CommandError as error:
        status = error.returncode
    except SystemExit as left:
        status = int(left.code or 0)
    return status, out.getvalue()


def told(name: str, *args: Any, **options: Any) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and one object for each line of `--json`."""
    status, out = run(name, *args, json=True, **options)
    return status, [json.loads(line) for line in out.splitlines()]


def ingest(*paths: Path, **options: Any) -> tuple[int, list[dict[str, Any]]]:
    return told("ingest", *paths, **{**WHO, "visibility": "tenant", **options})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "documents"
    (root / "deeper" / "still").mkdir(parents=True)
    (root / "b-pumps.md").write_text("# Pumps\n\nThe zebra pump runs at night.\n")
    (root / "a_notes.txt").write_text("The keeper of the zebra writes a note.\n")
    (root / "deeper" / "still" / "c.md").write_text("# Deep\n\nThe zebra is deep down.\n")
    return root


# --- create_api_key --------------------------------------------------------------------------


def test_a_key_is_shown_once_and_only_its_hash_is_kept() -> None:
    status, (made,) = told(
        "create_api_key",
        **WHO,
        scope=["knowledge.write", "knowledge.delete"],
        project=["apollo", "borealis"],
        max_trust="USER",
        ceiling="confidential",
    )
    assert status == 0
    assert set(made) == {"api_key", "prefix"}
    assert made["api_key"].startswith(f"vk_{made['prefix']}_")
    caller = ApiKey.authenticate(made["api_key"])
    assert caller is not None
    assert (caller.tenant_id, caller.principal_id) == ("acme", "alice")
    assert caller.scopes == {Scope.WRITE, Scope.DELETE}
    assert caller.projects == frozenset({"apollo", "borealis"})
    assert caller.max_origin_trust == OriginTrust.USER
    assert caller.sensitivity_ceiling == Sensitivity.CONFIDENTIAL
    with operations_session():
        key = ApiKey.objects.get(prefix=made["prefix"])
    assert made["api_key"].split("_", 2)[2] not in str(vars(key))


def test_a_key_can_do_little_unless_it_is_said() -> None:
    _, (made,) = told("create_api_key", **WHO)
    caller = ApiKey.authenticate(made["api_key"])
    assert caller is not None
    assert (caller.scopes, caller.projects) == (frozenset(), frozenset())
    assert caller.max_origin_trust == OriginTrust.EXTERNAL_UNTRUSTED
    assert caller.sensitivity_ceiling == Sensitivity.INTERNAL


def test_a_key_can_expire_and_name_every_project() -> None:
    _, (made,) = told("create_api_key", **WHO, all_projects=True, expires_in_days=2)
    with operations_session():
        key = ApiKey.objects.get(prefix=made["prefix"])
    assert key.all_projects
    assert key.expires_at is not None
    assert 47 < (key.expires_at - timezone.now()).total_seconds() / 3_600 < 49


@pytest.mark.parametrize(
    "options", [{"scope": ["knowledge.read"]}, {"max_trust": "ROOT"}, {"ceiling": "secret"}]
)
def test_a_key_with_a_word_that_is_none_of_ours_is_not_made(options: dict[str, Any]) -> None:
    arguments = [
        part
        for name, value in options.items()
        for word in (value if isinstance(value, list) else [value])
        for part in (f"--{name.replace('_', '-')}", word)
    ]
    with pytest.raises(CommandError):
        call_command("create_api_key", "--tenant", "acme", "--principal", "alice", *arguments)
    with operations_session():
        assert not ApiKey.objects.exists()


# --- ingest ----------------------------------------------------------------------------------


def test_a_folder_is_ingested_whole_and_in_order(folder: Path, blob_root: Path) -> None:
    status, lines = ingest(folder)
    assert status == 0
    names = ["a_notes.txt", "b-pumps.md", "deeper/still/c.md"]
    assert [line["path"] for line in lines] == [str(folder / name) for name in names]
    for line in lines:
        assert set(line) == {"path", "outcome", "document_id", "version", "report"}
        assert (line["outcome"], line["version"]) == ("ingested", 1)
        assert line["report"]["complete"] is True
    titles = {p.candidate.title for p in ask("zebra", max_passages=9).passages}
    assert titles == {"A notes", "B pumps", "C"}


def test_the_upload_of_a_command_is_only_the_way_in(folder: Path, blob_root: Path) -> None:
    ingest(folder)
    with operations_session():
        expires = dict(Artifact.objects.values_list("origin", "expires_at"))
    assert expires["KNOWLEDGE_SOURCE"] is None
    assert expires["UPLOAD"] is not None
    assert expires["UPLOAD"] <= timezone.now()


def test_an_unchanged_file_is_lineand_an_edited_one_is_a_new_version(
    folder: Path, blob_root: Path
) -> None:
    _, first = ingest(folder)
    (folder / "b-pumps.md").write_text("# Pumps\n\nThe quagga pump runs by day.\n")
    status, again = ingest(folder)
    assert status == 0
    assert [line["outcome"] for line in again] == ["unchanged", "ingested", "unchanged"]
    assert [line["version"] for line in again] == [1, 2, 1]
    assert [line["document_id"] for line in again] == [line["document_id"] for line in first]


def test_options_of_a_single_file(folder: Path, blob_root: Path) -> None:
    status, (line,) = ingest(
        folder / "b-pumps.md",
        visibility="project",
        project="apollo",
        title="The pumps",
        sensitivity="restricted",
        doc_date="2026-05-02",
        profile="chat",
    )
    assert (status, line["outcome"]) == (0, "ingested")
    with operations_session():
        document = Document.objects.select_related("space").get()
        version = document.versions.get()
        assert version.chunk_sets.get().chunker_version.endswith("/chat-1")
    assert document.title == "The pumps"
    assert (document.space.visibility, document.space.project_scope) == ("project", "apollo")
    assert document.space.sensitivity == "restricted"
    assert str(version.doc_date) == "2026-05-02"


def test_what_is_refused_is_lineand_the_rest_goes_on(folder: Path, blob_root: Path) -> None:
    value = forge_secret()
    (folder / "a_secret.md").write_text(f"# Access\n\nThe token is {value}.\n")
    (folder / "b_empty.md").write_text(" \n")
    (folder / "c_latin.txt").write_bytes("Größe".encode("latin-1"))
    (folder / "d_image.svg").write_text("<svg/>")
    status, lines = ingest(folder)
    assert status == 1
    refused = {Path(line["path"]).name: line for line in lines if line["outcome"] == "refused"}
    assert {name: line["code"] for name, line in refused.items()} == {
        "a_secret.md": "secret_found",
        "b_empty.md": "empty_extraction",
        "c_latin.txt": "undecodable_text",
        "d_image.svg": "unsupported_media_type",
    }
    assert refused["a_secret.md"]["findings"][0]["line"] == 3
    assert value not in str(lines)
    assert sum(line["outcome"] == "ingested" for line in lines) == 3


def test_only_regular_files_with_one_name_are_read(
    folder: Path, tmp_path: Path, blob_root: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("# Outside\n\nThe outsidemarker.\n")
    (folder / "link.md").symlink_to(outside / "secret.md")
    (folder / "inner.md").symlink_to("b-pumps.md")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    (folder / "dangling.md").symlink_to("nowhere.md")
    os.link(outside / "secret.md", folder / "hard.md")
    os.mkfifo(folder / "pipe.md")
    status, lines = ingest(folder)
    assert status == 1
    refused = {Path(line["path"]).name: line["code"] for line in lines if "code" in line}
    assert refused == dict.fromkeys(
        ("link.md", "inner.md", "linked", "dangling.md", "hard.md", "pipe.md"), "unsafe_path"
    )
    assert sum(line["outcome"] == "ingested" for line in lines) == 3
    assert not ask("outsidemarker").passages
    for name in ("link.md", "linked", "hard.md", "pipe.md"):
        status, (line,) = ingest(folder / name)
        assert (status, line["code"]) == (1, "unsafe_path")


def test_hidden_files_are_left_out_unless_named(folder: Path, blob_root: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config.md").write_text("The zebra of git.\n")
    (folder / ".hidden.md").write_text("The hidden zebra waits here.\n")
    _, lines = ingest(folder)
    assert len(lines) == 3
    _, (line,) = ingest(folder / ".hidden.md")
    assert line["outcome"] == "ingested"


def test_odd_names_are_only_text(tmp_path: Path, blob_root: Path) -> None:
    root = tmp_path / "odd"
    root.mkdir()
    names = ["-rf.md", "$(id).md", "`id`.md", "x;rm -rf.md", "con.md", "%2e%2e%2fx.md", "x.md.md"]
    for number, name in enumerate(names):
        (root / name).write_text(f"The zebra number {number} grazes.\n")
    status, lines = ingest(root)
    assert status == 0
    assert len(lines) == len(names)
    with operations_session():
        sources = Artifact.objects.filter(origin="KNOWLEDGE_SOURCE")
        assert set(sources.values_list("filename", flat=True)) == set(names)
        assert not [key for key in sources.values_list("storage_key", flat=True) if "." in key]


def test_names_that_cannot_be_shown_are_refused(tmp_path: Path, blob_root: Path) -> None:
    root = tmp_path / "odd"
    root.mkdir()
    (root / "two\nlines.md").write_text("The zebra grazes.\n")
    (root / "fine.md").write_text("The quagga grazes.\n")
    Path(os.fsdecode(os.fsencode(root) + b"/latin\xe9.md")).write_text("The okapi grazes.\n")
    status, lines = ingest(root)
    assert status == 1
    assert sorted(line["outcome"] for line in lines) == ["ingested", "refused", "refused"]


@pytest.mark.parametrize(
    "options",
    [
        {"visibility": "project"},
        {"visibility": "tenant", "project": "apollo"},
    ],
)
def test_options_that_contradict_each_other(
    folder: Path, blob_root: Path, options: dict[str, Any]
) -> None:
    status, lines = ingest(folder, **options)
    assert status == 1
    assert {line["code"] for line in lines} == {"malformed"}


def test_a_path_that_is_not_there_stops_before_anything_is_read(
    folder: Path, blob_root: Path
) -> None:
    status, lines = ingest(folder, folder / "nowhere")
    assert (status, lines) == (1, [])
    status, lines = ingest(folder, title="One title")
    assert (status, lines) == (1, [])
    with operations_session():
        assert not Document.objects.exists()


def test_for_people_there_is_a_line_for_each_file_and_a_sum(folder: Path, blob_root: Path) -> None:
    (folder / "empty.md").write_text("")
    status, out = run("ingest", folder, **WHO, visibility="tenant")
    assert status == 1
    assert "3 ingested, 0 unchanged, 1 refused" in out
    assert "refused" in out
    assert "empty_extraction" in out


def test_what_a_file_is_can_be_said(folder: Path, blob_root: Path) -> None:
    status, (line,) = ingest(folder / "a_notes.txt", media_type="application/pdf")
    assert (status, line["code"]) == (1, "media_type_mismatch")
    assert ingest(folder / "a_notes.txt", media_type="text/x-note")[0] == 0
    with operations_session():
        assert DocumentVersion.objects.get().media_type == "text/x-note"


def test_people_are_linewhat_was_set_aside(tmp_path: Path, blob_root: Path) -> None:
    call_command("pii_policy", "--tenant=acme", "--detect=email", stdout=io.StringIO())
    note = tmp_path / "note.md"
    note.write_text("Write to jane.roe@" + "hospital.org about the zebra.\n")
    status, out = run("ingest", note, **WHO, visibility="tenant")
    assert status == 0
    assert "version 1, 1 chunks, 1 quarantined\n" in out


# --- search ----------------------------------------------------------------------------------


def test_search_prints_the_search_response(blob_root: Path) -> None:
    result = admit("# Pumps\n\nThe zebra pump runs at night.\n", title="Pumps")
    status, (found,) = told("search", "zebra pump at night", **WHO)
    assert status == 0
    assert found["trust"] == "KNOWLEDGE"
    (passage,) = found["passages"]
    assert passage["chunk_id"] == result.chunk_ids[0]
    assert passage["text"] == "The zebra pump runs at night."
    _, out = run("search", "zebra pump at night", **WHO)
    assert "The zebra pump runs at night." in out
    assert result.chunk_ids[0] in out


def test_search_respects_who_asks_and_when(blob_root: Path) -> None:
    from knowledge.core.types import Visibility  # noqa: PLC0415 - for this test alone

    admit("The zebra pump runs at night in apollo.", visibility=Visibility.PROJECT)
    assert told("search", "zebra pump", **WHO)[1][0]["passages"] == []
    assert told("search", "zebra pump", **WHO, project="apollo")[1][0]["passages"]
    early = told("search", "zebra pump", **WHO, project="apollo", as_of="2020-01-01T00:00:00Z")
    assert early[1][0]["passages"] == []
    assert told("search", "", **WHO)[1][0]["notes"]


@pytest.mark.parametrize(
    "options",
    [{"as_of": "2026-01-01"}, {"as_of": "yesterday"}, {"max_passages": 0}, {"budget_tokens": -1}],
)
def test_search_refuses_what_the_api_refuses(blob_root: Path, options: dict[str, Any]) -> None:
    status, (problem,) = told("search", "zebra", **WHO, **options)
    assert (status, problem["code"]) == (1, "malformed")


# --- rechunk ---------------------------------------------------------------------------------


def test_rechunk_tells_of_each_document_and_leaves_what_is_up_to_date(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = str(admit("# Pumps\n\nThe zebra pump runs.\n").document_id)
    status, lines = told("rechunk", tenant="acme")
    assert (status, [line["outcome"] for line in lines]) == (0, ["unchanged"])
    assert run("rechunk", tenant="acme") == (0, "1 documents: 1 unchanged, 0 refused.\n")

    monkeypatch.setattr("knowledge.management.commands.rechunk.store", later)
    second = str(admit("# Cranes\n\nThe zebra crane rests.\n").document_id)
    status, lines = told("rechunk", tenant="acme", dry_run=True, document=[first])
    assert (status, len(lines)) == (0, 1)
    assert (lines[0]["outcome"], lines[0]["document_id"]) == ("planned", first)
    status, lines = told("rechunk", tenant="acme", chunker_version="structure-2")
    assert status == 0
    assert [line["document_id"] for line in lines] == sorted([first, second])
    for line in lines:
        assert line["outcome"] == "rechunked"
        assert line["former_chunker_version"] == "markdown-1/normal-1/structure-1/default"
        assert line["chunker_version"] == "markdown-1/normal-1/structure-2/default"
        assert (line["version"], line["report"]["complete"]) == (1, True)
    status, lines = told("rechunk", tenant="acme")
    assert (status, {line["outcome"] for line in lines}) == (0, {"unchanged"})
    assert told("rechunk", tenant="bravo") == (0, [])
    with operations_session():
        event = KnowledgeEvent.objects.filter(name=KnowledgeEvent.RECHUNKED).first()
        assert event is not None
        assert (event.actor, event.surface) == ("operator:command", "command")


def test_rechunk_goes_on_after_a_refusal_and_exits_with_it(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = str(admit("# Pumps\n\nThe tapioca pump runs.\n").document_id)
    good = str(admit("# Cranes\n\nThe zebra crane rests.\n").document_id)
    unknown = "00000000-0000-0000-0000-000000000007"
    stricter = later(chunker=FinerChunker(), secret_scanner=WordIsSecret("tapioca"))
    monkeypatch.setattr("knowledge.management.commands.rechunk.store", lambda: stricter)
    status, out = run("rechunk", tenant="acme", json=True, document=[bad, unknown, good])
    assert status == 1
    assert "tapioca" not in out
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["document_id"], line["outcome"]) for line in lines] == [
        (bad, "refused"),
        (unknown, "refused"),
        (good, "rechunked"),
    ]
    assert [line.get("code") for line in lines] == ["secret_found", "not_found", None]
    assert lines[0]["findings"][0]["rule"] == "new-rule"
    status, out = run("rechunk", tenant="acme")
    assert status == 1
    assert out.startswith(f"refused    {bad}: secret_found: ")
    assert out.endswith("2 documents: 1 unchanged, 1 refused.\n")


@pytest.mark.parametrize(
    "options",
    [{"extractor_version": "pdf-9"}, {"chunker_version": "structure-9"}],
)
def test_rechunk_knows_what_is_installed(blob_root: Path, options: dict[str, Any]) -> None:
    status, (problem,) = told("rechunk", tenant="acme", **options)
    assert (status, problem["code"]) == (1, "not_installed")


def test_rechunk_wants_to_know_for_which_documents_a_profile_is() -> None:
    assert run("rechunk", tenant="acme", profile="chat")[0] == 1


# --- sweep -----------------------------------------------------------------------------------


def test_sweep_tells_what_went(blob_root: Path) -> None:
    artifact = upload(principal(), "a")
    artifacts.expire_now(artifact)
    assert told("sweep", dry_run=True) == (
        0,
        [{"swept": 1, "failed": 0, "orphans": 0, "expired": 0}],
    )
    assert told("sweep") == (0, [{"swept": 1, "failed": 0, "orphans": 0, "expired": 0}])
    assert told("sweep") == (0, [{"swept": 0, "failed": 0, "orphans": 0, "expired": 0}])


def test_sweep_exits_with_a_failure_when_something_stayed(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts.expire_now(upload(principal(), "a"))

    def fails(self: Any, key: str) -> None:
        raise OSError("storage is away")

    monkeypatch.setattr("artifacts.blobs.StorageBlobStore.delete", fails)
    assert told("sweep") == (1, [{"swept": 0, "failed": 1, "orphans": 0, "expired": 0}])
