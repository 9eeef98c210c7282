"""Proposals to keep a file."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from access.idempotency import idempotent
from access.openapi import refuses
from access.serializers import StrictSerializer
from knowledge.api import refusals
from knowledge.api import serializers as shapes
from knowledge.api.views import KnowledgeView, parsed, query_of
from knowledge.wiring import store


class ProposeRetentionView(KnowledgeView):
    """Asking an operator to keep a file."""

    @idempotent
    @refuses(*refusals.PROPOSING)
    @extend_schema(
        operation_id="knowledge_propose_retention",
        request=shapes.ProposeRetentionSerializer,
        responses={201: shapes.ProposalSerializer},
    )
    def post(self, request: Request) -> Response:
        """Parks a snapshot of an uploaded file until an operator decides; ingests nothing.

        For agents whose turn is below USER trust. What an ingest would refuse, a credential for
        one, is refused at once, and then nothing is kept. Needs no scope.
        """
        asked = parsed(shapes.ProposeRetentionSerializer, request.data).value()
        proposal = store().propose(asked, self.principal())
        return Response(shapes.ProposalSerializer(proposal).data, status=HTTPStatus.CREATED)


class ProposalView(KnowledgeView):
    """One proposal."""

    @extend_schema(operation_id="proposals_retrieve", responses={200: shapes.ProposalSerializer})
    def get(self, request: Request, proposal_id: UUID) -> Response:
        """How it was decided, and what came of it. For the principal who proposed it."""
        query_of(StrictSerializer, request)
        proposal = store().get_proposal(proposal_id, self.principal())
        return Response(shapes.ProposalSerializer(proposal).data)
