"""PDF, HTML and Word through the whole pipeline, each in a real child process."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from pytest_django import Settings

from access.tenancy import operations_session, tenant_session
from access.trust import OriginTrust
from knowledge.core.errors import EmptyExtraction, EncryptedDocument, SecretFound, TooLarge
from knowledge.core.types import (
    Actor,
    AttachmentState,
    ExtractedDocument,
    IngestRequest,
    Visibility,
)
from knowledge.models import Attachment, Chunk, DocumentVersion, IngestJob
from knowledge.wiring import check_registered, store
from tests.documents import docx, lines, paragraph, pdf
from tests.factories import make_operator
from tests.support import admit, ask, bearer, footprint, principal, texts, upload

pytestmark = pytest.mark.django_db(transaction=True)


def relay_guide() -> bytes:
    return pdf(
        lines("Relay Guide", *(f"The amber relay checks ledger {n} first." for n in range(40))),
        lines(*(f"The outer valve opens after count {n} is done." for n in range(40))),
        lines("Rollback", *(f"Restore the previous tag, step {n} of it." for n in range(40))),
        outline=[("Relay Guide", 1, 0, None), ("Rollback", 2, 2, None)],
        info={"Title": "Guide", "ModDate": "D:20260502"},
    )


def test_pages_and_headings_of_a_pdf_reach_whoever_cites_it(
    client: Client, blob_root: Path
) -> None:
    result = admit(relay_guide(), filename="guide.pdf")
    with tenant_session("acme"):
        version = DocumentVersion.objects.get(document=result.document_id)
        chunks = list(Chunk.objects.select_related("chunk_set").order_by("ordinal"))
    assert (version.media_type, version.page_count) == ("application/pdf", 3)
    assert str(version.doc_date) == "2026-05-02"
    assert chunks[0].chunk_set.chunker_version == "pdf-1/normal-1/structure-1/default"
    assert [chunk.heading_path for chunk in chunks][-1] == ["Relay Guide", "Rollback"]
    pages = [(chunk.page_start, chunk.page_end) for chunk in chunks]
    assert pages[0][0] == 1
    assert pages[-1] == (3, 3)
    found = ask("restore the previous tag")
    assert found.passages[0].candidate.page_start == 3
    header = bearer()
    shown = client.get(f"/v1/chunks/{chunks[-1].chunk_id}", headers=header).json()
    assert (shown["page_start"], shown["page_end"]) == (3, 3)
    asked = client.post(
        "/v1/tools/knowledge.search",
        {"text": "restore the previous tag", "min_score": 0},
        content_type="application/json",
        headers=header,
    ).json()
    assert asked["passages"][0]["page_start"] == 3
    assert b"Page" in client.get(asked["passages"][0]["citation_url"]).content


def test_warnings_reach_the_receipt_and_the_admin(client: Client, blob_root: Path) -> None:
    content = pdf(lines("Words enough to be a page."), [], lines("And these are some more."), [])
    result = admit(content, filename="a.pdf")
    assert result.report.warnings == ("pages_without_text: 2, 4",)
    client.force_login(make_operator("acme"))
    shown = client.get(f"/admin/knowledge/document/{result.document_id}/change/").content.decode()
    assert "pages_without_text: 2, 4" in shown
    assert "<dt>Pages</dt>" in shown


def test_words_with_ligatures_are_found(blob_root: Path) -> None:
    content = pdf(
        lines("O\x03ce rule: the con\x01guration \x02ag sets the o\x03ce pro\x01le."),
        to_unicode={1: "FB01", 2: "FB02", 3: "FB03"},
    )
    admit(content, filename="a.pdf")
    for question in ("configuration", "office profile", "flag"):
        assert texts(ask(question)), question


def test_a_web_page_is_admitted_as_markdown_and_named_as_what_it_is(blob_root: Path) -> None:
    page = "<html><body><nav>Home</nav><h1>Guide</h1><p>Words.<h2>Rollback</h2>" + (
        "<p>Restore the previous release tag and restart the relay." * 30
    )
    result = admit(page, filename="guide.html")
    with tenant_session("acme"):
        version = DocumentVersion.objects.get(document=result.document_id)
        paths = list(Chunk.objects.order_by("ordinal").values_list("heading_path", flat=True))
    assert version.media_type == "text/html"
    assert paths == [["Guide"], ["Guide", "Rollback"]]
    assert admit(page, filename="guide.html").already_ingested


def test_a_word_document_is_admitted(blob_root: Path) -> None:
    content = docx(
        paragraph("Guide", style="Heading1"), paragraph("Restore the previous release tag.")
    )
    result = admit(content, filename="guide.docx")
    assert texts(ask("previous release")) == ["Restore the previous release tag."]
    assert result.report.complete


@pytest.mark.parametrize(
    ("content", "filename", "refusal"),
    [
        (pdf(lines("Words."), password="", owner_password="o"), "a.pdf", EncryptedDocument),
        (pdf([], []), "a.pdf", EmptyExtraction),
        (docx(paragraph("")), "a.docx", EmptyExtraction),
        ("<body><p hidden>words", "a.html", EmptyExtraction),
    ],
)
def test_a_refusal_leaves_nothing_but_its_count(
    content: bytes, filename: str, refusal: type[Exception], blob_root: Path
) -> None:
    admit("# Before\n\nwords")
    uploaded = upload(principal(), content, filename)
    before = footprint(blob_root, without={"knowledge_refusalcount"})
    with pytest.raises(refusal):
        store().ingest(
            IngestRequest(
                artifact_id=uploaded.pk,
                title="A file",
                visibility=Visibility.TENANT,
                origin_trust=OriginTrust.USER,
            ),
            principal(),
        )
    assert footprint(blob_root, without={"knowledge_refusalcount"}) == before


def _token() -> str:
    return "".join(("AK", "IA", "Q3EGRIDZ", "7T4N5WLB"))


@pytest.mark.parametrize(
    ("make", "filename"),
    [
        (lambda secret: pdf(lines("The key is", secret, "and so on.")), "a.pdf"),
        (lambda secret: pdf(lines("The key is", secret[:9], secret[9:], "and so on.")), "a.pdf"),
        (lambda secret: pdf(lines("Words."), info={"Subject": f"aws_key={secret}"}), "a.pdf"),
        (lambda secret: pdf(lines("Words."), outline=[(f"key {secret}", 1, 0, None)]), "a.pdf"),
        (lambda secret: f"<body><p>Words.<p hidden>the key {secret}", "a.html"),
        (lambda secret: f"<body><p>Words.<!-- the key {secret} -->", "a.html"),
        (lambda secret: f"<body><p>Words.<script>var key = '{secret}'</script>", "a.html"),
        (lambda secret: f"<body><a href='https://x.example/?k={secret}'>Words.</a>", "a.html"),
        (lambda secret: docx(paragraph("Words."), paragraph(secret, hidden=True)), "a.docx"),
        (lambda secret: docx(paragraph(secret[:9]), paragraph(secret[9:])), "a.docx"),
    ],
)
def test_a_secret_anywhere_in_the_file_is_found_and_never_told(
    make: Callable[[str], bytes | str], filename: str, blob_root: Path
) -> None:
    secret = _token()
    with pytest.raises(SecretFound) as refused:
        admit(make(secret), filename=filename)
    told = f"{refused.value} {refused.value.members}"
    assert secret not in told
    assert secret[4:] not in told


class Shouting:
    version = "shouting-1"

    def supports(self, media_type: str) -> bool:
        return media_type == "text/plain"

    def extract(self, content: bytes, *, media_type: str, charset: str | None) -> ExtractedDocument:
        return ExtractedDocument(text=content.decode().upper(), media_type=media_type)


class NoExtractor:
    pass


class TestRegistration:
    def test_a_registered_extractor_wins(self, settings: Settings, blob_root: Path) -> None:
        settings.VERBATIM_EXTRACTORS = [f"{__name__}.Shouting"]
        store.cache_clear()
        try:
            admit("amber relay", filename="a.txt")
            assert texts(ask("relay")) == ["AMBER RELAY"]
        finally:
            store.cache_clear()

    @pytest.mark.parametrize(
        "path", ["no.such.Extractor", f"{__name__}.Missing", "nodots", f"{__name__}.NoExtractor"]
    )
    def test_a_wrong_one_is_an_error_of_the_start(self, settings: Settings, path: str) -> None:
        settings.VERBATIM_EXTRACTORS = [f"{__name__}.Shouting", path]
        with pytest.raises(ImproperlyConfigured, match="VERBATIM_EXTRACTORS") as raised:
            check_registered()
        assert path in str(raised.value)

    def test_none_is_no_error(self, settings: Settings) -> None:
        check_registered()


def test_what_is_larger_than_a_child_takes_is_refused(settings: Settings, blob_root: Path) -> None:
    with pytest.raises(TooLarge):
        admit(b"%PDF-1.7\n" + b" " * 32 * 1024**2, filename="a.pdf")


def _sent(content: bytes) -> Attachment:
    return store().attach(
        io.BytesIO(content),
        principal(),
        conversation_id="c-1",
        actor=Actor.PRINCIPAL,
        filename="guide.pdf",
    )


class TestAttachments:
    def test_a_pdf_is_looked_at_when_it_is_sent(self, blob_root: Path) -> None:
        attachment = _sent(pdf(lines("Words."), password="", owner_password="restricts"))
        assert attachment.refusal == "encrypted_document"
        with operations_session():
            assert not IngestJob.objects.exists()

    def test_and_read_when_its_turn_comes(self, blob_root: Path) -> None:
        attachment = _sent(relay_guide())
        assert attachment.job
        store().run_job(attachment.job.job_id)
        with operations_session():
            state = Attachment.objects.with_state().get(pk=attachment.pk).state
        assert state == AttachmentState.INGESTED
        assert ask("restore the previous tag").passages[0].candidate.page_start == 3
