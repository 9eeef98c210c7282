"""Verifying a corpus: whether all that is stored is still what was once written.

`findings` has the shapes, the other files each look at one kind of thing.
"""

from knowledge.lifecycle.corpus.findings import CorpusReport, Finding
from knowledge.lifecycle.corpus.verifying import OnKind, ignore_kinds, verify_corpus

__all__ = ["CorpusReport", "Finding", "OnKind", "ignore_kinds", "verify_corpus"]
