"""`search` and `fetch`, in the shapes that ChatGPT's connectors expect, and no others."""

from __future__ import annotations

import json
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from access.serializers import StrictSerializer
from knowledge.api.serializers import ChunkSerializer
from knowledge.api.views import KnowledgeView, parsed
from knowledge.core.query import MAX_TEXT
from knowledge.core.search_results import titled
from knowledge.core.types import KnowledgeQuery
from knowledge.links import citation_link
from knowledge.wiring import store

# Only names and links are shown, so there is room for more than in a search that shows passages.
_RESULTS = 10
_BUDGET = 100_000
# Texts alone: that is what clients of the pair can take.
_METADATA = (
    "document_id",
    "version",
    "line_start",
    "line_end",
    "page_start",
    "page_end",
    "content_sha256",
    "tokens",
    "live",
    "superseded_by_version",
)


class _InScopeSerializer(StrictSerializer):
    current_scope = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None
    )


class FindSerializer(_InScopeSerializer):
    query = serializers.CharField(
        max_length=MAX_TEXT,
        allow_blank=True,
        trim_whitespace=False,
        help_text="What to look for, in plain words.",
    )


class FoundSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="For `fetch`.")
    title = serializers.CharField()
    url = serializers.CharField(help_text="The page of the citation, for people.")


class FoundListSerializer(serializers.Serializer[Any]):
    results = FoundSerializer(many=True)


class FetchSerializer(_InScopeSerializer):
    id = serializers.CharField(max_length=100, help_text="Of a result of `search`.")


class FetchedSerializer(FoundSerializer):
    text = serializers.CharField(help_text="The passage, whole and word for word.")
    metadata = serializers.DictField(
        child=serializers.CharField(),
        help_text="Where the passage stands: its document, version and lines.",
    )


class FindView(KnowledgeView):
    """What there is to read."""

    @extend_schema(
        operation_id="mcp_search", request=FindSerializer, responses={200: FoundListSerializer}
    )
    def post(self, request: Request) -> Response:
        """Finds passages that say something about a question, and names them with their links.

        Read one with `fetch` before you use it. Cite `url`.
        """
        asked = parsed(FindSerializer, request.data).validated_data
        query = KnowledgeQuery(
            text=asked["query"],
            current_scope=asked["current_scope"],
            max_passages=_RESULTS,
            budget_tokens=_BUDGET,
        )
        principal = self.principal()
        results = [
            {
                "id": one.chunk_id,
                "title": titled(one.title, one.heading_path),
                "url": citation_link(one.chunk_id, principal, query.current_scope),
            }
            for one in (found.candidate for found in store().search(query, principal).passages)
        ]
        return Response(FoundListSerializer({"results": results}).data)


class FetchView(KnowledgeView):
    """One passage."""

    @extend_schema(
        operation_id="mcp_fetch", request=FetchSerializer, responses={200: FetchedSerializer}
    )
    def post(self, request: Request) -> Response:
        """Gives a passage word for word, and where it stands."""
        asked = parsed(FetchSerializer, request.data).validated_data
        principal, scope = self.principal(), asked["current_scope"]
        chunk = store().get_chunk(asked["id"], principal, current_scope=scope)
        cited = ChunkSerializer(chunk).data
        shown = {
            "id": chunk.chunk_id,
            "title": titled(cited["title"], chunk.heading_path),
            "text": chunk.text,
            "url": citation_link(chunk.chunk_id, principal, scope),
            "metadata": {
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in cited.items()
                if name in _METADATA and value is not None
            },
        }
        return Response(FetchedSerializer(shown).data)
