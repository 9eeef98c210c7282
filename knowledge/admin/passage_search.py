"""Searching in passages from the list of documents: the search that callers have, as an operator."""

from __future__ import annotations

import re
from typing import Any, Final

from django.http import HttpRequest

from access.admin_base import searched_words
from access.errors import VerbatimError
from access.operator_session import operated_tenant, operator_principal
from knowledge.core.types import KnowledgeQuery, RankedPassage, SearchResult
from knowledge.passage_html import passage_html
from knowledge.wiring import store

_PASSAGES: Final = 20
_OF_ONE_DOCUMENT: Final = 5
_TOKENS: Final = 40_000
_SHOWN: Final = 700
_LONGEST_TENANT: Final = 100


def passage_context(request: HttpRequest) -> dict[str, Any]:
    """Searching leaves a trace as any search does; nobody's search is secret, an operator's too.

    A superuser who looks after no tenant names one, for a search is always within one.
    """
    words = request.GET.get("q", "").strip()
    tenant = request.GET.get("tenant", "").replace("\x00", "").strip()[:_LONGEST_TENANT]
    context: dict[str, Any] = {
        "words": words,
        "tenant": tenant,
        "names_tenant": operated_tenant(request) is None,
        "found": [],
        "result": None,
        "problem": "",
    }
    if not words:
        return context
    if context["names_tenant"] and not tenant:
        return {**context, "problem": "Name the tenant whose passages you want to search."}
    try:
        result = _search(request, words, tenant or None)
    except VerbatimError as refused:
        return {**context, "problem": refused.detail}
    return {
        **context,
        "result": result,
        "found": [_shown(passage, words) for passage in result.passages],
    }


def _search(request: HttpRequest, words: str, tenant: str | None) -> SearchResult:
    return store().search(
        KnowledgeQuery(
            text=words,
            max_passages=_PASSAGES,
            max_per_document=_OF_ONE_DOCUMENT,
            budget_tokens=_TOKENS,
            min_score=0.0,
        ),
        operator_principal(request, tenant),
    )


def _shown(passage: RankedPassage, words: str) -> dict[str, Any]:
    """The passage around the first of the words, with the words marked."""
    text = passage.candidate.text
    sought = sorted({re.escape(word) for word in searched_words(words)}, key=len, reverse=True)
    hits = [hit.span() for hit in re.finditer("|".join(sought), text, re.IGNORECASE)]
    start = max(0, hits[0][0] - _SHOWN // 2) if hits else 0
    end = min(len(text), start + _SHOWN)
    marks = [
        {"family": "", "start": first - start, "end": last - start}
        for first, last in hits
        if start <= first and last <= end
    ]
    return {
        "candidate": passage.candidate,
        "score": passage.score,
        "html": passage_html(text[start:end], marks, says=""),
        "before": start > 0,
        "after": end < len(text),
    }
