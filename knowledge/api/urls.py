"""Addresses of the knowledge store."""

from __future__ import annotations

from django.urls import path

from knowledge.api import conversations, evidence, proposals, records, views

urlpatterns = [
    path("v1/tools/knowledge.search", views.SearchView.as_view(), name="search"),
    path("v1/tools/knowledge.ingest", views.IngestView.as_view(), name="ingest"),
    path("v1/tools/knowledge.verify_quote", views.VerifyQuoteView.as_view(), name="verify-quote"),
    path(
        "v1/tools/knowledge.propose_retention",
        proposals.ProposeRetentionView.as_view(),
        name="propose-retention",
    ),
    path("v1/tools/knowledge.attach", evidence.AttachPieceView.as_view(), name="attach"),
    path("v1/tools/knowledge.attach_file", evidence.AttachFileView.as_view(), name="attach-file"),
    path(
        "v1/tools/knowledge.attachment",
        evidence.AttachmentPartView.as_view(),
        name="attachment-part",
    ),
    path("v1/proposals/<uuid:proposal_id>", proposals.ProposalView.as_view(), name="proposal"),
    path("v1/attachments", conversations.AttachmentsView.as_view(), name="attachments"),
    path(
        "v1/attachments/<uuid:attachment_id>",
        conversations.AttachmentView.as_view(),
        name="attachment",
    ),
    path(
        "v1/conversations/<path:conversation_id>",
        conversations.ConversationView.as_view(),
        name="conversation",
    ),
    path("v1/jobs/<uuid:job_id>", views.JobView.as_view(), name="job"),
    path("v1/context/preturn", views.PreturnView.as_view(), name="preturn"),
    path("v1/context/assemble", views.AssembleView.as_view(), name="assemble"),
    path(
        "v1/guards/belief-provenance",
        views.BeliefProvenanceView.as_view(),
        name="belief-provenance",
    ),
    path("v1/chunks/<str:chunk_id>", views.ChunkView.as_view(), name="chunk"),
    path("v1/citations", views.CitationsView.as_view(), name="citations"),
    path("v1/traces/<uuid:trace_id>", views.TraceView.as_view(), name="trace"),
    path("v1/documents", views.DocumentsView.as_view(), name="documents"),
    path("v1/documents/<uuid:document_id>", views.DocumentView.as_view(), name="document"),
    path("v1/documents/<uuid:document_id>/versions", views.VersionsView.as_view(), name="versions"),
    path("v1/records", records.RecordsView.as_view(), name="records"),
    path("v1/records/pages", records.PagesView.as_view(), name="record-pages"),
    path("v1/records/claims", records.ClaimsView.as_view(), name="record-claims"),
    path(
        "v1/records/relationships",
        records.RelationshipsView.as_view(),
        name="record-relationships",
    ),
    path("v1/records/<uuid:record_id>", records.RecordView.as_view(), name="record"),
    path(
        "v1/records/<uuid:record_id>/revisions",
        records.RevisionsView.as_view(),
        name="record-revisions",
    ),
    path(
        "v1/records/<uuid:record_id>/evidence",
        records.RecordEvidenceView.as_view(),
        name="record-evidence",
    ),
    path(
        "v1/records/<uuid:record_id>/annotations",
        records.AnnotationsView.as_view(),
        name="record-annotations",
    ),
    path(
        "v1/records/<uuid:record_id>/corrections",
        records.CorrectionsView.as_view(),
        name="record-corrections",
    ),
    path(
        "v1/records/<uuid:record_id>/reconcile",
        records.ReconcileView.as_view(),
        name="record-reconcile",
    ),
    path("v1/deletions/<uuid:deletion_id>", views.DeletionView.as_view(), name="deletion"),
]
