"""The machine at length, and that it notices what it is there to notice.

`MACHINE_RUNS` runs of `MACHINE_STEPS` steps in all, in two halves so that two processes share them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from knowledge.core.scope import ReadScope
from knowledge.models.document import VisibilitySpaceQuerySet
from tests.machine import StoreMachine

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

RUNS = int(os.environ.get("MACHINE_RUNS", "500"))
STEPS = int(os.environ.get("MACHINE_STEPS", "50"))
SEED = int(os.environ.get("MACHINE_SEED", "0"))
QUICK = settings(
    deadline=None,
    database=None,
    verbosity=Verbosity.normal,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@pytest.mark.parametrize("half", [1, 2])
def test_the_store_agrees_with_the_model(blob_root: Path, half: int) -> None:
    class Half(StoreMachine):
        pass

    chosen = settings(QUICK, max_examples=RUNS // 2, stateful_step_count=STEPS)
    run_state_machine_as_test(seed(1000 * SEED + half)(Half), settings=chosen)


def _anybody(self: Any, scope: ReadScope) -> Any:
    return self.filter(tenant_id=scope.tenant_id)


MUTANTS: dict[str, Any] = {
    "visibility is not asked": mock.patch.object(VisibilitySpaceQuerySet, "visible_to", _anybody),
    "a rescope leaves the index behind": mock.patch(
        "knowledge.adapters.term_index.move", return_value=0
    ),
    "a new version leaves the old one in the present": mock.patch(
        "knowledge.adapters.term_index.retire"
    ),
    "a retitle leaves the index behind": mock.patch(
        "knowledge.adapters.titles.index_anew", return_value=0
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_machine_notices(blob_root: Path, mutant: str) -> None:
    class Mutated(StoreMachine):
        pass

    chosen = settings(QUICK, max_examples=60, stateful_step_count=30)
    with MUTANTS[mutant], pytest.raises(AssertionError):
        run_state_machine_as_test(seed(1)(Mutated), settings=chosen)
