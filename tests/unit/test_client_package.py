"""The client as a stranger's program gets it: from its folder, with httpx and nothing of ours."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from packaging.requirements import Requirement

ROOT = Path(settings.BASE_DIR)

_LOOKS = """
import importlib.metadata, json
from verbatim_client import AsyncClient, Client
import verbatim_client

with Client("http://127.0.0.1:9", "k"):
    AsyncClient("http://127.0.0.1:9", "k")
of = importlib.metadata.distribution("verbatim-client")
print(json.dumps({
    "requires": of.requires,
    "from": verbatim_client.__file__,
    "files": sorted(str(file) for file in of.files if file.parts[0] == "verbatim_client"),
}))
"""


def lent(name: str, folder: Path) -> Path:
    """A folder with a distribution of this environment and all that it needs, and nothing else."""
    folder.mkdir()
    waiting, seen = [name], set()
    while waiting:
        if (wanted := waiting.pop()) in seen:
            continue
        seen.add(wanted)
        of = importlib.metadata.distribution(wanted)
        for top in {file.parts[0] for file in of.files or () if ".." not in file.parts}:
            link = folder / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(Path(str(of.locate_file(top))))
        needed = [Requirement(one) for one in of.requires or ()]
        waiting += [
            one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return folder


@pytest.mark.long
def test_it_is_installed_from_its_folder_and_needs_httpx_alone(tmp_path: Path) -> None:
    assert "`pip install ./verbatim_client`" in (ROOT / "docs" / "client.md").read_text()
    # A copy, for building leaves something in the folder that it builds from.
    shutil.copytree(
        ROOT / "verbatim_client",
        tmp_path / "verbatim_client",
        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"),
    )
    venv.create(tmp_path / "venv", with_pip=True)

    def run(*arguments: str, path: Path) -> str:
        ran = subprocess.run(
            [tmp_path / "venv" / "bin" / "python", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    # Without a network: what pip would fetch for it, to build and to run it, is lent.
    alone = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(
        *("-m", "pip", "install", *alone, "./verbatim_client"),
        path=lent("setuptools", tmp_path / "to-build"),
    )
    told: dict[str, Any] = json.loads(run("-c", _LOOKS, path=lent("httpx", tmp_path / "to-run")))
    assert told["requires"] == ["httpx>=0.28"]
    assert Path(told["from"]).is_relative_to(tmp_path / "venv")
    modules = [file for file in told["files"] if "__pycache__" not in file]
    assert modules == ["verbatim_client/__init__.py", "verbatim_client/py.typed"]
