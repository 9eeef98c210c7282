"""manage.py search: a question and the passages that answer it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from rest_framework.exceptions import ValidationError

from access.commands import VerbatimCommand, add_caller_arguments, caller
from access.errors import Malformed
from knowledge.api.serializers import SearchRequestSerializer, SearchResultSerializer
from knowledge.core.types import RankedPassage
from knowledge.links import citation_link
from knowledge.wiring import store


class Command(VerbatimCommand):
    help = "Searches a tenant's corpus as one of its principals."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("text", help="a question, or words; nothing in it is syntax")
        add_caller_arguments(parser)
        parser.add_argument("--as-of", help="an instant with an offset: 2026-07-28T00:00:00Z")
        parser.add_argument(
            "--budget-tokens", type=int, default=3_000, help="of all passages together (3000)"
        )
        parser.add_argument("--max-passages", type=int, default=3, help="3 unless given")
        parser.add_argument("--max-per-document", type=int, default=2, help="2 unless given")
        parser.add_argument(
            "--min-score", type=float, help="below it nothing is shown; else the policy's floor"
        )

    def run(self, options: dict[str, Any]) -> None:
        asked = SearchRequestSerializer(
            data={
                "text": options["text"],
                "as_of": options["as_of"],
                "current_scope": options["project"],
                "budget_tokens": options["budget_tokens"],
                "max_passages": options["max_passages"],
                "max_per_document": options["max_per_document"],
                "min_score": options["min_score"],
            }
        )
        try:
            asked.is_valid(raise_exception=True)
        except ValidationError as invalid:
            raise Malformed(str(invalid.detail)) from None
        query, principal = asked.value(), caller(options)
        result = store().search(query, principal)

        def link(chunk_id: str) -> str:
            return citation_link(chunk_id, principal, query.current_scope)

        shown = SearchResultSerializer(result, context={"citation_url": link}).data
        self.emit(dict(shown), "\n\n".join([*map(_passage, result.passages), *result.notes]))


def _passage(passage: RankedPassage) -> str:
    found = passage.candidate
    place = " > ".join((found.title, *found.heading_path))
    lines = f"lines {found.line_start}-{found.line_end}"
    return f"{place} ({lines}, score {passage.score:.2f}) [{found.chunk_id}]\n{found.text}"
