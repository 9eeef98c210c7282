"""A chromium, a page that fails on what a browser complains of, and a web process of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from pytest_django import DjangoDbBlocker, Settings

from config.embedded import kill_and_remove
from config.places import Places
from tests.conftest import keep_blobs_in
from tests.e2e.installation import Installation
from tests.serving import Serving, serving

_PATIENCE_MS = 60_000
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _chromium() -> str:
    named = os.environ.get("CHROMIUM", "")
    for path in (named, shutil.which("chromium"), "/usr/bin/chromium"):
        if path and Path(path).is_file():
            return path
    if os.environ.get("VERBATIM_REQUIRE_BROWSER") == "1":
        pytest.fail("There is no chromium, and VERBATIM_REQUIRE_BROWSER=1 asks for one.")
    pytest.skip("There is no chromium; install it, or name it in CHROMIUM.")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a file of tests and no longer, for its event loop would be in other tests' way."""
    executable = _chromium()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        # The driver runs an event loop in this thread; Django would take its calls for async ones.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        try:
            yield running
        finally:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
            running.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained of: errors of scripts, violations of the content policy."""
    return []


@pytest.fixture
def page(browser: Browser, complaints: list[str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    # Patient, for a machine that is busy with other things is slow and not wrong.
    context.set_default_timeout(_PATIENCE_MS)
    expect.set_options(timeout=_PATIENCE_MS)
    opened = context.new_page()

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(f"{message.text} ({opened.url})")

    opened.on("console", heard)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path / "var")
    yield installation
    for process in installation.running:
        process.kill()
        process.wait()
    for child in installation.children():
        child.kill()
    kill_and_remove(Places.of(installation.var))
    shutil.rmtree(installation.var, ignore_errors=True)


CONCURRENCY = 3


@pytest.fixture(scope="module")
def server(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Serving]:
    """For a file of tests, each of which commits what it does; see `same_blobs`."""
    blobs = tmp_path_factory.mktemp("served") / "blobs"
    with django_db_blocker.unblock(), serving(blobs, MCP_CONCURRENCY=str(CONCURRENCY)) as running:
        yield running


@pytest.fixture
def same_blobs(server: Serving, settings: Settings) -> None:
    """This process keeps its blobs where the web process looks for them."""
    keep_blobs_in(settings, server.blobs)
