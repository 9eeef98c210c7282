"""The admin's pages of the knowledge store, one file for each thing; importing registers them."""

from knowledge.admin import documents, events, jobs, traces

__all__ = ["documents", "events", "jobs", "traces"]
