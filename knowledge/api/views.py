"""The knowledge calls: parse, one call of the store, render."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from access.authentication import principal_of
from access.errors import NotFound
from access.idempotency import idempotent
from access.openapi import refuses
from access.principal import Principal
from access.serializers import ReadQuerySerializer, StrictJSONParser, StrictSerializer
from knowledge.api import refusals
from knowledge.api import serializers as shapes
from knowledge.api.pagination import DocumentPages, page_of
from knowledge.core.assembly import RecallItem
from knowledge.core.errors import BeliefFromDocument, CitationConflict
from knowledge.core.types import KnowledgeQuery
from knowledge.links import citation_link
from knowledge.retrieval.citations import Cited
from knowledge.tasks import hint
from knowledge.wiring import store

S = TypeVar("S", bound="Serializer[Any]")


def parsed(serializer: type[S], data: Any) -> S:
    """A request's data in its shape; raises REST framework's `ValidationError`."""
    shape = serializer(data=data)
    shape.is_valid(raise_exception=True)
    return shape


def query_of(serializer: type[S], request: Request) -> dict[str, Any]:
    """The query string in its shape. What is said twice is no clearer than what is not said."""
    given = request.query_params
    if twice := [name for name, values in given.lists() if len(values) > 1]:
        raise ValidationError({name[:100]: ["Give it once."] for name in twice})
    values: dict[str, Any] = parsed(serializer, given.dict()).validated_data
    return values


def linker(principal: Principal, query: KnowledgeQuery) -> Callable[[str], str]:
    """Chunk id to the signed address of its citation, for whoever asked."""

    def link(chunk_id: str) -> str:
        return citation_link(chunk_id, principal, query.current_scope)

    return link


def shown_as(asked: dict[str, Any], link: Callable[[str], str]) -> dict[str, Any]:
    """What the shape of a search's answer has to know of how it was asked."""
    return {"citation_url": link, "format": asked["format"]}


class KnowledgeView(APIView):
    parser_classes = (StrictJSONParser,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in {"POST", "PATCH"} and hasattr(self, request.method.lower()):
            # Everything is in the body: an `as_of` up here would be ignored.
            query_of(StrictSerializer, request)

    def principal(self) -> Principal:
        return principal_of(self.request)


class SearchView(KnowledgeView):
    """Passages, word for word, each with its citation."""

    @refuses(*refusals.SEARCHING)
    @extend_schema(
        operation_id="knowledge_search",
        request=shapes.SearchRequestSerializer,
        responses={200: shapes.SearchResultSerializer},
    )
    def post(self, request: Request) -> Response:
        """Searches what the caller may see and returns whole passages within a token budget."""
        asked = parsed(shapes.SearchRequestSerializer, request.data)
        query, principal = asked.value(), self.principal()
        result = store().search(query, principal)
        context = shown_as(asked.validated_data, linker(principal, query))
        return Response(shapes.SearchResultSerializer(result, context=context).data)


class PreturnView(KnowledgeView):
    """Automatic recall."""

    @refuses(*refusals.SEARCHING)
    @extend_schema(
        operation_id="context_preturn",
        request=shapes.SearchRequestSerializer,
        responses={200: shapes.RecalledSerializer},
    )
    def post(self, request: Request) -> Response:
        """Passages for a turn that did not ask for any, when some are about it for certain.

        To be called each turn: while the tenant has it switched off, and when nothing reaches the
        floor, the answer is an empty block, which costs the turn nothing.
        """
        asked = parsed(shapes.SearchRequestSerializer, request.data)
        query, principal = asked.value(), self.principal()
        recalled = store().preturn(query, principal)
        found = None if recalled.reason else recalled.result
        shown = {
            "block": found.block.text if found else "",
            "block_tokens": recalled.block_tokens,
            "reason": recalled.reason,
            "trace_id": recalled.result and recalled.result.trace_id,
            "knowledge": found,
        }
        context = shown_as(asked.validated_data, linker(principal, query))
        return Response(shapes.RecalledSerializer(shown, context=context).data)


class AssembleView(KnowledgeView):
    """Knowledge within what a turn has left."""

    @refuses(*refusals.SEARCHING)
    @extend_schema(
        operation_id="context_assemble",
        request=shapes.AssembleRequestSerializer,
        responses={200: shapes.AssembledSerializer},
    )
    def post(self, request: Request) -> Response:
        """Searches, and under pressure lets knowledge yield first, then in-turn recall."""
        asked = parsed(shapes.AssembleRequestSerializer, request.data).validated_data
        query, principal = shapes.knowledge_query(asked["search"]), self.principal()
        assembly = store().assemble(
            query,
            principal,
            tokens_left=asked["tokens_left"],
            recall=[RecallItem(**item) for item in asked["in_turn_recall"]],
        )
        allotment = assembly.allotment
        shown = {
            "knowledge": assembly.knowledge,
            "knowledge_tokens": assembly.knowledge_tokens,
            "in_turn_recall": {
                "kept": [item.id for item in allotment.kept],
                "yielded": [item.id for item in allotment.yielded],
                "tokens": allotment.recall_tokens,
            },
        }
        context = shown_as(asked["search"], linker(principal, query))
        return Response(shapes.AssembledSerializer(shown, context=context).data)


class BeliefProvenanceView(KnowledgeView):
    """No belief from a document."""

    @refuses(BeliefFromDocument)
    @extend_schema(
        operation_id="guards_belief_provenance",
        request=shapes.BeliefProvenanceSerializer,
        responses={
            200: shapes.AcceptedProvenanceSerializer,
        },
    )
    def post(self, request: Request) -> Response:
        """Refuses a belief of which any provenance is a document or a part of one.

        Ask before a belief is written. Ids and addresses of passages are refused in any
        spelling, whether they exist or not; a bare UUID when it is, or was, a document that
        you could read. Anything else, an episode or a turn, is accepted.
        """
        asked = parsed(shapes.BeliefProvenanceSerializer, request.data).value()
        store().check_provenance(asked, self.principal())
        accepted = {"accepted": True, "checked": len(asked)}
        return Response(shapes.AcceptedProvenanceSerializer(accepted).data)


class IngestView(KnowledgeView):
    """Admitting a document."""

    @idempotent
    @refuses(*refusals.ADMITTING)
    @extend_schema(
        operation_id="knowledge_ingest",
        request=shapes.IngestRequestSerializer,
        responses={
            200: shapes.IngestResultSerializer,
            201: shapes.IngestResultSerializer,
            202: shapes.JobSerializer,
        },
    )
    def post(self, request: Request) -> Response:
        """Admits an uploaded file: all of it is searchable afterwards, or nothing is.

        An outcome whose report is not complete can be resumed. With `background` the answer is a
        job.
        """
        shape = parsed(shapes.IngestRequestSerializer, request.data)
        if shape.validated_data["background"]:
            job = store().ingest_later(shape.value(), self.principal())
            hint(job.job_id)
            return Response(shapes.JobSerializer(job).data, status=HTTPStatus.ACCEPTED)
        result = store().ingest(shape.value(), self.principal())
        status = HTTPStatus.OK if result.already_ingested else HTTPStatus.CREATED
        return Response(shapes.IngestResultSerializer(result).data, status=status)


class JobView(KnowledgeView):
    """A background ingest."""

    @extend_schema(operation_id="jobs_retrieve", responses={200: shapes.JobSerializer})
    def get(self, request: Request, job_id: UUID) -> Response:
        """How far a background ingest of the caller's own is, and how it ended."""
        query_of(StrictSerializer, request)
        job = store().get_job(job_id, self.principal())
        return Response(shapes.JobSerializer(job).data)


class ChunkView(KnowledgeView):
    """A citation."""

    @refuses(*refusals.OF_SOMETHING)
    @extend_schema(
        operation_id="chunks_retrieve",
        parameters=[shapes.AsOfQuerySerializer],
        responses={200: shapes.ChunkSerializer},
    )
    def get(self, request: Request, chunk_id: str) -> Response:
        """Resolves a citation to its words, lines, version and source."""
        asked = query_of(shapes.AsOfQuerySerializer, request)
        chunk = store().get_chunk(chunk_id, self.principal(), **asked)
        return Response(shapes.ChunkSerializer(chunk).data)


class VerifyQuoteView(KnowledgeView):
    """Checking quotes."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="knowledge_verify_quote",
        request=shapes.VerifyQuoteSerializer,
        responses={200: shapes.CheckedQuotesSerializer},
    )
    def post(self, request: Request) -> Response:
        """Says of each quote whether the passage that it is ascribed to holds it, and where.

        `exact`: letter by letter. `normalised`: but for white space, quotation marks, dashes,
        ligatures and capitals. `misattributed`: another passage that you may see holds it,
        `found_in`. `not_found`: none does.
        """
        asked = parsed(shapes.VerifyQuoteSerializer, request.data)
        checked = store().verify_quotes(
            asked.value(),
            self.principal(),
            current_scope=asked.validated_data.get("current_scope"),
            as_of=asked.validated_data["as_of"],
        )
        return Response(shapes.CheckedQuotesSerializer({"results": checked}).data)


class CitationsView(KnowledgeView):
    """What became of an answer."""

    @idempotent
    @refuses(NotFound, CitationConflict)
    @extend_schema(
        operation_id="citations_create",
        request=shapes.RecordAnswerSerializer,
        responses={200: shapes.RecordedAnswerSerializer, 201: shapes.RecordedAnswerSerializer},
    )
    def post(self, request: Request) -> Response:
        """Records which passages an answer cites, and checks what it quotes.

        For measuring: no search ranks by it, and no quote is kept. Told twice, an answer is
        recorded once (200 the second time); told otherwise, it is a conflict.
        """
        asked = parsed(shapes.RecordAnswerSerializer, request.data).validated_data
        recorded = store().record_answer(
            asked["trace_id"],
            self.principal(),
            answer_id=asked["answer_id"],
            answered=asked["answered"],
            citations=[Cited(**one) for one in asked["citations"]],
        )
        status = HTTPStatus.OK if recorded.already_recorded else HTTPStatus.CREATED
        return Response(shapes.RecordedAnswerSerializer(recorded).data, status=status)


class TraceView(KnowledgeView):
    """What a search showed the model."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="traces_retrieve",
        parameters=[ReadQuerySerializer],
        responses={200: shapes.TraceSerializer},
    )
    def get(self, request: Request, trace_id: UUID) -> Response:
        """A trace of the caller's own, or with `knowledge.audit` any of the tenant's.

        The block is made again from the record and checked against its hash. What the caller
        may not see today is withheld, and what was deleted says so.
        """
        asked = query_of(ReadQuerySerializer, request)
        view = store().view_trace(trace_id, self.principal(), **asked)
        return Response(shapes.TraceSerializer(view).data)


class DocumentsView(KnowledgeView):
    """The documents that the caller may see."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="documents_list",
        parameters=[shapes.ListQuerySerializer],
        responses={200: page_of(shapes.DocumentSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Lists documents, newest first, a page at a time."""
        asked = query_of(shapes.ListQuerySerializer, request)
        pages = DocumentPages(
            self.principal(), asked["current_scope"], asked["page_size"], as_of=asked["as_of"]
        )
        return pages.response(request, self, shapes.DocumentSerializer)


class DocumentView(KnowledgeView):
    """One document."""

    @refuses(*refusals.OF_SOMETHING)
    @extend_schema(
        operation_id="documents_retrieve",
        parameters=[shapes.AsOfQuerySerializer],
        responses={200: shapes.DocumentDetailSerializer},
    )
    def get(self, request: Request, document_id: UUID) -> Response:
        """A document and its versions, newest first."""
        asked = query_of(shapes.AsOfQuerySerializer, request)
        document = store().get_document(document_id, self.principal(), **asked)
        return Response(shapes.DocumentDetailSerializer(document).data)

    @idempotent
    @refuses(*refusals.UPDATING)
    @extend_schema(
        operation_id="documents_update",
        request=shapes.DocumentChangeSerializer,
        responses={200: shapes.DocumentDetailSerializer},
    )
    def patch(self, request: Request, document_id: UUID) -> Response:
        """Retitles a document, changes who may find it, sets or lifts a legal hold.

        All that is named or nothing, at once and for every version; no new version. Title and
        scope are for the ingesting principal with `knowledge.write`, the hold for a key with
        `knowledge.delete`, and `origin_trust` is USER at least.
        """
        asked = parsed(shapes.DocumentChangeSerializer, request.data)
        document = store().update(
            document_id,
            self.principal(),
            asked.value(),
            current_scope=asked.validated_data["current_scope"],
        )
        return Response(shapes.DocumentDetailSerializer(document).data)

    @idempotent
    @refuses(*refusals.DELETING)
    @extend_schema(
        operation_id="documents_delete",
        parameters=[shapes.DeleteQuerySerializer],
        responses={200: shapes.DeletionReceiptSerializer},
    )
    def delete(self, request: Request, document_id: UUID) -> Response:
        """Deletes a document for real and says what went."""
        asked = query_of(shapes.DeleteQuerySerializer, request)
        receipt = store().delete(document_id, self.principal(), **asked)
        return Response(shapes.DeletionReceiptSerializer(receipt).data)


class VersionsView(KnowledgeView):
    """The versions of one document."""

    @refuses(*refusals.OF_SOMETHING)
    @extend_schema(
        operation_id="documents_versions",
        parameters=[shapes.AsOfQuerySerializer],
        responses={200: shapes.VersionSerializer(many=True)},
    )
    def get(self, request: Request, document_id: UUID) -> Response:
        """The versions of a document, newest first."""
        asked = query_of(shapes.AsOfQuerySerializer, request)
        document = store().get_document(document_id, self.principal(), **asked)
        return Response(shapes.VersionSerializer(document.versions.all(), many=True).data)


class DeletionView(KnowledgeView):
    """The receipt of a deletion."""

    @refuses(*refusals.READING)
    @extend_schema(
        operation_id="deletions_retrieve",
        parameters=[ReadQuerySerializer],
        responses={200: shapes.DeletionReceiptSerializer},
    )
    def get(self, request: Request, deletion_id: UUID) -> Response:
        """What went with a document that the caller could have seen, and whether the bytes are gone."""
        asked = query_of(ReadQuerySerializer, request)
        receipt = store().get_deletion(deletion_id, self.principal(), **asked)
        return Response(shapes.DeletionReceiptSerializer(receipt).data)
