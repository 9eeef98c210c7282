"""Knowledge for a turn that has so many tokens left, beside the beliefs that come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from access.principal import Principal
from knowledge.core.assembly import Allotment, RecallItem, allot
from knowledge.core.types import KnowledgeQuery, RecallKind, SearchResult
from knowledge.retrieval.search import Searcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What goes into the turn. `knowledge` is `None` when it had to yield whole."""

    allotment: Allotment
    knowledge: SearchResult | None

    @property
    def knowledge_tokens(self) -> int:
        """The tokens of the block; an empty block is not sent and costs nothing."""
        if self.knowledge is None or not self.knowledge.passages:
            return 0
        return self.knowledge.block.tokens


def assemble(
    searcher: Searcher,
    query: KnowledgeQuery,
    principal: Principal,
    *,
    tokens_left: int,
    recall: Sequence[RecallItem],
) -> Assembly:
    """Passages drop whole until the block fits into what in-turn recall leaves.

    The trace holds the ids of the beliefs that stayed, beside the passages.
    """
    allotment = allot(tokens_left=tokens_left, recall=recall)
    asked = replace(
        query,
        kind=RecallKind.ASSEMBLE,
        block_tokens=allotment.knowledge,
        beliefs=tuple(item.id for item in allotment.kept),
    )
    if allotment.knowledge == 0:
        searcher.give_way(asked, principal)
        return Assembly(allotment=allotment, knowledge=None)
    return Assembly(allotment=allotment, knowledge=searcher.search(asked, principal))
