"""The admin's pages of the knowledge store, one file for each thing; importing registers them."""

from knowledge.admin import (
    attachments,
    bulk,
    deletions,
    documents,
    events,
    golden,
    jobs,
    naming,
    pii_policy,
    proposals,
    quarantine,
    traces,
)

__all__ = [
    "attachments",
    "bulk",
    "deletions",
    "documents",
    "events",
    "golden",
    "jobs",
    "naming",
    "pii_policy",
    "proposals",
    "quarantine",
    "traces",
]
