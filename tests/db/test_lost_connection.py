"""A connection that dies in the very commit: nobody knows whether it happened, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import OperationalError

from access.tenancy import tenant_session
from knowledge.ingest import commit
from tests.support import admit, ask, footprint, principal, texts, upload

NOTE = "# Pumps\n\nThe harbour pump runs at night.\n"


@pytest.mark.django_db
@pytest.mark.parametrize("committed", [True, False])
def test_the_bytes_stay_until_it_is_certain_that_no_row_names_them(
    blob_root: Path, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    sessions = []

    @contextmanager
    def dying(tenant_id: str) -> Iterator[None]:
        sessions.append(tenant_id)
        last = len(sessions) == 2  # the first only looks whether there is anything to do
        with tenant_session(tenant_id):
            yield
            if last and not committed:
                raise OperationalError
        if last:
            raise OperationalError

    upload(principal(), NOTE)
    blobs = len(footprint(blob_root)["blobs"])
    with monkeypatch.context() as broken:
        broken.setattr(commit, "tenant_session", dying)
        with pytest.raises(OperationalError):
            admit(NOTE)
    # The upload of this ingest, and its source.
    assert len(footprint(blob_root)["blobs"]) == blobs + 2
    again = admit(NOTE)
    assert again.already_ingested is committed
    assert texts(ask("harbour pump")) == ["The harbour pump runs at night."]
