"""A database of other migrations than those that are here ends the start in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as configured
from pytest_django import Settings

from config.embedded import kill_and_remove
from config.places import Places
from config.schema import StaleSchema, remember_schema, require_known_schema

_FILE = "verbatim-migrations.json"


@pytest.fixture
def places(tmp_path: Path, settings: Settings) -> Places:
    """The folder of an embedded database, which here is the one of the tests."""
    places = settings.SERVICES = Places.throw_away(tmp_path)
    places.postgres.mkdir()
    return places


@pytest.mark.django_db
def test_what_was_migrated_with_is_known_again(places: Places) -> None:
    remember_schema()
    require_known_schema()
    kept = json.loads((places.postgres / _FILE).read_text())
    assert {name.partition(".")[0] for name in kept} >= {"access", "artifacts", "knowledge"}


@pytest.mark.django_db
@pytest.mark.parametrize("left", [None, "", "{}", "changed"])
def test_a_migration_that_was_another_is_named_with_what_to_remove(
    places: Places, left: str | None, settings: Settings
) -> None:
    remember_schema()
    file = places.postgres / _FILE
    kept = json.loads(file.read_text())
    if left is None:
        file.unlink()
    else:
        file.write_text(json.dumps({**kept, "knowledge.0002_tables": "0"}) if left else left)
    with pytest.raises(StaleSchema) as told:
        require_known_schema()
    assert str(places.postgres) in str(told.value)
    assert str(settings.ARTIFACT_ROOT) in str(told.value)
    if left == "changed":
        assert "knowledge.0002_tables" in str(told.value)


@pytest.mark.django_db
def test_what_an_app_left_that_is_away_is_not_forgotten(places: Places) -> None:
    (places.postgres / _FILE).write_text('{"elsewhere.0001_initial": "1"}')
    remember_schema()
    assert "elsewhere.0001_initial" in json.loads((places.postgres / _FILE).read_text())


@pytest.mark.long
def test_the_commands_of_an_installation_end_in_one_sentence(tmp_path: Path) -> None:
    var = tmp_path / "var"
    places = Places.of(var)

    def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=configured.BASE_DIR,
            env={"PATH": os.environ["PATH"], "VERBATIM_VAR": str(var)},
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        assert manage("migrate").returncode == 0
        file = places.postgres / _FILE
        name = 'knowledge.0002_tables": "'
        file.write_text(file.read_text().replace(name, f"{name}0"))
        for command in (["up"], ["migrate"], ["sweep"]):
            ended = manage(*command)
            assert ended.returncode == 1, ended.stdout
            assert "Traceback" not in ended.stderr
            assert "knowledge.0002_tables" in ended.stderr
            assert str(places.postgres) in ended.stderr
        assert manage("showmigrations").returncode == 0
        # As the sentence says.
        shutil.rmtree(places.postgres)
        assert manage("sweep").returncode == 0
        assert manage("sweep").returncode == 0
    finally:
        kill_and_remove(places)
