"""Values and vocabularies of documents, chunks and searches. Pure: no Django, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from access.trust import OrderedStrEnum, OriginTrust, Sensitivity


class Visibility(StrEnum):
    """Who may find a document: its ingester, a project of its tenant, or the whole tenant."""

    PRINCIPAL = "principal"
    PROJECT = "project"
    TENANT = "tenant"


class Authority(OrderedStrEnum):
    """How a document was obtained, lowest first; never what it says."""

    FETCHED = "fetched"
    PRINCIPAL_SUPPLIED = "principal_supplied"
    PRINCIPAL_AUTHORED = "principal_authored"


class ChunkSetState(StrEnum):
    INGESTING = "ingesting"
    LIVE = "live"
    RETIRED = "retired"


class Verdict(StrEnum):
    """What the admission policy says of one chunk. Rejected chunks are counted, never stored."""

    ADMIT = "admit"
    QUARANTINE = "quarantine"
    REJECT = "reject"


class JobState(StrEnum):
    """Where a background ingest stands. The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Actor(StrEnum):
    """Who sent a message, as the host says: the owner, or something on the owner's behalf."""

    PRINCIPAL = "principal"
    SURFACE = "surface"
    SCHEDULER = "scheduler"


class AttachmentState(StrEnum):
    """What became of an attached file.

    `stored` is never a document. `pending` will be one, or else `refused`, or `failed` when it
    was tried too often. The document of an `ingested` one was `deleted` when it went on its own.
    """

    STORED = "stored"
    PENDING = "pending"
    INGESTED = "ingested"
    REFUSED = "refused"
    FAILED = "failed"
    DELETED = "deleted"


class ProposalDecision(StrEnum):
    """What became of a proposal to keep a file; all but `parked` is for good."""

    PARKED = "parked"
    APPROVED = "approved"
    DECLINED = "declined"
    EXPIRED = "expired"


class BulkAction(StrEnum):
    """What an operator does to many documents at once."""

    DELETE = "delete"
    RESCOPE = "rescope"
    HOLD = "hold"
    LIFT_HOLD = "lift_hold"
    RECHUNK = "rechunk"


class BulkState(StrEnum):
    """Where it stands. The last two are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class BulkOutcome(StrEnum):
    """What became of one document of many."""

    DONE = "done"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"


class OmittedReason(StrEnum):
    """Why a candidate passage was left out of the block."""

    FLOOR = "floor"
    CAP = "cap"
    BUDGET = "budget"
    PASSAGES = "passages"
    DUPLICATE = "duplicate"


class RecallKind(StrEnum):
    """What a trace is of: a question, a turn that was put together, automatic recall."""

    SEARCH = "search"
    ASSEMBLE = "assemble"
    PRETURN = "preturn"


class CitationVerdict(StrEnum):
    """What became of one citation of an answer.

    `unquoted`: of a passage of the block, without a quote to check. `exact`, `normalised`,
    `misattributed` and `not_found` are of one with a quote. `not_in_block`: the passage exists and
    the search did not show it. `unknown`: there is no such passage that the caller may see.
    """

    UNQUOTED = "unquoted"
    EXACT = "exact"
    NORMALISED = "normalised"
    MISATTRIBUTED = "misattributed"
    NOT_FOUND = "not_found"
    NOT_IN_BLOCK = "not_in_block"
    UNKNOWN = "unknown"


class GoldenRunState(StrEnum):
    """Where the asking of a golden set stands. The last two are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class GoldenOutcome(StrEnum):
    """What became of a golden question: a right passage was handed out, or none was, or there is
    none that a search could find today."""

    FOUND = "found"
    MISSED = "missed"
    STALE = "stale"


class AnswerState(StrEnum):
    """Where the words of a golden answer are, as of the last run.

    `current`: in the passage that was named. `moved`: in another passage of the document as it is
    now. `superseded`: nowhere in it any more. `hidden`: not where the set's principal may look.
    `deleted`: the document went, for good.
    """

    CURRENT = "current"
    MOVED = "moved"
    SUPERSEDED = "superseded"
    HIDDEN = "hidden"
    DELETED = "deleted"


# --- surfaces ---------------------------------------------------------------------------------

PLAYGROUND_SURFACE: Final = "playground"
GOLDEN_SURFACE: Final = "golden"
EVALUATION_SURFACE: Final = "evaluation"
NOT_USE: Final = frozenset({PLAYGROUND_SURFACE, GOLDEN_SURFACE, EVALUATION_SURFACE})
"""Surfaces of searches that nobody made to know something: figures of use leave them out."""


# --- the ingest half -------------------------------------------------------------------------

DEFAULT_BATCH_SIZE: Final = 64
MAX_BATCH_SIZE: Final = 512
"""Chunks that one call of the embedder, and one transaction, takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading that the extractor found outside the text's own markup (a PDF's outline).

    `start` is an offset in characters into the text it comes with.
    """

    title: str
    level: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What an extractor knows of a text beyond its characters.

    `page_starts[i]` is the offset in characters at which page `i + 1` begins; empty when the
    source has no pages.
    """

    headings: tuple[Heading, ...] = ()
    page_starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedDocument:
    """The result of an `Extractor`: text not yet normalised, and what is known about it.

    `media_type` is the source's; `text_type` is what the text is written in where that is another
    one (a web page as Markdown).

    `metadata` holds what the source says of itself (a front matter's `title` and `date`, a
    PDF's information dictionary) as plain text, to be scanned and never to be trusted.
    """

    text: str
    media_type: str
    text_type: str = ""
    structure: Structure = Structure()
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDraft:
    """One chunk as the chunker cuts it, before it has an id.

    `text == normalised[start:end]`; lines are 1-based and inclusive, counted by LF in the
    normalised text; pages are 1-based and inclusive, `None` when the source has no pages.
    """

    ordinal: int
    heading_path: tuple[str, ...]
    text: str
    start: int
    end: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFinding:
    """Where a secret stands and which rule saw it; no character of the value.

    `line` and `column` are 1-based in the text that was scanned. `layer` is the engine or our
    own context rules, `view` the form of the text in which it showed (`raw`, `folded`,
    `joined`, `decoded`). `fingerprint` is keyed, so it cannot be looked up elsewhere.
    """

    rule: str
    layer: str
    view: str
    line: int
    column: int
    length: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionMatch:
    """Text that reads like an instruction to a model: the family of rules and where it stands.

    `start` and `end` are offsets in characters into the text that was scanned; a match found
    only in a decoded form spans the encoded run.
    """

    family: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorIdentity:
    """How a connector names a document: stable `type` and `id`, changing `version`."""

    type: str
    id: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """What to admit as what. `derived_id` is an identity that our own code derived, never a
    caller's: unlike `document_id` it may be the first of its document."""

    artifact_id: UUID
    title: str
    visibility: Visibility
    project_scope: str | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    authority: Authority = Authority.PRINCIPAL_SUPPLIED
    doc_date: date | None = None
    language: str | None = None
    document_id: UUID | None = None
    source: ConnectorIdentity | None = None
    origin_trust: OriginTrust | None = None
    profile: str = "default"
    resume: bool = False
    batch_size: int = DEFAULT_BATCH_SIZE
    derived_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRequest:
    """What an agent asks an operator to keep, and why."""

    artifact_id: UUID
    title: str
    visibility: Visibility
    reason: str
    project_scope: str | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    doc_date: date | None = None
    language: str | None = None
    origin_trust: OriginTrust | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProgress:
    """How far an ingest has come: admitted chunks that are committed, and batches of this call.

    `embedded` counts what earlier calls committed too, so that it arrives at `total`.
    """

    embedded: int
    total: int
    batch: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The numbers of one ingest; they partition.

    `chunks = admitted + quarantined + rejected`, `admitted = embedded + skipped + pending`,
    `complete` exactly when nothing is pending. `embedded` counts the admitted chunks that this
    call committed, with or without an embedder. `deleted` stands outside the equations: stored
    chunks of an unfinished version that this one took the place of.
    """

    chunks: int
    embedded: int
    skipped: int
    quarantined: int
    rejected: int
    pending: int
    truncated: bool
    warnings: tuple[str, ...]
    deleted: int

    @property
    def complete(self) -> bool:
        return self.pending == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What an ingest did. `chunk_ids` is empty until the version is live: an id that is handed
    out resolves."""

    document_id: UUID
    version: int
    state: ChunkSetState
    chunk_set_id: UUID
    already_ingested: bool
    title: str
    chunk_ids: tuple[str, ...]
    report: IngestReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """What is to be different about a document; `None` leaves a thing as it is.

    Who may find it changes with any of `visibility`, `project_scope` and `sensitivity`; what is
    not given stays. `project_scope` is given exactly when the document is to be a project's and
    is not of that project yet.
    """

    title: str | None = None
    visibility: Visibility | None = None
    project_scope: str | None = None
    sensitivity: Sensitivity | None = None
    legal_hold: bool | None = None
    origin_trust: OriginTrust | None = None
    reason: str = ""

    @classmethod
    def of_scope(cls, scope: Mapping[str, str], *, reason: str) -> DocumentChange:
        """From words, as forms and rows have them; what is not among them stays as it is."""
        visibility, sensitivity = scope.get("visibility"), scope.get("sensitivity")
        return cls(
            visibility=Visibility(visibility) if visibility else None,
            project_scope=scope.get("project_scope") or None,
            sensitivity=Sensitivity(sensitivity) if sensitivity else None,
            reason=reason,
        )

    @property
    def rescopes(self) -> bool:
        scope = (self.visibility, self.project_scope, self.sensitivity)
        return any(value is not None for value in scope)


class RechunkOutcome(StrEnum):
    """What became of a document that was to be divided anew."""

    RECHUNKED = "rechunked"
    PLANNED = "planned"
    """It would be rechunked; this was a dry run."""
    UNCHANGED = "unchanged"
    """Its chunk set is of today's versions already."""
    UNFINISHED = "unfinished"
    """The embedder failed on the way; the same call goes on where it stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RechunkRequest:
    """How to divide a document anew: by a profile other than its own, when one is named."""

    profile: str | None = None
    dry_run: bool = False
    batch_size: int = DEFAULT_BATCH_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class RechunkResult:
    """The document's current version, by what it was divided before and by what it now is or,
    until it is rechunked, would be."""

    document_id: UUID
    version: int
    outcome: RechunkOutcome
    former_chunker_version: str
    chunker_version: str
    report: IngestReport


# --- the retrieval half ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageVector:
    """The vector of a passage; `digest` says of which words, under which title, of which tenant."""

    digest: bytes
    vector: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVector:
    """What is kept beside a vector: of which chunk it is, of which words and where it is found.

    `digest` is empty when the passage reads otherwise by now, and `space` `None` before it is
    published.
    """

    chunk: int
    digest: bytes
    space: int | None
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedReport:
    """How far a tenant's vectors of one model are: `missing` includes passages whose title or text
    is another by now; `failure` says why the embedder stopped it, when it did."""

    model: str
    embedded: int
    missing: int
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeQuery:
    """A question and its limits.

    `budget_tokens` counts passage text alone; `block_tokens`, when given, is what the rendered
    block may cost, its envelope included. A text of fewer than `least_words`, stop words aside, is
    shown nothing. `kind` is for the trace alone.
    """

    text: str
    current_scope: str | None = None
    as_of: datetime | None = None
    budget_tokens: int = 3_000
    max_passages: int = 3
    max_per_document: int = 2
    min_score: float | None = None
    objective: str | None = None
    entities: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beliefs: tuple[Any, ...] = ()
    origin_trust: OriginTrust | None = None
    block_tokens: int | None = None
    least_words: int = 0
    kind: RecallKind = RecallKind.SEARCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTerms:
    """The terms of a score, each 0..1 before its weight; `penalty` is subtracted."""

    match: float
    authority: float
    scope: float
    recency: float
    penalty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A readable passage that matched, with all that ranking and rendering need of it.

    `match` is the fused score of the arms, 0..1; `arms` maps the name of each arm that found it
    to that arm's own score. `boilerplate` and `sketch` are what `likeness` says of the text;
    ranking needs no more of it, and `text` is empty until the passage is chosen.
    """

    chunk_id: str
    document_id: UUID
    version: int
    title: str
    heading_path: tuple[str, ...]
    text: str
    tokens: int
    content_sha256: str
    doc_date: date | None
    authority: Authority
    project_scope: str | None
    instruction_like: bool
    boilerplate: float
    sketch: tuple[int, ...]
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    match: float
    arms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPassage:
    candidate: Candidate
    score: float
    terms: ScoreTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Omitted:
    chunk_id: str
    document_id: UUID
    reason: OmittedReason
    tokens: int
    score: float
    terms: ScoreTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedBlock:
    """The block as the model sees it; `tokens` counts all of it, envelope included."""

    text: str
    sha256: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryWord:
    """A word of a question as it was searched for.

    `lexemes` are what the index was asked for; none means that the word was dropped, because it is
    a stop word, and counts in titles and headings alone. `weight` is what it counts beside the
    others. `passages` is in how many passages that the caller may see it stands. An `identifier`
    is not stemmed; a `whole` one stands beside its parts.
    """

    word: str
    lexemes: tuple[str, ...]
    weight: float
    passages: int
    identifier: bool
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    policy: str
    as_of: datetime
    trace_id: UUID
    block: RenderedBlock
    passages: tuple[RankedPassage, ...]
    omitted: tuple[Omitted, ...]
    notes: tuple[str, ...]
    words: tuple[QueryWord, ...] = ()
