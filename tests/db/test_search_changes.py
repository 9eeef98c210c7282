"""Whatever changes what a tenant's searches may find leaves its mark, and nothing else does.

What the marks are for is in test_replica.py, with a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from access.principal import Principal
from access.tenancy import operations_session
from access.trust import OriginTrust
from knowledge.adapters import changes, term_index
from knowledge.core.errors import LegalHold
from knowledge.core.types import ConnectorIdentity, DocumentChange, IngestResult, Visibility
from knowledge.wiring import store
from tests.db.test_quarantine import quarantined, set_aside
from tests.rechunk_fakes import later
from tests.support import admit, ask, principal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

__all__ = ["set_aside"]

OLGA = Principal.for_operator("acme", "olga")
SOURCE = ConnectorIdentity(type="wiki", id="pumps", version="r1")


def change(document: IngestResult, **given: object) -> None:
    store().update(
        document.document_id,
        principal(),
        DocumentChange(origin_trust=OriginTrust.USER, **given),  # type: ignore[arg-type]
    )


CHANGES: dict[str, Callable[[IngestResult], object]] = {
    "another document": lambda _: admit("The wombat hose leaks."),
    "new version": lambda _: admit("The pump.", source=replace(SOURCE, version="r2")),
    "retitling": lambda document: change(document, title="Wallabies"),
    "rescoping": lambda document: change(document, visibility=Visibility.PRINCIPAL),
    "deletion": lambda document: store().delete(document.document_id, principal()),
    "chunking anew": lambda document: later().rechunk(document.document_id, OLGA),
}


@pytest.mark.parametrize("made", CHANGES.values(), ids=CHANGES)
def test_a_change_leaves_a_mark(made: Callable[[IngestResult], object]) -> None:
    before = admit("# Pumps\n\nThe quokka pump runs.\n", source=SOURCE)
    known = set(changes.marks_of("acme"))
    made(before)
    assert set(changes.marks_of("acme")) > known
    assert not changes.marks_of("globex")


def test_so_does_a_release_from_quarantine(set_aside: IngestResult) -> None:
    known = set(changes.marks_of("acme"))
    store().release_chunk(quarantined().chunk_id, OLGA, reason="a role's address")
    assert set(changes.marks_of("acme")) > known


def test_what_changes_nothing_for_searches_leaves_none(blob_root: Path) -> None:
    document = admit("# Pumps\n\nThe quokka pump runs.\n")
    known = changes.marks_of("acme")
    admit("# Pumps\n\nThe quokka pump runs.\n")
    ask("quokka pump")
    change(document, title="A note")
    store().update(document.document_id, OLGA, DocumentChange(legal_hold=True))
    with pytest.raises(LegalHold):
        store().delete(document.document_id, principal())
    assert changes.marks_of("acme") == known


def test_merging_leaves_one_that_is_new_for_every_tenant(blob_root: Path) -> None:
    for word in ("quokka", "wombat"):
        admit(f"The {word} pump runs.")
    admit("The zebra pump runs.", by=principal(tenant="globex"))
    ours, theirs = changes.marks_of("acme"), changes.marks_of("globex")
    with operations_session():
        term_index.merge_statistics()
    (merged,) = changes.marks_of("acme")
    assert merged > max(ours)
    assert changes.marks_of("globex") == theirs
    with operations_session():
        term_index.merge_statistics()
    assert changes.marks_of("acme") == [merged]
