"""Why a document was refused or a question could not be answered, with stable codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from access.errors import Forbidden, Malformed, Unavailable, VerbatimError


class KnowledgeError(VerbatimError):
    """The knowledge store could not do this."""


class Refused(KnowledgeError):
    """The document was refused and nothing of it was stored."""

    code = "refused"
    status = 422


class UntrustedOrigin(Refused, Forbidden):
    """Admitting a document needs a turn that a person or the system vouches for."""

    code = "untrusted_origin"
    status = 403


class UnsupportedMediaType(Refused):
    """This kind of file cannot be admitted."""

    code = "unsupported_media_type"
    status = 415


class MediaTypeMismatch(Refused):
    """The bytes are not of the kind that the media type or the file name claims."""

    code = "media_type_mismatch"
    status = 415


class UndecodableText(Refused):
    """The bytes are not text in the encoding they claim."""

    code = "undecodable_text"


class BinaryContent(Refused):
    """The text holds NUL bytes, so it is binary and not text."""

    code = "binary_content"


class EmptyExtraction(Refused):
    """There is no text in this document, so nothing could ever be quoted from it."""

    code = "empty_extraction"


class TooLarge(Refused):
    """The document is larger than this installation admits."""

    code = "too_large"
    status = 413


class EncryptedDocument(Refused):
    """The document is encrypted; remove its password and its restrictions, and admit it again."""

    code = "encrypted_document"


class UnreadableDocument(Refused):
    """The document is damaged, or not what it says it is, and cannot be read."""

    code = "unreadable_document"


class TooMuchText(TooLarge):
    """The document holds more text than this installation admits; admit it in parts."""

    code = "extraction_too_large"


class ExtractionTimeout(Refused):
    """The document takes too long to read; admit it in parts."""

    code = "extraction_timeout"


class ExtractionMemory(Refused):
    """The document takes too much memory to read; admit it in parts."""

    code = "extraction_memory"


class ExtractionBusy(KnowledgeError, Unavailable):
    """Too many documents are being read right now; try again shortly."""

    code = "extraction_busy"


class ExtractionInterrupted(KnowledgeError, Unavailable):
    """Reading the document was interrupted from outside; try again shortly."""

    code = "extraction_interrupted"


class SecretFound(Refused):
    """The document holds what looks like a credential; take it out and admit it again."""

    code = "secret_found"
    own_members: ClassVar[Mapping[str, Any]] = {
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "description": "Where a credential stands, and which rule saw it; never its value.",
                "properties": {
                    "rule": {"type": "string"},
                    "layer": {"type": "string"},
                    "field": {"type": "string"},
                    "line": {"type": ["integer", "null"]},
                    "column": {"type": ["integer", "null"]},
                    "length": {"type": "integer"},
                    "chunk_ordinal": {"type": ["integer", "null"]},
                    "heading_path": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["rule", "layer"],
            },
        }
    }

    def __init__(self, findings: Sequence[dict[str, Any]]) -> None:
        first = findings[0]
        where = f"line {first['line']}" if first.get("line") else str(first["field"])
        more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
        super().__init__(
            f"Rule {first['rule']} fired at {where}{more}. The value is not repeated here.",
            findings=list(findings),
        )


class InvalidBatchSize(KnowledgeError, Malformed):
    """A batch has 1 to 512 chunks."""

    code = "invalid_batch_size"
    status = 400


class InvalidTitle(Refused, Malformed):
    """The title is empty, too long or holds control characters."""

    code = "invalid_title"
    status = 400


class UnknownProfile(KnowledgeError, Malformed):
    """There is no such chunking profile."""

    code = "unknown_profile"
    status = 400


class InvalidPiiRules(KnowledgeError, Malformed):
    """These rules for personal data cannot be."""

    code = "invalid_pii_rules"
    status = 400


class IngestScopeMismatch(KnowledgeError):
    """The same document exists with another visibility; rescope it instead of admitting it anew."""

    code = "ingest_scope_mismatch"
    status = 409


class SensitivityAboveCeiling(KnowledgeError, Forbidden):
    """The document would be more sensitive than what the caller may see."""

    code = "sensitivity_above_ceiling"


class IngestIncomplete(KnowledgeError):
    """This very version was begun and not finished; send it again with `resume` to go on."""

    code = "ingest_incomplete"
    status = 409


class IngestPlanMismatch(KnowledgeError):
    """This version of the source is there already, from another text or under another plan."""

    code = "ingest_plan_mismatch"
    status = 409


class IngestBusy(KnowledgeError):
    """Another version of this document is being ingested at this moment; try again shortly."""

    code = "ingest_busy"
    status = 409


class IngestInterrupted(KnowledgeError):
    """The document was deleted, or its new version replaced, while it was being ingested."""

    code = "ingest_interrupted"
    status = 409


class RechunkBusy(KnowledgeError):
    """Another run is dividing this document anew, or it keeps changing; try again shortly."""

    code = "rechunk_busy"
    status = 409


class ChunkSetRetired(KnowledgeError):
    """This version was divided in this very way before, and a retired chunk set stays retired."""

    code = "chunk_set_retired"
    status = 409


class PassagesPurged(KnowledgeError):
    """A passage of this version was removed for good; dividing its source anew would bring it
    back. Admit the text without it as a new version."""

    code = "passages_purged"
    status = 409


class NotInstalled(KnowledgeError, Malformed):
    """This installation has no extractor or chunker of that version."""

    code = "not_installed"
    status = 400


class KnowledgeReleaseNotFinalized(KnowledgeError):
    """The version is still being ingested; finish that first."""

    code = "knowledge_release_not_finalized"
    status = 409


class EmbedderError(Exception):  # an embedder's own word for why; never leaves ingest and search
    """What went wrong with an embedder, in words that name no content and no secret."""


class EmbedderUnavailable(KnowledgeError):
    """The embedder gave no vector for this passage; nothing was changed, so try again later."""

    code = "embedder_unavailable"
    status = 503


class ModelDimensionsChanged(KnowledgeError):
    """A model has vectors of one length, and this one made some of another."""

    code = "model_dimensions_changed"
    status = 409


class NotQuarantined(KnowledgeError):
    """This passage is not in quarantine any more."""

    code = "not_quarantined"
    status = 409


class ReasonMissing(KnowledgeError, Malformed):
    """This needs a reason, which is kept in the event log."""

    code = "reason_missing"
    status = 400


class LegalHold(KnowledgeError):
    """The document is under a legal hold and cannot be deleted."""

    code = "legal_hold"
    status = 409


class Deleted(KnowledgeError):
    """This has been deleted; nothing of it is left to show.

    Said only to whoever could have seen it; for everybody else it never existed.
    """

    code = "deleted"
    status = 410
    own_members: ClassVar[Mapping[str, Any]] = {
        "deleted_at": {"type": "string", "format": "date-time"},
        "deletion_id": {
            "type": "string",
            "format": "uuid",
            "description": "Its receipt: `/v1/deletions/{deletion_id}`.",
        },
    }

    def __init__(self, *, deleted_at: datetime, deletion_id: UUID) -> None:
        self.deleted_at, self.deletion_id = deleted_at, deletion_id
        super().__init__(
            deleted_at=deleted_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            deletion_id=str(deletion_id),
        )


class DeletionIncomplete(KnowledgeError):
    """Something of the document was still there after its deletion, so nothing was deleted."""

    code = "deletion_incomplete"
    status = 500


class TooManyDocuments(KnowledgeError, Malformed):
    """So many documents are not taken at once; choose fewer."""

    code = "too_many_documents"
    status = 400


class ConversationDeleted(KnowledgeError):
    """The conversation was deleted; nothing can be attached to it any more."""

    code = "conversation_deleted"
    status = 410


class ProposalDecided(KnowledgeError):
    """The proposal has been decided already, or has expired."""

    code = "proposal_decided"
    status = 409


class InvalidQuery(KnowledgeError, Malformed):
    """The query is too long or holds a NUL character."""

    code = "invalid_query"


class NoGain(KnowledgeError):
    """Automatic recall was measured and shows no gain, so it stays as it is."""

    code = "no_gain"
    status = 422


class NoLift(KnowledgeError):
    """The arm was measured and does not lift the search, so it stays as it is."""

    code = "no_lift"
    status = 422


class VectorsMissing(KnowledgeError):
    """Passages have no vector of this model yet: run `manage.py embed` first."""

    code = "vectors_missing"
    status = 409


class NoEmbedder(KnowledgeError):
    """This installation has no embedder: set EMBEDDER, and migrate."""

    code = "no_embedder"
    status = 409


class CitationConflict(KnowledgeError):
    """Something else was recorded of this answer already, and records are not changed."""

    code = "citation_conflict"
    status = 409


class BeliefFromDocument(KnowledgeError):
    """A belief may not stand on a document: passages are quoted, never believed."""

    code = "belief_from_document"
    status = 422
    own_members: ClassVar[Mapping[str, Any]] = {
        "refused": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "index": {
                        "type": "integer",
                        "description": "Which of the provenances, from 0.",
                    },
                    "because": {
                        "type": "string",
                        "description": "What gave it away: its kind, a chunk id, an address of"
                        " ours, a piece of a rendered block, or the id of a document, chunk set,"
                        " source or attachment of one that you could read.",
                    },
                },
                "required": ["index", "because"],
            },
        }
    }


class GoldenSetExists(KnowledgeError):
    """There is a golden set of that name already."""

    code = "golden_set_exists"
    status = 409


class GoldenRunning(KnowledgeError):
    """This golden set is being asked already."""

    code = "golden_running"
    status = 409


class QuoteElsewhere(KnowledgeError, Malformed):
    """The passage does not hold these words."""

    code = "quote_elsewhere"
    status = 422


class InvalidRecord(KnowledgeError, Malformed):
    """The record cannot be written like this."""

    code = "invalid_record"
    status = 400
    own_members: ClassVar[Mapping[str, Any]] = {"field": {"type": "string"}}


class RevisionConflict(KnowledgeError):
    """The record has another revision than the one that this write has seen; read it again."""

    code = "revision_conflict"
    status = 409
    own_members: ClassVar[Mapping[str, Any]] = {
        "revision": {"type": "integer", "description": "The latest."},
        "hash": {"type": "string"},
    }


class RequestConflict(KnowledgeError):
    """This request id was used for something else; a new request takes a new one."""

    code = "request_conflict"
    status = 409


class SchemaMismatch(KnowledgeError):
    """Records are written in another schema than the one that was expected."""

    code = "schema_mismatch"
    status = 409


class WrongKind(KnowledgeError):
    """This cannot be done to a record of this kind."""

    code = "wrong_record_kind"
    status = 409


class EvidenceRefused(KnowledgeError):
    """The evidence does not hold, so nothing was changed.

    `position` is that of the citation in its list, `list` which list that is.
    """

    code = "evidence_refused"
    status = 422
    own_members: ClassVar[Mapping[str, Any]] = {
        "list": {"enum": ["evidence", "attachments"]},
        "position": {"type": "integer"},
    }

    def at(self, position: int, of: str = "evidence") -> EvidenceRefused:
        """The same, of a citation in a list."""
        return type(self)(self.detail, **{**self.members, "list": of, "position": position})


class EvidenceMissing(EvidenceRefused):
    """A claim or a relationship stands on evidence; this one would have none."""

    code = "evidence_missing"


class EvidenceUnknownSource(EvidenceRefused):
    """There is no source by this id that you may read."""

    code = "evidence_unknown_source"


class EvidenceLinesOutOfRange(EvidenceRefused):
    """The source has no such lines."""

    code = "evidence_lines_out_of_range"


class EvidenceWithoutText(EvidenceRefused):
    """The source is kept and can be downloaded, but has no text whose lines or words could be cited."""

    code = "evidence_without_text"


class QuoteNotFound(EvidenceRefused):
    """The source does not say this letter by letter."""

    code = "quote_not_found"
