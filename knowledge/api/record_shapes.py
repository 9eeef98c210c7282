"""Shapes of the calls about records: what is asked to values, revisions to answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from access.serializers import ReadQuerySerializer, StrictSerializer
from access.trust import OriginTrust, Sensitivity
from artifacts.store import ATTRIBUTION_LIMIT
from knowledge.api.evidence import sha256_field
from knowledge.api.serializers import choice
from knowledge.core.records import (
    BODY_LIMIT,
    NOTE_LIMIT,
    QUOTE_LIMIT,
    RECORD_SCHEMA,
    STATEMENT_LIMIT,
    TERM_LIMIT,
    AttachedFile,
    Evidence,
    EvidenceState,
    Expected,
    Placement,
    RecordChange,
    RecordKind,
    Representation,
    Writing,
)
from knowledge.core.types import Visibility
from knowledge.core.wording import REASON_LIMIT, TITLE_LIMIT
from knowledge.evidence.reading import ResolvedEvidence
from knowledge.evidence.records import Reconciled
from knowledge.evidence.writing import WrittenRevision

_LARGEST_NUMBER = 2**31 - 1


def text_field(limit: int, **given: Any) -> serializers.CharField:
    """Words that are kept as they are, white space included."""
    return serializers.CharField(max_length=limit, trim_whitespace=False, **given)


def line_field(**given: Any) -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=-_LARGEST_NUMBER,
        max_value=_LARGEST_NUMBER,
        required=False,
        allow_null=True,
        default=None,
        **given,
    )


class CitedPartSerializer(StrictSerializer):
    """What of a source is cited; nothing of it cites the source as a whole."""

    start_line = line_field(help_text="The first cited line, counted from 1.")
    end_line = line_field(help_text="The last cited line; absent: the first alone.")
    quote = text_field(
        QUOTE_LIMIT,
        required=False,
        allow_null=True,
        default=None,
        allow_blank=True,
        help_text="Words that stand there letter by letter, within the lines when there are some.",
    )
    attribution = text_field(
        ATTRIBUTION_LIMIT,
        required=False,
        allow_null=True,
        default=None,
        allow_blank=True,
        help_text="Whose words these are, where not whom the source is attributed to.",
    )


class EvidenceSerializer(CitedPartSerializer):
    """A citation of a source."""

    source = sha256_field(help_text="The descriptor's id.")  # type: ignore[assignment]

    @staticmethod
    def values(asked: Sequence[dict[str, Any]]) -> tuple[Evidence, ...]:
        return tuple(Evidence(**_spoken(one)) for one in asked)


class AttachedFileSerializer(CitedPartSerializer):
    """The receipt of an upload, to be kept as a source, and what of it is cited."""

    artifact = serializers.UUIDField(help_text="Of `knowledge.attach` or `POST /v1/artifacts`.")
    sha256 = sha256_field(help_text="Of the whole file.")

    @staticmethod
    def values(asked: Sequence[dict[str, Any]]) -> tuple[AttachedFile, ...]:
        return tuple(
            AttachedFile(
                artifact_id=one["artifact"],
                **_spoken({name: one[name] for name in one if name != "artifact"}),
            )
            for one in asked
        )


def _spoken(one: dict[str, Any]) -> dict[str, Any]:
    """An empty attribution is none."""
    return {**one, "attribution": one["attribution"] or None}


class WriteSerializer(StrictSerializer):
    """What is said with every write."""

    request_id = serializers.UUIDField(
        help_text="Of your own choice, one for each write: the same request has the same answer."
    )
    reason = serializers.CharField(
        max_length=REASON_LIMIT,
        required=False,
        allow_blank=True,
        default="",
        help_text="Kept with the revision and in the event log for good.",
    )
    origin_trust = choice(OriginTrust, required=False, allow_null=True, default=None)
    current_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )

    def writing(self) -> Writing:
        data = self.validated_data
        trust = data["origin_trust"]
        return Writing(
            request_id=data["request_id"],
            reason=data["reason"],
            origin_trust=OriginTrust(trust) if trust else None,
            current_scope=data["current_scope"],
        )


class SupportSerializer(WriteSerializer):
    """Evidence of a write, and files that become evidence with it."""

    evidence = EvidenceSerializer(many=True, required=False)
    attachments = AttachedFileSerializer(many=True, required=False)

    def support(self) -> dict[str, Any]:
        data = self.validated_data
        return {
            "evidence": EvidenceSerializer.values(data.get("evidence", ())),
            "attachments": AttachedFileSerializer.values(data.get("attachments", ())),
        }


class PlacementSerializer(SupportSerializer):
    """A new record, and who is to find it."""

    visibility = choice(Visibility)
    project_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )
    sensitivity = choice(Sensitivity, default=Sensitivity.INTERNAL.value)

    def required_placement(self) -> Placement:
        data = self.validated_data
        return Placement(
            visibility=Visibility(data["visibility"]),
            project_scope=data["project_scope"],
            sensitivity=Sensitivity(data["sensitivity"]),
        )


class ClaimSerializer(PlacementSerializer):
    statement = text_field(STATEMENT_LIMIT)


class RelationshipSerializer(PlacementSerializer):
    subject = text_field(TERM_LIMIT)
    predicate = text_field(TERM_LIMIT)
    object = text_field(TERM_LIMIT)


class PageSerializer(PlacementSerializer):
    title = serializers.CharField(max_length=TITLE_LIMIT)
    body = text_field(BODY_LIMIT, allow_blank=True, help_text="Markdown.")
    metadata = serializers.DictField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Any JSON object; absent leaves what the page has.",
    )
    visibility = choice(Visibility, required=False, help_text="Of a new page, and of no other.")
    record_id = serializers.UUIDField(
        required=False, help_text="The page that this is the next revision of."
    )
    expected_revision = serializers.IntegerField(
        required=False, min_value=1, max_value=_LARGEST_NUMBER
    )
    expected_hash = sha256_field(required=False, help_text="With `record_id`: what you have seen.")

    def validate(self, attrs: Any) -> Any:
        named = [name in attrs for name in ("record_id", "expected_revision", "expected_hash")]
        if any(named) and not all(named):
            raise serializers.ValidationError(
                {"record_id": ["Give record_id, expected_revision and expected_hash, or none."]}
            )
        if "visibility" not in attrs and attrs["project_scope"] is not None:
            raise serializers.ValidationError({"project_scope": ["Only with a new page."]})
        return attrs

    def placement(self) -> Placement | None:
        return self.required_placement() if "visibility" in self.validated_data else None

    def expected(self) -> Expected | None:
        data = self.validated_data
        return _expected(data["record_id"], data) if "record_id" in data else None


class ExpectedSerializer(WriteSerializer):
    """The revision that whoever writes has seen."""

    expected_revision = serializers.IntegerField(min_value=1, max_value=_LARGEST_NUMBER)
    expected_hash = sha256_field(help_text="The `hash` of that revision.")

    def expected(self, record_id: UUID) -> Expected:
        return _expected(record_id, self.validated_data)


class AnnotationSerializer(ExpectedSerializer, SupportSerializer):
    note = text_field(NOTE_LIMIT)


class CorrectionSerializer(ExpectedSerializer, SupportSerializer):
    """A claim's `statement`; of a relationship's three parts those that are to be others."""

    statement = text_field(STATEMENT_LIMIT, required=False)
    subject = text_field(TERM_LIMIT, required=False)
    predicate = text_field(TERM_LIMIT, required=False)
    object = text_field(TERM_LIMIT, required=False)

    def content(self) -> dict[str, str]:
        data = self.validated_data
        words = ("statement", "subject", "predicate", "object")
        return {name: data[name] for name in words if name in data}


class ReconcileSerializer(ExpectedSerializer):
    schema = serializers.CharField(max_length=50, help_text=f"`{RECORD_SCHEMA}`.")
    representation = choice(Representation)
    evidence = EvidenceSerializer(
        many=True,
        required=False,
        help_text="The complete evidence of the page; absent: another representation alone.",
    )
    dry_run = serializers.BooleanField(help_text="Counts, and publishes nothing.")


def _expected(record_id: UUID, data: dict[str, Any]) -> Expected:
    return Expected(
        record_id=record_id, revision=data["expected_revision"], sha256=data["expected_hash"]
    )


# --- answers -------------------------------------------------------------------------------------


class RecordSummarySerializer(serializers.Serializer[Any]):
    """A record in a list: of its latest revision, and without its text."""

    record_id = serializers.UUIDField()
    kind = choice(RecordKind)
    label = serializers.CharField(help_text="One line of it.")  # type: ignore[assignment]
    visibility = serializers.CharField(source="space.visibility")
    project_scope = serializers.CharField(source="space.project_scope", allow_null=True)
    sensitivity = serializers.CharField(source="space.sensitivity")
    principal_id = serializers.CharField(help_text="Who made it.")
    legal_hold = serializers.BooleanField()
    revision = serializers.IntegerField()
    hash = serializers.CharField(source="sha256")
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()


class RevisionSerializer(serializers.Serializer[Any]):
    revision = serializers.IntegerField()
    hash = serializers.CharField(source="sha256")
    previous_hash = serializers.CharField(
        source="previous_sha256", help_text="Empty for the first."
    )
    change = choice(RecordChange)
    by = serializers.CharField(source="principal_id")
    at = serializers.DateTimeField()
    reason = serializers.CharField()


class WrittenDescriptorSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    sha256 = serializers.CharField()
    attribution = serializers.CharField()
    filename = serializers.CharField()
    media_type = serializers.CharField()
    size = serializers.IntegerField()


class WrittenEvidenceSerializer(serializers.Serializer[Any]):
    """A citation as the revision writes it: compact without what it does not say."""

    source = serializers.CharField()  # type: ignore[assignment]
    start_line = serializers.IntegerField(required=False, allow_null=True)
    end_line = serializers.IntegerField(required=False, allow_null=True)
    quote = serializers.CharField(required=False, allow_null=True)
    attribution = serializers.CharField(required=False, allow_null=True)
    descriptor = WrittenDescriptorSerializer(
        required=False, allow_null=True, help_text="Of an expanded revision."
    )


class WrittenNoteSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    note = serializers.CharField()
    by = serializers.CharField()
    at = serializers.DateTimeField()
    evidence = WrittenEvidenceSerializer(many=True)


class RecordContentSerializer(serializers.Serializer[Any]):
    """A page's title, body and metadata; a claim's statement; the parts of a relationship."""

    title = serializers.CharField(required=False)
    body = serializers.CharField(required=False)
    metadata = serializers.DictField(required=False)
    statement = serializers.CharField(required=False)
    subject = serializers.CharField(required=False)
    predicate = serializers.CharField(required=False)
    object = serializers.CharField(required=False)


class RecordSerializer(serializers.Serializer[WrittenRevision]):
    """A record as one of its revisions has it."""

    record_id = serializers.UUIDField(source="record.record_id")
    kind = choice(RecordKind, source="record.kind")
    visibility = serializers.CharField(source="record.space.visibility")
    project_scope = serializers.CharField(source="record.space.project_scope", allow_null=True)
    sensitivity = serializers.CharField(source="record.space.sensitivity")
    principal_id = serializers.CharField(source="record.principal_id", help_text="Who made it.")
    legal_hold = serializers.BooleanField(source="record.legal_hold")
    created_at = serializers.DateTimeField(source="record.created_at")
    latest_revision = serializers.IntegerField(source="record.revision")
    latest_hash = serializers.CharField(source="record.sha256")
    revision = serializers.IntegerField(source="row.revision")
    hash = serializers.CharField(source="row.sha256")
    previous_hash = serializers.CharField(source="row.previous_sha256")
    change = choice(RecordChange, source="row.change")
    by = serializers.CharField(source="row.principal_id")
    at = serializers.DateTimeField(source="row.at")
    reason = serializers.CharField(source="row.reason")
    schema = serializers.CharField(source="value.schema")
    representation = choice(Representation, source="value.representation")
    content = serializers.SerializerMethodField()
    evidence = serializers.SerializerMethodField()
    annotations = serializers.SerializerMethodField()

    @extend_schema_field(RecordContentSerializer)
    def get_content(self, written: WrittenRevision) -> dict[str, Any]:
        return dict(written.value.content)

    @extend_schema_field(WrittenEvidenceSerializer(many=True))
    def get_evidence(self, written: WrittenRevision) -> list[dict[str, Any]]:
        return written.value.written(written.value.evidence)

    @extend_schema_field(WrittenNoteSerializer(many=True))
    def get_annotations(self, written: WrittenRevision) -> list[dict[str, Any]]:
        value = written.value
        return [
            {
                "id": one.id,
                "note": one.note,
                "by": one.by,
                "at": one.at,
                "evidence": value.written(one.evidence),
            }
            for one in value.annotations
        ]


class ResolvedEvidenceSerializer(serializers.Serializer[ResolvedEvidence]):
    annotation = serializers.CharField(
        help_text="The note whose evidence it is; empty for the record's own."
    )
    position = serializers.IntegerField()
    source = serializers.CharField(source="cited.source")  # type: ignore[assignment]
    start_line = serializers.IntegerField(source="cited.start_line", allow_null=True)
    end_line = serializers.IntegerField(source="cited.end_line", allow_null=True)
    quote = serializers.CharField(source="cited.quote", allow_null=True)
    attribution = serializers.CharField(
        allow_null=True, help_text="The citation's own, else the source's."
    )
    state = choice(
        EvidenceState,
        help_text="`source_deleted`: with its document. `source_not_visible`: not to you, now.",
    )
    artifact_id = serializers.UUIDField(
        allow_null=True, help_text="With `sha256`, what `knowledge.attachment` asks for."
    )
    sha256 = serializers.CharField(allow_null=True)
    descriptor = WrittenDescriptorSerializer(allow_null=True)


class RecordEvidenceSerializer(serializers.Serializer[Any]):
    record_id = serializers.UUIDField(source="written.record.record_id")
    revision = serializers.IntegerField(source="written.row.revision")
    hash = serializers.CharField(source="written.row.sha256")
    evidence = ResolvedEvidenceSerializer(many=True)


class EvidenceCountsSerializer(serializers.Serializer[Any]):
    associations = serializers.IntegerField(help_text="Citations of the record's own.")
    annotation_associations = serializers.IntegerField(help_text="Citations of its notes.")
    sources = serializers.IntegerField(help_text="Different sources among all of them.")
    evidence_bytes = serializers.IntegerField(help_text="Of the citations as they are written.")
    revision_bytes = serializers.IntegerField(help_text="Of the revision as a whole.")


class ReconciledSerializer(serializers.Serializer[Reconciled]):
    dry_run = serializers.SerializerMethodField()
    before = EvidenceCountsSerializer()
    after = EvidenceCountsSerializer()
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    kept = serializers.IntegerField()
    record = RecordSerializer(
        source="written", allow_null=True, help_text="As it is now; null after a dry run."
    )

    def get_dry_run(self, reconciled: Reconciled) -> bool:
        return reconciled.written is None


class RecordRemovalSerializer(serializers.Serializer[Any]):
    """What went. No original and no descriptor did."""

    record_id = serializers.UUIDField()
    kind = choice(RecordKind)
    deleted_at = serializers.DateTimeField()
    revisions = serializers.IntegerField()
    sources = serializers.IntegerField(help_text="That it cited in some revision; they stay.")


# --- query strings -------------------------------------------------------------------------------


class RecordQuerySerializer(ReadQuerySerializer):
    revision = serializers.IntegerField(
        required=False,
        default=None,
        min_value=1,
        max_value=_LARGEST_NUMBER,
        help_text="An earlier one; absent: the latest.",
    )


class RevisionsQuerySerializer(ReadQuerySerializer):
    cursor = serializers.CharField(required=False)
    page_size = serializers.IntegerField(min_value=1, max_value=100, required=False, default=50)


class RecordsQuerySerializer(RevisionsQuerySerializer):
    kind = choice(RecordKind, required=False, default=None)
    source = sha256_field(  # type: ignore[assignment]
        required=False, default=None, help_text="Those whose latest revision cites this descriptor."
    )


class DeleteRecordQuerySerializer(ReadQuerySerializer):
    reason = serializers.CharField(
        max_length=REASON_LIMIT, required=False, allow_blank=True, default=""
    )
