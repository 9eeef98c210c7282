"""The machine of records at length, and that it notices what it is there to notice.

`MACHINE_RUNS` runs of `MACHINE_STEPS` steps.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from artifacts.models import Artifact
from knowledge.core.scope import ReadScope
from knowledge.models.document import VisibilitySpaceQuerySet
from tests.record_machine import RecordMachine

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

RUNS = int(os.environ.get("MACHINE_RUNS", "100"))
STEPS = int(os.environ.get("MACHINE_STEPS", "50"))
SEED = int(os.environ.get("MACHINE_SEED", "0"))
QUICK = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


def test_records_agree_with_the_model(blob_root: Path) -> None:
    chosen = settings(QUICK, max_examples=RUNS, stateful_step_count=STEPS)
    run_state_machine_as_test(seed(SEED)(RecordMachine), settings=chosen)


def _anybody(self: Any, scope: ReadScope) -> Any:
    return self.filter(tenant_id=scope.tenant_id)


MUTANTS: dict[str, Any] = {
    "visibility is not asked": mock.patch.object(VisibilitySpaceQuerySet, "visible_to", _anybody),
    "sources are not named": mock.patch("knowledge.evidence.writing._name_sources"),
    "an attachment keeps its time": mock.patch(
        "knowledge.evidence.writing.artifacts.keep_for_good",
        lambda wanted: list(Artifact.objects.filter(pk__in=list(wanted))),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_machine_notices(blob_root: Path, mutant: str) -> None:
    class Mutated(RecordMachine):
        pass

    chosen = settings(QUICK, max_examples=30, stateful_step_count=15)
    with MUTANTS[mutant], pytest.raises(AssertionError):
        run_state_machine_as_test(seed(1)(Mutated), settings=chosen)
