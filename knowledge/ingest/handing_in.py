"""A file that is handed in for one ingest, by whoever keeps no copy of it here."""

from __future__ import annotations

from datetime import timedelta
from typing import IO, Any

from django.conf import settings
from django.utils import timezone

from access.errors import ScopeMissing
from access.principal import Principal
from access.trust import OriginTrust
from artifacts import store as artifacts
from knowledge.core.errors import Refused
from knowledge.core.types import IngestRequest
from knowledge.ingest import jobs
from knowledge.ingest.pipeline import Ingestor
from knowledge.ingest.refusals import count_refusal
from knowledge.models import IngestJob


def hand_in(
    ingestor: Ingestor, principal: Principal, content: IO[bytes], *, filename: str, **asked: Any
) -> IngestJob:
    """Stores the file and enqueues its ingest; `asked` are fields of an `IngestRequest`.

    The upload is the job's alone: refused at once, it was never there; ingested or refused later,
    it is handed to the sweeper, since the document has a copy of its own and a refused file may
    hold what must not stay. Raises `InvalidUpload`, `UploadTooLarge`, and as `Ingestor.accept`.
    """
    try:
        with artifacts.putting(
            principal,
            content,
            filename=filename,
            expires_at=timezone.now() + timedelta(days=settings.ARTIFACT_TTL_DAYS),
        ) as artifact:
            request = IngestRequest(artifact_id=artifact.pk, origin_trust=OriginTrust.USER, **asked)
            return jobs.enqueue(ingestor, request, principal, discards_upload=True)
    except (Refused, ScopeMissing) as refused:
        # Counted inside as well, and taken back with everything else.
        count_refusal(principal.tenant_id, refused.code)
        raise
