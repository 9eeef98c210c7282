"""The store of this process with embedders of the tests' own.

These tests need the tables of the semantic arm, which an installation without an embedder does
not have: `make test` runs them by themselves, with VERBATIM_TEST_EMBEDDER set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from access.tenancy import tenant_session
from knowledge.core.fusion import SEMANTIC
from knowledge.models import ArmSwitch
from knowledge.wiring import store
from tests.semantic.embedders import WordsEmbedder

if not settings.EMBEDDERS:
    collect_ignore_glob = ["test_*.py"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantic:
    """The embedder in use, and what puts others beside it."""

    embedder: WordsEmbedder
    use: Callable[..., None]

    def switch_on(self, tenant: str = "acme") -> None:
        """As if a trial had shown a lift."""
        with tenant_session(tenant):
            ArmSwitch.objects.create(tenant_id=tenant, arm=SEMANTIC, enabled=True, changed_by="o")


def moment() -> datetime:
    """Now, by the clock that versions go by."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


@pytest.fixture
def semantic(db: Any, blob_root: Any) -> Iterator[Semantic]:
    """The store of this process with a `WordsEmbedder`, on for `acme`."""
    from knowledge.semantic.arm import SemanticArm  # noqa: PLC0415 - there is such an app only here
    from knowledge.semantic.embedders import (  # noqa: PLC0415
        Configured,
        Embedders,
        SwitchingEmbedding,
    )
    from knowledge.semantic.filling import Filler  # noqa: PLC0415
    from knowledge.semantic.vectors import PostgresVectors  # noqa: PLC0415

    wired = store()
    before = {name: getattr(wired, name) for name in ("ingestor", "searcher", "filler")}

    def use(*embedders: WordsEmbedder, **arm: Any) -> None:
        known = Embedders([Configured(embedder=one, floor=0.1) for one in embedders])
        vectors = PostgresVectors()
        words = before["searcher"].arms[0]
        now = {
            "ingestor": replace(
                before["ingestor"],
                embedding=SwitchingEmbedding(
                    embedder=embedders[0], vectors=vectors, embedders=known
                ),
            ),
            "searcher": replace(
                before["searcher"], arms=(words, SemanticArm(known, **{"left_alone": 0, **arm}))
            ),
            "filler": Filler(embedders=known, vectors=vectors),
        }
        for name, value in now.items():
            object.__setattr__(wired, name, value)

    embedder = WordsEmbedder()
    use(embedder)
    made = Semantic(embedder=embedder, use=use)
    made.switch_on()
    try:
        yield made
    finally:
        for name, value in before.items():
            object.__setattr__(wired, name, value)
