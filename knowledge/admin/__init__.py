"""The admin's pages of the knowledge store, one file for each thing; importing registers them."""

from knowledge.admin import attachments, documents, events, jobs, proposals, traces

__all__ = ["attachments", "documents", "events", "jobs", "proposals", "traces"]
