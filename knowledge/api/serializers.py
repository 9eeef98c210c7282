"""Shapes of the knowledge calls: requests to values, values to answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from access.serializers import InstantField, ReadQuerySerializer, StrictSerializer
from access.trust import OriginTrust, Sensitivity
from knowledge.adapters.language import LANGUAGES
from knowledge.core.preturn import EmptyReason
from knowledge.core.profiles import PROFILES
from knowledge.core.provenance import Provenance
from knowledge.core.query import MAX_TEXT
from knowledge.core.quoting import QuoteOutcome
from knowledge.core.search_results import AnswerFormat, search_result
from knowledge.core.types import (
    DEFAULT_BATCH_SIZE,
    MAX_BATCH_SIZE,
    Actor,
    AttachmentState,
    Authority,
    CitationVerdict,
    ConnectorIdentity,
    DocumentChange,
    IngestRequest,
    JobState,
    KnowledgeQuery,
    Omitted,
    OmittedReason,
    ProposalDecision,
    ProposalRequest,
    RecallKind,
    SearchResult,
    Visibility,
)
from knowledge.core.wording import REASON_LIMIT, TITLE_LIMIT
from knowledge.lifecycle.conversations import DocumentOutcome
from knowledge.models.deletion import PENDING_SWEEP, SWEPT
from knowledge.retrieval.citations import MOST_CITATIONS, RecordedAnswer
from knowledge.retrieval.replay import BlockState, PassageState
from knowledge.retrieval.verify import MOST_QUOTES, Quote


def choice(vocabulary: Any, **options: Any) -> serializers.ChoiceField:
    return serializers.ChoiceField(choices=[str(word) for word in vocabulary], **options)


# --- ingest ----------------------------------------------------------------------------------


class ConnectorIdentitySerializer(StrictSerializer):
    type = serializers.CharField(max_length=100)
    id = serializers.CharField(max_length=2_000)
    version = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class IngestRequestSerializer(StrictSerializer):
    artifact = serializers.UUIDField(help_text="The artifact_id of an uploaded file.")
    title = serializers.CharField(max_length=TITLE_LIMIT)
    visibility = choice(Visibility)
    project_scope = serializers.CharField(max_length=200, required=False, allow_null=True)
    sensitivity = choice(Sensitivity, default=Sensitivity.INTERNAL.value)
    authority = choice(Authority, default=Authority.PRINCIPAL_SUPPLIED.value)
    doc_date = serializers.DateField(required=False, allow_null=True, default=None)
    language = serializers.ChoiceField(
        choices=sorted(LANGUAGES), required=False, allow_null=True, default=None
    )
    document_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    source = ConnectorIdentitySerializer(  # type: ignore[assignment]
        required=False, allow_null=True, default=None
    )
    origin_trust = choice(OriginTrust, required=False, allow_null=True, default=None)
    profile = serializers.CharField(
        max_length=50,
        default="default",
        help_text=f"How the text is cut into chunks: {', '.join(PROFILES)}.",
    )
    resume = serializers.BooleanField(
        default=False, help_text="Go on with this very version where an earlier call stopped."
    )
    batch_size = serializers.IntegerField(
        min_value=1,
        max_value=MAX_BATCH_SIZE,
        default=DEFAULT_BATCH_SIZE,
        help_text="Chunks that are embedded and committed at once.",
    )
    background = serializers.BooleanField(
        default=False, help_text="Answer at once with a job, and ingest later."
    )

    def value(self) -> IngestRequest:
        data = self.validated_data
        return IngestRequest(
            artifact_id=data["artifact"],
            title=data["title"],
            visibility=Visibility(data["visibility"]),
            project_scope=data.get("project_scope"),
            sensitivity=Sensitivity(data["sensitivity"]),
            authority=Authority(data["authority"]),
            doc_date=data["doc_date"],
            language=data["language"],
            document_id=data["document_id"],
            source=ConnectorIdentity(**data["source"]) if data["source"] else None,
            origin_trust=OriginTrust(data["origin_trust"]) if data["origin_trust"] else None,
            profile=data["profile"],
            resume=data["resume"],
            batch_size=data["batch_size"],
        )


class IngestReportSerializer(serializers.Serializer[Any]):
    chunks = serializers.IntegerField()
    embedded = serializers.IntegerField(help_text="Admitted chunks that this call committed.")
    skipped = serializers.IntegerField(help_text="Admitted chunks that were committed before.")
    quarantined = serializers.IntegerField()
    rejected = serializers.IntegerField()
    pending = serializers.IntegerField()
    complete = serializers.BooleanField()
    truncated = serializers.BooleanField()
    warnings = serializers.ListField(child=serializers.CharField())
    deleted = serializers.IntegerField()


class IngestResultSerializer(serializers.Serializer[Any]):
    document_id = serializers.UUIDField()
    version = serializers.IntegerField()
    state = serializers.CharField()
    chunk_set_id = serializers.UUIDField()
    already_ingested = serializers.BooleanField()
    title = serializers.CharField()
    chunk_ids = serializers.ListField(child=serializers.CharField())
    report = IngestReportSerializer()


class ProgressSerializer(serializers.Serializer[Any]):
    embedded = serializers.IntegerField(help_text="Admitted chunks that are committed.")
    total = serializers.IntegerField(help_text="Admitted chunks; 0 until the text is cut.")
    batch = serializers.IntegerField()
    batches = serializers.IntegerField()


class JobResultSerializer(serializers.Serializer[Any]):
    document_id = serializers.UUIDField()
    version = serializers.IntegerField()
    state = serializers.CharField()
    chunk_set_id = serializers.UUIDField()
    already_ingested = serializers.BooleanField()
    title = serializers.CharField()
    report = IngestReportSerializer()


@extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
class ProblemField(serializers.JSONField):
    """A problem as it was kept, or nothing."""


class JobSerializer(serializers.Serializer[Any]):
    job_id = serializers.UUIDField()
    state = choice(JobState)
    document_id = serializers.UUIDField(allow_null=True)
    attempts = serializers.IntegerField()
    progress = ProgressSerializer(source="*")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    next_attempt_at = serializers.DateTimeField(
        help_text="When a queued job is tried, at the earliest."
    )
    result = JobResultSerializer(
        allow_null=True, help_text="What the last attempt did; whole when the job is done."
    )
    problem = ProblemField(
        help_text="Why the last attempt did not end well: a problem as errors are."
    )


# --- search ----------------------------------------------------------------------------------


class SearchRequestSerializer(StrictSerializer):
    text = serializers.CharField(max_length=MAX_TEXT, allow_blank=True, trim_whitespace=False)
    as_of = InstantField(required=False, allow_null=True, default=None)
    current_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )
    budget_tokens = serializers.IntegerField(min_value=0, max_value=100_000, default=3_000)
    max_passages = serializers.IntegerField(min_value=1, max_value=50, default=3)
    max_per_document = serializers.IntegerField(min_value=1, max_value=50, default=2)
    min_score = serializers.FloatField(
        min_value=0, max_value=1, required=False, allow_null=True, default=None
    )
    objective = serializers.CharField(
        max_length=MAX_TEXT, required=False, allow_null=True, allow_blank=True, default=None
    )
    entities = serializers.ListField(
        child=serializers.CharField(max_length=200), max_length=50, default=list
    )
    aliases = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(max_length=200), max_length=20),
        default=dict,
    )
    beliefs = serializers.ListField(
        child=serializers.JSONField(), max_length=200, default=list, help_text="Opaque to us."
    )
    format = choice(
        AnswerFormat,
        default=AnswerFormat.BLOCK.value,
        help_text="`anthropic_search_results`: the passages once more, as blocks that a model of"
        " Anthropic's cites by itself.",
    )
    origin_trust = choice(OriginTrust, required=False, allow_null=True, default=None)

    def value(self) -> KnowledgeQuery:
        return knowledge_query(self.validated_data)


def knowledge_query(data: dict[str, Any]) -> KnowledgeQuery:
    """The value of a validated search request."""
    return KnowledgeQuery(
        text=data["text"],
        as_of=data["as_of"],
        current_scope=data["current_scope"],
        budget_tokens=data["budget_tokens"],
        max_passages=data["max_passages"],
        max_per_document=data["max_per_document"],
        min_score=data["min_score"],
        objective=data["objective"],
        entities=tuple(data["entities"]),
        aliases={name: tuple(words) for name, words in data["aliases"].items()},
        beliefs=tuple(data["beliefs"]),
        origin_trust=OriginTrust(data["origin_trust"]) if data["origin_trust"] else None,
    )


class SearchTextSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="`text`")
    text = serializers.CharField(help_text="A paragraph with the blank lines after it.")


class SearchCitationsSerializer(serializers.Serializer[Any]):
    enabled = serializers.BooleanField()


class SearchResultBlockSerializer(serializers.Serializer[Any]):
    """A `search_result` block; the texts of its content, joined, are the passage."""

    type = serializers.CharField(help_text="`search_result`")
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="The citation's address."
    )
    title = serializers.CharField()
    content = SearchTextSerializer(many=True)
    citations = SearchCitationsSerializer()


class TermsSerializer(serializers.Serializer[Any]):
    match = serializers.FloatField()
    authority = serializers.FloatField()
    scope = serializers.FloatField()
    recency = serializers.FloatField()
    penalty = serializers.FloatField()


class PassageSerializer(serializers.Serializer[Any]):
    chunk_id = serializers.CharField(source="candidate.chunk_id")
    document_id = serializers.UUIDField(source="candidate.document_id")
    version = serializers.IntegerField(source="candidate.version")
    title = serializers.CharField(source="candidate.title")
    heading_path = serializers.ListField(
        source="candidate.heading_path", child=serializers.CharField()
    )
    text = serializers.CharField(
        source="candidate.text", help_text="Whole and word for word, never truncated."
    )
    tokens = serializers.IntegerField(source="candidate.tokens")
    doc_date = serializers.DateField(source="candidate.doc_date", allow_null=True)
    authority = serializers.CharField(source="candidate.authority")
    score = serializers.FloatField()
    terms = TermsSerializer()
    arms = serializers.DictField(source="candidate.arms", child=serializers.FloatField())
    instruction_like = serializers.BooleanField(source="candidate.instruction_like")
    line_start = serializers.IntegerField(source="candidate.line_start")
    line_end = serializers.IntegerField(source="candidate.line_end")
    page_start = serializers.IntegerField(source="candidate.page_start", allow_null=True)
    page_end = serializers.IntegerField(source="candidate.page_end", allow_null=True)
    citation_url = serializers.SerializerMethodField()

    @extend_schema_field(serializers.URLField())
    def get_citation_url(self, passage: Any) -> str:
        link: str = self.context["citation_url"](passage.candidate.chunk_id)
        return link


class OmittedSerializer(serializers.Serializer[Any]):
    chunk_id = serializers.CharField()
    document_id = serializers.UUIDField()
    reason = choice(OmittedReason)
    tokens = serializers.IntegerField()
    score = serializers.FloatField()

    def to_representation(self, instance: Omitted | Mapping[str, Any]) -> dict[str, Any]:
        """What the fields say. A search leaves out dozens, and the framework takes long over each."""
        if isinstance(instance, Mapping):  # of a trace
            return dict(instance)
        return {
            "chunk_id": instance.chunk_id,
            "document_id": str(instance.document_id),
            "reason": instance.reason,
            "tokens": instance.tokens,
            "score": instance.score,
        }


class TracedOmittedSerializer(OmittedSerializer):
    """A thinned trace has forgotten scores and terms."""

    score = serializers.FloatField(required=False)
    terms = TermsSerializer(required=False)


class SearchResultSerializer(serializers.Serializer[Any]):
    trust = serializers.CharField(read_only=True, default="KNOWLEDGE")
    policy = serializers.CharField()
    as_of = serializers.DateTimeField()
    trace_id = serializers.UUIDField()
    block = serializers.CharField(source="block.text")
    block_sha256 = serializers.CharField(source="block.sha256")
    block_tokens = serializers.IntegerField(source="block.tokens")
    notes = serializers.ListField(child=serializers.CharField())
    passages = PassageSerializer(many=True)
    omitted = OmittedSerializer(many=True)
    search_results = SearchResultBlockSerializer(
        many=True, required=False, help_text="With the format `anthropic_search_results` alone."
    )

    def to_representation(self, instance: SearchResult) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if self.context.get("format") == AnswerFormat.ANTHROPIC_SEARCH_RESULTS:
            link = self.context["citation_url"]
            found = [passage.candidate for passage in instance.passages]
            shown["search_results"] = [
                search_result(
                    one.text,
                    source=link(one.chunk_id),
                    title=one.title,
                    heading_path=one.heading_path,
                )
                for one in found
            ]
        return shown


# --- context ---------------------------------------------------------------------------------


class RecallItemSerializer(StrictSerializer):
    id = serializers.CharField(max_length=200, help_text="Opaque to us.")
    tokens = serializers.IntegerField(min_value=0, max_value=1_000_000)


class AssembleRequestSerializer(StrictSerializer):
    tokens_left = serializers.IntegerField(
        min_value=0, max_value=10_000_000, help_text="What the turn can still hold."
    )
    in_turn_recall = serializers.ListField(
        child=RecallItemSerializer(),
        max_length=1_000,
        default=list,
        help_text="The beliefs that the host wants in the turn, the most important first.",
    )
    search = SearchRequestSerializer()


class AssembledRecallSerializer(serializers.Serializer[Any]):
    kept = serializers.ListField(child=serializers.CharField())
    yielded = serializers.ListField(child=serializers.CharField())
    tokens = serializers.IntegerField()


class AssembledSerializer(serializers.Serializer[Any]):
    knowledge = SearchResultSerializer(allow_null=True)
    knowledge_tokens = serializers.IntegerField(help_text="The block's, envelope included.")
    in_turn_recall = AssembledRecallSerializer()


class RecalledSerializer(serializers.Serializer[Any]):
    """Automatic recall: what goes into the turn as it is, or nothing and why."""

    block = serializers.CharField(help_text="Empty when there is nothing to add to the turn.")
    block_tokens = serializers.IntegerField(help_text="0 when there is nothing.")
    reason = choice(
        EmptyReason,
        allow_null=True,
        help_text="Why there is nothing. `disabled`: nothing was looked for.",
    )
    trace_id = serializers.UUIDField(allow_null=True)
    knowledge = SearchResultSerializer(
        allow_null=True, help_text="The whole answer of the search; null when there is nothing."
    )


# --- attachments and conversations -----------------------------------------------------------


class AttachSerializer(serializers.Serializer[Any]):
    file = serializers.FileField(allow_empty_file=True, max_length=None)
    conversation_id = serializers.CharField(
        max_length=200, help_text="Your name for the conversation; it is one of your principal's."
    )
    actor = choice(
        Actor,
        help_text="Who sent the message. Only the `principal`'s own files become documents, and"
        " only when the key holds knowledge.write and may vouch for USER.",
    )
    media_type = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)


class AttachmentSerializer(serializers.Serializer[Any]):
    attachment_id = serializers.UUIDField()
    conversation_id = serializers.CharField(source="conversation.conversation_id")
    artifact_id = serializers.UUIDField()
    filename = serializers.CharField(source="artifact.filename")
    media_type = serializers.CharField(source="artifact.media_type")
    byte_size = serializers.IntegerField(source="artifact.byte_size")
    sha256 = serializers.CharField(source="artifact.sha256")
    actor = serializers.CharField()
    state = choice(
        AttachmentState,
        help_text="`stored` files are kept and never become documents; `pending` ones will, or"
        " will be `refused`, or have `failed` too often. `deleted`: the document went.",
    )
    reason = serializers.CharField(help_text="The code of the refusal or the last failure.")
    attempts = serializers.IntegerField(source="job.attempts", default=0)
    document_id = serializers.UUIDField(allow_null=True)
    created_at = serializers.DateTimeField()


class DeleteConversationQuerySerializer(StrictSerializer):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class ConversationQuerySerializer(DeleteConversationQuerySerializer):
    conversation_id = serializers.CharField(max_length=200)


# --- proposals -------------------------------------------------------------------------------


class ProposeRetentionSerializer(StrictSerializer):
    artifact = serializers.UUIDField(help_text="The artifact_id of an uploaded file.")
    title = serializers.CharField(max_length=TITLE_LIMIT)
    visibility = serializers.ChoiceField(
        choices=[str(Visibility.PROJECT), str(Visibility.TENANT)],
        help_text="What is for one principal alone is that principal's to admit.",
    )
    reason = serializers.CharField(max_length=2_000, help_text="Why it is worth keeping.")
    project_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )
    sensitivity = choice(Sensitivity, default=Sensitivity.INTERNAL.value)
    doc_date = serializers.DateField(required=False, allow_null=True, default=None)
    language = serializers.ChoiceField(
        choices=sorted(LANGUAGES), required=False, allow_null=True, default=None
    )
    origin_trust = choice(OriginTrust, required=False, allow_null=True, default=None)

    def value(self) -> ProposalRequest:
        data = self.validated_data
        return ProposalRequest(
            artifact_id=data["artifact"],
            title=data["title"],
            visibility=Visibility(data["visibility"]),
            reason=data["reason"],
            project_scope=data["project_scope"],
            sensitivity=Sensitivity(data["sensitivity"]),
            doc_date=data["doc_date"],
            language=data["language"],
            origin_trust=OriginTrust(data["origin_trust"]) if data["origin_trust"] else None,
        )


class RetentionReceiptSerializer(serializers.Serializer[Any]):
    verified = serializers.BooleanField(
        help_text="A version was finalized with at least one admitted chunk."
    )
    state = serializers.CharField(help_text="Of the ingest: queued, running, done, refused...")
    document_id = serializers.UUIDField(allow_null=True)
    version = serializers.IntegerField(allow_null=True)
    code = serializers.CharField(help_text="Why not, when it was refused or failed.")
    report = IngestReportSerializer(allow_null=True)


class ProposalSerializer(serializers.Serializer[Any]):
    proposal_id = serializers.UUIDField()
    state = choice(ProposalDecision, source="decision")
    title = serializers.CharField()
    reason = serializers.CharField()
    visibility = serializers.CharField()
    project_scope = serializers.CharField(allow_null=True)
    sensitivity = serializers.CharField()
    doc_date = serializers.DateField(allow_null=True)
    language = serializers.CharField()
    filename = serializers.CharField()
    media_type = serializers.CharField()
    byte_size = serializers.IntegerField()
    sha256 = serializers.CharField()
    origin_trust = serializers.CharField()
    chunks = serializers.IntegerField(source="chunk_count")
    flagged = serializers.IntegerField(source="flagged_count")
    instruction_families = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField()
    decision_reason = serializers.CharField()
    receipt = RetentionReceiptSerializer(
        allow_null=True, help_text="What came of it, once it is approved."
    )


# --- guards ----------------------------------------------------------------------------------


class ProvenanceSerializer(StrictSerializer):
    kind = serializers.CharField(
        max_length=100, help_text="Your word for it, such as `episode` or `turn`."
    )
    id = serializers.CharField(max_length=2_000, help_text="Your id of it.")


class BeliefProvenanceSerializer(StrictSerializer):
    provenance = serializers.ListField(
        child=ProvenanceSerializer(),
        min_length=1,
        max_length=1_000,
        help_text="All that the belief would stand on.",
    )

    def value(self) -> list[Provenance]:
        return [Provenance(**one) for one in self.validated_data["provenance"]]


class AcceptedProvenanceSerializer(serializers.Serializer[Any]):
    accepted = serializers.BooleanField(help_text="Always true; a refusal is a problem.")
    checked = serializers.IntegerField()


# --- documents and citations -----------------------------------------------------------------


class AsOfQuerySerializer(ReadQuerySerializer):
    as_of = InstantField(
        required=False,
        default=None,
        help_text="What there was at an instant, a timestamp with an offset, of what you may see"
        " today; absent means now.",
    )


class ListQuerySerializer(AsOfQuerySerializer):
    cursor = serializers.CharField(required=False, default=None)
    page_size = serializers.IntegerField(min_value=1, max_value=200, required=False, default=50)


class DeleteQuerySerializer(ReadQuerySerializer):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class SourceSerializer(serializers.Serializer[Any]):
    artifact_id = serializers.UUIDField(source="id")
    sha256 = serializers.CharField()
    filename = serializers.CharField()
    media_type = serializers.CharField()
    descriptor_id = serializers.CharField(
        source="descriptor.descriptor_id",
        default=None,
        allow_null=True,
        help_text="The SHA-256 of the source's descriptor: what it is, and whose. No credential.",
    )


class ChunkSerializer(serializers.Serializer[Any]):
    chunk_id = serializers.CharField()
    document_id = serializers.UUIDField(source="chunk_set.version.document_id")
    version = serializers.IntegerField(source="chunk_set.version.version")
    title = serializers.CharField(source="chunk_set.version.document.title")
    heading_path = serializers.ListField(child=serializers.CharField())
    ordinal = serializers.IntegerField()
    text = serializers.CharField()
    tokens = serializers.IntegerField()
    content_sha256 = serializers.CharField()
    line_start = serializers.IntegerField()
    line_end = serializers.IntegerField()
    page_start = serializers.IntegerField(allow_null=True)
    page_end = serializers.IntegerField(allow_null=True)
    chunker_version = serializers.CharField(source="chunk_set.chunker_version")
    live = serializers.BooleanField()
    superseded_by_version = serializers.IntegerField(allow_null=True)
    superseded_by_chunker_version = serializers.CharField(
        allow_null=True,
        help_text="By what its version has been divided anew since: this passage still stands,"
        " and searches return others.",
    )
    source = SourceSerializer(source="chunk_set.version.source")  # type: ignore[assignment]


class QuoteSerializer(StrictSerializer):
    chunk_id = serializers.CharField(max_length=100)
    quote = serializers.CharField(max_length=MAX_TEXT, trim_whitespace=False)


class VerifyQuoteSerializer(StrictSerializer):
    quotes = QuoteSerializer(many=True, help_text=f"At most {MOST_QUOTES}.")
    current_scope = serializers.CharField(max_length=200, required=False, allow_null=True)
    as_of = InstantField(required=False, allow_null=True, default=None)

    def value(self) -> list[Quote]:
        return [
            Quote(chunk_id=one["chunk_id"], text=one["quote"])
            for one in self.validated_data["quotes"]
        ]


class CheckedQuoteSerializer(serializers.Serializer[Any]):
    """`start`, `end` (characters of the passage's text) and lines are those of the words found."""

    chunk_id = serializers.CharField(source="quote.chunk_id", help_text="As it was asked.")
    outcome = choice(QuoteOutcome)
    start = serializers.IntegerField(source="match.start", allow_null=True, default=None)
    end = serializers.IntegerField(source="match.end", allow_null=True, default=None)
    line_start = serializers.IntegerField(allow_null=True)
    line_end = serializers.IntegerField(allow_null=True)
    found_in = ChunkSerializer(
        source="chunk", allow_null=True, help_text="The passage that holds the quote, if any does."
    )


class CheckedQuotesSerializer(serializers.Serializer[Any]):
    results = CheckedQuoteSerializer(many=True)


class CitedSerializer(StrictSerializer):
    chunk_id = serializers.CharField(max_length=100)
    quote = serializers.CharField(
        max_length=MAX_TEXT,
        trim_whitespace=False,
        required=False,
        allow_null=True,
        default=None,
        help_text="The words that the answer takes from the passage; checked, and not kept.",
    )


class RecordAnswerSerializer(StrictSerializer):
    trace_id = serializers.UUIDField(help_text="Of the search that the answer was drawn from.")
    answer_id = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Your id of the answer, when a search leads to several.",
    )
    answered = serializers.BooleanField(
        help_text="Whether an answer was drawn from what the search showed."
    )
    citations = CitedSerializer(
        many=True, required=False, default=list, help_text=f"At most {MOST_CITATIONS}."
    )


class CitationSerializer(serializers.Serializer[Any]):
    chunk_id = serializers.CharField(help_text="As it was told.")
    verdict = choice(
        CitationVerdict,
        help_text="`exact`, `normalised`, `misattributed`, `not_found`: what became of the quote."
        " `unquoted`: there was none. `not_in_block`: the search did not show this passage."
        " `unknown`: there is none that you may see.",
    )


class RecordedAnswerSerializer(serializers.Serializer[Any]):
    trace_id = serializers.UUIDField(source="answer.trace_id")
    answer_id = serializers.CharField(source="answer.answer_id")
    answered = serializers.BooleanField(source="answer.answered")
    recorded_at = serializers.DateTimeField(source="answer.recorded_at")
    already_recorded = serializers.BooleanField()
    citations = serializers.SerializerMethodField()

    @extend_schema_field(CitationSerializer(many=True))
    def get_citations(self, recorded: RecordedAnswer) -> list[dict[str, Any]]:
        return [
            {"chunk_id": cited.chunk_id, "verdict": str(verdict)}
            for cited, verdict in recorded.citations
        ]


class TracedPassageSerializer(serializers.Serializer[Any]):
    """A passage as the trace kept it; of a withheld one nothing but place and state."""

    position = serializers.IntegerField()
    state = choice(PassageState)
    text = serializers.CharField(help_text="The passage's own words, or why they are not here.")
    chunk_id = serializers.CharField(source="traced.chunk_id", allow_null=True, default=None)
    document_id = serializers.UUIDField(source="traced.document_id", allow_null=True, default=None)
    content_sha256 = serializers.CharField(
        source="traced.content_sha256", allow_null=True, default=None
    )
    title = serializers.CharField(source="traced.title", allow_null=True, default=None)
    heading_path = serializers.ListField(
        source="traced.heading_path", child=serializers.CharField(), allow_null=True, default=None
    )
    doc_date = serializers.DateField(source="traced.doc_date", allow_null=True, default=None)
    instruction_like = serializers.BooleanField(
        source="traced.instruction_like", allow_null=True, default=None
    )
    tokens = serializers.IntegerField(source="traced.tokens", allow_null=True, default=None)
    score = serializers.FloatField(source="traced.score", allow_null=True, default=None)
    terms = TermsSerializer(source="traced.terms", allow_null=True, default=None)
    arms = serializers.DictField(
        source="traced.arms", child=serializers.FloatField(), allow_null=True, default=None
    )
    verified = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the words are those that were shown, by their hash; null when there"
        " are none to look at.",
    )


class TraceSerializer(serializers.Serializer[Any]):
    trace_id = serializers.UUIDField(source="trace.id")
    kind = choice(RecallKind, source="trace.kind")
    thinned_at = serializers.DateTimeField(
        source="trace.thinned_at",
        allow_null=True,
        help_text="When all but ids, hashes and counts was forgotten: what is null since then was"
        " there.",
    )
    principal_id = serializers.CharField(source="trace.principal_id")
    acting_operator = serializers.CharField(
        source="trace.acting_operator",
        help_text="Who looked through the principal's eyes; empty when it was the principal.",
    )
    surface = serializers.CharField(source="trace.surface")
    current_scope = serializers.CharField(source="trace.current_scope", allow_null=True)
    sensitivity_ceiling = serializers.CharField(source="trace.sensitivity_ceiling")
    text = serializers.CharField(source="trace.query_text", allow_null=True)
    as_of = serializers.DateTimeField(source="trace.as_of")
    live = serializers.BooleanField(source="trace.live", help_text="False: asked with an as_of.")
    policy = serializers.CharField(source="trace.policy")
    analyzer_version = serializers.CharField(source="trace.analyzer_version")
    beliefs = serializers.ListField(
        source="trace.beliefs", child=serializers.JSONField(), allow_null=True
    )
    notes = serializers.ListField(
        source="trace.notes", child=serializers.CharField(), allow_null=True
    )
    passages = TracedPassageSerializer(many=True)
    omitted = TracedOmittedSerializer(many=True)
    withheld = serializers.IntegerField(
        help_text="How many more were left out that you may not see."
    )
    block = serializers.CharField(
        allow_null=True, help_text="What the model saw, byte for byte, when all of it is there."
    )
    block_state = choice(BlockState)
    block_sha256 = serializers.CharField(source="trace.block_sha256")
    block_tokens = serializers.IntegerField(source="trace.block_tokens")
    duration_ms = serializers.FloatField(source="trace.duration_ms")
    created_at = serializers.DateTimeField(source="trace.created_at")


class VersionSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    media_type = serializers.CharField()
    language = serializers.CharField()
    doc_date = serializers.DateField(allow_null=True)
    authority = serializers.CharField()
    page_count = serializers.IntegerField(allow_null=True)
    truncated = serializers.BooleanField()
    warnings = serializers.ListField(child=serializers.CharField())
    source_version = serializers.CharField()
    ingested_at = serializers.DateTimeField()
    superseded_at = serializers.DateTimeField(allow_null=True)
    source = SourceSerializer()  # type: ignore[assignment]


class DocumentSerializer(serializers.Serializer[Any]):
    document_id = serializers.UUIDField()
    title = serializers.CharField()
    visibility = serializers.CharField(source="space.visibility")
    project_scope = serializers.CharField(source="space.project_scope", allow_null=True)
    sensitivity = serializers.CharField(source="space.sensitivity")
    ingested_by_principal_id = serializers.CharField()
    legal_hold = serializers.BooleanField()
    version = serializers.IntegerField(help_text="The newest, now or at the instant asked for.")
    created_at = serializers.DateTimeField()


class ScopeChangeSerializer(StrictSerializer):
    """Who is to find something, and whether it is held."""

    visibility = choice(Visibility, required=False)
    project_scope = serializers.CharField(
        max_length=200,
        required=False,
        help_text="With visibility `project`, or alone to move a project's document to another.",
    )
    sensitivity = choice(Sensitivity, required=False, help_text="At most the key's own ceiling.")
    legal_hold = serializers.BooleanField(
        required=False, help_text="Takes `knowledge.delete`; lifting it takes a reason, too."
    )
    origin_trust = choice(OriginTrust, required=False, allow_null=True, default=None)
    current_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )
    reason = serializers.CharField(
        max_length=REASON_LIMIT,
        required=False,
        allow_blank=True,
        default="",
        help_text="Kept in the event log for good, so do not quote the document.",
    )

    def value(self) -> DocumentChange:
        data = self.validated_data
        return DocumentChange(
            title=data.get("title"),
            visibility=Visibility(data["visibility"]) if "visibility" in data else None,
            project_scope=data.get("project_scope"),
            sensitivity=Sensitivity(data["sensitivity"]) if "sensitivity" in data else None,
            legal_hold=data.get("legal_hold"),
            origin_trust=OriginTrust(data["origin_trust"]) if data["origin_trust"] else None,
            reason=data["reason"],
        )


class DocumentChangeSerializer(ScopeChangeSerializer):
    title = serializers.CharField(max_length=TITLE_LIMIT, required=False)


class DocumentDetailSerializer(DocumentSerializer):
    versions = VersionSerializer(many=True)


class DeletionReceiptSerializer(serializers.Serializer[Any]):
    """What went, by store. It can be read again under its id."""

    deletion_id = serializers.UUIDField()
    document_id = serializers.UUIDField()
    deleted_at = serializers.DateTimeField()
    versions = serializers.IntegerField()
    chunk_sets = serializers.IntegerField()
    chunks = serializers.IntegerField()
    index_rows = serializers.IntegerField()
    embeddings = serializers.IntegerField()
    traced_passages = serializers.IntegerField(help_text="Scrubbed: ids stay, words went.")
    proposals = serializers.IntegerField(help_text="Proposals that became it, scrubbed.")
    jobs = serializers.IntegerField()
    descriptors = serializers.IntegerField()
    proof = serializers.DictField(
        source="left",
        child=serializers.IntegerField(),
        help_text="What a query of each store found afterwards, before anything was committed:"
        " zero everywhere, or nothing would have been deleted.",
    )
    sources = serializers.ListField(child=serializers.UUIDField())
    bytes_state = serializers.ChoiceField(
        choices=[PENDING_SWEEP, SWEPT],
        help_text="`pending_sweep` until the sweeper has removed the bytes of every source.",
    )
    records = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="Records that you may see and that cite its sources. They stay: they were never"
        " the document's.",
    )


class ConversationDocumentSerializer(serializers.Serializer[Any]):
    document_id = serializers.UUIDField()
    outcome = choice(
        DocumentOutcome,
        help_text="`kept`: another conversation sent the same file. `held`: a legal hold; delete"
        " the conversation again when it is lifted. `never`: it was not made yet.",
    )
    receipt = DeletionReceiptSerializer(allow_null=True)


class ConversationReceiptSerializer(serializers.Serializer[Any]):
    conversation_id = serializers.CharField()
    deleted_at = serializers.DateTimeField()
    attachments = serializers.IntegerField(help_text="Files that this call removed.")
    documents = ConversationDocumentSerializer(many=True)
    bytes_state = serializers.CharField()
