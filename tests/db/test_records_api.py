"""Records over HTTP: shapes, statuses, and nothing that the caller may not see."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from access.tenancy import tenant_session
from access.trust import OriginTrust, Scope, Sensitivity
from knowledge.core.types import Visibility
from knowledge.models import KnowledgeEvent
from tests.support import admit, bearer, everywhere, principal, save_page, source_of, upload

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("blob_root")]

NOTE = "# Pumps\n\nThe quokka pump is started by hand.\nIt stops at dusk.\n"
QUOTE = "The quokka pump is started by hand."


def call(
    client: Client, method: str, path: str, body: dict[str, Any] | None = None, **given: Any
) -> Any:
    headers = given.pop("headers", None) or bearer()
    if method == "get":
        return client.get(f"/v1/records{path}", given, headers=headers)
    if method == "delete":
        return client.delete(f"/v1/records{path}", query_params=given, headers=headers)
    said = {"request_id": str(uuid4()), "origin_trust": "USER", **(body or {}), **given}
    return client.post(f"/v1/records{path}", said, content_type="application/json", headers=headers)


def made(answer: Any, status: int = 201) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def problem(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"] == "application/problem+json", answer.content
    return answer.status_code, answer.json()["code"]


def a_claim(client: Client, **given: Any) -> dict[str, Any]:
    source = given.pop("source", None) or source_of(admit(NOTE))
    return made(
        call(
            client,
            "post",
            "/claims",
            statement=QUOTE,
            visibility="tenant",
            evidence=[{"source": source, "start_line": 3, "quote": QUOTE}],
            **given,
        )
    )


def expecting(record: dict[str, Any]) -> dict[str, Any]:
    return {"expected_revision": record["revision"], "expected_hash": record["hash"]}


def test_a_claim_from_its_making_to_its_end(client: Client) -> None:
    source = source_of(admit(NOTE))
    first = a_claim(client, source=source)
    assert first["kind"] == "claim"
    assert first["content"] == {"statement": QUOTE}
    assert first["evidence"] == [{"source": source, "start_line": 3, "end_line": 3, "quote": QUOTE}]
    path = f"/{first['record_id']}"
    noted = made(
        call(
            client,
            "post",
            f"{path}/annotations",
            expecting(first),
            note="Seen.",
            evidence=[{"source": source}],
        ),
        200,
    )
    assert (noted["revision"], noted["change"]) == (2, "annotated")
    assert noted["annotations"][0] | {"at": None} == {
        "id": "1",
        "note": "Seen.",
        "by": "alice",
        "at": None,
        "evidence": [{"source": source}],
    }
    corrected = made(
        call(
            client,
            "post",
            f"{path}/corrections",
            expecting(noted),
            reason="clearer",
            statement="By hand.",
            evidence=first["evidence"],
        ),
        200,
    )
    expanded = made(
        call(
            client,
            "post",
            f"{path}/reconcile",
            expecting(corrected),
            reason="for the archive",
            schema="record-1",
            representation="expanded",
            dry_run=False,
        ),
        200,
    )
    assert expanded["dry_run"] is False
    assert expanded["record"]["evidence"][0]["descriptor"]["filename"] == "note.md"
    latest = made(call(client, "get", path), 200)
    assert latest == expanded["record"]
    assert (latest["revision"], latest["latest_revision"]) == (4, 4)
    old = made(call(client, "get", path, revision=1), 200)
    assert old | {"latest_revision": 1, "latest_hash": first["hash"]} == first
    history = made(call(client, "get", f"{path}/revisions", page_size=3), 200)
    assert [one["revision"] for one in history["results"]] == [4, 3, 2]
    following = client.get(history["next"], headers=bearer()).json()
    assert [one["change"] for one in following["results"]] == ["created"]
    assert [one["previous_hash"] for one in history["results"]] == [
        corrected["hash"],
        noted["hash"],
        first["hash"],
    ]
    resolved = made(call(client, "get", f"{path}/evidence"), 200)
    assert [(one["annotation"], one["state"]) for one in resolved["evidence"]] == [
        ("", "available"),
        ("1", "available"),
    ]
    part = client.post(
        "/v1/tools/knowledge.attachment",
        {
            "artifact": resolved["evidence"][0]["artifact_id"],
            "sha256": resolved["evidence"][0]["sha256"],
        },
        content_type="application/json",
        headers=bearer("bob"),
    )
    assert part.json()["descriptor_id"] == source
    gone = made(call(client, "delete", path, reason="outdated"), 200)
    assert (gone["revisions"], gone["sources"]) == (4, 1)
    assert problem(call(client, "get", path)) == (404, "not_found")


def test_a_page_is_saved_with_its_upload(client: Client) -> None:
    artifact = upload(principal(), NOTE)
    told: dict[str, Any] = {"request_id": str(uuid4()), "title": "Pumps", "body": "  By hand.\n"}
    told |= {
        "visibility": "project",
        "project_scope": "apollo",
        "attachments": [{"artifact": str(artifact.pk), "sha256": artifact.sha256}],
    }
    first = made(call(client, "post", "/pages", told))
    assert made(call(client, "post", "/pages", told)) == first
    assert first["content"] == {"title": "Pumps", "body": "  By hand.\n", "metadata": {}}
    assert (first["visibility"], first["project_scope"]) == ("project", "apollo")
    again = {"record_id": first["record_id"], **expecting(first), "title": "Pumps", "body": ""}
    assert problem(call(client, "post", "/pages", again)) == (404, "not_found")
    second = made(call(client, "post", "/pages", again, current_scope="apollo"), 200)
    assert second["evidence"] == first["evidence"]
    body = {
        "artifact": str(artifact.pk),
        "sha256": artifact.sha256,
        "current_scope": "apollo",
    }
    for who, status in (("bob", 200), ("alice", 200)):
        answer = client.post(
            "/v1/tools/knowledge.attachment",
            body,
            content_type="application/json",
            headers=bearer(who),
        )
        assert answer.status_code == status


def test_conflicts_and_refusals_have_codes_of_their_own(client: Client) -> None:
    source = source_of(admit(NOTE))
    first = a_claim(client, source=source)
    path = f"/{first['record_id']}"
    stale = {"expected_revision": 1, "expected_hash": "0" * 64}
    cited = [{"source": source}]
    answer = call(client, "post", f"{path}/annotations", stale, note="x", evidence=cited)
    assert problem(answer) == (409, "revision_conflict")
    assert (answer.json()["revision"], answer.json()["hash"]) == (1, first["hash"])
    told = {"request_id": str(uuid4()), **expecting(first), "evidence": cited}
    made(call(client, "post", f"{path}/annotations", told, note="x"), 200)
    answer = call(client, "post", f"{path}/annotations", told, note="y")
    assert problem(answer) == (409, "request_conflict")
    for evidence, code in (
        ([], "evidence_missing"),
        ([{"source": source}, {"source": "0" * 64}], "evidence_unknown_source"),
        ([{"source": source, "start_line": 99}], "evidence_lines_out_of_range"),
        ([{"source": source, "start_line": 0}], "evidence_lines_out_of_range"),
        ([{"source": source, "quote": f" {QUOTE}"}], "quote_not_found"),
        ([{"source": source, "quote": ""}], "quote_not_found"),
    ):
        answer = call(
            client, "post", "/claims", statement="x", visibility="tenant", evidence=evidence
        )
        assert problem(answer) == (422, code)
        if evidence:
            assert answer.json()["list"] == "evidence"
            assert answer.json()["position"] == len(evidence) - 1
    for given, code in (
        ({"schema": "record-0"}, "schema_mismatch"),
        ({"evidence": cited}, "wrong_record_kind"),
    ):
        body = {
            "expected_revision": 2,
            "expected_hash": made(call(client, "get", path), 200)["hash"],
            "schema": "record-1",
            "representation": "compact",
            "dry_run": True,
            "reason": "review",
            **given,
        }
        assert problem(call(client, "post", f"{path}/reconcile", body)) == (409, code)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/pages", {"title": "x", "body": "x"}),
        ("/pages", {"title": "x", "body": "x", "visibility": "tenant", "record_id": str(uuid4())}),
        ("/pages", {"title": "x", "body": "x", "visibility": "tenant", "unknown": 1}),
        ("/pages", {"title": "x", "body": "x", "visibility": "tenant", "metadata": [1]}),
        ("/pages", {"title": "x", "body": "x", "visibility": "tenant", "metadata": {"n": 2**60}}),
        ("/pages", {"title": "", "body": "x", "visibility": "tenant"}),
        ("/pages", {"title": "x", "body": "x", "visibility": "project"}),
        ("/claims", {"statement": " ", "visibility": "tenant"}),
        ("/claims", {"statement": "x"}),
        ("/claims", {"statement": "x", "visibility": "tenant", "evidence": [{"source": "x"}]}),
        ("/claims", {"statement": "x", "visibility": "tenant", "evidence": "x"}),
        ("/relationships", {"subject": "x", "predicate": "y", "visibility": "tenant"}),
    ],
)
def test_malformed(client: Client, path: str, body: dict[str, Any]) -> None:
    answer = call(client, "post", path, body)
    assert answer.status_code == 400, answer.content


def test_who_may_write(client: Client) -> None:
    page = {"title": "x", "body": "x", "visibility": "tenant"}
    for headers, given, code in (
        (bearer(scopes=()), {}, "scope_missing"),
        (bearer(), {"origin_trust": "MODEL"}, "untrusted_origin"),
        (bearer(max_origin_trust=OriginTrust.MODEL), {}, "untrusted_origin"),
        (bearer(), {"current_scope": "zeus"}, "project_forbidden"),
        (
            bearer(sensitivity_ceiling=Sensitivity.PUBLIC),
            {},
            "sensitivity_above_ceiling",
        ),
    ):
        answer = call(client, "post", "/pages", {**page, **given}, headers=headers)
        assert problem(answer) == (403, code)


def test_lists(client: Client) -> None:
    source = source_of(admit(NOTE))
    claims = [a_claim(client, source=source)["record_id"] for _ in range(3)]
    page = str(save_page(title="A page").record.pk)
    save_page(principal("bob"), title="hidden", placement=everywhere(Visibility.PRINCIPAL))
    of_project = str(
        save_page(title="apollo's", placement=everywhere(Visibility.PROJECT)).record.pk
    )
    save_page(principal(tenant="globex"), title="foreign")

    def listed(**given: Any) -> list[str]:
        found: list[str] = []
        answer = made(call(client, "get", "", **given), 200)
        while True:
            found += [one["record_id"] for one in answer["results"]]
            if answer["next"] is None:
                return found
            answer = client.get(answer["next"], headers=bearer()).json()

    newest_first = [page, *reversed(claims)]
    assert listed() == newest_first
    assert listed(page_size=2) == newest_first
    assert listed(current_scope="apollo") == [of_project, *newest_first]
    assert listed(kind="page") == [page]
    assert listed(source=source) == list(reversed(claims))
    assert listed(source="0" * 64) == []
    assert problem(call(client, "get", "", cursor="x"))[0] == 400
    assert problem(call(client, "get", "", kind="rumour"))[0] == 400
    for number in ("x", "9" * 30, "-1"):
        answer = call(client, "get", f"/{page}/revisions", cursor=number)
        assert answer.status_code == 400


CHANGES: dict[str, dict[str, Any]] = {
    "/annotations": {"note": "x", "evidence": [{"source": "0" * 64}]},
    "/corrections": {"statement": "x", "reason": "x", "evidence": [{"source": "0" * 64}]},
    "/reconcile": {
        "schema": "record-1",
        "representation": "compact",
        "dry_run": False,
        "reason": "x",
    },
}


def test_what_one_may_not_see_is_what_never_was(client: Client) -> None:
    bob = principal("bob")
    hidden = [
        save_page(bob, placement=everywhere(Visibility.PRINCIPAL)),
        save_page(bob, placement=everywhere(Visibility.PROJECT)),
        save_page(bob, placement=everywhere(sensitivity=Sensitivity.RESTRICTED)),
        save_page(principal(tenant="globex")),
    ]
    headers = bearer(scopes=(Scope.WRITE, Scope.DELETE), sensitivity_ceiling=Sensitivity.INTERNAL)
    targets = [
        *((str(one.record.pk), one.row.sha256) for one in hidden),
        (str(uuid4()), "0" * 64),
    ]
    answers = set()
    for record_id, sha256 in targets:
        seen = {"expected_revision": 1, "expected_hash": sha256}
        page = {"title": "x", "body": "x", "record_id": record_id, **seen}
        each = [
            call(client, "get", f"/{record_id}", headers=headers),
            call(client, "get", f"/{record_id}", revision=1, headers=headers),
            call(client, "get", f"/{record_id}/revisions", headers=headers),
            call(client, "get", f"/{record_id}/evidence", headers=headers),
            call(client, "delete", f"/{record_id}", headers=headers),
            call(client, "post", "/pages", page, headers=headers),
            *(
                call(client, "post", f"/{record_id}{path}", {**body, **seen}, headers=headers)
                for path, body in CHANGES.items()
            ),
        ]
        answers |= {(one.status_code, one.content) for one in each}
    assert len(answers) == 1, answers
    assert {status for status, _ in answers} == {404}


def patch(client: Client, record_id: object, headers: Any, **body: Any) -> Any:
    return client.patch(
        f"/v1/records/{record_id}",
        {"origin_trust": "USER", **body},
        content_type="application/json",
        headers=headers,
    )


def test_who_may_find_a_record_changes_without_a_revision(client: Client) -> None:
    record_id = save_page().record.pk
    first = made(call(client, "get", f"/{record_id}"), 200)
    assert problem(patch(client, record_id, bearer("bob"), sensitivity="public"))[0] == 403
    assert patch(client, record_id, bearer(), visibility="project").status_code == 400
    assert problem(patch(client, record_id, bearer()))[0] == 400
    assert patch(client, record_id, bearer(), title="x").status_code == 400
    moved = patch(client, record_id, bearer(), visibility="project", project_scope="apollo")
    assert made(moved, 200) == first | {"visibility": "project", "project_scope": "apollo"}
    assert problem(call(client, "get", f"/{record_id}"))[0] == 404
    made(call(client, "get", f"/{record_id}", current_scope="apollo"), 200)
    assert problem(patch(client, record_id, bearer(), sensitivity="public"))[0] == 404
    with tenant_session("acme"):
        told = KnowledgeEvent.objects.get(name=KnowledgeEvent.RECORD_RESCOPED).data
    assert (told["former"]["visibility"], told["now"]["visibility"]) == ("tenant", "project")


def test_a_legal_hold_stops_a_deletion_and_nothing_else(client: Client) -> None:
    record_id = save_page().record.pk
    assert problem(patch(client, record_id, bearer(), legal_hold=True)) == (403, "scope_missing")
    keeper = bearer("carol", scopes=(Scope.DELETE,))
    assert made(patch(client, record_id, keeper, legal_hold=True), 200)["legal_hold"] is True
    assert problem(call(client, "delete", f"/{record_id}")) == (409, "legal_hold")
    first = made(call(client, "get", f"/{record_id}"), 200)
    body = {"title": "x", "body": "x", "record_id": str(record_id), **expecting(first)}
    made(call(client, "post", "/pages", body), 200)
    lifting = patch(client, record_id, keeper, legal_hold=False)
    assert problem(lifting) == (400, "reason_missing")
    made(patch(client, record_id, keeper, legal_hold=False, reason="over"), 200)
    made(call(client, "delete", f"/{record_id}"), 200)
    with tenant_session("acme"):
        names = KnowledgeEvent.objects.filter(name__startswith="knowledge.record.")
        assert list(names.order_by("id").values_list("name", flat=True)) == [
            KnowledgeEvent.RECORD_CREATED,
            KnowledgeEvent.RECORD_HELD,
            KnowledgeEvent.RECORD_DELETE_REFUSED,
            KnowledgeEvent.RECORD_SAVED,
            KnowledgeEvent.RECORD_HOLD_LIFTED,
            KnowledgeEvent.RECORD_DELETED,
        ]
