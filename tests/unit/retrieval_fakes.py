"""Candidates and ranked passages for the tests of the retrieval half."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from knowledge.core import likeness
from knowledge.core.ports import Stemmer
from knowledge.core.types import Authority, Candidate, RankedPassage, ScoreTerms

DOCUMENT = UUID(int=1)
STOP_WORDS = frozenset({"the", "a", "is", "it", "what", "to", "be", "or", "not"})


class SuffixStemmer:
    """A fake of the port `Stemmer`: a few stop words, and a plural `s` that goes."""

    def lexemes(self, words: Any, language: str) -> dict[str, str | None]:
        if language == "simple":
            return {word: word for word in words}
        return {w: None if w in STOP_WORDS else w.removesuffix("s") or w for w in words}


STEMMER: Stemmer = SuffixStemmer()


def candidate(chunk_id: str = "kc_1", **changes: Any) -> Candidate:
    text = changes.get("text", f"The passage of {chunk_id} speaks of copper kettles and valves.")
    values: dict[str, Any] = {
        "chunk_id": chunk_id,
        "document_id": DOCUMENT,
        "version": 1,
        "title": "Boiler Guide",
        "heading_path": ("Boiler", "Valves"),
        "text": text,
        "tokens": 40,
        "content_sha256": f"sha of {text}",
        "doc_date": None,
        "authority": Authority.PRINCIPAL_SUPPLIED,
        "project_scope": None,
        "instruction_like": False,
        "boilerplate": likeness.boilerplate(text),
        "sketch": likeness.sketch(text),
        "line_start": 1,
        "line_end": 3,
        "page_start": None,
        "page_end": None,
        "match": 0.5,
        "arms": {"lexical": 0.5},
    }
    return Candidate(**(values | changes))


def ranked(chunk_id: str = "kc_1", score: float = 0.5, **changes: Any) -> RankedPassage:
    return RankedPassage(
        candidate=candidate(chunk_id, **changes),
        score=score,
        terms=ScoreTerms(match=score, authority=0.5, scope=0.0, recency=0.5, penalty=0.0),
    )
