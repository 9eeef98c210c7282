"""An installation without an embedder has nothing of the semantic arm, and says so when asked."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from knowledge.core.fusion import LEXICAL
from knowledge.wiring import store
from tests.support import admit, ask

pytestmark = pytest.mark.django_db


def test_it_has_no_table_no_arm_and_no_filler() -> None:
    assert not apps.is_installed("knowledge.semantic")
    assert not [name for name in connection.introspection.table_names() if "semantic" in name]
    assert [arm.name for arm in store().searcher.arms] == [LEXICAL]
    assert store().filler is None
    assert store().embed_all(seconds=1) == {}


@pytest.mark.parametrize("arguments", [(), ("--switch",), ("--drop-retired",)])
def test_the_command_says_what_to_set(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="set EMBEDDER"):
        call_command("embed", "--tenant", "acme", *arguments)


def test_the_arm_is_off_and_cannot_be_switched_on(tmp_path: Path) -> None:
    out = StringIO()
    call_command("arms", "--tenant", "acme", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {
        "tenant": "acme",
        "arms": {"semantic": {"enabled": False, "figures": None}},
    }
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text("")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("")
    with pytest.raises(CommandError, match="set EMBEDDER"):
        call_command(
            "arms", "--tenant", "acme", "--enable", "semantic", "--collection", str(tmp_path)
        )


def test_a_search_tells_of_one_arm(blob_root: Path) -> None:
    admit("The zebra pump runs at night.\n")
    (passage,) = ask("zebra").passages
    assert set(passage.candidate.arms) == {LEXICAL}
