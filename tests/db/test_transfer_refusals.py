"""An archive that is not what it should be is refused, with a code, before anything is written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from access.errors import VerbatimError
from knowledge.core.records import Evidence
from knowledge.core.types import ConnectorIdentity
from knowledge.transfer import values
from knowledge.wiring import store
from tests.factories import make_attachment, make_golden_run
from tests.support import admit, footprint, principal, save_page, seen, source_of
from tests.transferring import change, export, note, rewrite, rows_in, take_in, wipe

pytestmark = pytest.mark.django_db(transaction=True)

Harm = Callable[[Path], object]


@pytest.fixture
def archive(blob_root: Path, tmp_path: Path) -> Path:
    """A small corpus of two tenants in a folder, and nothing of it here any more."""
    source = ConnectorIdentity(type="wiki", id="pumps", version="r1")
    admit(note("zebra one.", "zebra two."), title="Pumps", source=source)
    newer = ConnectorIdentity(type="wiki", id="pumps", version="r2")
    pumps = admit(note("zebra one.", "okapi two."), title="Pumps", source=newer)
    admit("# Okapi\n\nThe okapi rests.\n", by=principal(tenant="globex"))
    gone = admit("# Gone\n\nThe quagga is gone.\n")
    store().delete(gone.document_id, principal())
    make_attachment("acme")
    page = save_page(evidence=[Evidence(source=source_of(pumps))])
    save_page(expected=seen(page), body="Anew.")
    make_golden_run("acme", pumps.chunk_ids[0])
    export(tmp_path / "archive")
    wipe(blob_root)
    return tmp_path / "archive"


def refused(path: Path, blob_root: Path, **given: Any) -> VerbatimError:
    """What an import of it raises; nothing is written, whatever it is."""
    nothing = footprint(blob_root)
    with pytest.raises(VerbatimError) as refusal:
        take_in(path, **given)
    assert footprint(blob_root) == nothing
    assert refusal.value.status < 500
    return refusal.value


def packed(folder: Path, tar: Path) -> Path:
    """The folder as a tar of `tarfile`'s own making."""
    with tarfile.open(tar, "w", format=tarfile.GNU_FORMAT) as into:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                into.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return tar


def manifest(folder: Path, **changed: Any) -> None:
    told = json.loads((folder / "manifest.json").read_text())
    told.update(changed)
    (folder / "manifest.json").write_text(json.dumps(told))


def an_original(folder: Path) -> Path:
    return next(path for path in sorted((folder / "originals").rglob("*")) if path.is_file())


# --- files -------------------------------------------------------------------------------------


def _no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _unended(folder: Path) -> None:
    manifest(folder, originals=None)


def _manifest_of_words(folder: Path) -> None:
    (folder / "manifest.json").write_text("A corpus.")


def _deep_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 200_000)


def _vast_manifest(folder: Path) -> None:
    with (folder / "manifest.json").open("ab") as file:
        file.write(b" " * (1 << 21))


def _without_a_table(folder: Path) -> None:
    told = json.loads((folder / "manifest.json").read_text())["rows"]
    told.pop("deletions")
    manifest(folder, rows=told)


def _with_a_foreign_table(folder: Path) -> None:
    told = json.loads((folder / "manifest.json").read_text())["rows"]
    manifest(folder, rows={**told, "../../etc/passwd": told["chunks"]})


def _lesser_count(folder: Path) -> None:
    told = json.loads((folder / "manifest.json").read_text())["rows"]
    told["chunks"]["lines"] -= 1
    manifest(folder, rows=told)


def _another_format(folder: Path) -> None:
    manifest(folder, format="verbatim-corpus-2")


def _another_schema(folder: Path) -> None:
    manifest(folder, schema="0" * 16)


def _changed_row(folder: Path) -> None:
    path = folder / "rows" / "chunks.jsonl"
    path.write_bytes(path.read_bytes().replace(b"zebra", b"okapi"))


def _lost_rows(folder: Path) -> None:
    (folder / "rows" / "events.jsonl").unlink()


def _short_rows(folder: Path) -> None:
    path = folder / "rows" / "chunks.jsonl"
    path.write_bytes(path.read_bytes()[:-20])


def _changed_original(folder: Path) -> None:
    path = an_original(folder)
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def _longer_original(folder: Path) -> None:
    with an_original(folder).open("ab") as file:
        file.write(b"!")


def _lost_original(folder: Path) -> None:
    an_original(folder).unlink()


def _lost_list(folder: Path) -> None:
    (folder / "originals.jsonl").unlink()


def _relist(folder: Path, rows: list[dict[str, Any]]) -> None:
    content = b"".join(map(values.line_of, rows))
    (folder / "originals.jsonl").write_bytes(content)
    hashed = hashlib.sha256(content).hexdigest()
    told = {"lines": len(rows), "bytes": len(content), "sha256": hashed}
    manifest(folder, originals=told, original_bytes=sum(row["bytes"] for row in rows))


def _listed(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "originals.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def _listed_elsewhere(folder: Path) -> None:
    rows = _listed(folder)
    rows[0]["file"] = "../../../etc/passwd"
    _relist(folder, rows)


def _listed_twice(folder: Path) -> None:
    rows = _listed(folder)
    _relist(folder, [*rows, rows[0]])


def _unlisted_original(folder: Path) -> None:
    _relist(folder, _listed(folder)[1:])


def _foreign_file(folder: Path) -> None:
    (folder / "rows" / "run.sh").write_text("rm -rf /")


def _hidden_part(folder: Path) -> None:
    (folder / "rows" / "chunks.jsonl.part").write_text("")


def _linked_rows(folder: Path) -> None:
    path = folder / "rows" / "chunks.jsonl"
    elsewhere = folder.parent / "elsewhere.jsonl"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _linked_folder(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    (folder / "rows").rename(elsewhere)
    (folder / "rows").symlink_to(elsewhere)


def _linked_originals(folder: Path) -> None:
    (folder / "originals" / "zz").symlink_to("/etc")


def _hard_link(folder: Path) -> None:
    path = an_original(folder)
    os.link(path, folder.parent / "another-name")


def _pipe(folder: Path) -> None:
    path = an_original(folder)
    path.unlink()
    os.mkfifo(path)


FILES: dict[Harm, str] = {
    _no_manifest: "archive_malformed",
    _unended: "archive_malformed",
    _manifest_of_words: "archive_malformed",
    _deep_manifest: "archive_malformed",
    _vast_manifest: "archive_malformed",
    _without_a_table: "archive_malformed",
    _with_a_foreign_table: "archive_malformed",
    _another_format: "archive_version_unknown",
    _another_schema: "archive_version_unknown",
    _lesser_count: "archive_damaged",
    _changed_row: "archive_damaged",
    _lost_rows: "archive_damaged",
    _short_rows: "archive_damaged",
    _changed_original: "archive_damaged",
    _longer_original: "archive_damaged",
    _lost_original: "archive_damaged",
    _lost_list: "archive_damaged",
    _listed_elsewhere: "archive_damaged",
    _listed_twice: "archive_inconsistent",
    _unlisted_original: "archive_unsafe",
    _foreign_file: "archive_unsafe",
    _hidden_part: "archive_unsafe",
    _linked_rows: "archive_unsafe",
    _linked_folder: "archive_unsafe",
    _linked_originals: "archive_unsafe",
    _hard_link: "archive_unsafe",
    _pipe: "archive_unsafe",
}


def test_harmed_files(archive: Path, blob_root: Path, tmp_path: Path) -> None:
    for number, (harm, code) in enumerate(FILES.items()):
        copy = Path(shutil.copytree(archive, tmp_path / f"copy-{number}" / "archive"))
        harm(copy)
        assert refused(copy, blob_root).code == code, harm.__name__
    assert take_in(archive).new["documents"] == 2


# --- tars --------------------------------------------------------------------------------------


def _member(name: str, **given: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for what, value in given.items():
        setattr(info, what, value)
    return info


TAR_MEMBERS: dict[str, tuple[tarfile.TarInfo, bytes]] = {
    "outside": (_member("../evil", size=2), b"hi"),
    "absolute": (_member("/etc/passwd", size=2), b"hi"),
    "inside out": (_member("rows/../../evil", size=2), b"hi"),
    "not ours": (_member("rows/run.sh", size=2), b"hi"),
    "symbolic link": (_member("rows/xx.jsonl", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b""),
    "hard link": (_member("rows/xx.jsonl", type=tarfile.LNKTYPE, linkname="manifest.json"), b""),
    "device": (_member("rows/xx.jsonl", type=tarfile.CHRTYPE, devmajor=1), b""),
    "pipe": (_member("rows/xx.jsonl", type=tarfile.FIFOTYPE), b""),
    "folder": (_member("rows", type=tarfile.DIRTYPE), b""),
    "unlisted": (_member("rows/xx.jsonl", size=2), b"hi"),
    "twice": (_member("manifest.json", size=2), b"{}"),
    "long name": (_member("rows/" + "x" * 300, size=2), b"hi"),
    "sparse": (_member("rows/xx.jsonl", type=tarfile.GNUTYPE_SPARSE), b""),
}


def test_tars_that_hold_something_else(archive: Path, blob_root: Path, tmp_path: Path) -> None:
    for what, (info, content) in TAR_MEMBERS.items():
        tar = packed(archive, tmp_path / f"{what}.tar")
        with tarfile.open(tar, "a") as into:
            into.addfile(info, io.BytesIO(content))
        assert refused(tar, blob_root).code == "archive_unsafe", what
    whole = packed(archive, tmp_path / "whole.tar")
    assert take_in(whole, dry_run=True).new["documents"] == 2


def test_tars_that_are_none(archive: Path, blob_root: Path, tmp_path: Path) -> None:
    whole = packed(archive, tmp_path / "whole.tar").read_bytes()
    vast = _member("rows/chunks.jsonl", size=1 << 60).tobuf(tarfile.GNU_FORMAT)
    bombs = {
        "empty": (b"", "archive_malformed"),
        "words": (b"A corpus. " * 1_000, "archive_malformed"),
        "zeros": (bytes(10_240), "archive_malformed"),
        "cut": (whole[: len(whole) // 2], "archive_malformed"),
        "larger than itself": (vast + bytes(1_024), "archive_malformed"),
        "compressed": (packed_small(archive), "archive_malformed"),
    }
    for what, (content, code) in bombs.items():
        (tmp_path / "bomb.tar").write_bytes(content)
        assert refused(tmp_path / "bomb.tar", blob_root).code == code, what
    (tmp_path / "link.tar").symlink_to(tmp_path / "whole.tar")
    assert refused(tmp_path / "link.tar", blob_root).code == "archive_unsafe"


def packed_small(folder: Path) -> bytes:
    target = folder.parent / "small.tar.gz"
    with tarfile.open(target, "w:gz") as into:
        into.add(folder, ".")
    return target.read_bytes()


# --- lines -------------------------------------------------------------------------------------


def _of_a_zebra(folder: Path) -> tuple[list[bytes], int]:
    """The lines of the chunks, and the place of the first that speaks of a zebra."""
    lines = (folder / "rows" / "chunks.jsonl").read_bytes().splitlines(keepends=True)
    return lines, next(at for at, line in enumerate(lines) if b"zebra" in line)


def _lines(make: Callable[[dict[str, Any], bytes], bytes]) -> Harm:
    """Another line in the place of one of the chunks."""

    def harm(folder: Path) -> None:
        lines, at = _of_a_zebra(folder)
        lines[at] = make(json.loads(lines[at]), lines[at])
        rewrite(folder, "chunks", lines)

    return harm


def _spelt(row: dict[str, Any], **given: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False, **given).encode() + b"\n"


LINES: dict[str, Harm] = {
    "no JSON": _lines(lambda _row, _line: b"zebra\n"),
    "a list": _lines(lambda _row, _line: b"[]\n"),
    "no UTF-8": _lines(lambda _row, line: line.replace(b"zebra", b"z\xe9bra")),
    "an empty line": _lines(lambda _row, line: b"\n" + line),
    "no end": _lines(lambda _row, _line: b'{"text":'),
    "spaces": _lines(lambda row, _line: _spelt(row)),
    "another order": _lines(
        lambda row, _line: _spelt(dict(reversed(row.items())), separators=(",", ":"))
    ),
    "escapes": _lines(lambda _row, line: line.replace(b"zebra", b"z\\u0065bra")),
    "a member twice": _lines(lambda _row, line: line.replace(b'{"', b'{"boilerplate":0.0,"', 1)),
    "a member more": _lines(lambda row, _line: values.line_of({**row, "id": 1})),
    "a member less": _lines(
        lambda row, _line: values.line_of({k: v for k, v in row.items() if k != "tokens"})
    ),
    "a lone surrogate": _lines(lambda _row, line: line.replace(b"zebra", b"\\ud800")),
    "a NUL": _lines(lambda row, _line: values.line_of({**row, "text": "a\x00b"})),
    "NaN": _lines(lambda row, line: line.replace(b'"boilerplate":', b'"boilerplate":NaN,"x":', 1)),
    "an endless number": _lines(
        lambda _row, line: line.replace(b'"boilerplate":', b'"boilerplate":1e999,"x":', 1)
    ),
    "a vast number": _lines(
        lambda _row, line: line.replace(b'"tokens":', b'"tokens":' + b"9" * 5_000, 1)
    ),
    "a deep value": _lines(
        lambda row, line: line.replace(
            b'"verdict_reasons":[]', b'"verdict_reasons":' + b"[" * 5_000 + b"]" * 5_000
        )
    ),
    "a deeper value": _lines(
        lambda row, line: line.replace(
            b'"verdict_reasons":[]', b'"verdict_reasons":' + b"[" * 500_000 + b"]" * 500_000
        )
    ),
}

VALUES: list[tuple[str, dict[str, Any]]] = [
    ("chunks", {"ordinal": -1}),
    ("chunks", {"ordinal": "0"}),
    ("chunks", {"ordinal": True}),
    ("chunks", {"ordinal": 0.0}),
    ("chunks", {"ordinal": 1 << 40}),
    ("chunks", {"boilerplate": 1}),
    ("chunks", {"text": None}),
    ("chunks", {"text": ["zebra"]}),
    ("chunks", {"heading_path": "Pumps"}),
    ("chunks", {"heading_path": [None]}),
    ("chunks", {"sketch": [1 << 70]}),
    ("chunks", {"verdict": "reject"}),
    ("chunks", {"verdict": "perhaps"}),
    ("chunks", {"contains_instruction_like_text": 0}),
    ("chunks", {"chunk_id": "x" * 41}),
    ("chunks", {"number": 0}),
    ("chunks", {"number": "1"}),
    ("documents", {"document_id": "6F1D3A54-7C0E-4F7E-9D0A-2A1F8F6C1B01"}),
    ("documents", {"document_id": 7}),
    ("documents", {"title": ""}),
    ("documents", {"title": "x" * 501}),
    ("documents", {"space": "tenant"}),
    ("documents", {"space": ["tenant", None, None]}),
    ("documents", {"created_at": "yesterday"}),
    ("documents", {"created_at": "2026-01-01T00:00:00.000000+01:00"}),
    ("documents", {"created_at": "2026-01-01T00:00:00"}),
    ("documents", {"created_at": 1_767_225_600}),
    ("versions", {"doc_date": "2026-02-30"}),
    ("versions", {"authority": "hearsay"}),
    ("versions", {"superseded_at": "2001-01-01T00:00:00.000000+00:00"}),
    ("artifacts", {"byte_size": -1}),
    ("artifacts", {"sha256": "0" * 63}),
    ("artifacts", {"origin": "NOWHERE"}),
    ("spaces", {"visibility": "project"}),
    ("jobs", {"state": "running"}),
    ("jobs", {"state": "done"}),
    ("record_revisions", {"canonical": "{}"}),
    ("record_revisions", {"canonical": "[" * 100_000}),
]


def test_lines_that_nobody_wrote(archive: Path, blob_root: Path, tmp_path: Path) -> None:
    for number, (what, harm) in enumerate(LINES.items()):
        copy = Path(shutil.copytree(archive, tmp_path / f"copy-{number}"))
        harm(copy)
        error = refused(copy, blob_root)
        told = {"table": "chunks", "line": _of_a_zebra(archive)[1] + 1}
        assert (error.code, error.members) == ("archive_row_invalid", told), what
        assert "zebra" not in error.detail, "a refusal quotes no content"


def test_values_that_cannot_be(archive: Path, blob_root: Path, tmp_path: Path) -> None:
    for number, (table, changed) in enumerate(VALUES):
        copy = Path(shutil.copytree(archive, tmp_path / f"copy-{number}"))
        change(copy, table, **changed)
        error = refused(copy, blob_root)
        # A broken reference may be what is noticed first.
        assert error.code in ("archive_row_invalid", "archive_inconsistent"), (table, changed)
        assert error.members["table"] in (table, "documents"), (table, changed)


def test_a_row_that_never_ends_is_not_read_into_memory(
    archive: Path, blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knowledge.transfer.rows.LONGEST_ROW", 1_000)
    error = refused(archive, blob_root)
    assert (error.code, error.detail.endswith("is too long or breaks off.")) == (
        "archive_row_invalid",
        True,
    )


# --- rows that contradict one another ------------------------------------------------------------


def _twice(table: str) -> Harm:
    def harm(folder: Path) -> None:
        lines = (folder / "rows" / f"{table}.jsonl").read_bytes().splitlines(keepends=True)
        rewrite(folder, table, [lines[0], *lines])

    return harm


def _without(table: str, at: int = 0) -> Harm:
    def harm(folder: Path) -> None:
        lines = (folder / "rows" / f"{table}.jsonl").read_bytes().splitlines(keepends=True)
        rewrite(folder, table, [line for number, line in enumerate(lines) if number != at])

    return harm


def _reversed(table: str) -> Harm:
    def harm(folder: Path) -> None:
        lines = (folder / "rows" / f"{table}.jsonl").read_bytes().splitlines(keepends=True)
        rewrite(folder, table, lines[::-1])

    return harm


def _with(table: str, **changed: Any) -> Harm:
    return lambda folder: change(folder, table, **changed)


def _other_text(folder: Path) -> None:
    _, at = _of_a_zebra(folder)
    text = rows_in(folder, "chunks")[at]["text"].replace("zebra", "okapi")
    hashed = hashlib.sha256(text.encode()).hexdigest()
    change(folder, "chunks", at, text=text, content_sha256=hashed)


def _same_number(folder: Path) -> None:
    change(folder, "chunks", number=rows_in(folder, "chunks")[1]["number"])


def _foreign_source(folder: Path) -> None:
    """Another tenant's original under one's own document."""
    versions = rows_in(folder, "versions")
    tenants = [row["tenant_id"] for row in versions]
    own, other = tenants.index("acme"), tenants.index("globex")
    change(folder, "versions", own, source=versions[other]["source"])


def _shared_source(folder: Path) -> None:
    versions = rows_in(folder, "versions")
    first, second = [number for number, row in enumerate(versions) if row["tenant_id"] == "acme"][
        :2
    ]
    change(folder, "versions", first, source=versions[second]["source"])


def _two_current(folder: Path) -> None:
    rows = rows_in(folder, "versions")
    for number, row in enumerate(rows):
        if row["superseded_at"]:
            change(folder, "versions", number, superseded_at=None)


def _no_source(folder: Path) -> None:
    sources = {row["source"] for row in rows_in(folder, "versions")}
    ids = [row["id"] for row in rows_in(folder, "artifacts")]
    _without("artifacts", next(at for at, one in enumerate(ids) if one in sources))(folder)


def _retired(folder: Path) -> None:
    change(folder, "chunk_sets", state="retired")


def _unpublished(folder: Path) -> None:
    change(folder, "chunk_sets", state="ingesting")


def _described_otherwise(folder: Path) -> None:
    told = rows_in(folder, "descriptors")[0]
    canonical = told["canonical"].replace('"filename":"', '"filename":"x')
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    change(folder, "descriptors", canonical=canonical, descriptor_id=hashed)


def _other_tenant(folder: Path) -> None:
    change(folder, "deletions", tenant_id="initech")


def _other_words(folder: Path) -> None:
    """A revision that says something else under a hash of its own."""
    row = rows_in(folder, "record_revisions")[-1]
    canonical = row["canonical"].replace("Anew.", "Never.")
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    change(folder, "record_revisions", -1, canonical=canonical, sha256=hashed)


NOBODY = "6f1d3a54-7c0e-4f7e-9d0a-2a1f8f6c1b01"
CONTRADICTIONS: dict[str, Harm] = {
    "an artifact twice": _twice("artifacts"),
    "a document twice": _twice("documents"),
    "a chunk twice": _twice("chunks"),
    "a deletion twice": _twice("deletions"),
    "no documents": _without("documents"),
    "no version": _without("versions"),
    "no chunk set": _without("chunk_sets"),
    "no source": _no_source,
    "no space": _without("spaces"),
    "no conversation": _without("conversations"),
    "no question": _without("golden_questions"),
    "documents out of order": _reversed("documents"),
    "chunks out of order": _reversed("chunks"),
    "another text": _other_text,
    "another hash": _with("chunks", content_sha256="0" * 64),
    "another id": _with("chunks", chunk_id="kc_" + "0" * 16),
    "another ordinal": _with("chunks", ordinal=7),
    "another place in the order": _same_number,
    "a place outside of the order": _with("chunks", number=10_000),
    "a space that is not there": _with("documents", space=["project", "x", None, "internal"]),
    "another tenant's original": _foreign_source,
    "an original of two versions": _shared_source,
    "two current versions": _two_current,
    "no live chunk set": _retired,
    "an unpublished chunk set": _unpublished,
    "a descriptor of something else": _described_otherwise,
    "another size": _with("artifacts", byte_size=1),
    "a tenant that is not named": _other_tenant,
    "an attachment without its job": _with("attachments", job=NOBODY),
    "a revision under another hash": _with("record_revisions", sha256="0" * 64),
    "a revision of other words": _other_words,
    "a revision after none": _without("record_revisions"),
    "no latest revision": _without("record_revisions", 1),
    "a later revision than the latest": _with("records", revision=1),
    "a record's other hash": _with("records", sha256="0" * 64),
    "a source of no record": _with("record_sources", record=NOBODY),
    "a question that is not numbered on": _with("golden_questions", number=2),
}


def test_rows_that_contradict_one_another(archive: Path, blob_root: Path, tmp_path: Path) -> None:
    for number, (what, harm) in enumerate(CONTRADICTIONS.items()):
        copy = Path(shutil.copytree(archive, tmp_path / f"copy-{number}"))
        harm(copy)
        assert refused(copy, blob_root).code == "archive_inconsistent", what
