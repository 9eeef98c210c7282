"""Settings come from the environment, and a wrong one says what to set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from config import environment

PRODUCTION = {
    "DATABASE_URL": "postgresql://app:hidden-password@db.invalid/verbatim",
    "REDIS_URL": "redis://broker.invalid:6379/0",
    "VERBATIM_PUBLIC_URL": "https://verbatim.example.org",
    "SECRET_KEY": "k" * 60,
}
BUCKET = {"ARTIFACT_STORAGE": "s3", "ARTIFACT_S3_BUCKET": "originals"}

ENDPOINT = {
    "EMBEDDER": "endpoint",
    "EMBEDDER_URL": "https://embedder.invalid/v1",
    "EMBEDDER_MODEL": "small",
    "EMBEDDER_DIMENSIONS": "384",
}


def _read_settings(changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Read the settings in a process of their own and print what depends on the environment."""
    show = "import config.settings as s; print(s.ALLOWED_HOSTS, s.SESSION_COOKIE_SECURE, len(s.SECRET_KEY))"
    return subprocess.run(
        [sys.executable, "-c", show],
        cwd=settings.BASE_DIR,
        env={"PATH": os.environ["PATH"], **changes},
        capture_output=True,
        text=True,
        check=False,
    )


def test_production_settings_follow_from_the_public_address() -> None:
    read = _read_settings(PRODUCTION)
    assert read.stdout == "['verbatim.example.org'] True 60\n"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"SECRET_KEY": ""}, "Set SECRET_KEY to at least 50 random characters"),
        ({"VERBATIM_PUBLIC_URL": ""}, "VERBATIM_PUBLIC_URL must be the address"),
        ({"CSRF_TRUSTED_ORIGINS": "example.org"}, "CSRF_TRUSTED_ORIGINS needs a scheme"),
        ({"ARTIFACT_STORAGE": "disk"}, "ARTIFACT_STORAGE must be one of files, s3"),
        ({"ARTIFACT_STORAGE": "s3"}, "ARTIFACT_STORAGE=s3 needs ARTIFACT_S3_BUCKET"),
        (BUCKET | {"ARTIFACT_S3_ENDPOINT": "s3.example.org"}, "ARTIFACT_S3_ENDPOINT must be the"),
        (BUCKET | {"AWS_ACCESS_KEY_ID": "somebody"}, "Set both AWS_ACCESS_KEY_ID and"),
        ({"EMBEDDER": "openai"}, "EMBEDDER must be one of none, endpoint, local"),
        (ENDPOINT | {"EMBEDDER_URL": ""}, "Set EMBEDDER_URL to the address"),
        (ENDPOINT | {"EMBEDDER_MODEL": ""}, "Set EMBEDDER_MODEL to the model's name"),
        (ENDPOINT | {"EMBEDDER_DIMENSIONS": ""}, "Set EMBEDDER_DIMENSIONS to the length"),
        (ENDPOINT | {"EMBEDDER_FLOOR": "1"}, "EMBEDDER_FLOOR must be from 0 to below 1"),
        ({"NEXT_EMBEDDER": "local", "NEXT_EMBEDDER_FOLDER": "m"}, "NEXT_EMBEDDER_FOLDER must be"),
    ],
)
def test_a_missing_setting_says_what_to_set(changes: dict[str, str], told: str) -> None:
    read = _read_settings(PRODUCTION | changes)
    assert read.returncode != 0
    assert told in read.stderr


def test_an_embedded_installation_makes_its_own_key_for_its_own_eyes(tmp_path: Path) -> None:
    first, second = (_read_settings({"VERBATIM_VAR": str(tmp_path / "var")}) for _ in range(2))
    assert first.stdout == second.stdout
    assert first.stdout.startswith("['localhost'")
    key = tmp_path / "var" / "secret_key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in key.parent.iterdir()] == ["secret_key"]


def test_a_wrong_database_address_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://app:hidden-password@db/verbatim")
    with pytest.raises(ImproperlyConfigured, match="postgresql://user") as refused:
        environment.database("DATABASE_URL", "")
    assert "hidden-password" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["postgresql://app@/verbatim?host=/run/pg", "postgres://app:p%40ss@db:5433/verbatim"]
)
def test_database_addresses(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    read = environment.database("DATABASE_URL", "")
    assert (read["NAME"], read["USER"]) == ("verbatim", "app")
    assert read.get("OPTIONS", {}).get("host", read["HOST"]) in {"/run/pg", "db"}


@pytest.mark.parametrize("value", ["", "80a", "-1", "70000", "8_000", "８０００", "1.5"])
def test_numbers(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", value)
    if value == "":
        assert environment.number("PORT", 8000, least=1, most=65535) == 8000
        return
    with pytest.raises(ImproperlyConfigured, match="PORT must be a whole number from 1 to 65535"):
        environment.number("PORT", 8000, least=1, most=65535)


def test_flags_choices_folders_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "maybe")
    with pytest.raises(ImproperlyConfigured, match="X must be true or false"):
        environment.flag("X", default=False)
    with pytest.raises(ImproperlyConfigured, match="X must be one of a, b"):
        environment.choice("X", "a", ("a", "b"))
    with pytest.raises(ImproperlyConfigured, match="X must be an absolute path"):
        environment.folder("X", Path("/"))
    with pytest.raises(ImproperlyConfigured, match="X must be the address"):
        environment.web_address("X", "")
    with pytest.raises(ImproperlyConfigured, match="X must look like redis"):
        environment.redis_server("X", "")


def test_every_setting_is_documented() -> None:
    source = (settings.BASE_DIR / "config" / "settings.py").read_text()
    read = set(re.findall(r'environment\.\w+\(\s*"([A-Z0-9_]+)"', source))
    embedders = (settings.BASE_DIR / "config" / "embedders.py").read_text()
    read |= {f"EMBEDDER_{name}" for name in re.findall(r'f"\{name\}_([A-Z_]+)"', embedders)}
    read |= set(re.findall(r'configured_embedder\("([A-Z_]+)"\)', source))
    documented = set(
        re.findall(
            r"^#([A-Z0-9_]+)=", (settings.BASE_DIR / ".env.example").read_text(), re.MULTILINE
        )
    )
    assert read == documented
