"""A streaming replica of the test session's PostgreSQL, with replay to be paused at will."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString
from urllib.parse import parse_qs, urlsplit

import psycopg
from django.db import connection, connections

from config import embedded
from config.places import Places

ALIAS: Final = "replica"
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Replica:
    primary: Path  # the folders of the two servers' sockets
    places: Places

    @property
    def url(self) -> str:
        """As DATABASE_REPLICA_URL has it, for the database of this test."""
        own = Places(home=self.places.home, data=self.places.data).database_url()
        return own.replace("/verbatim?", f"/{connection.settings_dict['NAME']}?")

    def pause(self) -> None:
        """What is committed from now on arrives, and is not shown."""
        self.tell("SELECT pg_wal_replay_pause()")
        self.wait("SELECT pg_get_wal_replay_pause_state() = 'paused'")

    def resume(self) -> None:
        self.tell("SELECT pg_wal_replay_resume()")
        self.catch_up()

    def catch_up(self) -> None:
        """Waits until it shows what the primary shows now."""
        with psycopg.connect(host=str(self.primary), user=embedded.SUPERUSER) as primary:
            (written,) = primary.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or (
                "",
            )
        self.wait("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written)

    def kill(self) -> None:
        embedded._end(embedded._processes("postgres", self.places.postgres))

    def start(self) -> None:
        embedded._start_postgres(self.places)

    @contextlib.contextmanager
    def impatient(self) -> Iterator[None]:
        """Whoever reads there in the way of what is to be shown is cut off at once."""
        self.tell("ALTER SYSTEM SET max_standby_streaming_delay = 0")
        self.tell("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self.tell("ALTER SYSTEM RESET max_standby_streaming_delay")
            self.tell("SELECT pg_reload_conf()")

    def tell_primary(self, statement: LiteralString) -> None:
        """Has it run there in the database of this test, by its superuser and in no transaction."""
        with psycopg.connect(
            host=str(self.primary),
            user=embedded.SUPERUSER,
            dbname=connection.settings_dict["NAME"],
            autocommit=True,
        ) as server:
            server.execute(statement)

    def tell(self, statement: str, *given: Any) -> Any:
        """The first value that it answers its superuser."""
        with psycopg.connect(
            host=str(self.places.postgres_sockets), user=embedded.SUPERUSER, autocommit=True
        ) as server:
            told = server.execute(statement, given)
            row = told.fetchone() if told.description else None
        return row[0] if row else None

    def wait(self, statement: str, *given: Any) -> None:
        """Until it answers that it is true."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self.tell(statement, *given):
            assert time.monotonic() < until, statement
            time.sleep(0.01)


@contextlib.contextmanager
def replicating() -> Iterator[Replica]:
    """A copy of the whole server, which follows it for the length of the block."""
    address = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)
    primary = Path(address["host"][0])
    places = Places.throw_away(Path(tempfile.mkdtemp(prefix="verbatim-replica-")))
    try:
        embedded._prepare(places)
        _copy(primary, places)
        replica = Replica(primary, places)
        replica.start()
        yield replica
    finally:
        embedded.kill_and_remove(places)


def _copy(primary: Path, places: Places) -> None:
    command: list[str | Path] = [
        embedded._programs() / "pg_basebackup",
        "--pgdata",
        places.postgres,
    ]
    command += ["--host", primary, "--username", embedded.SUPERUSER]
    # With the log of the meantime, and set up to go on following.
    command += ["--wal-method=stream", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
    places.postgres.mkdir(mode=0o700)
    if owner := embedded._server_owner():
        os.chown(places.postgres, owner.pw_uid, owner.pw_gid)
    made = embedded._run(places, command)
    assert made.returncode == 0, made.stderr


@contextlib.contextmanager
def reading(replica: Replica) -> Iterator[None]:
    """This process knows the replica by the alias that settings would give it."""
    own = connection.settings_dict
    connections.settings[ALIAS] = {
        **own,
        "HOST": str(replica.places.postgres_sockets),
        # So that nobody empties it after a test: it follows the primary in that, too.
        "TEST": {**own["TEST"], "MIRROR": "default"},
    }
    try:
        yield
    finally:
        with contextlib.suppress(AttributeError):
            connections[ALIAS].close()
            del connections[ALIAS]
        del connections.settings[ALIAS]
