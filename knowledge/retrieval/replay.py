"""A trace as its viewer may see it, and the block it recorded, made again from the record.

Not by searching again: frequencies, titles and access have moved on. The text is the chunk's own,
which never changes; title, path, date and flag are those that the trace kept as they were shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import Scope, Sensitivity
from knowledge.core.rendering import BlockPassage, render
from knowledge.core.scope import ReadScope, resolve_scope
from knowledge.models import Chunk, RecallTrace, TracedPassage

DELETED_TEXT = "This passage has been deleted."
WITHHELD_TEXT = "This passage is not visible to you."


class PassageState(StrEnum):
    """`withheld`: the viewer may not see it today, or the trace's surface could not."""

    SHOWN = "shown"
    DELETED = "deleted"
    WITHHELD = "withheld"


class BlockState(StrEnum):
    """`incomplete`: a passage is deleted or withheld. `differs`: the record was tampered with.

    `thinned`: titles and paths are forgotten, so the block cannot be made again.
    """

    REPRODUCED = "reproduced"
    INCOMPLETE = "incomplete"
    DIFFERS = "differs"
    THINNED = "thinned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewedPassage:
    """A passage of a trace; of a withheld one there is nothing but its place.

    `verified`: its words are still those that were shown, by the hash in the trace; `None` when
    there are none to look at.
    """

    position: int
    state: PassageState
    text: str
    traced: TracedPassage | None
    verified: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A trace for one viewer. `block` is what the model saw, byte for byte, or `None`.

    `withheld` counts what was left out and is not visible to the viewer. `heads` are title and
    headings, as they are today, of what was left out and is.
    """

    trace: RecallTrace
    passages: tuple[ViewedPassage, ...]
    omitted: tuple[Mapping[str, Any], ...]
    heads: Mapping[str, tuple[str, Sequence[str]]]
    withheld: int
    block: str | None
    block_state: BlockState


def view_trace(
    trace_id: UUID, principal: Principal, *, current_scope: str | None = None
) -> TraceView:
    """One's own trace, or any of the tenant's with `knowledge.audit`; `NotFound` otherwise.

    Today's visibility decides, under the lower of two ceilings: the viewer's, and that of the
    search.
    """
    scope = resolve_scope(principal, current_scope)
    with tenant_session(principal.tenant_id):
        trace = trace_of(trace_id, principal)
        scope = under_both_ceilings(trace, scope)
        traced = list(trace.passages.order_by("position"))
        readable = _readable(scope, [passage.chunk_id for passage in traced])
        passages = tuple(_viewed(passage, readable) for passage in traced)
        heads = _heads(scope, [one["chunk_id"] for one in trace.omitted])
    omitted = tuple(one for one in trace.omitted if one["chunk_id"] in heads)
    block, state = _block(trace, passages)
    return TraceView(
        trace=trace,
        passages=passages,
        omitted=omitted,
        heads=heads,
        withheld=len(trace.omitted) - len(omitted),
        block=block,
        block_state=state,
    )


def trace_of(trace_id: UUID, principal: Principal) -> RecallTrace:
    """One's own trace, or any of the tenant's with `knowledge.audit`; `NotFound` otherwise."""
    trace = RecallTrace.objects.filter(pk=trace_id).first()
    # What an operator asked through somebody's eyes is the operator's, not theirs.
    own = (
        trace is not None
        and trace.principal_id == principal.principal_id
        and not trace.acting_operator
    )
    if trace is None or not (own or Scope.AUDIT in principal.scopes):
        raise NotFound
    return trace


def under_both_ceilings(trace: RecallTrace, scope: ReadScope) -> ReadScope:
    """The viewer's scope under the lower of two ceilings: the viewer's, and that of the search."""
    ceiling = Sensitivity(trace.sensitivity_ceiling)
    if ceiling.at_most(scope.sensitivity_ceiling):
        return replace(scope, sensitivity_ceiling=ceiling)
    return scope


def _readable(scope: ReadScope, chunk_ids: Sequence[str]) -> dict[str, str]:
    """The texts, by chunk id, of the passages that the viewer may read today."""
    rows = Chunk.objects.readable(scope).filter(chunk_id__in=chunk_ids)
    return dict(rows.values_list("chunk_id", "text"))


def _heads(scope: ReadScope, chunk_ids: Sequence[str]) -> dict[str, tuple[str, Sequence[str]]]:
    """Title and headings, by chunk id, of the passages that the viewer may read today."""
    rows = Chunk.objects.readable(scope).filter(chunk_id__in=chunk_ids)
    named = rows.values_list("chunk_id", "chunk_set__version__document__title", "heading_path")
    return {chunk_id: (title, path) for chunk_id, title, path in named}


def _viewed(traced: TracedPassage, readable: Mapping[str, str]) -> ViewedPassage:
    verified = None
    if traced.deleted_at is not None:
        # For good, even when the same document was admitted again and has its ids back.
        state, text = PassageState.DELETED, DELETED_TEXT
    elif traced.chunk_id in readable:
        state, text = PassageState.SHOWN, readable[traced.chunk_id]
        verified = hashlib.sha256(text.encode()).hexdigest() == traced.content_sha256
    else:
        state, text = PassageState.WITHHELD, WITHHELD_TEXT
    return ViewedPassage(
        position=traced.position,
        state=state,
        text=text,
        traced=None if state is PassageState.WITHHELD else traced,
        verified=verified,
    )


def _block(trace: RecallTrace, passages: Sequence[ViewedPassage]) -> tuple[str | None, BlockState]:
    if trace.thinned_at is not None:
        return None, BlockState.THINNED
    shown = [
        BlockPassage(
            chunk_id=passage.traced.chunk_id,
            title=passage.traced.title or "",
            heading_path=tuple(passage.traced.heading_path or ()),
            doc_date=passage.traced.doc_date,
            instruction_like=passage.traced.instruction_like,
            text=passage.text,
        )
        for passage in passages
        if passage.traced is not None and passage.state is PassageState.SHOWN
    ]
    if len(shown) != len(passages):
        return None, BlockState.INCOMPLETE
    block = render(shown, as_of=trace.as_of, policy=trace.policy)
    if hashlib.sha256(block.encode()).hexdigest() != trace.block_sha256:
        return None, BlockState.DIFFERS
    return block, BlockState.REPRODUCED
