"""Which ranked passages fit: whole passages only, and a reason for each that is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from knowledge.core.types import Omitted, OmittedReason, RankedPassage


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`passages` and `omitted` together are all that was ranked, each in rank order.

    `tokens` is the sum over `passages`, text alone.
    """

    passages: tuple[RankedPassage, ...]
    omitted: tuple[Omitted, ...]
    tokens: int


def select(
    ranked: Sequence[RankedPassage],
    *,
    floor: float,
    max_per_document: int,
    max_passages: int,
    budget_tokens: int,
) -> Selection:
    """Take passages in rank order while they fit.

    A passage that does not fit is left out whole (a truncated one would be a misquotation) and a
    later one may still enter. The reason is the first that applies of: below the `floor`; the
    same text as a passage already taken (but for case and white space); its document has
    `max_per_document` already; `max_passages` are taken; its tokens do not fit into
    `budget_tokens` any more.
    """
    passages: list[RankedPassage] = []
    omitted: list[Omitted] = []
    taken_texts: set[object] = set()
    taken_of: Counter[UUID] = Counter()
    tokens = 0
    for passage in ranked:
        candidate = passage.candidate
        # Equal sketches are equal texts, but for case and white space.
        keys: set[object] = {candidate.content_sha256, candidate.sketch or candidate.chunk_id}
        reason: OmittedReason | None = None
        if passage.score < floor:
            reason = OmittedReason.FLOOR
        elif keys & taken_texts:
            reason = OmittedReason.DUPLICATE
        elif taken_of[candidate.document_id] >= max_per_document:
            reason = OmittedReason.CAP
        elif len(passages) >= max_passages:
            reason = OmittedReason.PASSAGES
        elif tokens + candidate.tokens > budget_tokens:
            reason = OmittedReason.BUDGET
        if reason is None:
            passages.append(passage)
            taken_texts |= keys
            taken_of[candidate.document_id] += 1
            tokens += candidate.tokens
        else:
            omitted.append(
                Omitted(
                    chunk_id=candidate.chunk_id,
                    document_id=candidate.document_id,
                    reason=reason,
                    tokens=candidate.tokens,
                    score=passage.score,
                    terms=passage.terms,
                )
            )
    return Selection(passages=tuple(passages), omitted=tuple(omitted), tokens=tokens)
