"""Ingestion: admit, extract, normalise, scan, chunk, index, commit. Each refuses, none warns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from access.errors import ScopeMissing
from access.principal import Principal
from knowledge.adapters.extractors import Extractors
from knowledge.adapters.extractors.media_types import decide
from knowledge.adapters.indexing import index_rows
from knowledge.core import fingerprint, likeness
from knowledge.core.errors import EmptyExtraction, Refused
from knowledge.core.normalising import NORMALISER_VERSION, normalise
from knowledge.core.ports import (
    AdmissionPolicy,
    Chunker,
    InstructionScanner,
    LanguageDetector,
    SecretScanner,
    Stemmer,
)
from knowledge.core.profiles import profile_named
from knowledge.core.types import (
    ChunkDraft,
    ExtractedDocument,
    Heading,
    IngestRequest,
    IngestResult,
    Structure,
    Verdict,
)
from knowledge.ingest.admission import Admitted, admit
from knowledge.ingest.commit import commit
from knowledge.ingest.plan import IngestPlan, PlannedChunk
from knowledge.ingest.refusals import count_refusal
from knowledge.ingest.scanning import SecretGate, flag_instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingestor:
    """The pipeline with its parts; every surface that admits a document calls `ingest`."""

    extractors: Extractors
    chunker: Chunker
    secret_scanner: SecretScanner
    instruction_scanner: InstructionScanner
    admission_policy: AdmissionPolicy
    stemmer: Stemmer
    language_detector: LanguageDetector
    max_bytes: int

    def ingest(self, request: IngestRequest, principal: Principal) -> IngestResult:
        """Raises a `Refused` with its reason and leaves nothing but a counter of it."""
        try:
            admitted = admit(request, principal, max_bytes=self.max_bytes)
            plan = self.plan(admitted)
        except (Refused, ScopeMissing) as refused:
            count_refusal(principal.tenant_id, refused.code)
            raise
        return commit(admitted, plan)

    def plan(self, admitted: Admitted) -> IngestPlan:
        """All that is decided before the write transaction opens."""
        extracted, version = self._extract(admitted)
        text, structure = _normalised(extracted)
        profile = profile_named(admitted.request.profile)
        drafts = self.chunker.chunk(
            text,
            title=admitted.title,
            media_type=extracted.media_type,
            structure=structure,
            profile=profile,
        )
        self._scan_for_secrets(admitted, extracted, text, drafts)
        if not drafts:
            raise EmptyExtraction
        language = admitted.request.language or self.language_detector.detect(text)
        chunker_version = fingerprint.chunker_version(
            version, NORMALISER_VERSION, self.chunker.version, profile.label
        )
        chunks = self._planned(admitted, drafts, chunker_version, language)
        return IngestPlan(
            document_id=_document_id(admitted, extracted.media_type),
            media_type=extracted.media_type,
            language=language,
            doc_date=admitted.request.doc_date or _stated_date(extracted),
            page_count=len(structure.page_starts) or None,
            truncated=extracted.truncated,
            warnings=extracted.warnings,
            chunker_version=chunker_version,
            secret_scanner_version=self.secret_scanner.version,
            instruction_scanner_version=self.instruction_scanner.version,
            admission_version=self.admission_policy.version,
            fingerprint=_plan_fingerprint(admitted, chunker_version, self.admission_policy, text),
            chunks=tuple(chunk for chunk in chunks if chunk.verdict is not Verdict.REJECT),
            rejected=sum(chunk.verdict is Verdict.REJECT for chunk in chunks),
        )

    def _extract(self, admitted: Admitted) -> tuple[ExtractedDocument, str]:
        media_type = decide(
            admitted.content,
            claimed=admitted.artifact.media_type,
            filename=admitted.artifact.filename,
        )
        extractor = self.extractors.for_type(media_type.type)
        extracted = extractor.extract(
            admitted.content, media_type=media_type.type, charset=media_type.charset
        )
        return extracted, extractor.version

    def _scan_for_secrets(
        self,
        admitted: Admitted,
        extracted: ExtractedDocument,
        text: str,
        drafts: Sequence[ChunkDraft],
    ) -> None:
        source = admitted.request.source
        SecretGate(self.secret_scanner).check(
            raw=extracted.text,
            normalised=text,
            fields={
                "title": admitted.title,
                "file_name": admitted.artifact.filename,
                "attribution": admitted.artifact.attribution,
                "source": f"{source.type} {source.id} {source.version}" if source else "",
                **{f"metadata.{name}": value for name, value in extracted.metadata.items()},
            },
            chunks=drafts,
        )

    def _planned(
        self,
        admitted: Admitted,
        drafts: Sequence[ChunkDraft],
        chunker_version: str,
        language: str,
    ) -> list[PlannedChunk]:
        verdicts = [self.admission_policy.classify(draft) for draft in drafts]
        flags = flag_instructions(self.instruction_scanner, drafts, title=admitted.title)
        rows = index_rows(
            self.stemmer,
            admitted.title,
            {
                draft.ordinal: (draft.heading_path, draft.text)
                for draft, verdict in zip(drafts, verdicts, strict=True)
                if verdict is Verdict.ADMIT
            },
            language,
        )
        return [
            PlannedChunk(
                draft=draft,
                key=fingerprint.chunk_key(
                    chunker_version, draft.ordinal, draft.heading_path, draft.text
                ),
                content_sha256=fingerprint.content_sha256(draft.text),
                boilerplate=likeness.boilerplate(draft.text),
                sketch=likeness.sketch(draft.text),
                verdict=verdict,
                matches=matches,
                row=rows.get(draft.ordinal),
            )
            for draft, verdict, matches in zip(drafts, verdicts, flags, strict=True)
        ]


def _normalised(extracted: ExtractedDocument) -> tuple[str, Structure]:
    """The normalised text, and the structure with its offsets moved along."""
    given = extracted.structure
    marks = [heading.start for heading in given.headings] + list(given.page_starts)
    result = normalise(extracted.text, media_type=extracted.media_type, marks=marks)
    starts = result.marks[: len(given.headings)]
    return result.text, Structure(
        headings=tuple(
            Heading(title=heading.title, level=heading.level, start=start)
            for heading, start in zip(given.headings, starts, strict=True)
        ),
        page_starts=tuple(result.marks[len(given.headings) :]),
    )


def _stated_date(extracted: ExtractedDocument) -> date | None:
    """The date that the source gives itself; one that is no date is none."""
    try:
        return date.fromisoformat(extracted.metadata.get("date", ""))
    except ValueError:
        return None


def _document_id(admitted: Admitted, media_type: str) -> UUID:
    request, principal = admitted.request, admitted.principal
    if request.document_id is not None:
        return request.document_id
    if request.source is not None:
        return fingerprint.document_id_for_source(
            principal.tenant_id, request.source.type, request.source.id
        )
    return fingerprint.document_id_for_bytes(
        principal.tenant_id, principal.principal_id, admitted.artifact.sha256, media_type
    )


def _plan_fingerprint(
    admitted: Admitted, chunker_version: str, policy: AdmissionPolicy, text: str
) -> str:
    request = admitted.request
    framed = fingerprint.frame(
        chunker_version,
        policy.version,
        request.visibility,
        request.project_scope or "",
        request.sensitivity,
        text,
    )
    return hashlib.sha256(framed).hexdigest()
