"""The admin's pages of the knowledge store, one file for each thing; importing registers them."""

from knowledge.admin import (
    attachments,
    bulk,
    deletions,
    descriptors,
    documents,
    events,
    golden,
    jobs,
    naming,
    pii_policy,
    proposals,
    quarantine,
    records,
    traces,
)

__all__ = [
    "attachments",
    "bulk",
    "deletions",
    "descriptors",
    "documents",
    "events",
    "golden",
    "jobs",
    "naming",
    "pii_policy",
    "proposals",
    "quarantine",
    "records",
    "traces",
]
