"""Verbatim's HTTP API, typed, for programs that block and for programs that do not.

    with Client("https://verbatim.example.org", api_key) as verbatim:
        found = verbatim.search("How do we roll back?")

    async with AsyncClient("https://verbatim.example.org", api_key) as verbatim:
        found = await verbatim.search("How do we roll back?")

Both have the same calls with the same arguments, for each is described once. What they answer are
the JSON objects of the API, with types. A refusal raises `Problem`, or the subclass that says more;
`Unreachable` is for when no answer came. What the server asks to be sent again later (429, 503) is,
and so is what got no answer: a write carries a key that makes it one, however often it is sent.

It is this one module, and needs httpx alone.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import (
    IO,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NotRequired,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID, uuid4

import httpx

T = TypeVar("T")
P = ParamSpec("P")
Id = UUID | str
Instant = datetime | str
Day = date | str
Trust = Literal["EXTERNAL_UNTRUSTED", "TOOL", "MODEL", "USER", "SYSTEM"]
Visibility = Literal["principal", "project", "tenant"]
Sensitivity = Literal["public", "internal", "confidential", "restricted"]
# A file: its bytes, its path, or the file itself, which has to be one that can be read twice.
Content = bytes | Path | IO[bytes]

PIECE: Final = 48 * 1024
_BLOCK: Final = 1024 * 1024
_LONGEST_WAIT: Final = 60.0
_FIRST_WAIT: Final = 0.5
_SERVER_ERROR: Final = 500
_BUSY: Final = (429, 503)
_IN_PROGRESS: Final = "request_in_progress"


# --- what can go wrong -------------------------------------------------------------------------


class VerbatimError(Exception):
    """A call that did not succeed."""


class Unreachable(VerbatimError):
    """No answer came. Whether the call was carried out is not known."""


class Corrupted(VerbatimError):
    """Bytes arrived that are not those that their SHA-256 tells of."""


class Problem(VerbatimError):
    """The server refused. `code` is stable, `detail` says what to do, `members` is all it said."""

    def __init__(self, status: int, members: Mapping[str, Any]) -> None:
        self.status = status
        self.members = dict(members)
        self.code = str(members.get("code", f"http_{status}"))
        self.title = str(members.get("title", "The server refused."))
        self.detail = str(members.get("detail", self.title))
        super().__init__(f"{self.code}: {self.detail}")


class Malformed(Problem):
    """400: the request is not one that can be understood; `members["fields"]` says where."""


class NotAuthenticated(Problem):
    """401: the API key is missing, unknown, expired or revoked."""


class Forbidden(Problem):
    """403: the key may not do this."""


class NotFound(Problem):
    """404: there is nothing by that name that the key may see."""


class Conflict(Problem):
    """409: what is there does not agree with this."""


class UploadOutOfOrder(Conflict):
    """409: the pieces of an upload follow one another; `next_offset` is where to go on."""

    @property
    def next_offset(self) -> int:
        return int(self.members["next_offset"])


class Deleted(Problem):
    """410: it was there, and was deleted."""


class TooLarge(Problem):
    """413: more than the installation takes."""


class Refused(Problem):
    """415, 422: the document, the record or the belief is refused, and nothing of it is kept."""


class SecretFound(Refused):
    """422: there is a credential in it; `findings` says where, and not what."""

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.members["findings"])


class Busy(Problem):
    """429, 503: still too much, or still not to be reached, after all attempts."""


class ServerError(Problem):
    """5xx: something went wrong on the other side."""


_BY_CODE: Final[dict[str, type[Problem]]] = {
    "upload_out_of_order": UploadOutOfOrder,
    "secret_found": SecretFound,
}
_BY_STATUS: Final[dict[int, type[Problem]]] = {
    400: Malformed,
    401: NotAuthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Deleted,
    413: TooLarge,
    415: Refused,
    422: Refused,
    429: Busy,
    503: Busy,
}


def _problem(answer: httpx.Response) -> Problem:
    try:
        members = answer.json()
    except ValueError:
        members = {}
    if not isinstance(members, dict):
        members = {}
    status = answer.status_code
    kind = _BY_CODE.get(str(members.get("code"))) or _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= _SERVER_ERROR else Problem
    return kind(status, members)


# --- what is sent ------------------------------------------------------------------------------


class InScope(TypedDict, total=False):
    current_scope: str | None


class AsOf(InScope, total=False):
    as_of: Instant | None


class SearchOptions(AsOf, total=False):
    budget_tokens: int
    max_passages: int
    max_per_document: int
    min_score: float | None
    objective: str | None
    entities: Sequence[str]
    aliases: Mapping[str, Sequence[str]]
    beliefs: Sequence[Any]
    format: Literal["block", "anthropic_search_results"]
    origin_trust: Trust | None


class ConnectorIdentity(TypedDict):
    type: str
    id: str
    version: NotRequired[str]


class IngestOptions(TypedDict, total=False):
    project_scope: str | None
    sensitivity: Sensitivity
    authority: str
    doc_date: Day | None
    language: str | None
    document_id: Id | None
    source: ConnectorIdentity | None
    origin_trust: Trust | None
    profile: str
    resume: bool
    batch_size: int


class ProposalOptions(TypedDict, total=False):
    project_scope: str | None
    sensitivity: Sensitivity
    doc_date: Day | None
    language: str | None
    origin_trust: Trust | None


class RecordChanges(TypedDict, total=False):
    visibility: Visibility
    project_scope: str
    sensitivity: Sensitivity
    legal_hold: bool
    origin_trust: Trust | None
    current_scope: str | None
    reason: str


class DocumentChanges(RecordChanges, total=False):
    title: str


class RecallItem(TypedDict):
    id: str
    tokens: int


class Quoted(TypedDict):
    chunk_id: str
    quote: str


class Cited(TypedDict):
    chunk_id: str
    quote: NotRequired[str | None]


class Provenance(TypedDict):
    kind: str
    id: str


class Evidence(TypedDict):
    source: str
    start_line: NotRequired[int | None]
    end_line: NotRequired[int | None]
    quote: NotRequired[str | None]
    attribution: NotRequired[str | None]


class AttachedFile(TypedDict):
    artifact: Id
    sha256: str
    start_line: NotRequired[int | None]
    end_line: NotRequired[int | None]
    quote: NotRequired[str | None]
    attribution: NotRequired[str | None]


class RecordWriting(InScope, total=False):
    request_id: Id
    reason: str
    origin_trust: Trust | None


class RecordSupport(RecordWriting, total=False):
    evidence: Sequence[Evidence]
    attachments: Sequence[AttachedFile]


class RecordMaking(RecordSupport, total=False):
    project_scope: str | None
    sensitivity: Sensitivity


class PageSaving(RecordMaking, total=False):
    visibility: Visibility
    metadata: Mapping[str, Any] | None
    record_id: Id
    expected_revision: int
    expected_hash: str


class Correcting(RecordSupport, total=False):
    statement: str
    subject: str
    predicate: str
    object: str


# --- what is answered --------------------------------------------------------------------------


class Artifact(TypedDict):
    artifact_id: str
    sha256: str
    byte_size: int
    media_type: str
    filename: str
    attribution: str
    origin: str
    created_at: str
    expires_at: str | None


class AttachReceipt(TypedDict):
    request_id: str
    offset: int
    received: int
    state: str
    artifact_id: str | None
    sha256: str | None


class AttachmentContent(TypedDict):
    artifact_id: str
    content: str
    offset: int
    next_offset: int | None
    size: int
    sha256: str
    media_type: str
    filename: str
    attribution: str
    descriptor_id: str | None


class Attachment(TypedDict):
    attachment_id: str
    conversation_id: str
    artifact_id: str
    filename: str
    media_type: str
    byte_size: int
    sha256: str
    actor: str
    state: str
    reason: str
    attempts: int
    document_id: str | None
    created_at: str


class IngestReport(TypedDict):
    chunks: int
    embedded: int
    skipped: int
    quarantined: int
    rejected: int
    pending: int
    complete: bool
    truncated: bool
    warnings: list[str]
    deleted: int


class IngestResult(TypedDict):
    document_id: str
    version: int
    state: str
    chunk_set_id: str
    already_ingested: bool
    title: str
    chunk_ids: list[str]
    report: IngestReport


class JobResult(TypedDict):
    document_id: str
    version: int
    state: str
    chunk_set_id: str
    already_ingested: bool
    title: str
    report: IngestReport


class Progress(TypedDict):
    embedded: int
    total: int
    batch: int
    batches: int


class Job(TypedDict):
    job_id: str
    state: str
    document_id: str | None
    attempts: int
    progress: Progress
    created_at: str
    started_at: str | None
    finished_at: str | None
    next_attempt_at: str
    result: JobResult | None
    problem: dict[str, Any] | None


class RetentionReceipt(TypedDict):
    verified: bool
    state: str
    document_id: str | None
    version: int | None
    code: str
    report: IngestReport | None


class Proposal(TypedDict):
    proposal_id: str
    state: str
    title: str
    reason: str
    visibility: str
    project_scope: str | None
    sensitivity: str
    doc_date: str | None
    language: str
    filename: str
    media_type: str
    byte_size: int
    sha256: str
    origin_trust: str
    chunks: int
    flagged: int
    instruction_families: list[str]
    created_at: str
    expires_at: str
    decided_at: str | None
    decided_by: str
    decision_reason: str
    receipt: RetentionReceipt | None


class Terms(TypedDict):
    match: float
    authority: float
    scope: float
    recency: float
    penalty: float


class Passage(TypedDict):
    chunk_id: str
    document_id: str
    version: int
    title: str
    heading_path: list[str]
    text: str
    tokens: int
    doc_date: str | None
    authority: str
    score: float
    terms: Terms
    arms: dict[str, float]
    instruction_like: bool
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    citation_url: str


class Omitted(TypedDict):
    chunk_id: str
    document_id: str
    reason: str
    tokens: int
    score: float


class SearchText(TypedDict):
    type: str
    text: str


class SearchCitations(TypedDict):
    enabled: bool


class SearchResultBlock(TypedDict):
    type: str
    source: str
    title: str
    content: list[SearchText]
    citations: SearchCitations


class SearchResult(TypedDict):
    trust: str
    policy: str
    as_of: str
    trace_id: str
    block: str
    block_sha256: str
    block_tokens: int
    notes: list[str]
    passages: list[Passage]
    omitted: list[Omitted]
    search_results: NotRequired[list[SearchResultBlock]]


class AssembledRecall(TypedDict):
    kept: list[str]
    yielded: list[str]
    tokens: int


class Assembled(TypedDict):
    knowledge: SearchResult | None
    knowledge_tokens: int
    in_turn_recall: AssembledRecall


class Recalled(TypedDict):
    block: str
    block_tokens: int
    reason: str | None
    trace_id: str | None
    knowledge: SearchResult | None


class Source(TypedDict):
    artifact_id: str
    sha256: str
    filename: str
    media_type: str
    descriptor_id: str | None


class Chunk(TypedDict):
    chunk_id: str
    document_id: str
    version: int
    title: str
    heading_path: list[str]
    ordinal: int
    text: str
    tokens: int
    content_sha256: str
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    chunker_version: str
    live: bool
    superseded_by_version: int | None
    superseded_by_chunker_version: str | None
    source: Source


class CheckedQuote(TypedDict):
    chunk_id: str
    outcome: Literal["exact", "normalised", "misattributed", "not_found"]
    start: int | None
    end: int | None
    line_start: int | None
    line_end: int | None
    found_in: Chunk | None


class CheckedQuotes(TypedDict):
    results: list[CheckedQuote]


class Citation(TypedDict):
    chunk_id: str
    verdict: str


class RecordedAnswer(TypedDict):
    trace_id: str
    answer_id: str
    answered: bool
    recorded_at: str
    already_recorded: bool
    citations: list[Citation]


class TracedPassage(TypedDict):
    position: int
    state: str
    text: str
    chunk_id: str | None
    document_id: str | None
    content_sha256: str | None
    title: str | None
    heading_path: list[str] | None
    doc_date: str | None
    instruction_like: bool | None
    tokens: int | None
    score: float | None
    terms: Terms | None
    arms: dict[str, float] | None
    verified: bool | None


class TracedOmitted(TypedDict):
    chunk_id: str
    document_id: str
    reason: str
    tokens: int
    score: NotRequired[float]
    terms: NotRequired[Terms]


class Trace(TypedDict):
    trace_id: str
    kind: str
    thinned_at: str | None
    principal_id: str
    acting_operator: str
    surface: str
    current_scope: str | None
    sensitivity_ceiling: str
    text: str | None
    as_of: str
    live: bool
    policy: str
    analyzer_version: str
    beliefs: list[Any] | None
    notes: list[str] | None
    passages: list[TracedPassage]
    omitted: list[TracedOmitted]
    withheld: int
    block: str | None
    block_state: str
    block_sha256: str
    block_tokens: int
    duration_ms: float
    created_at: str


class AcceptedProvenance(TypedDict):
    accepted: bool
    checked: int


class Document(TypedDict):
    document_id: str
    title: str
    visibility: str
    project_scope: str | None
    sensitivity: str
    ingested_by_principal_id: str
    legal_hold: bool
    version: int
    created_at: str


class Version(TypedDict):
    version: int
    media_type: str
    language: str
    doc_date: str | None
    authority: str
    page_count: int | None
    truncated: bool
    warnings: list[str]
    source_version: str
    ingested_at: str
    superseded_at: str | None
    source: Source


class DocumentDetail(Document):
    versions: list[Version]


class DeletionReceipt(TypedDict):
    deletion_id: str
    document_id: str
    deleted_at: str
    versions: int
    chunk_sets: int
    chunks: int
    index_rows: int
    embeddings: int
    traced_passages: int
    proposals: int
    jobs: int
    descriptors: int
    proof: dict[str, int]
    sources: list[str]
    bytes_state: str
    records: list[str]


class ConversationDocument(TypedDict):
    document_id: str
    outcome: str
    receipt: DeletionReceipt | None


class ConversationReceipt(TypedDict):
    conversation_id: str
    deleted_at: str
    attachments: int
    documents: list[ConversationDocument]
    bytes_state: str


class RecordSummary(TypedDict):
    record_id: str
    kind: str
    label: str
    visibility: str
    project_scope: str | None
    sensitivity: str
    principal_id: str
    legal_hold: bool
    revision: int
    hash: str
    created_at: str
    changed_at: str


class RecordContent(TypedDict, total=False):
    title: str
    body: str
    metadata: dict[str, Any]
    statement: str
    subject: str
    predicate: str
    object: str


class WrittenDescriptor(TypedDict):
    path: str
    sha256: str
    attribution: str
    filename: str
    media_type: str
    size: int


class WrittenEvidence(TypedDict):
    source: str
    start_line: NotRequired[int | None]
    end_line: NotRequired[int | None]
    quote: NotRequired[str | None]
    attribution: NotRequired[str | None]
    descriptor: NotRequired[WrittenDescriptor | None]


class WrittenNote(TypedDict):
    id: str
    note: str
    by: str
    at: str
    evidence: list[WrittenEvidence]


class Record(TypedDict):
    record_id: str
    kind: str
    visibility: str
    project_scope: str | None
    sensitivity: str
    principal_id: str
    legal_hold: bool
    created_at: str
    latest_revision: int
    latest_hash: str
    revision: int
    hash: str
    previous_hash: str
    change: str
    by: str
    at: str
    reason: str
    schema: str
    representation: str
    content: RecordContent
    evidence: list[WrittenEvidence]
    annotations: list[WrittenNote]


class Revision(TypedDict):
    revision: int
    hash: str
    previous_hash: str
    change: str
    by: str
    at: str
    reason: str


class ResolvedEvidence(TypedDict):
    annotation: str
    position: int
    source: str
    start_line: int | None
    end_line: int | None
    quote: str | None
    attribution: str | None
    state: str
    artifact_id: str | None
    sha256: str | None
    descriptor: WrittenDescriptor | None


class RecordEvidence(TypedDict):
    record_id: str
    revision: int
    hash: str
    evidence: list[ResolvedEvidence]


class EvidenceCounts(TypedDict):
    associations: int
    annotation_associations: int
    sources: int
    evidence_bytes: int
    revision_bytes: int


class Reconciled(TypedDict):
    dry_run: bool
    before: EvidenceCounts
    after: EvidenceCounts
    added: int
    removed: int
    kept: int
    record: Record | None


class RecordRemoval(TypedDict):
    record_id: str
    kind: str
    deleted_at: str
    revisions: int
    sources: int


# --- one description, two clients --------------------------------------------------------------


class _Connection(Protocol):
    """What differs between the clients: how one waits."""

    @property
    def http(self) -> httpx.Client | httpx.AsyncClient: ...

    async def send(self, request: httpx.Request) -> httpx.Response: ...

    async def sleep(self, seconds: float) -> None: ...


class _Blocking:
    """Whatever is awaited of it is there at once, so that no event loop is needed."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    async def send(self, request: httpx.Request) -> httpx.Response:
        return self.http.send(request)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Waiting:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def send(self, request: httpx.Request) -> httpx.Response:
        return await self.http.send(request)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """What comes of work that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    work.close()
    raise RuntimeError("a blocking client was made to wait for an event loop")


_END: Final = object()


def _one_by_one(found: AsyncGenerator[T, None]) -> Iterator[T]:
    async def following() -> T | object:
        return await anext(found, _END)

    try:
        while (one := _at_once(following())) is not _END:
            yield cast("T", one)
    finally:
        _at_once(found.aclose())


CALLS: dict[str, str] = {}
"""The name of each call's method, by the operation's id in the description of the API."""


class _Call(Generic[P, T]):
    """A call as it is described: to be awaited, or carried out at once by a blocking client."""

    def __init__(
        self, described: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], operation: str
    ) -> None:
        self.described = described
        self.__doc__ = described.__doc__
        if operation:
            CALLS[operation] = described.__name__

    @overload
    def __get__(self, client: None, owner: Any) -> Self: ...

    @overload
    def __get__(self, client: Client, owner: Any) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: _Calls, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: _Calls | None, owner: Any) -> Any:
        if client is None:
            return self
        if not isinstance(client, Client):
            return self.described.__get__(client)

        def carried_out(*given: P.args, **named: P.kwargs) -> T:
            return _at_once(self.described(client.core, *given, **named))

        carried_out.__name__, carried_out.__doc__ = self.described.__name__, self.__doc__
        return carried_out


class _Listing(Generic[P, T]):
    """A call that gives many things, a page at a time and only as far as they are looked at."""

    def __init__(
        self, described: Callable[Concatenate[Any, P], AsyncGenerator[T, None]], operation: str
    ) -> None:
        self.described = described
        self.__doc__ = described.__doc__
        if operation:
            CALLS[operation] = described.__name__

    @overload
    def __get__(self, client: None, owner: Any) -> Self: ...

    @overload
    def __get__(self, client: Client, owner: Any) -> Callable[P, Iterator[T]]: ...

    @overload
    def __get__(self, client: _Calls, owner: Any) -> Callable[P, AsyncIterator[T]]: ...

    def __get__(self, client: _Calls | None, owner: Any) -> Any:
        if client is None:
            return self
        if not isinstance(client, Client):
            return self.described.__get__(client)

        def carried_out(*given: P.args, **named: P.kwargs) -> Iterator[T]:
            return _one_by_one(self.described(client.core, *given, **named))

        carried_out.__name__, carried_out.__doc__ = self.described.__name__, self.__doc__
        return carried_out


def _call(
    operation: str = "",
) -> Callable[[Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]], _Call[P, T]]:
    return lambda described: _Call(described, operation)


def _listing(
    operation: str = "",
) -> Callable[[Callable[Concatenate[Any, P], AsyncGenerator[T, None]]], _Listing[P, T]]:
    return lambda described: _Listing(described, operation)


# --- the calls ---------------------------------------------------------------------------------


class _Calls:
    """Every call of the API, and a few that are made of several."""

    def __init__(self, connection: _Connection, *, attempts: int) -> None:
        self._connection = connection
        self._attempts = max(attempts, 1)

    # files

    @_call("artifacts_create")
    async def upload_whole(
        self,
        content: Content,
        filename: str,
        *,
        media_type: str = "",
        attribution: str = "",
    ) -> Artifact:
        """Uploads a file in one request; `upload` goes on where it stopped, and takes any size."""
        told = {"media_type": media_type, "attribution": attribution}
        return await self._send_file(Artifact, "/v1/artifacts", content, filename, told)

    @_call("knowledge_attach")
    async def attach_piece(
        self,
        *,
        request_id: Id,
        offset: int,
        content: bytes,
        final: bool,
        filename: str,
        media_type: str = "",
        attribution: str = "",
    ) -> AttachReceipt:
        """Sends the next piece of a file. Repeating it gives the same receipt."""
        body = {
            "request_id": request_id,
            "offset": offset,
            "content": base64.b64encode(content).decode("ascii"),
            "sha256": hashlib.sha256(content).hexdigest(),
            "final": final,
            "filename": filename,
            "media_type": media_type,
            "attribution": attribution,
        }
        return await self._post(AttachReceipt, "/v1/tools/knowledge.attach", body)

    @_call()
    async def upload(
        self,
        content: Content,
        filename: str,
        *,
        media_type: str = "",
        attribution: str = "",
        request_id: Id | None = None,
    ) -> Artifact:
        """Uploads a file in pieces, and gives the artifact.

        With a `request_id` of your own it can be called again after anything went wrong, with the
        same arguments: it goes on where the server has got to.
        """
        file = _opened(content)
        size = file.seek(0, io.SEEK_END)
        last = max(size - 1, 0) // PIECE * PIECE
        # The last piece asks where to go on: the server takes it when only it is missing, or was
        # there already, and else says what comes next.
        at = last if request_id is not None else 0
        name = request_id or uuid4()
        try:
            while True:
                file.seek(at)
                piece = file.read(PIECE)
                try:
                    receipt = await self.attach_piece(
                        request_id=name,
                        offset=at,
                        content=piece,
                        final=at + len(piece) >= size,
                        filename=filename,
                        media_type=media_type,
                        attribution=attribution,
                    )
                except UploadOutOfOrder as elsewhere:
                    if elsewhere.next_offset in (at, size):
                        raise
                    at = elsewhere.next_offset
                    continue
                if receipt["artifact_id"] is not None:
                    return await self.artifact(receipt["artifact_id"])
                at = receipt["received"]
        finally:
            if file is not content:
                file.close()

    @_call("knowledge_attach_file")
    async def attach_file(
        self,
        file_path: str,
        sha256: str,
        *,
        request_id: Id,
        filename: str,
        attribution: str,
        media_type: str = "",
    ) -> AttachReceipt:
        """Keeps a file of the installation's workspace, without sending it."""
        body = {
            "file_path": file_path,
            "sha256": sha256,
            "request_id": request_id,
            "filename": filename,
            "attribution": attribution,
            "media_type": media_type,
        }
        return await self._post(AttachReceipt, "/v1/tools/knowledge.attach_file", body)

    @_call("artifacts_retrieve")
    async def artifact(self, artifact_id: Id, **options: Unpack[InScope]) -> Artifact:
        """What is known of a file."""
        return await self._get(Artifact, f"/v1/artifacts/{_part(artifact_id)}", options)

    @_call("artifacts_content")
    async def artifact_content(
        self,
        artifact_id: Id,
        *,
        start: int = 0,
        end: int | None = None,
        **options: Unpack[InScope],
    ) -> bytes:
        """The bytes of a file from `start` on, up to and without `end`."""
        wanted = f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"
        answer = await self._answer(
            _Request(
                method="GET",
                path=f"/v1/artifacts/{_part(artifact_id)}/content",
                query=options,
                headers={"Range": wanted} if start or end is not None else {},
            )
        )
        return answer.content

    @_listing()
    async def download(
        self, artifact_id: Id, **options: Unpack[InScope]
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of a file, a block at a time; raises `Corrupted` when they are not its own."""
        known = await self.artifact(artifact_id, **options)
        digest = hashlib.sha256()
        for start in range(0, known["byte_size"], _BLOCK):
            end = min(start + _BLOCK, known["byte_size"])
            block = await self.artifact_content(artifact_id, start=start, end=end, **options)
            digest.update(block)
            yield block
        if digest.hexdigest() != known["sha256"]:
            raise Corrupted("The bytes that arrived are not those of the file.")

    @_call("knowledge_attachment")
    async def attachment_part(
        self,
        artifact: Id,
        sha256: str,
        *,
        offset: int = 0,
        length: int | None = None,
        **options: Unpack[InScope],
    ) -> AttachmentContent:
        """At most 32 KiB of an original, as base64, by its reference and its hash."""
        body = {"artifact": artifact, "sha256": sha256, "offset": offset, **options}
        if length is not None:
            body["length"] = length
        return await self._post(AttachmentContent, "/v1/tools/knowledge.attachment", body)

    # documents

    @_call("knowledge_ingest")
    async def ingest(
        self, artifact: Id, title: str, visibility: Visibility, **options: Unpack[IngestOptions]
    ) -> IngestResult:
        """Admits an uploaded file. The same again says `already_ingested`."""
        body = {"artifact": artifact, "title": title, "visibility": visibility, **options}
        return await self._post(IngestResult, "/v1/tools/knowledge.ingest", body, keyed=True)

    @_call()
    async def ingest_later(
        self, artifact: Id, title: str, visibility: Visibility, **options: Unpack[IngestOptions]
    ) -> Job:
        """Admits an uploaded file in the background; see `wait_for_job`."""
        body = {
            "artifact": artifact,
            "title": title,
            "visibility": visibility,
            "background": True,
            **options,
        }
        return await self._post(Job, "/v1/tools/knowledge.ingest", body, keyed=True)

    @_call("jobs_retrieve")
    async def job(self, job_id: Id) -> Job:
        """How far a background ingest is."""
        return await self._get(Job, f"/v1/jobs/{_part(job_id)}", {})

    @_call()
    async def wait_for_job(self, job_id: Id, *, seconds: float = 600, every: float = 1) -> Job:
        """The job once it has ended, well or not; raises `TimeoutError` when it takes longer."""
        until = time.monotonic() + seconds
        while (job := await self.job(job_id))["state"] in ("queued", "running"):
            if time.monotonic() > until:
                raise TimeoutError(f"The job {job_id} is still {job['state']}.")
            await self._connection.sleep(every)
        return job

    @_call("knowledge_propose_retention")
    async def propose_retention(
        self,
        artifact: Id,
        title: str,
        visibility: Literal["project", "tenant"],
        reason: str,
        **options: Unpack[ProposalOptions],
    ) -> Proposal:
        """Asks an operator to keep a file; ingests nothing."""
        body = {"artifact": artifact, "title": title, "visibility": visibility, "reason": reason}
        path = "/v1/tools/knowledge.propose_retention"
        return await self._post(Proposal, path, {**body, **options}, keyed=True)

    @_call("proposals_retrieve")
    async def proposal(self, proposal_id: Id) -> Proposal:
        """What became of a proposal."""
        return await self._get(Proposal, f"/v1/proposals/{_part(proposal_id)}", {})

    @_listing("documents_list")
    async def documents(
        self, *, page_size: int = 50, **options: Unpack[AsOf]
    ) -> AsyncGenerator[Document, None]:
        """The documents that the key may see, newest first."""
        async for one in self._pages(
            Document, "/v1/documents", {"page_size": page_size, **options}
        ):
            yield one

    @_call("documents_retrieve")
    async def document(self, document_id: Id, **options: Unpack[AsOf]) -> DocumentDetail:
        """A document with its versions."""
        return await self._get(DocumentDetail, f"/v1/documents/{_part(document_id)}", options)

    @_call("documents_versions")
    async def versions(self, document_id: Id, **options: Unpack[AsOf]) -> list[Version]:
        """The versions of a document, newest first."""
        path = f"/v1/documents/{_part(document_id)}/versions"
        return await self._get(list[Version], path, options)

    @_call("documents_update")
    async def update_document(
        self, document_id: Id, **changes: Unpack[DocumentChanges]
    ) -> DocumentDetail:
        """Retitles, rescopes, holds."""
        path = f"/v1/documents/{_part(document_id)}"
        return await self._body("PATCH", DocumentDetail, path, changes, keyed=True)

    @_call("documents_delete")
    async def delete_document(
        self, document_id: Id, *, reason: str = "", **options: Unpack[InScope]
    ) -> DeletionReceipt:
        """Deletes a document for good, and says what went."""
        path = f"/v1/documents/{_part(document_id)}"
        return await self._delete(DeletionReceipt, path, {"reason": reason, **options})

    @_call("deletions_retrieve")
    async def deletion(self, deletion_id: Id, **options: Unpack[InScope]) -> DeletionReceipt:
        """The receipt of a deletion."""
        return await self._get(DeletionReceipt, f"/v1/deletions/{_part(deletion_id)}", options)

    # searching and citing

    @_call("knowledge_search")
    async def search(self, text: str, **options: Unpack[SearchOptions]) -> SearchResult:
        """Passages, word for word, with their citations and the block for a prompt."""
        body = {"text": text, **options}
        return await self._post(SearchResult, "/v1/tools/knowledge.search", body)

    @_call("context_preturn")
    async def preturn(self, text: str, **options: Unpack[SearchOptions]) -> Recalled:
        """Passages for a turn that did not ask for any, when some are about it for certain."""
        return await self._post(Recalled, "/v1/context/preturn", {"text": text, **options})

    @_call("context_assemble")
    async def assemble(
        self,
        text: str,
        *,
        tokens_left: int,
        in_turn_recall: Sequence[RecallItem] = (),
        **options: Unpack[SearchOptions],
    ) -> Assembled:
        """Knowledge within what a turn has left."""
        body = {
            "tokens_left": tokens_left,
            "in_turn_recall": list(in_turn_recall),
            "search": {"text": text, **options},
        }
        return await self._post(Assembled, "/v1/context/assemble", body)

    @_call("chunks_retrieve")
    async def chunk(self, chunk_id: str, **options: Unpack[AsOf]) -> Chunk:
        """What a citation leads to."""
        return await self._get(Chunk, f"/v1/chunks/{_part(chunk_id)}", options)

    @_call("knowledge_verify_quote")
    async def verify_quotes(
        self, quotes: Sequence[Quoted], **options: Unpack[AsOf]
    ) -> list[CheckedQuote]:
        """Of each quote, whether the passage that it is ascribed to holds it, and where."""
        path = "/v1/tools/knowledge.verify_quote"
        checked = await self._post(CheckedQuotes, path, {"quotes": list(quotes), **options})
        return checked["results"]

    @_call("citations_create")
    async def record_answer(
        self,
        trace_id: Id,
        *,
        answered: bool,
        citations: Sequence[Cited] = (),
        answer_id: str = "",
    ) -> RecordedAnswer:
        """Tells which passages an answer cites; for measuring."""
        body = {
            "trace_id": trace_id,
            "answer_id": answer_id,
            "answered": answered,
            "citations": list(citations),
        }
        return await self._post(RecordedAnswer, "/v1/citations", body, keyed=True)

    @_call("traces_retrieve")
    async def trace(self, trace_id: Id, **options: Unpack[InScope]) -> Trace:
        """What a search showed."""
        return await self._get(Trace, f"/v1/traces/{_part(trace_id)}", options)

    @_call("guards_belief_provenance")
    async def check_belief_provenance(self, provenance: Sequence[Provenance]) -> AcceptedProvenance:
        """Raises `Refused` when a belief would stand on a document."""
        body = {"provenance": list(provenance)}
        return await self._post(AcceptedProvenance, "/v1/guards/belief-provenance", body)

    # conversations

    @_call("attachments_create")
    async def attach_to_conversation(
        self,
        content: Content,
        filename: str,
        *,
        conversation_id: str,
        actor: str,
        media_type: str = "",
    ) -> Attachment:
        """Keeps a file that was sent in a conversation, for as long as the conversation."""
        told = {"conversation_id": conversation_id, "actor": actor, "media_type": media_type}
        return await self._send_file(Attachment, "/v1/attachments", content, filename, told)

    @_call("attachments_retrieve")
    async def attachment(self, attachment_id: Id) -> Attachment:
        """What became of a file that was sent in a conversation."""
        return await self._get(Attachment, f"/v1/attachments/{_part(attachment_id)}", {})

    @_call("conversations_delete")
    async def delete_conversation(
        self, conversation_id: str, *, reason: str = ""
    ) -> ConversationReceipt:
        """Deletes the files of a conversation, and the documents that no other one sent."""
        path = f"/v1/conversations/{_part(conversation_id)}"
        return await self._delete(ConversationReceipt, path, {"reason": reason})

    # records

    @_listing("records_list")
    async def records(
        self,
        *,
        kind: Literal["page", "claim", "relationship"] | None = None,
        source: str | None = None,
        page_size: int = 50,
        **options: Unpack[InScope],
    ) -> AsyncGenerator[RecordSummary, None]:
        """The records that the key may see, newest first: of a kind, or citing a source."""
        asked = {"kind": kind, "source": source, "page_size": page_size, **options}
        async for one in self._pages(RecordSummary, "/v1/records", asked):
            yield one

    @_call("records_retrieve")
    async def record(
        self, record_id: Id, *, revision: int | None = None, **options: Unpack[InScope]
    ) -> Record:
        """A record as its latest revision has it, or an earlier one."""
        return await self._get(
            Record, f"/v1/records/{_part(record_id)}", {"revision": revision, **options}
        )

    @_listing("records_revisions")
    async def record_revisions(
        self, record_id: Id, *, page_size: int = 50, **options: Unpack[InScope]
    ) -> AsyncGenerator[Revision, None]:
        """The history of a record, newest first."""
        path = f"/v1/records/{_part(record_id)}/revisions"
        async for one in self._pages(Revision, path, {"page_size": page_size, **options}):
            yield one

    @_call("records_evidence")
    async def record_evidence(
        self, record_id: Id, *, revision: int | None = None, **options: Unpack[InScope]
    ) -> RecordEvidence:
        """What a record cites, each with what has become of it."""
        path = f"/v1/records/{_part(record_id)}/evidence"
        return await self._get(RecordEvidence, path, {"revision": revision, **options})

    @_call("records_save_page")
    async def save_page(self, title: str, body: str, **options: Unpack[PageSaving]) -> Record:
        """Saves a page: a new one, or the next revision of one that you have seen."""
        return await self._write(
            Record, "/v1/records/pages", {"title": title, "body": body, **options}
        )

    @_call("records_make_claim")
    async def make_claim(
        self, statement: str, visibility: Visibility, **options: Unpack[RecordMaking]
    ) -> Record:
        """Makes a claim, which cites at least one source."""
        body = {"statement": statement, "visibility": visibility, **options}
        return await self._write(Record, "/v1/records/claims", body)

    @_call("records_make_relationship")
    async def make_relationship(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002 - its name in the API
        visibility: Visibility,
        **options: Unpack[RecordMaking],
    ) -> Record:
        """Makes a relationship, which cites at least one source."""
        said = {"subject": subject, "predicate": predicate, "object": object}
        body = {**said, "visibility": visibility, **options}
        return await self._write(Record, "/v1/records/relationships", body)

    @_call("records_correct")
    async def correct_record(
        self,
        record_id: Id,
        *,
        expected_revision: int,
        expected_hash: str,
        **options: Unpack[Correcting],
    ) -> Record:
        """Says a claim or a relationship anew."""
        seen = {"expected_revision": expected_revision, "expected_hash": expected_hash}
        path = f"/v1/records/{_part(record_id)}/corrections"
        return await self._write(Record, path, {**seen, **options})

    @_call("records_annotate")
    async def annotate_record(
        self,
        record_id: Id,
        note: str,
        *,
        expected_revision: int,
        expected_hash: str,
        **options: Unpack[RecordSupport],
    ) -> Record:
        """Adds a note with evidence of its own."""
        seen = {"expected_revision": expected_revision, "expected_hash": expected_hash}
        path = f"/v1/records/{_part(record_id)}/annotations"
        return await self._write(Record, path, {"note": note, **seen, **options})

    @_call("records_reconcile")
    async def reconcile_record(
        self,
        record_id: Id,
        *,
        expected_revision: int,
        expected_hash: str,
        schema: str,
        representation: Literal["compact", "expanded"],
        dry_run: bool,
        evidence: Sequence[Evidence] | None = None,
        **options: Unpack[RecordWriting],
    ) -> Reconciled:
        """Writes the evidence in another representation; given some, also puts it in the place of
        all that a page has."""
        body = {
            "expected_revision": expected_revision,
            "expected_hash": expected_hash,
            "schema": schema,
            "representation": representation,
            "dry_run": dry_run,
            **({} if evidence is None else {"evidence": list(evidence)}),
            **options,
        }
        return await self._write(Reconciled, f"/v1/records/{_part(record_id)}/reconcile", body)

    @_call("records_update")
    async def update_record(self, record_id: Id, **changes: Unpack[RecordChanges]) -> Record:
        """Rescopes, holds; no revision comes of it."""
        path = f"/v1/records/{_part(record_id)}"
        return await self._body("PATCH", Record, path, changes, keyed=True)

    @_call("records_delete")
    async def delete_record(
        self, record_id: Id, *, reason: str, **options: Unpack[InScope]
    ) -> RecordRemoval:
        """Deletes a record with its history."""
        path = f"/v1/records/{_part(record_id)}"
        # Told twice, the second answer would be another: that it is gone.
        return await self._delete(RecordRemoval, path, {"reason": reason, **options}, keyed=False)

    # how a call is made

    async def _get(self, _: type[T], path: str, query: Mapping[str, Any]) -> T:
        answer = await self._answer(_Request(method="GET", path=path, query=query))
        return cast("T", answer.json())

    async def _delete(
        self, _: type[T], path: str, query: Mapping[str, Any], *, keyed: bool = True
    ) -> T:
        answer = await self._answer(
            _Request(
                method="DELETE",
                path=path,
                query=query,
                headers=_key() if keyed else {},
                repeatable=keyed,
            )
        )
        return cast("T", answer.json())

    async def _post(
        self, kind: type[T], path: str, body: Mapping[str, Any], *, keyed: bool = False
    ) -> T:
        return await self._body("POST", kind, path, body, keyed=keyed)

    async def _write(self, kind: type[T], path: str, body: Mapping[str, Any]) -> T:
        """A revision of a record: its request id makes it one, however often it is sent."""
        return await self._post(kind, path, {"request_id": uuid4(), **body})

    async def _body(
        self, method: str, _: type[T], path: str, body: Mapping[str, Any], *, keyed: bool
    ) -> T:
        content = json.dumps(body, default=_spelled).encode()
        answer = await self._answer(
            _Request(
                method=method,
                path=path,
                content=content,
                headers={"Content-Type": "application/json", **(_key() if keyed else {})},
            )
        )
        return cast("T", answer.json())

    async def _send_file(
        self, _: type[T], path: str, content: Content, filename: str, told: Mapping[str, str]
    ) -> T:
        file = _opened(content)
        try:
            answer = await self._answer(
                _Request(method="POST", path=path, file=(filename, file), told=told, headers=_key())
            )
        finally:
            if file is not content:
                file.close()
        return cast("T", answer.json())

    async def _pages(
        self, _: type[T], path: str, query: Mapping[str, Any]
    ) -> AsyncGenerator[T, None]:
        cursor = None
        while True:
            page = await self._get(dict[str, Any], path, {**query, "cursor": cursor})
            for one in page["results"]:
                yield one
            if page["next"] is None:
                return
            # Of the address, which the server knows by another name perhaps, the cursor alone.
            [cursor] = parse_qs(urlsplit(page["next"]).query)["cursor"]

    async def _answer(self, asked: _Request) -> httpx.Response:
        """The answer, after as many attempts as it takes and are allowed."""
        left = self._attempts
        pause = _FIRST_WAIT
        while True:
            left -= 1
            try:
                answer = await self._connection.send(asked.built(self._connection))
            except httpx.TransportError as error:
                never_left = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if left == 0 or not (asked.repeatable or never_left):
                    raise Unreachable(f"No answer came ({type(error).__name__}).") from error
                wait = pause
            else:
                if answer.is_success:
                    return answer
                refusal = _problem(answer)
                later = answer.status_code in _BUSY or refusal.code == _IN_PROGRESS
                if not later or left == 0:
                    raise refusal
                wait = _told_to_wait(answer, pause)
            pause *= 2
            await self._connection.sleep(min(wait, _LONGEST_WAIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is sent, so that it can be sent again. `repeatable`: twice is like once."""

    method: str
    path: str
    query: Mapping[str, Any] | None = None
    content: bytes | None = None
    file: tuple[str, IO[bytes]] | None = None
    told: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    repeatable: bool = True

    def built(self, connection: _Connection) -> httpx.Request:
        query = {
            name: _in_query(value)
            for name, value in (self.query or {}).items()
            if value is not None and value != ""
        }
        given: dict[str, Any] = {"params": query, "headers": self.headers}
        if self.file is not None:
            self.file[1].seek(0)
            given |= {"files": {"file": self.file}, "data": dict(self.told or {})}
        else:
            given["content"] = self.content
        return connection.http.build_request(self.method, self.path, **given)


def _key() -> dict[str, str]:
    """Makes a write one, however often it is sent."""
    return {"Idempotency-Key": uuid4().hex}


def _told_to_wait(answer: httpx.Response, otherwise: float) -> float:
    """Seconds, by what `Retry-After` says: a number of them, or a date."""
    told = answer.headers.get("Retry-After", "")
    if told.isdigit():
        return float(told)
    try:
        return max((parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds(), 0)
    except (ValueError, TypeError):
        return otherwise


def _opened(content: Content) -> IO[bytes]:
    if isinstance(content, bytes):
        return io.BytesIO(content)
    return content.open("rb") if isinstance(content, Path) else content


def _part(name: object) -> str:
    """A name as a part of an address."""
    return quote(str(name), safe="")


def _spelled(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _in_query(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


# --- the clients -------------------------------------------------------------------------------


def _settings(base_url: str, api_key: str, timeout: float) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "headers": {"Authorization": f"Bearer {api_key}", "Accept": "application/json"},
        "timeout": timeout,
    }


class AsyncClient(_Calls):
    """To be awaited."""

    def __init__(
        self, base_url: str, api_key: str, *, timeout: float = 60, attempts: int = 4
    ) -> None:
        self._http = httpx.AsyncClient(**_settings(base_url, api_key, timeout))
        super().__init__(_Waiting(self._http), attempts=attempts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()


class Client(_Calls):
    """Blocks until the answer is there."""

    def __init__(
        self, base_url: str, api_key: str, *, timeout: float = 60, attempts: int = 4
    ) -> None:
        self._http = httpx.Client(**_settings(base_url, api_key, timeout))
        connection = _Blocking(self._http)
        super().__init__(connection, attempts=attempts)
        self.core = _Calls(connection, attempts=attempts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()
