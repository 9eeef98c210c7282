"""A few short runs of the machine; `tests/faults` has the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine import StoreMachine


@pytest.mark.django_db(transaction=True)
def test_the_store_agrees_with_the_model(blob_root: Path) -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=8,
            stateful_step_count=15,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
