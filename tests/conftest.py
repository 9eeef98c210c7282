"""The session's own PostgreSQL and Valkey, started before Django reads its settings.

Under xdist the controller starts them and the workers find their addresses in the environment;
every worker has a database of its own on the one server. `DATABASE_URL` and `REDIS_URL`, when
set, name servers to use instead.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import django
import pytest
from pytest_django import Settings

from config.embedded import in_use, kill_and_remove, running
from config.places import Places

_FOLDER_PREFIX = "verbatim-test-"
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_OLD_SECONDS = 24 * 3600
_exit = contextlib.ExitStack()
# A session that cannot even begin is never unconfigured.
atexit.register(_exit.close)


def _remove_leftovers() -> None:
    """Servers and folders of sessions that were killed: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        places = Places.throw_away(folder)
        with contextlib.suppress(OSError):
            status = folder.stat()
            if (folder / "users.lock").exists():
                left = not in_use(places)
            else:  # of a session that used other servers, or that is just starting
                left = time.time() - status.st_mtime > _OLD_SECONDS
            if left and status.st_uid == os.geteuid():
                kill_and_remove(places)


def _start_services() -> None:
    own_postgres, own_valkey = "DATABASE_URL" not in os.environ, "REDIS_URL" not in os.environ
    _remove_leftovers()
    places = Places.throw_away(Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX)))
    _exit.callback(kill_and_remove, places)
    _exit.enter_context(running(places, postgres=own_postgres, valkey=own_valkey))
    os.environ.setdefault("DATABASE_URL", places.database_url())
    os.environ.setdefault("REDIS_URL", places.redis_url())
    # Collected static files are looked for as soon as a request is made.
    (places.home / "var" / "static").mkdir(parents=True, exist_ok=True)
    # What the person at the keyboard configured for their own installation is no part of a test.
    os.environ.update(
        VERBATIM_VAR=str(places.home / "var"),
        # Compiled once for all sessions of this clone.
        SECRET_RULES_CACHE=str(Path(__file__).resolve().parent.parent / "var" / "secret-rules"),
        VERBATIM_PUBLIC_URL="http://testserver",
        SECRET_KEY="for-tests-only-" + "x" * 50,
        DJANGO_SETTINGS_MODULE="config.settings",
    )
    own = ["DEBUG", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "ARTIFACT_ROOT", "LOG_LEVEL"]
    own += ["DATABASE_REPLICA_URL", "DATABASE_POOL_SIZE"]
    beginnings = ("ARTIFACT_S3", "AWS_", "EMBEDDER", "NEXT_EMBEDDER")
    for name in [*own, *(name for name in os.environ if name.startswith(beginnings))]:
        os.environ.pop(name, None)
    os.environ["ARTIFACT_STORAGE"] = "files"
    if os.environ.get("VERBATIM_TEST_EMBEDDER"):
        # Of tests/semantic, which puts embedders of its own in the place of this one.
        os.environ.update(
            EMBEDDER="endpoint",
            EMBEDDER_URL="http://127.0.0.1:9/v1",
            EMBEDDER_MODEL="nobody",
            EMBEDDER_DIMENSIONS="64",
        )


if not _IS_WORKER:
    _start_services()
# Now, so that conftests further down may import models.
django.setup()

from tests.buckets import Bucket, Store  # noqa: E402 - reads the settings
from tests.storages import Storage, in_bucket, in_files  # noqa: E402


def pytest_unconfigure(config: pytest.Config) -> None:
    _exit.close()


@pytest.fixture(autouse=True)
def _quick_settings(settings: Settings, tmp_path: Path) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    staticfiles = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": staticfiles}
    settings.MIDDLEWARE = ["tests.conformance.ConformanceMiddleware", *settings.MIDDLEWARE]
    # Static files are served from where they are written, not from a collected copy.
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(scope="session")
def s3() -> Iterator[Store]:
    """A store of buckets in a process of its own."""
    with Store.running() as store:
        yield store


@pytest.fixture
def bucket(settings: Settings, monkeypatch: pytest.MonkeyPatch, s3: Store) -> Bucket:
    """An empty bucket that blobs of this test go to."""
    fresh = s3.make_bucket()
    for name, value in fresh.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    settings.ARTIFACT_STORAGE = "s3"
    settings.STORAGES = {
        **settings.STORAGES,
        "artifacts": {"BACKEND": "artifacts.s3.BlobStorage", "OPTIONS": fresh.options()},
    }
    return fresh


@pytest.fixture
def blob_root(settings: Settings, tmp_path: Path) -> Path:
    """The folder that blobs of this test go to."""
    root = tmp_path / "blobs"
    keep_blobs_in(settings, root)
    return root


def keep_blobs_in(settings: Settings, root: Path) -> None:
    artifacts = settings.STORAGES["artifacts"]
    options = {**artifacts["OPTIONS"], "location": root}
    settings.ARTIFACT_ROOT = root
    settings.STORAGES = {**settings.STORAGES, "artifacts": {**artifacts, "OPTIONS": options}}


@pytest.fixture(params=["files", "s3"])
def storage(request: pytest.FixtureRequest, settings: Settings) -> Storage:
    """Each kind of storage in turn."""
    if request.param == "files":
        return in_files(request.getfixturevalue("blob_root"))
    return in_bucket(request.getfixturevalue("bucket"), settings)
