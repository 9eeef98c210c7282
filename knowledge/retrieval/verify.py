"""Checking quotes against the passages that they are said to come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from access.errors import Malformed
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.core.instants import checked_instant
from knowledge.core.query import MAX_TEXT
from knowledge.core.quoting import QuoteMatch, QuoteOutcome, find_quote
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.core.types import KnowledgeQuery
from knowledge.models import Chunk
from knowledge.retrieval.arms import SearchArm, SearchView

MOST_QUOTES: Final = 50
# Passages that hold the words of a quote and might hold the quote.
_LOOKED_AT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Words, and the citation of the passage that they are said to come from."""

    chunk_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuote:
    """What became of a quote.

    `chunk` is the passage that holds it: the one that was named, another one when the quote is
    misattributed, `None` when no passage does. `match` says where in its text.
    """

    quote: Quote
    outcome: QuoteOutcome
    chunk: Chunk | None = None
    match: QuoteMatch | None = None

    @property
    def line_start(self) -> int | None:
        return self._line(self.match.start) if self.match else None

    @property
    def line_end(self) -> int | None:
        return self._line(self.match.end - 1) if self.match else None

    def _line(self, offset: int) -> int | None:
        if self.chunk is None:
            return None
        return self.chunk.line_start + self.chunk.text.count("\n", 0, offset)


def verify_quotes(
    arms: Sequence[SearchArm],
    quotes: Sequence[Quote],
    principal: Principal,
    *,
    current_scope: str | None,
    as_of: datetime | None,
) -> list[CheckedQuote]:
    """Each quote's outcome, in order. A passage that the caller may not see is like none at all.

    As of an instant, so is a passage that was not there yet; and who else holds a quote is looked
    for among what was live then.

    Raises `Malformed` for too many quotes, or one without words.
    """
    if not 1 <= len(quotes) <= MOST_QUOTES:
        raise Malformed(f"Between 1 and {MOST_QUOTES} quotes are checked in a call.")
    checked_instant(as_of)
    require_words([quote.text for quote in quotes])
    scope = resolve_scope(principal, current_scope)
    with tenant_session(principal.tenant_id):
        return check_quotes(arms, quotes, scope, as_of=as_of)


def require_words(quotes: Iterable[str]) -> None:
    """Raises `Malformed` for a quote without words, or of too many."""
    if any(not quote.strip() or len(quote) > MAX_TEXT for quote in quotes):
        raise Malformed(f"A quote has words, and at most {MAX_TEXT:,} characters.")


def check_quotes(
    arms: Sequence[SearchArm],
    quotes: Sequence[Quote],
    scope: ReadScope,
    *,
    as_of: datetime | None = None,
) -> list[CheckedQuote]:
    """Each quote's outcome, in order, for whoever has looked at them and bound the session."""
    named = {
        chunk.chunk_id: chunk
        for chunk in Chunk.objects.readable(scope)
        .with_document(as_of=as_of)
        .filter(chunk_id__in={quote.chunk_id for quote in quotes})
    }
    view = SearchView.of(scope, as_of=as_of)
    return [_checked(quote, named.get(quote.chunk_id), arms, view) for quote in quotes]


def _checked(
    quote: Quote,
    named: Chunk | None,
    arms: Sequence[SearchArm],
    view: SearchView,
) -> CheckedQuote:
    match = find_quote(quote.text, named.text) if named else None
    if match:
        return CheckedQuote(quote=quote, outcome=match.outcome, chunk=named, match=match)
    asked = KnowledgeQuery(text=quote.text, as_of=view.as_of)
    scores = [arm.prepare(asked)(view, _LOOKED_AT).scores for arm in arms]
    numbers = {number for found in scores for number in found}
    holders = [
        (found, chunk)
        for chunk in Chunk.objects.searchable(view.scope, as_of=view.as_of)
        .with_document(as_of=view.as_of)
        .filter(pk__in=numbers)
        if (found := find_quote(quote.text, chunk.text))
    ]
    if not holders:
        return CheckedQuote(quote=quote, outcome=QuoteOutcome.NOT_FOUND)
    document = named and named.chunk_set.finalized_version.document_id

    def preference(holder: tuple[QuoteMatch, Chunk]) -> tuple[bool, bool, str]:
        """Letter by letter, then of the same document; one order always."""
        found, chunk = holder
        elsewhere = chunk.chunk_set.finalized_version.document_id != document
        inexact = found.outcome is not QuoteOutcome.EXACT
        return inexact, elsewhere, chunk.chunk_id

    match, chunk = min(holders, key=preference)
    return CheckedQuote(quote=quote, outcome=QuoteOutcome.MISATTRIBUTED, chunk=chunk, match=match)
