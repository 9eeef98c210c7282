"""The embedded services: real processes, in folders of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connection

from config.embedded import EmbeddedError, in_use, kill_and_remove, running
from config.places import Places

_HOLD = """
import sys
from pathlib import Path
from config.embedded import running
from config.places import Places

with running(Places.throw_away(Path(sys.argv[1]))):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def places() -> Iterator[Places]:
    # Not below pytest's own folder: the path of a socket has to be short.
    places = Places.throw_away(Path(tempfile.mkdtemp(prefix="verbatim-test-")))
    yield places
    kill_and_remove(places)


def _processes(places: Places) -> list[psutil.Process]:
    folders = {str(places.postgres), str(places.valkey)}
    return [
        process
        for process in psutil.process_iter(["cwd", "status"])
        if process.info["cwd"] in folders and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def _ask(places: Places, question: str) -> object:
    with psycopg.connect(places.database_url(), autocommit=True) as database:
        cursor = database.execute(question)
        return cursor.fetchone() if cursor.description else None


@contextlib.contextmanager
def _broker(places: Places) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(places.redis_url())
    try:
        yield client
    finally:
        client.close()


def _pings(places: Places) -> bool:
    with _broker(places) as broker:
        return bool(broker.ping())


def _hold(places: Places) -> subprocess.Popen[str]:
    """Another process that uses the services until it is ended."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(places.home)],
        cwd=settings.BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    return holder


@pytest.mark.django_db
def test_the_application_cannot_bypass_row_level_security() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, False)


@pytest.mark.django_db
def test_the_operations_role_is_held_only_after_switching_to_it() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_has_role('verbatim_operations', 'USAGE'),"
            " pg_has_role('verbatim_operations', 'SET')"
        )
        assert cursor.fetchone() == (False, True)
        cursor.execute(
            "SELECT rolsuper, rolbypassrls, rolcanlogin FROM pg_roles"
            " WHERE rolname = 'verbatim_operations'"
        )
        assert cursor.fetchone() == (False, False, False)


@pytest.mark.django_db
def test_a_test_database_has_the_extensions() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extname FROM pg_extension WHERE extname IN ('vector', 'btree_gin')")
        assert {name for (name,) in cursor.fetchall()} == {"vector", "btree_gin"}


@pytest.mark.faults
def test_after_a_kill_of_everything_the_data_is_still_there(places: Places) -> None:
    holder = _hold(places)
    _ask(places, "CREATE TABLE kept AS SELECT 42 AS answer")
    for process in [psutil.Process(holder.pid), *_processes(places)]:
        process.send_signal(signal.SIGKILL)
    holder.communicate()
    assert not in_use(places)
    assert (places.postgres / "postmaster.pid").exists()
    assert places.valkey_socket.exists()
    # The id that the dead server left behind is somebody else's by now.
    left = (places.postgres / "postmaster.pid").read_text().split("\n", 1)
    (places.postgres / "postmaster.pid").write_text(f"{os.getppid()}\n{left[1]}")

    with running(places):
        assert _ask(places, "SELECT answer FROM kept") == (42,)
        assert _pings(places)
    assert _processes(places) == []


@pytest.mark.faults
def test_children_of_a_killed_server_do_not_keep_it_from_starting(places: Places) -> None:
    with running(places, valkey=False):
        pid = int((places.postgres / "postmaster.pid").read_text().split()[0])
        child = next(p for p in psutil.Process(pid).children() if "checkpointer" in p.cmdline()[0])
        child.suspend()
        os.kill(pid, signal.SIGKILL)
        with running(places, valkey=False):
            assert _ask(places, "SELECT 1") == (1,)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_last_one_out_stops_the_services(places: Places) -> None:
    holder = _hold(places)
    with running(places):
        with running(places):
            pass
        assert _ask(places, "SELECT 1") == (1,)
    assert _ask(places, "SELECT 1") == (1,)
    assert _pings(places)
    holder.communicate()
    assert holder.returncode == 0
    assert _processes(places) == []


@pytest.mark.long
def test_two_installations_do_not_meet(places: Places) -> None:
    other = Places.throw_away(Path(tempfile.mkdtemp(prefix="verbatim-test-")))
    try:
        with running(places), running(other):
            _ask(places, "CREATE TABLE mine (x int)")
            with _broker(places) as broker:
                broker.set("mine", "1")
            assert _ask(other, "SELECT to_regclass('mine')") == (None,)
            with _broker(other) as broker:
                assert broker.get("mine") is None
        assert _processes(other) == _processes(places) == []
    finally:
        kill_and_remove(other)


def test_the_folder_of_a_clone_follows_from_its_path(tmp_path: Path) -> None:
    one, two = Places.of(tmp_path / "one" / "var"), Places.of(tmp_path / "two" / "var")
    assert one == Places.of(tmp_path / "one" / "var")
    assert one.home != two.home
    deep = Places.of(tmp_path.joinpath(*["a-long-name-of-a-folder"] * 12))
    assert len(str(deep.valkey_socket)) < 100


def test_a_folder_that_is_not_ours_is_refused(places: Places) -> None:
    shutil.rmtree(places.home)
    places.home.symlink_to(tempfile.gettempdir())
    try:
        with pytest.raises(EmbeddedError, match="somebody else"), running(places):
            pass
    finally:
        places.home.unlink()
