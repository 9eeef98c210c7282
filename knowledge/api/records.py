"""Records that cite: pages, claims, relationships, their revisions and their evidence."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.errors import Forbidden, NotFound, ScopeMissing
from access.idempotency import idempotent
from access.openapi import refuses
from knowledge.api import record_shapes as shapes
from knowledge.api import refusals
from knowledge.api.pagination import RecordPages, RevisionPages, page_of
from knowledge.api.serializers import ScopeChangeSerializer
from knowledge.api.views import KnowledgeView, parsed, query_of
from knowledge.core.errors import (
    LegalHold,
    ReasonMissing,
    SchemaMismatch,
    SensitivityAboveCeiling,
    WrongKind,
)
from knowledge.core.records import RecordKind, Representation
from knowledge.evidence.writing import WrittenRevision
from knowledge.wiring import store


def _written(written: WrittenRevision) -> Response:
    """201 for what made the record, also when the same is asked again."""
    status = HTTPStatus.CREATED if written.row.revision == 1 else HTTPStatus.OK
    return Response(shapes.RecordSerializer(written).data, status=status)


class RecordsView(KnowledgeView):
    """The records that the caller may see."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="records_list",
        parameters=[shapes.RecordsQuerySerializer],
        responses={200: page_of(shapes.RecordSummarySerializer)},
    )
    def get(self, request: Request) -> Response:
        """Lists records, newest first, a page at a time: of a kind, or citing a source."""
        asked = query_of(shapes.RecordsQuerySerializer, request)
        pages = RecordPages(
            self.principal(),
            asked["current_scope"],
            asked["page_size"],
            kind=RecordKind(asked["kind"]) if asked["kind"] else None,
            source=asked["source"],
        )
        return pages.response(request, self, shapes.RecordSummarySerializer)


class PagesView(KnowledgeView):
    """Pages."""

    @refuses(*refusals.RECORDING, NotFound)
    @extend_schema(
        operation_id="records_save_page",
        request=shapes.PageSerializer,
        responses={200: shapes.RecordSerializer, 201: shapes.RecordSerializer},
    )
    def post(self, request: Request) -> Response:
        """Saves a page: a new one, or the next revision of one that you have seen.

        Evidence and attachments are added to what the page has; `reconcile` is what takes some
        away. An attached upload becomes a source and is kept for good.
        """
        asked = parsed(shapes.PageSerializer, request.data)
        data = asked.validated_data
        return _written(
            store().records.save_page(
                self.principal(),
                asked.writing(),
                title=data["title"],
                body=data["body"],
                metadata=data["metadata"],
                expected=asked.expected(),
                placement=asked.placement(),
                **asked.support(),
            )
        )


class ClaimsView(KnowledgeView):
    """Claims."""

    @refuses(*refusals.RECORDING)
    @extend_schema(
        operation_id="records_make_claim",
        request=shapes.ClaimSerializer,
        responses={201: shapes.RecordSerializer},
    )
    def post(self, request: Request) -> Response:
        """Makes a claim, which cites at least one source; quotes and lines are checked."""
        asked = parsed(shapes.ClaimSerializer, request.data)
        return _written(
            store().records.make_claim(
                self.principal(),
                asked.writing(),
                statement=asked.validated_data["statement"],
                placement=asked.required_placement(),
                **asked.support(),
            )
        )


class RelationshipsView(KnowledgeView):
    """Relationships."""

    @refuses(*refusals.RECORDING)
    @extend_schema(
        operation_id="records_make_relationship",
        request=shapes.RelationshipSerializer,
        responses={201: shapes.RecordSerializer},
    )
    def post(self, request: Request) -> Response:
        """Makes a relationship, which cites at least one source; quotes and lines are checked."""
        asked = parsed(shapes.RelationshipSerializer, request.data)
        data = asked.validated_data
        return _written(
            store().records.make_relationship(
                self.principal(),
                asked.writing(),
                subject=data["subject"],
                predicate=data["predicate"],
                object_=data["object"],
                placement=asked.required_placement(),
                **asked.support(),
            )
        )


class RecordView(KnowledgeView):
    """One record."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="records_retrieve",
        parameters=[shapes.RecordQuerySerializer],
        responses={200: shapes.RecordSerializer},
    )
    def get(self, request: Request, record_id: UUID) -> Response:
        """A record as its latest revision has it, or as an earlier one had."""
        asked = query_of(shapes.RecordQuerySerializer, request)
        written = store().get_record(record_id, self.principal(), **asked)
        return Response(shapes.RecordSerializer(written).data)

    @idempotent
    @refuses(*refusals.WRITING, SensitivityAboveCeiling, ReasonMissing)
    @extend_schema(
        operation_id="records_update",
        request=ScopeChangeSerializer,
        responses={200: shapes.RecordSerializer},
    )
    def patch(self, request: Request, record_id: UUID) -> Response:
        """Changes who may find a record, sets or lifts a legal hold. No revision comes of it.

        The scope is for whoever made it with `knowledge.write`, the hold for a key with
        `knowledge.delete`; `origin_trust` is USER at least.
        """
        asked = parsed(ScopeChangeSerializer, request.data)
        changed = store().change_record(
            record_id,
            self.principal(),
            asked.value(),
            current_scope=asked.validated_data["current_scope"],
        )
        return Response(shapes.RecordSerializer(changed).data)

    @refuses(*refusals.READING, Forbidden, ScopeMissing, LegalHold)
    @extend_schema(
        operation_id="records_delete",
        parameters=[shapes.DeleteRecordQuerySerializer],
        responses={200: shapes.RecordRemovalSerializer},
    )
    def delete(self, request: Request, record_id: UUID) -> Response:
        """Deletes a record with its history. The originals that it cites stay."""
        asked = query_of(shapes.DeleteRecordQuerySerializer, request)
        removal = store().remove_record(record_id, self.principal(), **asked)
        return Response(shapes.RecordRemovalSerializer(removal).data)


class RevisionsView(KnowledgeView):
    """The history of a record."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="records_revisions",
        parameters=[shapes.RevisionsQuerySerializer],
        responses={200: page_of(shapes.RevisionSerializer)},
    )
    def get(self, request: Request, record_id: UUID) -> Response:
        """The revisions of a record, newest first, a page at a time; each can be read for ever."""
        asked = query_of(shapes.RevisionsQuerySerializer, request)
        pages = RevisionPages(
            self.principal(), asked["current_scope"], asked["page_size"], record_id=record_id
        )
        return pages.response(request, self, shapes.RevisionSerializer)


class RecordEvidenceView(KnowledgeView):
    """The evidence of a record."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="records_evidence",
        parameters=[shapes.RecordQuerySerializer],
        responses={200: shapes.RecordEvidenceSerializer},
    )
    def get(self, request: Request, record_id: UUID) -> Response:
        """Where each citation of a revision leads, for you and now."""
        asked = query_of(shapes.RecordQuerySerializer, request)
        written, resolved = store().resolve_evidence(record_id, self.principal(), **asked)
        shown = {"written": written, "evidence": resolved}
        return Response(shapes.RecordEvidenceSerializer(shown).data)


class AnnotationsView(KnowledgeView):
    """Dated notes on a record."""

    @refuses(*refusals.RECORDING)
    @extend_schema(
        operation_id="records_annotate",
        request=shapes.AnnotationSerializer,
        responses={200: shapes.RecordSerializer},
    )
    def post(self, request: Request, record_id: UUID) -> Response:
        """Adds a note to a record of any kind. Its evidence stays with it, whatever follows."""
        asked = parsed(shapes.AnnotationSerializer, request.data)
        return _written(
            store().records.annotate(
                self.principal(),
                asked.writing(),
                expected=asked.expected(record_id),
                note=asked.validated_data["note"],
                **asked.support(),
            )
        )


class CorrectionsView(KnowledgeView):
    """Claims and relationships, said anew."""

    @refuses(*refusals.RECORDING, WrongKind)
    @extend_schema(
        operation_id="records_correct",
        request=shapes.CorrectionSerializer,
        responses={200: shapes.RecordSerializer},
    )
    def post(self, request: Request, record_id: UUID) -> Response:
        """Corrects a claim or a relationship, with a reason and its complete evidence.

        What it says and does not name stays as it is; a citation that it had may be given as it
        was, also when its source has gone since.
        """
        asked = parsed(shapes.CorrectionSerializer, request.data)
        return _written(
            store().records.correct(
                self.principal(),
                asked.writing(),
                expected=asked.expected(record_id),
                content=asked.content(),
                **asked.support(),
            )
        )


class ReconcileView(KnowledgeView):
    """The evidence of a record, reviewed."""

    @refuses(*refusals.RECORDING, WrongKind, SchemaMismatch)
    @extend_schema(
        operation_id="records_reconcile",
        request=shapes.ReconcileSerializer,
        responses={200: shapes.ReconciledSerializer},
    )
    def post(self, request: Request, record_id: UUID) -> Response:
        """Writes the evidence in another representation, or puts a complete set in its place.

        First with `dry_run`, which counts and publishes nothing. Only the evidence of a page can be
        another; that of its notes stays. No source, original or earlier revision is changed.
        """
        asked = parsed(shapes.ReconcileSerializer, request.data)
        data = asked.validated_data
        evidence = data.get("evidence")
        reconciled = store().records.reconcile(
            self.principal(),
            asked.writing(),
            expected=asked.expected(record_id),
            schema=data["schema"],
            representation=Representation(data["representation"]),
            evidence=None if evidence is None else shapes.EvidenceSerializer.values(evidence),
            dry_run=data["dry_run"],
        )
        return Response(shapes.ReconciledSerializer(reconciled).data)
