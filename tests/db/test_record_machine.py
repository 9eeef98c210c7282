"""A few short runs of the machine of records; `tests/faults` has the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.record_machine import RecordMachine


@pytest.mark.django_db(transaction=True)
def test_records_agree_with_the_model(blob_root: Path) -> None:
    run_state_machine_as_test(
        RecordMachine,
        settings=settings(
            max_examples=3,
            stateful_step_count=8,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
