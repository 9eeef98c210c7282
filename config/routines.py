"""What beat asks the workers to do, and how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

SCHEDULE: dict[str, dict[str, Any]] = {
    "sweep-artifacts": {"task": "artifacts.sweep", "schedule": timedelta(minutes=5)},
    "merge-term-statistics": {
        "task": "knowledge.merge_term_statistics",
        "schedule": timedelta(minutes=1),
    },
}
