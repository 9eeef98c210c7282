"""Documents that are deleted while others search: what is deleted is shown to nobody who asks later."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connections

from access.tenancy import operations_session
from knowledge.adapters import term_index
from knowledge.models import Document, TracedPassage
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, principal

pytestmark = pytest.mark.django_db(transaction=True)

SEARCHERS = 3
AT_ONCE = 25
DELETIONS = int(os.environ.get("DELETE_DURING_SEARCH_RUNS", "500"))


@dataclass
class Watched:
    """When each deletion had committed, and what each search that began then still showed."""

    committed: dict[UUID, float] = field(default_factory=dict)
    wrong: list[tuple[UUID, float, float]] = field(default_factory=list)
    searches: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def search(self) -> None:
        try:
            while not self.done.is_set():
                began = time.monotonic()
                answer = ask("quokka pump", max_passages=20, max_per_document=5)
                shown = {passage.candidate.document_id for passage in answer.passages}
                shown |= {one.document_id for one in answer.omitted}
                with self.lock:
                    self.searches += 1
                    self.wrong += [
                        (one, self.committed[one], began)
                        for one in shown
                        if self.committed.get(one, began) < began
                    ]
        finally:
            connections.close_all()


def delete_while_searching(deletions: int) -> Watched:
    watched = Watched()
    with ThreadPoolExecutor(SEARCHERS) as pool:
        searching = [pool.submit(watched.search) for _ in range(SEARCHERS)]
        try:
            for first in range(0, deletions, AT_ONCE):
                admitted = [
                    admit(f"# Pump {number}\n\nThe quokka pump {number} runs.\n").document_id
                    for number in range(first, min(first + AT_ONCE, deletions))
                ]
                for document_id in admitted:
                    store().delete(document_id, principal())
                    with watched.lock:
                        watched.committed[document_id] = time.monotonic()
        finally:
            watched.done.set()
        for one in searching:
            one.result(timeout=120)
    return watched


def nothing_of_them_is_left(deletions: int) -> None:
    with operations_session():
        term_index.merge_statistics()
        assert not Document.objects.exists()
        # Not even in the trace of a search that was under way while they went.
        kept = TracedPassage.objects.filter(deleted_at__isnull=True)
        assert not kept.exists()
        assert not TracedPassage.objects.exclude(title="").exists()
    assert_statistics_are_those_of_the_live_rows()
    assert not ask("quokka pump").passages


def check(deletions: int) -> None:
    watched = delete_while_searching(deletions)
    assert len(watched.committed) == deletions
    assert watched.searches > SEARCHERS
    assert not watched.wrong
    nothing_of_them_is_left(deletions)


def test_a_few_documents_deleted_while_others_search(blob_root: Path) -> None:
    check(25)


@pytest.mark.faults
def test_hundreds_of_documents_deleted_while_others_search(blob_root: Path) -> None:
    check(DELETIONS)
