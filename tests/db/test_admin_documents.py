"""Finding a document in the admin, and comparing its versions."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from access.operator_timezone import COOKIE
from access.tenancy import operations_session, tenant_session
from access.trust import Sensitivity
from knowledge.core.types import Authority, Visibility
from knowledge.models import (
    ChunkSet,
    Document,
    DocumentVersion,
    RecallTrace,
)
from tests.db.test_admin import Harmless, document_path, page, signed_in, statements
from tests.db.test_tenancy import leave_unfinished, long_request
from tests.factories import (
    chunk_ids,
    make_document,
    make_many_documents,
    make_operator,
    make_superuser,
)
from tests.support import admit, ask, principal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

LIST = "/admin/knowledge/document/"


@pytest.fixture
def olga() -> Client:
    return signed_in(make_operator("acme", "olga"))


def titles(client: Client, **query: str) -> set[str]:
    return set(re.findall(r"<bdi>(\w+) one</bdi>", page(client, LIST, **query)))


def of_version(document: Document, **changed: Any) -> None:
    with tenant_session(document.tenant_id):
        DocumentVersion.objects.filter(document=document).update(**changed)


def of_set(document: Document, **changed: Any) -> None:
    with tenant_session(document.tenant_id):
        ChunkSet.objects.filter(version__document=document).update(**changed)


# --- the list


def test_every_filter_narrows_the_list_and_they_add_up(olga: Client) -> None:
    plain = make_document("acme", "Plain one")
    make_document("acme", "Held one", legal_hold=True)
    make_document("acme", "Project one", visibility=Visibility.PROJECT)
    make_document("acme", "Strict one", sensitivity=Sensitivity.RESTRICTED, principal_id="bob")
    of_version(make_document("acme", "Word one"), media_type="application/pdf")
    of_version(make_document("acme", "German one"), language="german", authority=Authority.FETCHED)
    of_set(make_document("acme", "Rejected one"), rejected_count=1, quarantined_count=1)
    make_document("globex", "Foreign one")
    everything = {"Plain", "Held", "Project", "Strict", "Word", "German", "Rejected"}

    assert titles(olga) == everything
    assert titles(olga, held="yes") == {"Held"}
    assert titles(olga, held="no") == everything - {"Held"}
    assert titles(olga, visibility="project") == titles(olga, project="apollo") == {"Project"}
    assert titles(olga, project="apol") == set()
    assert titles(olga, sensitivity="restricted") == titles(olga, by="bob") == {"Strict"}
    assert titles(olga, kind="pdf") == {"Word"}
    assert titles(olga, language="german") == titles(olga, authority="fetched") == {"German"}
    assert titles(olga, state="nothing") == titles(olga, state="quarantined") == {"Rejected"}
    assert titles(olga, state="live") == everything - {"Rejected"}
    assert titles(olga, state="ingesting") == set()
    assert titles(olga, sensitivity="restricted", by="alice") == set()
    assert titles(olga, q="one", held="yes", kind="markdown") == {"Held"}
    assert str(plain.pk) in page(olga, LIST, q=str(plain.pk), held="no")
    for wrong in ({"held": "perhaps"}, {"since": "yesterday"}, {"until": "9999-12-31"}):
        assert olga.get(LIST, wrong).status_code == 302


def test_days_are_the_viewers(olga: Client) -> None:
    make_document("acme", "Night one")
    with tenant_session("acme"):
        Document.objects.update(created_at=datetime(2026, 3, 1, 23, 30, tzinfo=UTC))
    assert titles(olga, since="2026-03-01", until="2026-03-01") == {"Night"}
    assert titles(olga, since="2026-03-02") == set()
    olga.cookies[COOKIE] = "Europe/Berlin"
    assert titles(olga, since="2026-03-02", until="2026-03-02") == {"Night"}
    assert titles(olga, until="2026-03-01") == set()


def test_fields_that_say_nothing_are_no_part_of_the_address(olga: Client) -> None:
    response = olga.get(LIST, {"q": "a b", "held": "", "kind": "pdf", "in": "titles"})
    assert response.headers["Location"] == f"{LIST}?q=a+b&kind=pdf"
    assert olga.get(LIST, {"held": ""}).headers["Location"] == LIST


def test_a_first_version_on_its_way_is_told_of(olga: Client) -> None:
    leave_unfinished(long_request("acme"), principal())
    html = page(olga, LIST)
    assert "On their way" in html
    assert "<bdi>Pumps</bdi>" in html
    assert "On their way" not in page(signed_in(make_operator("globex")), LIST)


def test_passages_are_found_as_agents_find_them(olga: Client) -> None:
    found = admit("# Pumps\n\n## Night <b>shift</b>\n\nThe pump <i>runs</i> at night.\n", title="Z")
    admit("# Pumps\n\nThe pump of globex.\n", by=principal(tenant="globex"))
    html = page(olga, LIST, q="Pump night", **{"in": "passages"})
    (chunk_id,) = found.chunk_ids
    assert f"{found.document_id}/change/?chunk={chunk_id}#{chunk_id}" in html
    assert (
        '<mark class="hit">pump</mark> &lt;i&gt;runs&lt;/i&gt; at <mark class="hit">night' in html
    )
    assert "globex" not in html
    Harmless().feed(html)
    with operations_session():
        trace = RecallTrace.objects.get()
    assert (trace.principal_id, trace.surface) == ("operator:olga", "admin")
    assert f"/admin/knowledge/recalltrace/{trace.pk}/change/" in html
    opened = page(olga, f"{LIST}{found.document_id}/change/", chunk=chunk_id)
    assert f'id="{chunk_id}"' in opened
    assert str(trace.pk) in opened
    for words in ("", "   ", "the", "\x00", "x" * 30_000):
        assert olga.get(LIST, {"q": words, "in": "passages"}).status_code == 200


def test_a_superuser_names_the_tenant_of_a_search_in_passages() -> None:
    admit("# Pumps\n\nThe pump of acme.\n")
    root = signed_in(make_superuser())
    asked = {"q": "pump", "in": "passages"}
    assert "Name the tenant" in page(root, LIST, **asked)
    assert "of acme" in page(root, LIST, tenant="acme", **asked)
    assert "of acme" not in page(root, LIST, tenant="globex", **asked)
    assert root.get(LIST, {"tenant": "a\x00", **asked}).status_code == 200


def test_a_thousand_documents_take_the_queries_of_ten(olga: Client) -> None:
    filtered = {"state": "live", "flagged": "yes", "language": "english"}
    queries: list[dict[str, str]] = [{}, {"q": "zebra"}, filtered, {"p": "2"}]
    make_many_documents("acme", 60)
    page(olga, LIST)
    few = [len(statements(olga, LIST, **query)) for query in queries]
    assert max(few) <= 15
    make_many_documents("acme", 1_000)
    many = [statements(olga, LIST, **query) for query in queries]
    assert [len(one) for one in many] == few
    assert not any('"knowledge_chunk"' in statement for one in many for statement in one)


def test_a_search_in_passages_takes_few_queries(olga: Client) -> None:
    for number in range(30):
        admit(f"# Pump {number}\n\nThe pump {number} runs at night.\n", title=f"T{number}")
    words = {"q": "pump night", "in": "passages"}
    page(olga, LIST, **words)
    assert len(statements(olga, LIST, **words)) <= 15


@pytest.mark.long
def test_fifty_thousand_titles_are_searched_in_time(olga: Client) -> None:
    """No index helps: under row-level security none of `LIKE` or `@@` can use one."""
    make_many_documents("acme", 50_000)
    make_document("acme", "A needle one")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE knowledge_document, knowledge_documentversion, knowledge_chunkset")
    for query in (
        {"q": "needle"},
        {"q": "zebra cluster"},
        {"by": "nobody"},
        {"state": "quarantined"},
        {"language": "german"},
        {"p": "150"},
    ):
        began = time.perf_counter()
        page(olga, LIST, **query)
        assert time.perf_counter() - began < 2, query


# --- the page of one


def test_headings_lead_to_the_page_of_their_passages(olga: Client) -> None:
    document = make_document(
        "acme",
        texts=[f"Passage {number}." for number in range(60)],
        headings=[["Start" if number < 55 else "End"] for number in range(60)],
    )
    ids = chunk_ids(document)
    html = page(olga, document_path(document))
    assert f'href="#{ids[0]}"><bdi>Start</bdi>' in html
    assert f'href="?version=1&amp;page=2#{ids[55]}"><bdi>End</bdi>' in html
    assert "Passage 59." in page(olga, document_path(document), chunk=ids[59])
    other = make_document("acme")
    assert olga.get(document_path(document), {"chunk": chunk_ids(other)[0]}).status_code == 404
    assert olga.get(document_path(document), {"chunk": "\x00"}).status_code == 404


def test_a_thicket_of_headings_is_cut_to_its_upper_levels(olga: Client) -> None:
    document = make_document(
        "acme",
        texts=["x"] * 900,
        headings=[[f"Part {number // 300}", f"Section {number}"] for number in range(900)],
    )
    html = page(olga, document_path(document))
    outline = html[html.index('class="outline"') : html.index("</details>")]
    assert re.findall(r"<bdi>(.*?)</bdi>", outline) == ["Part 0", "Part 1", "Part 2"]
    assert "900 deeper headings" in html


@pytest.mark.long
def test_five_thousand_passages_take_the_queries_of_five(olga: Client) -> None:
    small = make_document("acme", texts=["x"] * 5)
    big = make_document("acme", texts=[f"Passage {number}." for number in range(5_000)])
    page(olga, document_path(small))
    began = time.perf_counter()
    asked = statements(olga, document_path(big), page="77")
    assert len(asked) == len(statements(olga, document_path(small))) <= 15
    assert time.perf_counter() - began < 4


def test_the_page_tells_of_warnings_quarantine_and_what_is_on_its_way(olga: Client) -> None:
    document = make_document("acme")
    of_version(document, warnings=["page 2 has <b>no</b> text"])
    of_set(document, quarantined_count=1)
    html = page(olga, document_path(document))
    assert "page 2 has &lt;b&gt;no&lt;/b&gt; text" in html
    assert f'quarantinedchunk/?q={document.pk}">1 in quarantine' in html
    assert "is on its way" not in html


def test_searches_that_showed_it_are_listed(olga: Client) -> None:
    found = admit("# Pumps\n\nThe pump runs at night.\n")
    other = admit("# Lunch\n\nSoup.\n")
    ask("pump")
    ask("soup")
    with operations_session():
        pump = RecallTrace.objects.get(query_text="pump")
        soup = RecallTrace.objects.get(query_text="soup")
    html = page(olga, f"{LIST}{found.document_id}/change/")
    assert str(pump.pk) in html
    assert str(soup.pk) not in html
    assert "pump" not in page(olga, f"{LIST}{other.document_id}/change/")


# --- comparing


def versions(*texts: str) -> Any:
    first = admit(texts[0], title="Compared")
    for text in texts[1:]:
        admit(text, title="Compared", document_id=first.document_id)
    return first.document_id


def compare(client: Client, document_id: Any, **query: Any) -> str:
    return page(client, f"{LIST}{document_id}/compare/", **query)


def sides(html: str) -> list[str]:
    shown = re.sub(r'<span class="said">.*?</span>', "", html)
    return re.findall(r'<pre class="passage" dir="auto">(.*?)</pre>', shown, re.DOTALL)


def test_two_versions_show_the_words_that_differ(olga: Client) -> None:
    document = versions(
        "# A\n\nDrain the node first.\n\n# B\n\nKept as it is.\n",
        "# A\n\nDrain the <pod> first.\n\n# B\n\nKept as it is.\n\n# C\n\nNew\u202e.\n",
    )
    html = compare(olga, document, **{"from": 1, "to": 2})
    Harmless().feed(html)
    old, new, nothing, added = sides(html)
    assert old == "# A\n\nDrain the <del>node </del>first."
    assert new == "# A\n\nDrain the <ins>&lt;pod&gt; </ins>first."
    assert nothing == "–"
    assert added.startswith("<ins># C\n\nNew<bdi")
    assert "2 places differ," in html
    assert "1 passage unchanged" in html
    assert '<span class="said">[removed: </span>' in html
    backwards = sides(compare(olga, document, **{"from": 2, "to": 1}))
    assert backwards[0] == new.replace("ins>", "del>")
    assert "Nothing differs" in compare(olga, document, **{"from": 1, "to": 1})
    for wrong in ({}, {"from": "1"}, {"from": "1", "to": "9"}, {"from": "x", "to": "1"}):
        assert olga.get(f"{LIST}{document}/compare/", wrong).status_code == 404
    stranger = signed_in(make_operator("globex"))
    there = {"from": "1", "to": "2"}
    assert stranger.get(f"{LIST}{document}/compare/", there).status_code == 404


def test_long_versions_are_compared_page_by_page_in_time(olga: Client) -> None:
    def text(word: str) -> str:
        return "\n\n".join(
            f"# Part {number}\n\n{word} {number} " + "words and more of them " * 60
            for number in range(150)
        )

    document = versions(text("old"), text("new"))
    compare(olga, document, **{"from": 1, "to": 2})
    began = time.perf_counter()
    asked = statements(olga, f"{LIST}{document}/compare/", **{"from": "1", "to": "2"})
    assert len(asked) <= 15
    assert time.perf_counter() - began < 6
    seen = ""
    for number in range(1, 40):
        html = compare(olga, document, **{"from": 1, "to": 2}, page=number)
        seen += html
        if "Later changes" not in html:
            break
    for number in range(150):
        assert f"# Part {number}\n" in seen


def test_the_search_of_the_store_is_what_passages_are_found_by(olga: Client) -> None:
    """A document that an operator may see and an agent may not is found here, and only here."""
    admit("# Pumps\n\nThe secret pump.\n", visibility=Visibility.PRINCIPAL, by=principal("bob"))
    assert not ask("pump").passages
    assert "secret" in page(olga, LIST, q="pump", **{"in": "passages"})
