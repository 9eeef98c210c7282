"""The first page of the admin: what is in the corpus, what needs a person, what happened by day."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from lxml import html

from access.tenancy import operations_session, tenant_session
from access.trust import Sensitivity
from artifacts.models import Artifact
from knowledge.admin_site import overview as pages
from knowledge.admin_site.charts import charts
from knowledge.core.types import JobState, Visibility
from knowledge.evaluation.admin_pages import MOST_QUERIES, Statements
from knowledge.lifecycle import figures
from knowledge.lifecycle.figures import corpus, figures_by_day, roll_up
from knowledge.models import (
    Chunk,
    ChunkIndex,
    DailyFigures,
    IngestJob,
    KnowledgeEvent,
    RefusalCount,
)
from tests.factories import (
    make_attachment,
    make_document,
    make_many_documents,
    make_operator,
    make_proposal,
    make_superuser,
)
from tests.support import admit, ask

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_operator("acme"))
    return client


def seen(client: Client, **asked: Any) -> Any:
    answer = client.get("/admin/", asked)
    assert answer.status_code == 200
    return html.fromstring(answer.content)


def words(element: Any) -> str:
    return re.sub(r"\s+", " ", element.text_content()).strip()


def tiles(page: Any) -> dict[str, str]:
    return {
        words(tile.xpath("dt")[0]): words(tile.xpath("dd")[0])
        for tile in page.xpath("//dl[contains(@class, 'tiles')]/div")
    }


def to_do(page: Any) -> dict[str, str]:
    rows = page.xpath("//section[@aria-labelledby='to-do']//tbody/tr")
    return {words(row.xpath("th")[0]): words(row.xpath("td")[0]) for row in rows}


def drawn(page: Any, title: str) -> list[list[str]]:
    """The rows of a chart's table; none when it says that there is nothing to draw."""
    (panel,) = (one for one in page.xpath("//section") if one.xpath(f"h3[text()='{title}']"))
    return [
        [cell.get("data-value") for cell in row.xpath("td")] for row in panel.xpath(".//tr[td]")
    ]


class TestTheCorpus:
    def test_what_to_do_when_it_is_empty(self, alice: Client) -> None:
        page = seen(alice)
        assert "Nothing is in the corpus yet" in words(page)
        assert tiles(page) == {}
        assert drawn(page, "Storage") == []
        assert "No original is stored." in words(page)

    def test_it_is_counted_by_its_properties(self, alice: Client) -> None:
        make_document("acme", versions=2)
        make_document("acme", sensitivity=Sensitivity.RESTRICTED, legal_hold=True)
        make_document("acme", visibility=Visibility.PRINCIPAL, texts=["a"] * 3)
        make_document("globex", texts=["x"] * 7)
        page = seen(alice)
        shown = tiles(page)
        assert (shown["Documents"], shown["Versions"]) == ("3", "4")
        assert (shown["Live chunks"], shown["Under legal hold"]) == ("7", "1")
        rows = {
            words(row.xpath("th")[0]): [words(cell) for cell in row.xpath("td")][:3]
            for row in page.xpath("//div[contains(@class, 'columns')]/div//tbody/tr")
        }
        assert rows["tenant"] == ["2", "3", "4"]
        assert rows["principal"] == ["1", "1", "3"]
        assert rows["restricted"] == ["1", "1", "2"]
        assert rows["internal"] == ["2", "3", "5"]
        assert "globex" not in words(page)

    def test_a_superuser_sees_every_tenant(self, client: Client) -> None:
        make_document("acme")
        make_document("globex", texts=["x"] * 7)
        client.force_login(make_superuser())
        page = seen(client)
        assert tiles(page)["Live chunks"] == "9"
        assert "globex" in words(page)

    def test_a_large_one_is_as_the_last_roll_up_counted_it(
        self, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_document("acme", texts=["a", "b"])
        make_document("globex", texts=["x"] * 7)
        assert roll_up() == 2
        make_document("acme")
        with tenant_session("acme"):
            assert corpus().total("documents") == 2
            monkeypatch.setattr(figures, "_COUNTED_ANEW", 0)
            counted = corpus()
            row = DailyFigures.objects.get()
        assert (counted.total("documents"), counted.total("chunks")) == (1, 2)
        assert counted.counted_at == row.rolled_at
        assert [one["value"] for one in counted.by("visibility")] == ["tenant"]
        with operations_session():
            assert {one["value"] for one in corpus().by("tenant_id")} == {"acme", "globex"}

    def test_the_roll_up_and_the_count_agree(self) -> None:
        make_document("acme", versions=2, legal_hold=True)
        make_document("acme", sensitivity=Sensitivity.PUBLIC, texts=["a"] * 3)
        roll_up()
        with tenant_session("acme"):
            row, counted = DailyFigures.objects.get(), corpus()
        for name in figures._CORPUS:
            assert getattr(row, name) == counted.total(name), name


class TestWhatNeedsAPerson:
    def test_nothing(self, alice: Client) -> None:
        make_document("acme")
        assert to_do(seen(alice)) == {}

    def test_every_kind(
        self, alice: Client, blob_root: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_proposal("acme")
        make_proposal("globex")
        document = make_document("acme", texts=["a", "b"])
        attachment = make_attachment("acme")
        with tenant_session("acme"):
            type(attachment).objects.filter(pk=attachment.pk).update(refusal="secret_found")
        with tenant_session("acme"):
            chunk = Chunk.objects.filter(chunk_set__version__document=document).latest("ordinal")
            ChunkIndex.objects.filter(chunk_id=chunk.pk).delete()
            Chunk.objects.filter(pk=chunk.pk).update(verdict="quarantine")
            Artifact.objects.filter(pk=Artifact.objects.earliest("created_at").pk).update(
                sweep_failed_at=Now(), sweep_attempts=3, sweep_error="storage_unavailable"
            )
            for state, at in ((JobState.FAILED, Now()), (JobState.QUEUED, None)):
                IngestJob.objects.create(
                    tenant_id="acme",
                    principal_id="alice",
                    principal={},
                    request={},
                    state=state,
                    finished_at=at,
                    created_at=Now() - timedelta(hours=2),
                    next_attempt_at=Now() - timedelta(hours=1),
                )
        assert to_do(seen(alice)) == {
            "Passages in quarantine": "1",
            "Proposals of agents": "1",
            "Attachments refused or failed in 30 days": "1",
            "Jobs that failed": "1",
            "Jobs that nobody works on": "1",
            "Bytes that could not be swept": "1",
        }

    def test_many_are_not_counted_to_the_end(
        self, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "_COUNTED", 2)
        for _ in range(4):
            make_proposal("acme")
        assert to_do(seen(alice)) == {"Proposals of agents": "over 2"}

    def test_every_link_leads_to_a_list(self, alice: Client) -> None:
        for _, address, _, _ in pages._desks().values():
            answer = alice.get(address)
            assert answer.status_code == 200, address
            assert "?e=1" not in answer.request["QUERY_STRING"]


class TestCharts:
    def test_what_really_happened_is_drawn(self, alice: Client, blob_root: Any) -> None:
        admit("# Pumps\n\nThe pump is green.\n")
        ask("pump")
        ask("zebra")
        with tenant_session("acme"):
            today = KnowledgeEvent.objects.latest("at").at.date()
            for day, reason in ((today, "secret_found"), ("2026-01-01", "old_reason")):
                RefusalCount.objects.create(tenant_id="acme", day=day, reason=reason, count=2)
        roll_up()
        page = seen(alice, days="7")
        assert len(drawn(page, "Ingestion")) == 7
        assert drawn(page, "Ingestion")[-1] == ["1", "2", "0"]
        assert drawn(page, "Ingestion")[0] == ["0", "0", "0"]
        assert drawn(page, "Searches")[-1] == ["2", "1"]
        median, high = drawn(page, "Search latency")[-1]
        assert 0 < float(median) <= float(high)
        assert float(drawn(page, "Storage")[-1][0]) > 10
        assert drawn(page, "Storage")[0] == [""]
        assert "old_reason" not in words(page)
        assert "old_reason" in alice.get("/admin/refusals/").content.decode()

    def test_only_so_many_causes_have_a_colour_and_none_is_lost(self) -> None:
        with tenant_session("acme"):
            today = next(iter(figures_by_day(1)))
            for number in range(9):
                RefusalCount.objects.create(
                    tenant_id="acme", day=today, reason=f"reason_{number}", count=number + 1
                )
            (ingestion, *_) = charts(figures_by_day(7))
        assert list(ingestion.columns) == [
            "ingested",
            *(f"reason_{number}" for number in range(4, 9)),
            "other refusals",
        ]
        assert sum(number or 0 for number in ingestion.rows[-1][1]) == 45

    @pytest.mark.parametrize(
        ("asked", "days"), [("7", 7), ("90", 90), ("", 30), ("31", 30), ("x", 30), ("\x00", 30)]
    )
    def test_periods(self, alice: Client, asked: str, days: int) -> None:
        make_document("acme")
        roll_up()
        assert len(drawn(seen(alice, days=asked), "Storage")) == days


# A session inside a transaction asks more of the database than one that begins it.
@pytest.mark.django_db(transaction=True)
def test_it_asks_as_little_of_a_large_corpus(alice: Client) -> None:
    make_many_documents("acme", 10)
    with connection.execute_wrapper(watch := Statements()):
        seen(alice)
    few = watch.count
    assert few <= MOST_QUERIES
    make_many_documents("acme", 200)
    with connection.execute_wrapper(watch := Statements()):
        seen(alice)
    assert watch.count == few
