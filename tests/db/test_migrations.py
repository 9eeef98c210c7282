"""A migration of a release runs while the release before it serves: it locks nobody out for long,
and takes nothing away that is still read."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

_OURS = ("access", "artifacts", "knowledge", "semantic")
# Nothing is released yet: these are rewritten until something is, and make tables that nobody reads
# before. With the first release the list is closed.
_BEFORE_THE_FIRST_RELEASE = {
    *("access.0001_initial", "access.0002_isolation"),
    *("artifacts.0001_initial", "artifacts.0002_isolation"),
    *("knowledge.0001_extensions", "knowledge.0002_tables", "knowledge.0003_isolation"),
    "semantic.0001_initial",
}
# The unit and the compose file say how long a statement waits for a lock; sizes of columns are the
# models' affair.
_NOT_ASKED = (
    *("require-lock-timeout", "require-statement-timeout", "require-timeout-settings"),
    *("prefer-bigint-over-int", "prefer-text-field", "prefer-identity", "prefer-robust-stmts"),
)
# For a migration that says `contracts = "why no release that still runs reads it"`.
_CONTRACTING = ("ban-drop-column", "ban-drop-table", "ban-drop-not-null")
_UNWRITTEN = "CANNOT BE WRITTEN AS SQL"


def found_in(sql: str, migration: Migration) -> set[str]:
    """The rules that the statements of a migration break."""
    rules = [*_NOT_ASKED, *(_CONTRACTING if getattr(migration, "contracts", "") else ())]
    done = subprocess.run(
        [
            Path(sys.executable).with_name("squawk"),
            *("--reporter", "json", "--pg-version", "15", "--stdin-filepath", "migration.sql"),
            *(f"--exclude={rule}" for rule in rules),
        ],
        input=sql,
        capture_output=True,
        text=True,
        check=False,
    )
    broken = {one["rule_name"] for one in json.loads(done.stdout or "[]")}
    assert done.returncode in (0, 1), done.stderr
    assert bool(broken) == bool(done.returncode)
    # Rows are changed a part at a time, by a migration that is no transaction.
    return broken | (
        {"data-in-one-transaction"} if _UNWRITTEN in sql and migration.atomic else set()
    )


def released() -> list[tuple[str, str]]:
    names = MigrationLoader(None).disk_migrations
    return [
        key for key in names if key[0] in _OURS and ".".join(key) not in _BEFORE_THE_FIRST_RELEASE
    ]


@pytest.mark.django_db
def test_no_migration_of_a_release_stops_the_one_before_it() -> None:
    loader = MigrationLoader(connection)
    for app, name in released():
        out = io.StringIO()
        call_command("sqlmigrate", app, name, stdout=out)
        migration = loader.disk_migrations[app, name]
        assert found_in(out.getvalue(), migration) == set(), f"{app}.{name}"


def test_what_is_called_unreleased_is_there() -> None:
    here = {".".join(key) for key in MigrationLoader(None).disk_migrations}
    away = {
        one
        for one in _BEFORE_THE_FIRST_RELEASE
        if one.partition(".")[0] in {config.label for config in apps.get_app_configs()}
    }
    assert away <= here


def statements(*operations: migrations.operations.base.Operation, **of: object) -> set[str]:
    """What is found in a migration of these operations on a table that there is."""
    table = migrations.CreateModel(
        "Pump",
        [
            ("id", models.BigAutoField(primary_key=True)),
            ("name", models.CharField(max_length=10)),
            ("number", models.IntegerField()),
        ],
    )
    state = ProjectState()
    table.state_forwards("knowledge", state)
    migration = type("Made", (Migration,), {"operations": list(operations), **of})("m", "knowledge")
    with connection.schema_editor(collect_sql=True, atomic=migration.atomic) as editor:
        migration.apply(state, editor, collect_sql=True)
    sql = "\n".join(editor.collected_sql)
    return found_in(f"BEGIN;\n{sql}\nCOMMIT;" if migration.atomic else sql, migration)


INDEX = models.Index(fields=["name"], name="pump_name")
POSITIVE = models.CheckConstraint(condition=models.Q(number__gt=0), name="pump_positive")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        (migrations.AddIndex("pump", INDEX), "require-concurrent-index-creation"),
        (migrations.RemoveField("pump", "name"), "ban-drop-column"),
        (migrations.DeleteModel("pump"), "ban-drop-table"),
        (migrations.RenameField("pump", "name", "title"), "renaming-column"),
        (migrations.RenameModel("pump", "valve"), "renaming-table"),
        (migrations.AddConstraint("pump", POSITIVE), "constraint-missing-not-valid"),
        (
            migrations.AlterField("pump", "number", models.BigIntegerField()),
            "changing-column-type",
        ),
        (
            migrations.AlterField("pump", "number", models.IntegerField(null=True)),
            "ban-drop-not-null",
        ),
        (
            migrations.AddField("pump", "size", models.IntegerField(default=1)),
            "ban-drop-default",
        ),
        (migrations.RunPython(migrations.RunPython.noop), "data-in-one-transaction"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_would_stop_an_installation_is_found(
    operation: migrations.operations.base.Operation, rule: str
) -> None:
    assert rule in statements(operation)


@pytest.mark.django_db
def test_what_stops_nobody_is_let_pass() -> None:
    assert statements(migrations.AddField("pump", "size", models.IntegerField(null=True))) == set()
    kept = models.IntegerField(db_default=1)
    assert statements(migrations.AddField("pump", "size", kept)) == set()
    new = migrations.CreateModel("Valve", [("id", models.BigAutoField(primary_key=True))])
    assert statements(new) == set()
    drop = migrations.RemoveField("pump", "name")
    assert statements(drop, contracts="Not read since 2.1, which has to run everywhere.") == set()


@pytest.mark.django_db(transaction=True)
def test_an_index_is_built_beside_the_writers() -> None:
    assert statements(AddIndexConcurrently("pump", INDEX), atomic=False) == set()
    rows = migrations.RunPython(migrations.RunPython.noop)
    assert statements(rows, atomic=False) == set()
