"""Indexing anew: searches are right before, during and after, and so are the statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from access.tenancy import operations_session
from knowledge.adapters.stemmer import PostgresStemmer
from knowledge.core import analysis
from knowledge.core.analysis import ANALYZER_VERSION, Term
from knowledge.lifecycle.reindex import outdated, reindex
from knowledge.models import ChunkIndex, ChunkSet, VisibilitySpace
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, texts

OLD = "words-0"


def spelled_backwards(text: str) -> list[Term]:
    """An analyser as different as can be: not one word is stored as the current one stores it."""
    return [term._replace(word=term.word[::-1], stem=False) for term in analysis.analyse(text)]


def pieces_backwards(piece: str) -> Any:
    items, width = analysis.expansion(piece)
    return tuple((item[0][::-1], item[1], False, item[3], "") for item in items), width


@pytest.fixture
def old_index(db: Any, blob_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two documents that an older analyser indexed, and one of today's."""
    monkeypatch.setitem(analysis.ANALYZERS, OLD, spelled_backwards)
    with monkeypatch.context() as past:
        past.setattr("knowledge.core.bm25.expansion", pieces_backwards)
        past.setattr("knowledge.ingest.pipeline.ANALYZER_VERSION", OLD)
        admit("# Pumps\n\nThe harbour pump runs at night.\n", title="One")
        admit("# Cranes\n\nThe harbour crane rests at noon.\n", title="Two")
    admit("# Locks\n\nThe harbour lock opens at dawn.\n", title="Three")


@pytest.mark.usefixtures("old_index")
def test_searches_are_right_at_every_moment() -> None:
    def assert_all_found() -> None:
        assert len(texts(ask("harbour", max_passages=9))) == 3
        for question, answer in (("pump", "night"), ("crane", "noon"), ("lock", "dawn")):
            assert answer in texts(ask(question))[0]
        assert_statistics_are_those_of_the_live_rows()

    assert_all_found()
    todo = outdated()
    assert len(todo) == 2
    for _ in reindex(todo, PostgresStemmer()):
        assert_all_found()
    assert outdated() == []
    with operations_session():
        assert {one.analyzer_version for one in ChunkSet.objects.all()} == {ANALYZER_VERSION}
        assert VisibilitySpace.objects.get().analyzers == [ANALYZER_VERSION]


@pytest.mark.usefixtures("old_index")
def test_an_interrupted_run_goes_on_where_it_stopped() -> None:
    steps = reindex(outdated(), PostgresStemmer())
    next(steps)
    steps.close()
    assert len(outdated()) == 1
    assert len(texts(ask("harbour", max_passages=9))) == 3
    call_command("reindex", "--json")
    assert outdated() == []


@pytest.mark.django_db
def test_indexing_anew_changes_no_row_of_the_current_version(blob_root: Path) -> None:
    admit("# Pumps\n\nThe harbour pump runs at night.\n")
    admit("# Kräne\n\nDie Kräne im Hafen ruhen mittags und werden danach geölt.\n", title="Kräne")

    def rows() -> list[tuple[Any, ...]]:
        with operations_session():
            return [
                (row.pk, row.space, row.live, row.sv.to_text(), row.tsv)
                for row in ChunkIndex.objects.order_by("pk")
            ]

    before = rows()
    call_command("reindex", "--all", "--json")
    assert rows() == before
    assert_statistics_are_those_of_the_live_rows()
