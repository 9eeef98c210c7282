"""What of the knowledge store names an artifact, for the page of one."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import reverse

from artifacts.models import Artifact
from artifacts.naming import Name, register_naming
from knowledge.models import Attachment, DocumentVersion, RecordSource, RetentionProposal


@register_naming
def _rows(artifact: Artifact) -> Iterator[Name]:
    versions = DocumentVersion.objects.filter(source=artifact).select_related("document")
    for version in versions:
        yield Name(
            what=f"document, version {version.version}",
            text=version.document.title,
            address=reverse("admin:knowledge_document_change", args=[version.document_id]),
        )
    for source in RecordSource.objects.filter(artifact_id=artifact.pk).select_related("record"):
        yield Name(
            what=f"{source.record.kind}" if source.current else f"{source.record.kind}, earlier",
            text=source.record.label,
            address=reverse("admin:knowledge_record_change", args=[source.record_id]),
        )
    for attachment in Attachment.objects.filter(artifact=artifact).select_related("conversation"):
        yield Name(
            what="attachment",
            text=attachment.conversation.conversation_id,
            address=reverse("admin:knowledge_attachment_change", args=[attachment.pk]),
        )
    for proposal in RetentionProposal.objects.filter(snapshot=artifact):
        yield Name(
            what="proposal",
            text=proposal.title,
            address=reverse("admin:knowledge_retentionproposal_change", args=[proposal.pk]),
        )
