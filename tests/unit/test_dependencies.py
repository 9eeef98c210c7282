"""What is installed is what was looked at: every distribution by its hash, from no named place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from django.conf import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(settings.BASE_DIR)
_LOCK = (_ROOT / "requirements.lock").read_text()
_PINNED = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==\S+[^\\\n]*\\\n(?P<hashes>(?:    --hash=[^\n]+\n?)+)",
    re.MULTILINE,
)


def test_every_dependency_is_pinned_by_hash() -> None:
    entries = [line for line in _LOCK.splitlines() if line and not line.startswith((" ", "#"))]
    pinned = list(_PINNED.finditer(_LOCK))
    assert len(entries) == len(pinned) > 100
    for one in pinned:
        digests = [line.strip(" \\") for line in one["hashes"].splitlines()]
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line) for line in digests)


def test_no_index_is_named() -> None:
    for name in ("requirements.lock", "pyproject.toml", "Makefile", ".ci/run"):
        text = (_ROOT / name).read_text()
        assert not re.search(r"--(extra-)?index|--find-links|git\+", text), name
    assert "://" not in _LOCK


def test_what_the_project_names_is_locked() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    named = [*project["dependencies"], *(one for extra in extras for one in extra)]
    locked = {canonicalize_name(one["name"]) for one in _PINNED.finditer(_LOCK)}
    for requirement in named:
        assert canonicalize_name(Requirement(requirement).name) in locked, requirement
