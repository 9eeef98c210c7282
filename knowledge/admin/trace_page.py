"""A trace made ready to be read: the question as it was taken, all that was ranked, the block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.urls import reverse

from access.principal import Principal
from knowledge.admin.score_bars import score_bar
from knowledge.models import GoldenSet
from knowledge.passage_html import passage_html
from knowledge.retrieval.replay import BlockState, PassageState, TraceView

_SETS_OFFERED: Final = 200
_REASONS: Final = {
    "floor": "scored below the floor",
    "cap": "its document has as many as it may",
    "budget": "did not fit into the budget",
    "passages": "as many passages as were asked for",
    "duplicate": "says what one above says",
}
_BLOCKS: Final = {
    BlockState.REPRODUCED: ("ok", "Hash verified"),
    BlockState.INCOMPLETE: ("held", "Not whole any more"),
    BlockState.DIFFERS: ("restricted", "Hash differs"),
    BlockState.THINNED: ("", "Thinned"),
}


def trace_context(view: TraceView, viewer: Principal) -> dict[str, Any]:
    """What the templates of a trace read; the golden sets are asked for when they are offered."""
    trace = view.trace
    asked = trace.asked or {}
    kind, says = _BLOCKS[view.block_state]
    return {
        "trace": trace,
        "view": view,
        "asked": asked,
        "aliases": (asked.get("aliases") or {}).items(),
        "words": [_word(word) for word in trace.words or []],
        "rows": _rows(view, asked),
        "terms": ("match", "authority", "scope", "recency", "penalty"),
        "block_badge": kind,
        "block_says": says,
        "block_html": None if view.block is None else passage_html(view.block),
        "block_url": reverse("admin:knowledge_recalltrace_block", args=[trace.pk]),
        "keep_url": reverse("admin:knowledge_recalltrace_keep", args=[trace.pk]),
        "golden_sets": GoldenSet.objects.filter(tenant_id=trace.tenant_id)[:_SETS_OFFERED],
        "lowest_ceiling": min(
            viewer.sensitivity_ceiling.__class__(trace.sensitivity_ceiling),
            viewer.sensitivity_ceiling,
            key=lambda level: level.rank,
        ),
    }


def _word(word: Mapping[str, Any]) -> dict[str, Any]:
    """A word and what became of it."""
    if not word["lexemes"]:
        fate = "dropped: too common; it counts in titles and headings alone"
    elif not word["passages"]:
        fate = "nothing that they may see holds it"
    elif word["whole"]:
        fate = "a whole name, beside its parts"
    elif word["identifier"]:
        fate = "kept as it is written"
    else:
        fate = ""
    return {**word, "searched_as": ", ".join(word["lexemes"]), "fate": fate}


def _rows(view: TraceView, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    weights, floor = asked.get("weights") or {}, asked.get("floor")
    rows: list[dict[str, Any]] = []
    for passage in view.passages:
        traced = passage.traced
        row: dict[str, Any] = {"place": passage.position + 1, "state": str(passage.state)}
        if traced is not None:
            row |= {
                "chunk_id": traced.chunk_id,
                "title": traced.title,
                "path": traced.heading_path,
                "flagged": traced.instruction_like,
                "tokens": traced.tokens,
                "score": traced.score,
                "bar": score_bar(traced.terms, weights, floor),
                "verified": passage.verified,
                "readable": passage.state is PassageState.SHOWN,
            }
        if passage.state is not PassageState.SHOWN:
            row["says"] = passage.text
        rows.append(row)
    for one in view.omitted:
        title, path = view.heads[str(one["chunk_id"])]
        rows.append(
            {
                "state": "left out",
                "why": _REASONS.get(str(one["reason"]), str(one["reason"])),
                "chunk_id": one["chunk_id"],
                "title": title,
                "path": path,
                "tokens": one["tokens"],
                "score": one.get("score"),
                "bar": score_bar(one.get("terms"), weights, floor),
                "readable": True,
            }
        )
    return rows
