"""Ingestion: admit, extract, normalise, scan, chunk, index, commit. Each refuses, none warns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from access.durations import INGESTS, timed
from access.errors import ScopeMissing
from access.principal import Principal
from knowledge.adapters.embedding import Embedding
from knowledge.adapters.extractors import Extractors
from knowledge.adapters.extractors.media_types import MediaType, decide
from knowledge.adapters.indexing import index_rows
from knowledge.adapters.titles import Titles
from knowledge.core import fingerprint, likeness
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.errors import EmptyExtraction, Refused
from knowledge.core.normalising import NORMALISER_VERSION, normalised
from knowledge.core.ports import (
    AdmissionPolicy,
    Chunker,
    Extractor,
    InstructionScanner,
    LanguageDetector,
    SecretScanner,
    Stemmer,
)
from knowledge.core.profiles import ChunkingProfile, profile_named
from knowledge.core.scanning import SecretGate, flag_instructions
from knowledge.core.types import (
    ChunkDraft,
    ExtractedDocument,
    IngestRequest,
    IngestResult,
    Structure,
    Verdict,
    Visibility,
)
from knowledge.ingest.admission import Admitted, admit
from knowledge.ingest.attempt import Attempt
from knowledge.ingest.commit import commit
from knowledge.ingest.plan import IngestPlan, PlannedChunk
from knowledge.ingest.policies import TenantAdmission, admission_of
from knowledge.ingest.refusals import count_refusal


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
    embedding: Embedding | None = None

    def ingest(
        self, request: IngestRequest, principal: Principal, attempt: Attempt | None = None
    ) -> IngestResult:
        """Raises a `Refused` with its reason and leaves nothing but a counter of it.

        A document that is not whole yet when this returns (`report.complete` is false) is an
        outcome: nobody can see it, and the same request with `resume` goes on with it.
        """
        with timed(INGESTS) as told:
            try:
                admitted = admit(request, principal, max_bytes=self.max_bytes)
                plan = self.plan(admitted)
            except (Refused, ScopeMissing) as refused:
                told.outcome = "refused"
                count_refusal(principal.tenant_id, refused.code)
                raise
            result = commit(
                admitted, plan, titles=self.titles, attempt=attempt, embedding=self.embedding
            )
            told.outcome = _outcome(result)
            return result

    @property
    def titles(self) -> Titles:
        """What gives a document another title, as a new version may."""
        return Titles(
            stemmer=self.stemmer,
            scanner=self.instruction_scanner,
            vectors=self.embedding.vectors if self.embedding else None,
        )

    def accept(self, request: IngestRequest, principal: Principal) -> UUID:
        """What can be said at once of a document that is to be ingested later: which it will be.

        Raises what `ingest` would of the caller, the artifact, its kind and its names.
        """
        try:
            admitted = admit(request, principal, max_bytes=self.max_bytes)
            media_type = _media_type(admitted)
            self.extractors.inspect(admitted.content, media_type.type)
            SecretGate(self.secret_scanner).check(
                raw="", normalised="", fields=_names(admitted), chunks=()
            )
        except (Refused, ScopeMissing) as refused:
            count_refusal(principal.tenant_id, refused.code)
            raise
        return _document_id(admitted, media_type.type)

    def chunker_version(self, media_type: str, profile: ChunkingProfile) -> str:
        """What a chunk set of such a document is called today; raises `UnsupportedMediaType`."""
        return self._chunker_version(self.extractors.for_type(media_type), profile)

    def _chunker_version(self, extractor: Extractor, profile: ChunkingProfile) -> str:
        return fingerprint.chunker_version(
            extractor.version, NORMALISER_VERSION, self.chunker.version, profile.label
        )

    def plan(self, admitted: Admitted) -> IngestPlan:
        """All that is decided before the write transaction opens."""
        media_type = _media_type(admitted)
        extractor = self.extractors.for_type(media_type.type)
        extracted = extractor.extract(
            admitted.content, media_type=media_type.type, charset=media_type.charset
        )
        text, structure = normalised(extracted)
        profile = profile_named(admitted.request.profile)
        drafts = self.chunker.chunk(
            text,
            title=admitted.title,
            media_type=extracted.text_type or extracted.media_type,
            structure=structure,
            profile=profile,
        )
        self._scan_for_secrets(admitted, extracted, text, drafts)
        if not drafts:
            raise EmptyExtraction
        language = admitted.request.language or self.language_detector.detect(text)
        chunker_version = self._chunker_version(extractor, profile)
        policy = admission_of(admitted.principal.tenant_id, self.admission_policy)
        chunks = self._planned(admitted, drafts, chunker_version, language, policy)
        return IngestPlan(
            document_id=_document_id(admitted, extracted.media_type),
            media_type=extracted.media_type,
            source_type=_with_charset(extracted.media_type, media_type.charset),
            language=language,
            doc_date=admitted.request.doc_date or _stated_date(extracted),
            page_count=len(structure.page_starts) or None,
            truncated=extracted.truncated,
            warnings=extracted.warnings,
            chunker_version=chunker_version,
            analyzer_version=ANALYZER_VERSION,
            secret_scanner_version=self.secret_scanner.version,
            instruction_scanner_version=self.instruction_scanner.version,
            admission_version=policy.version,
            fingerprint=self._fingerprint(
                admitted,
                chunker_version,
                structure,
                text,
                chunks,
                policy_version=policy.version,
            ),
            chunks=tuple(chunk for chunk in chunks if chunk.verdict is not Verdict.REJECT),
            rejected=sum(chunk.verdict is Verdict.REJECT for chunk in chunks),
        )

    def _fingerprint(
        self,
        admitted: Admitted,
        chunker_version: str,
        structure: Structure,
        text: str,
        chunks: Sequence[PlannedChunk],
        *,
        policy_version: str,
    ) -> str:
        request, principal = admitted.request, admitted.principal
        return fingerprint.plan_fingerprint(
            chunker_version=chunker_version,
            structure=structure,
            built_in=(self.secret_scanner.version, self.instruction_scanner.version),
            policy_version=policy_version,
            scope=(
                request.visibility,
                request.project_scope or "",
                principal.principal_id if request.visibility is Visibility.PRINCIPAL else "",
                request.sensitivity,
            ),
            embedding=self.embedding.named() if self.embedding else (),
            text=text,
            chunk_keys=[chunk.key for chunk in chunks],
        )

    def _scan_for_secrets(
        self,
        admitted: Admitted,
        extracted: ExtractedDocument,
        text: str,
        drafts: Sequence[ChunkDraft],
    ) -> None:
        metadata = {f"metadata.{name}": value for name, value in extracted.metadata.items()}
        SecretGate(self.secret_scanner).check(
            raw=extracted.text,
            normalised=text,
            fields={**_names(admitted), **metadata},
            chunks=drafts,
        )

    def _planned(
        self,
        admitted: Admitted,
        drafts: Sequence[ChunkDraft],
        chunker_version: str,
        language: str,
        policy: TenantAdmission,
    ) -> list[PlannedChunk]:
        judgements = [policy.judge(draft) for draft in drafts]
        flags = flag_instructions(self.instruction_scanner, drafts, title=admitted.title)
        rows = index_rows(
            self.stemmer,
            admitted.title,
            {
                draft.ordinal: (draft.heading_path, draft.text)
                for draft, judgement in zip(drafts, judgements, strict=True)
                if judgement.verdict is Verdict.ADMIT
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
                verdict=judgement.verdict,
                reasons=[*judgement.reasons],
                matches=matches,
                row=rows.get(draft.ordinal),
            )
            for draft, judgement, matches in zip(drafts, judgements, flags, strict=True)
        ]


def _outcome(result: IngestResult) -> str:
    if result.already_ingested:
        return "unchanged"
    return "ingested" if result.report.complete else "incomplete"


def _media_type(admitted: Admitted) -> MediaType:
    return decide(
        admitted.content,
        claimed=admitted.artifact.media_type,
        filename=admitted.artifact.filename,
    )


def _with_charset(media_type: str, charset: str | None) -> str:
    return f"{media_type}; charset={charset}" if charset else media_type


def _names(admitted: Admitted) -> dict[str, str]:
    """What is stored and shown of a document beside its text."""
    source = admitted.request.source
    return {
        "title": admitted.title,
        "file_name": admitted.artifact.filename,
        "attribution": admitted.artifact.attribution,
        "source": f"{source.type} {source.id} {source.version}" if source else "",
    }


def _stated_date(extracted: ExtractedDocument) -> date | None:
    """The date that the source gives itself; one that is no date is none."""
    try:
        return date.fromisoformat(extracted.metadata.get("date", ""))
    except ValueError:
        return None


def _document_id(admitted: Admitted, media_type: str) -> UUID:
    request, principal = admitted.request, admitted.principal
    if (named := request.document_id or request.derived_id) is not None:
        return named
    if request.source is not None:
        return fingerprint.document_id_for_source(
            principal.tenant_id, request.source.type, request.source.id
        )
    return fingerprint.document_id_for_bytes(
        principal.tenant_id, principal.principal_id, admitted.artifact.sha256, media_type
    )
