"""Whether the embedded database was made by the migrations that are here.

Until the first release migrations are rewritten instead of added to. Django goes by their names: in
a database that an earlier writing of them made they all look applied, and the first statement that
wants a newer column fails. So what each applied migration was like is kept in the folder of the
embedded database, and compared before anything is done to it. A `DATABASE_URL` needs none of this:
what was released is never rewritten (docs/operations.md).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import Final

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from config.embedded import EmbeddedError

_FILE: Final = "verbatim-migrations.json"
_OURS: Final = frozenset({"access", "artifacts", "knowledge"})


class StaleSchema(EmbeddedError):
    """The embedded database was made by other migrations; the message says what to remove."""


def require_known_schema() -> None:
    """Raises `StaleSchema` for an embedded database of other migrations than those that are here."""
    known, here = _kept(), _fingerprints()
    for name in _applied():
        if name not in here or known.get(name) != here[name]:
            places = settings.SERVICES
            raise StaleSchema(
                f"the database was made by another state of this code ({name} was not what"
                f" it is now), and nothing leads from there to here: remove {places.postgres} and"
                f" {settings.ARTIFACT_ROOT} to begin anew, or go back to that state and export"
                " first what you want to keep."
            )


def remember_schema(**_: object) -> None:
    """Keeps what the applied migrations are like; to be told whenever some were applied."""
    here = _fingerprints()
    applied = {name: here[name] for name in _applied() if name in here}
    # An app that is not installed at the moment has its tables all the same.
    _file().write_text(json.dumps({**_kept(), **applied}, indent=1))


def _applied() -> list[str]:
    """Those of ours that are installed, in their order; none when the database is fresh."""
    ours = {one.label for one in apps.get_app_configs() if one.name.partition(".")[0] in _OURS}
    found = MigrationLoader(connection).applied_migrations
    return [f"{app}.{name}" for app, name in sorted(found) if app in ours]


def _fingerprints() -> dict[str, str]:
    migrations = MigrationLoader(None).disk_migrations
    return {
        f"{app}.{name}": hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()
        for (app, name), kind in ((key, type(one)) for key, one in migrations.items())
    }


def _file() -> Path:
    return Path(settings.SERVICES.postgres) / _FILE


def _kept() -> dict[str, str]:
    try:
        kept: dict[str, str] = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return kept
