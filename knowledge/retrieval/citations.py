"""Recording what became of an answer: which passages it cites, and whether they say so.

For evaluation and for the trace. No search reads any of it: a document does not become truer for
having been cited.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils.crypto import salted_hmac

from access.errors import Malformed, NotFound, ProjectForbidden
from access.principal import Principal
from access.tenancy import tenant_session
from knowledge.adapters import database
from knowledge.core.errors import CitationConflict
from knowledge.core.fingerprint import is_chunk_id
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.core.types import CitationVerdict
from knowledge.models import Chunk, Citation, CitedAnswer, RecallTrace
from knowledge.retrieval.arms import SearchArm
from knowledge.retrieval.replay import trace_of, under_both_ceilings
from knowledge.retrieval.verify import Quote, check_quotes, require_words

MOST_CITATIONS: Final = 50
_SALT: Final = "verbatim.citations"
_IN_BLOCK: Final = frozenset(
    {
        CitationVerdict.UNQUOTED,
        CitationVerdict.EXACT,
        CitationVerdict.NORMALISED,
        CitationVerdict.MISATTRIBUTED,
        CitationVerdict.NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """One citation of an answer as its host tells of it; `quote` is `None` where it has none."""

    chunk_id: str
    quote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """What is kept of an answer, its citations in the order in which they were told.

    `already_recorded`: the very same was told before, and this is what was found then.
    """

    answer: CitedAnswer
    citations: tuple[tuple[Cited, CitationVerdict], ...]
    already_recorded: bool


def record_answer(
    arms: Sequence[SearchArm],
    trace_id: UUID,
    principal: Principal,
    *,
    answer_id: str,
    answered: bool,
    citations: Sequence[Cited],
) -> RecordedAnswer:
    """Judges each citation as the search was asked: in its project, under the lower ceiling.

    One's own trace, or any of the tenant's with `knowledge.audit`; `NotFound` otherwise. Raises
    `Malformed` for what is no citation and `CitationConflict` when something else was told of
    the same answer.
    """
    _require_citations(answered, citations)
    fingerprint = _fingerprint(answered, citations)
    with tenant_session(principal.tenant_id):
        trace = trace_of(trace_id, principal)
        known = CitedAnswer.objects.filter(trace=trace, answer_id=answer_id).first()
        if known is not None:
            return _told_before(known, fingerprint, citations)
        verdicts = _verdicts(arms, trace, principal, citations)
        in_block = {
            cited.chunk_id
            for cited, verdict in zip(citations, verdicts, strict=True)
            if verdict in _IN_BLOCK
        }
        try:
            with transaction.atomic():
                # A trace that retention is dropping right now is gone when the lock is ours.
                if not RecallTrace.objects.select_for_update(no_key=True).filter(pk=trace.pk):
                    raise NotFound
                answer = CitedAnswer.objects.create(
                    tenant_id=principal.tenant_id,
                    trace=trace,
                    answer_id=answer_id,
                    principal_id=principal.principal_id,
                    answered=answered,
                    cited=len(in_block),
                    fingerprint=fingerprint,
                    recorded_at=database.now(),
                )
        except IntegrityError:  # the same answer was told of twice at once
            known = CitedAnswer.objects.get(trace=trace, answer_id=answer_id)
            return _told_before(known, fingerprint, citations)
        Citation.objects.bulk_create(
            Citation(
                answer=answer,
                tenant_id=principal.tenant_id,
                position=position,
                # Whatever else a host sends for an id may be words.
                chunk_id=cited.chunk_id if is_chunk_id(cited.chunk_id) else "",
                verdict=verdict,
            )
            for position, (cited, verdict) in enumerate(zip(citations, verdicts, strict=True))
        )
    return RecordedAnswer(
        answer=answer,
        citations=tuple(zip(citations, verdicts, strict=True)),
        already_recorded=False,
    )


def _require_citations(answered: bool, citations: Sequence[Cited]) -> None:
    if len(citations) > MOST_CITATIONS:
        raise Malformed(f"At most {MOST_CITATIONS} citations are recorded of an answer.")
    if citations and not answered:
        raise Malformed("What is no answer cites nothing: leave out the citations.")
    require_words(cited.quote for cited in citations if cited.quote is not None)


def _fingerprint(answered: bool, citations: Sequence[Cited]) -> str:
    told = [answered, [[cited.chunk_id, cited.quote] for cited in citations]]
    return salted_hmac(_SALT, json.dumps(told), algorithm="sha256").hexdigest()


def _told_before(
    known: CitedAnswer, fingerprint: str, citations: Sequence[Cited]
) -> RecordedAnswer:
    if known.fingerprint != fingerprint:
        raise CitationConflict
    verdicts = known.citations.order_by("position").values_list("verdict", flat=True)
    return RecordedAnswer(
        answer=known,
        citations=tuple(zip(citations, map(CitationVerdict, verdicts), strict=True)),
        already_recorded=True,
    )


def _verdicts(
    arms: Sequence[SearchArm],
    trace: RecallTrace,
    principal: Principal,
    citations: Sequence[Cited],
) -> list[CitationVerdict]:
    scope = under_both_ceilings(trace, _scope_of(trace, principal))
    shown = set(trace.passages.filter(deleted_at__isnull=True).values_list("chunk_id", flat=True))
    readable = set(
        Chunk.objects.readable(scope)
        .filter(chunk_id__in=[c.chunk_id for c in citations if is_chunk_id(c.chunk_id)])
        .values_list("chunk_id", flat=True)
    )
    checked = _checked(arms, scope, [c for c in citations if c.chunk_id in readable & shown])
    verdicts = []
    for cited in citations:
        if cited.chunk_id not in readable:
            verdicts.append(CitationVerdict.UNKNOWN)
        elif cited.chunk_id not in shown:
            verdicts.append(CitationVerdict.NOT_IN_BLOCK)
        else:
            verdicts.append(checked[cited])
    return verdicts


def _scope_of(trace: RecallTrace, principal: Principal) -> ReadScope:
    try:
        return resolve_scope(principal, trace.current_scope)
    except ProjectForbidden:  # the key may not name it any more
        return resolve_scope(principal, None)


def _checked(
    arms: Sequence[SearchArm], scope: ReadScope, citations: Sequence[Cited]
) -> Mapping[Cited, CitationVerdict]:
    quoted = [cited for cited in dict.fromkeys(citations) if cited.quote is not None]
    checked = check_quotes(
        arms, [Quote(chunk_id=cited.chunk_id, text=cited.quote or "") for cited in quoted], scope
    )
    outcomes = {
        cited: CitationVerdict(one.outcome) for cited, one in zip(quoted, checked, strict=True)
    }
    return {cited: outcomes.get(cited, CitationVerdict.UNQUOTED) for cited in citations}
