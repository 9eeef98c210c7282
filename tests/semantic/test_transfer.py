"""Export and import where there is an embedder."""

from __future__ import annotations

from pathlib import Path

import pytest

from access.principal import Principal
from knowledge.semantic import spaces
from knowledge.wiring import store
from tests.semantic.conftest import Semantic, moment
from tests.support import admit, ask, principal, texts
from tests.transferring import export, take_in, wipe

# An export reads one snapshot, which no transaction of a test may be around.
pytestmark = pytest.mark.django_db(transaction=True)

OLGA = Principal.for_operator("acme", "olga")


def test_what_was_taken_along_is_embedded_where_it_goes(
    semantic: Semantic, blob_root: Path, tmp_path: Path
) -> None:
    """Vectors are in no archive: the import says how many are missing, and `embed` makes them."""
    first = admit("# Garage\n\nThe car waits.\n")
    before = moment()
    admit("# Garden\n\nThe couch is wet.\n", document_id=first.document_id)
    admit("# Theirs\n\nThe car of theirs.\n", by=principal(tenant="globex"))
    export(tmp_path / "archive")
    wipe(blob_root)
    semantic.switch_on()
    assert take_in(tmp_path / "archive", dry_run=True).without_vector == {}
    assert take_in(tmp_path / "archive").without_vector == {"acme": 2, "globex": 1}
    assert spaces.known() == []
    assert texts(ask("couch")) == ["The couch is wet."]
    assert texts(ask("sofa")) == []
    store().embed(OLGA)
    assert texts(ask("sofa")) == ["The couch is wet."]
    assert texts(ask("automobile", as_of=before)) == ["The car waits."]
    assert take_in(tmp_path / "archive").without_vector == {"acme": 0, "globex": 1}
    assert store().verify_corpus().clean
