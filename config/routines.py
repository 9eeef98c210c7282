"""What beat asks the workers to do, and how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

SCHEDULE: dict[str, dict[str, Any]] = {
    "sweep-artifacts": {"task": "artifacts.sweep", "schedule": timedelta(minutes=5)},
    "reconcile-ingest-jobs": {
        "task": "knowledge.reconcile_ingest_jobs",
        "schedule": timedelta(seconds=5),
        # While every worker is busy these would only pile up.
        "options": {"expires": 5},
    },
    "reconcile-bulk-tasks": {
        "task": "knowledge.reconcile_bulk_tasks",
        "schedule": timedelta(seconds=5),
        "options": {"expires": 5},
    },
    "discard-abandoned-versions": {
        "task": "knowledge.discard_abandoned_versions",
        "schedule": timedelta(hours=1),
    },
    "roll-up-figures": {
        "task": "knowledge.roll_up_figures",
        "schedule": timedelta(minutes=1),
        "options": {"expires": 60},
    },
    "retain-traces": {"task": "knowledge.retain_traces", "schedule": timedelta(hours=1)},
    "reconcile-golden-runs": {
        "task": "knowledge.reconcile_golden_runs",
        "schedule": timedelta(minutes=1),
        "options": {"expires": 60},
    },
    "embed-missing": {
        "task": "knowledge.embed_missing",
        "schedule": timedelta(minutes=5),
        "options": {"expires": 300},
    },
    "merge-term-statistics": {
        "task": "knowledge.merge_term_statistics",
        "schedule": timedelta(minutes=1),
    },
}
