"""Exports and imports that die by SIGKILL, and go on when the same command is given again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from access.tenancy import operations_session
from artifacts.models import Artifact
from knowledge.models import Chunk, ChunkSet, DocumentVersion
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, other_process, principal
from tests.transferring import contents, documents_here, export, note, take_in, wipe

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

DOCUMENTS = 6

# Runs a command, and dies before or after the n-th call of something.
_COMMAND = """
import os, signal, sys
from pkgutil import resolve_name
import django
django.setup()
from django.core.management import call_command
command, path, owner_path, name, when, times = sys.argv[1:]
owner = resolve_name(owner_path)
real, left = getattr(owner, name), [int(times)]

def die():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(*given, **named):
    if when == "before":
        die()
    result = real(*given, **named)
    if when == "after":
        die()
    return result

setattr(owner, name, dying)
call_command(command, path, json=True)
"""

EXPORTING = "knowledge.transfer.exporting"
IMPORTING = "knowledge.transfer.importing"
OUT: dict[str, tuple[str, str, str, int]] = {
    "rows begun": (f"{EXPORTING}:Lines", "write", "after", 5),
    "rows of a table done": (f"{EXPORTING}:Lines", "__exit__", "after", 2),
    "rows done, not told": (EXPORTING, "write_whole", "before", 1),
    "no original yet": (EXPORTING, "write_whole", "after", 1),
    "an original half done": ("shutil", "copyfileobj", "after", 2),
    "some originals": (f"{EXPORTING}:_FolderOriginals", "put", "after", 4),
    "all but the manifest": (EXPORTING, "_remove_unlisted", "after", 1),
}
IN: dict[str, tuple[str, str, str, int]] = {
    "looked over": (f"{IMPORTING}:_Import", "_write_spaces", "before", 1),
    "spaces made": (f"{IMPORTING}:_Import", "_write_spaces", "after", 1),
    "bytes without a row": ("artifacts.store", "store_checked", "after", 3),
    "a document not committed": ("knowledge.adapters.term_index", "publish", "after", 3),
    "between two documents": (f"{IMPORTING}:_Import", "_sources", "before", 4),
    "all documents, nothing else": (f"{IMPORTING}:_Import", "_other_artifacts", "before", 1),
    "uploads half done": ("artifacts.store", "store_checked", "after", DOCUMENTS + 2),
    "the rest not committed": (f"{IMPORTING}:_Import", "_record", "after", 1),
    "statistics not merged": ("knowledge.adapters.term_index", "merge_statistics", "before", 1),
}


def killed(command: str, path: Path, blob_root: Path, point: tuple[str, str, str, int]) -> None:
    died = subprocess.run(
        [sys.executable, "-c", _COMMAND, command, str(path), *map(str, point)],
        cwd=settings.BASE_DIR,
        env=other_process(blob_root, DJANGO_SETTINGS_MODULE="config.settings"),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2_000:]


def some_documents() -> None:
    for number in range(DOCUMENTS):
        admit(note(f"zebra {number}.", f"okapi {number}."), title=f"Note {number}")
    gone = admit("# Gone\n\nThe quagga is gone.\n")
    store().delete(gone.document_id, principal())


def found() -> list[tuple[str, float]]:
    result = ask("zebra okapi", max_passages=50, max_per_document=50, budget_tokens=100_000)
    return [(one.candidate.chunk_id, one.score) for one in result.passages]


@pytest.mark.parametrize("point", OUT)
def test_an_export_that_dies_goes_on(blob_root: Path, tmp_path: Path, point: str) -> None:
    some_documents()
    folder = tmp_path / "out"
    killed("export_corpus", folder, blob_root, OUT[point])
    assert not (folder / "manifest.json").exists(), "what has not ended is no archive"
    done = export(folder)
    export(tmp_path / "at once")
    assert contents(folder) == contents(tmp_path / "at once")
    wipe(blob_root)
    assert take_in(folder).new == done.rows


@pytest.mark.parametrize("point", IN)
def test_an_import_that_dies_goes_on(blob_root: Path, tmp_path: Path, point: str) -> None:
    some_documents()
    before = found()
    done = export(tmp_path / "out")
    wipe(blob_root)
    killed("import_corpus", tmp_path / "out", blob_root, IN[point])
    here = documents_here()
    with operations_session():
        # Whole, each of them: with its chunks, its index rows and its original.
        assert Chunk.objects.count() == here * done.rows["chunks"] // DOCUMENTS
        assert Chunk.objects.filter(index_row__isnull=False).count() == Chunk.objects.count()
        assert ChunkSet.objects.count() == DocumentVersion.objects.count() == here
    assert_statistics_are_those_of_the_live_rows()
    assert len(found()) == len(before) * here // DOCUMENTS
    taken = take_in(tmp_path / "out")
    assert (taken.new["documents"], taken.kept["documents"]) == (DOCUMENTS - here, here)
    assert found() == before
    assert_statistics_are_those_of_the_live_rows()
    export(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    with operations_session():
        named = set(Artifact.objects.values_list("storage_key", flat=True))
    stored = {
        path.relative_to(blob_root).as_posix() for path in blob_root.rglob("*") if path.is_file()
    }
    assert named <= stored
    # What was stored for a transaction that never came is the sweeper's.
    with operations_session():
        assert len(stored - named) <= Artifact.objects.count()
