"""A corpus that has seen everything, what can be asked of it, and a way to start from nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import connection
from django.test import Client

from access.clock import now
from access.errors import VerbatimError
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from artifacts import store as artifacts
from artifacts.models import Artifact, SourceDescriptor
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.records import AttachedFile, Evidence
from knowledge.core.types import (
    ConnectorIdentity,
    DocumentChange,
    RechunkRequest,
    Verdict,
    Visibility,
)
from knowledge.evidence.writing import WrittenRevision
from knowledge.lifecycle.pii_policy import set_pii_policy
from knowledge.models import Chunk, Document, PreturnPolicy
from knowledge.retrieval.citations import Cited
from knowledge.transfer.exporting import Exported
from knowledge.transfer.importing import Imported
from knowledge.transfer.values import line_of
from knowledge.wiring import store
from tests.factories import make_attachment, make_golden_run, make_proposal
from tests.rechunk_fakes import FinerChunker, later
from tests.support import (
    admit,
    ask,
    everywhere,
    principal,
    save_page,
    seen,
    source_of,
    upload,
    work,
    writing,
)

PROSE = " ".join(["The pump at the harbour runs at night and rests by day."] * 12)
ADDRESS = "ann.lee@firma.de"
OLGA = Principal.for_operator("acme", "olga")
QUESTIONS = (
    "zebra",
    "harbour pump",
    "quagga",
    "okapi ladder",
    "the keeper rests",
    "Ölpumpe Zürich",
)


def note(*said: str) -> str:
    return "# Pumps\n\n" + "\n\n".join(
        f"## Part {number}\n\n{words} {PROSE}" for number, words in enumerate(said)
    )


def make_corpus() -> dict[str, Any]:
    """Versions, another chunking, quarantine, deletions, conversations, proposals, golden sets.

    Of two tenants. Returns ids that tests look for.
    """
    source = ConnectorIdentity(type="wiki", id="pumps", version="r1")
    first = admit(note("zebra one.", "zebra two."), title="Pumps", source=source)
    between = now_of_database()
    second = admit(
        note("zebra one.", "okapi two.", "okapi ladder."),
        title="Pumps, revised",
        source=replace(source, version="r2"),
    )
    rechunked = admit(note("ladder of zebras.", "keeper of it."), title="Ladders", filename="l.md")
    later(chunker=FinerChunker()).rechunk(rechunked.document_id, OLGA, RechunkRequest())
    rules = PiiRules(verdicts={Detector("email"): Verdict.QUARANTINE})
    set_pii_policy(rules, OLGA)
    set_aside = admit(
        note("zebra three.", f"quagga of {ADDRESS}.", f"quagga of {ADDRESS} too."), title="People"
    )
    with tenant_session("acme"):
        held_back = list(
            Chunk.objects.filter(verdict=Verdict.QUARANTINE).values_list("chunk_id", flat=True)
        )
    store().release_chunk(held_back[0], OLGA, reason="It is our own address.")
    private = admit(
        "# Mine\n\nThe keeper rests; zebra of Bob.\n",
        by=principal("bob"),
        visibility=Visibility.PRINCIPAL,
    )
    admit("# Apollo\n\nThe okapi of apollo.\n", visibility=Visibility.PROJECT)
    german = admit(
        "# Die Ölpumpe\n\nDie Ölpumpe in Zürich läuft nachts, der Wärter ruht, und am Tag wird"
        " sie von den Leuten der Werkstatt geprüft und gereinigt.\n",
        title="Ölpumpe \u202eüber\u202c \U0001f98c 漢字",
        filename="öl \u2014 x.md",
    )
    # The same passage many times over: what is ranked by the order in which it was made.
    twins = [admit(f"The ladder of the okapi.\n\n<!-- {number} -->\n") for number in range(6)]
    store().update(german.document_id, OLGA, DocumentChange(legal_hold=True, reason="court"))
    kept = upload(principal(), "The keeper's own log.\n", "log.txt")
    page = save_page(
        attachments=[AttachedFile(artifact_id=kept.pk, sha256=kept.sha256)],
        evidence=[Evidence(source=source_of(second), start_line=1, quote="Pumps")],
    )
    page = save_page(expected=seen(page), body="The pump is started by hand — or by 漢字.")
    doomed = admit("# Doomed\n\nThe ladder is doomed.\n", title="Doomed")
    lines = [Evidence(source=source_of(doomed), start_line=3, end_line=3)]
    claim = store().records.make_claim(
        principal("bob"),
        writing(),
        statement="The ladder is doomed.",
        evidence=lines,
        placement=everywhere(Visibility.PRINCIPAL),
    )
    store().delete(doomed.document_id, principal(), reason="asked for")
    gone = admit("# Gone\n\nThe zebra is gone.\n", title="Gone")
    store().delete(gone.document_id, principal(), reason="asked for")
    private_gone = admit(
        "# Gone too\n\nBob's zebra is gone.\n", by=principal("bob"), visibility=Visibility.PRINCIPAL
    )
    store().delete(private_gone.document_id, principal("bob"))
    upload(principal(), "only uploaded", "loose.txt")
    expired = upload(principal(), "about to die", "dead.txt")
    artifacts.expire_now(expired)
    attachment = make_attachment("acme")
    make_attachment("acme", conversation_id="c-2", filename="other.md")
    work()
    waiting = make_attachment("acme", conversation_id="c-3", filename="waits.md")
    make_attachment("acme", conversation_id="c-4", filename="gone.md")
    store().delete_conversation("c-4", principal())
    make_proposal("acme")
    declined = make_proposal("acme", title="No", text="# No\n\nNot this one.\n")
    store().decline_proposal(declined.pk, OLGA, reason="Not needed.")
    approved = make_proposal("acme", title="Yes", text="# Yes\n\nThe okapi of a proposal.\n")
    store().approve_proposal(approved.pk, OLGA)
    make_golden_run("acme", second.chunk_ids[0])
    make_golden_run("acme", twins[0].chunk_ids[0], name="Ladders")
    with tenant_session("acme"):
        PreturnPolicy.objects.create(tenant_id="acme", changed_by="olga", figures={"gain": 0.25})
    searched = ask("zebra")
    store().record_answer(
        searched.trace_id,
        principal(),
        answered=True,
        citations=[Cited(chunk_id=searched.passages[0].candidate.chunk_id)],
    )
    foreign = admit("# Globex\n\nThe zebra of globex.\n", by=principal(tenant="globex"))
    return {
        "between": between,
        "first": first,
        "second": second,
        "rechunked": rechunked,
        "set_aside": set_aside,
        "private": private,
        "german": german,
        "gone": gone,
        "private_gone": private_gone,
        "attachment": attachment,
        "waiting": waiting,
        "declined": declined,
        "approved": approved,
        "foreign": foreign,
        "page": page,
        "claim": claim,
    }


def now_of_database() -> datetime:
    with tenant_session("acme"):
        return now()


# --- what can be asked of it -------------------------------------------------------------------


def observed(made: dict[str, Any], client: Client | None = None) -> dict[str, Any]:
    """Everything that a caller can find out: searches now and then, passages, pages, deletions."""
    found_out: dict[str, Any] = {}
    everybody = (principal(), principal("bob"), principal("carol"), principal(tenant="globex"))
    asked = [
        *((who, text, None, None) for who in everybody for text in QUESTIONS),
        *((principal(), text, made["between"], None) for text in QUESTIONS),
        *((principal(), text, None, "apollo") for text in QUESTIONS),
    ]
    for who, text, as_of, scope in asked:
        found = ask(
            text,
            by=who,
            as_of=as_of,
            current_scope=scope,
            max_passages=50,
            max_per_document=50,
            budget_tokens=100_000,
        )
        found_out[f"search {who.tenant_id, who.principal_id, text, as_of, scope}"] = (
            [
                (one.candidate.chunk_id, one.score, one.candidate.text, repr(one.terms))
                for one in found.passages
            ],
            [(one.chunk_id, one.score) for one in found.omitted],
            found.notes,
        )
    for who in everybody:
        for name, one in made.items():
            found_out.update(_resolved(name, one, who))
    with operations_session():
        found_out["descriptors"] = sorted(SourceDescriptor.objects.values_list())
        kept = Artifact.objects.exclude(expires_at__lte=now())
        found_out["originals"] = sorted(
            (str(one.pk), hashlib.sha256(artifacts.read_bytes(one)).hexdigest()) for one in kept
        )
    return found_out


def _resolved(name: str, made: Any, who: Principal) -> Iterator[tuple[str, Any]]:
    if isinstance(made, WrittenRevision):
        for revision in (None, 1):
            asked = f"record {name} r{revision} of {who.principal_id} in {who.tenant_id}"
            yield asked, _told(partial(_record, made.record.pk, revision, who))
    if not hasattr(made, "chunk_ids"):
        return
    asked = f"{name} of {who.principal_id} in {who.tenant_id}"
    yield f"document {asked}", _told(partial(_document, made.document_id, who))
    for chunk_id in made.chunk_ids:
        yield f"chunk {chunk_id} {asked}", _told(partial(_chunk, chunk_id, who))


def _told(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except VerbatimError as refused:
        return refused.code, sorted(map(str, refused.members.items()))


def _chunk(chunk_id: str, who: Principal) -> Any:
    chunk: Any = store().get_chunk(chunk_id, who)
    version = chunk.chunk_set.finalized_version
    return (
        *(chunk.text, chunk.heading_path, chunk.line_start, chunk.line_end, chunk.live),
        *(chunk.superseded_by_version, chunk.superseded_by_chunker_version, version.version),
        *(version.document.title, str(version.source_id), version.source.descriptor.pk),
    )


def _document(document_id: UUID, who: Principal) -> Any:
    document = store().get_document(document_id, who)
    return document.title, [
        (one.version, one.ingested_at, one.superseded_at, one.source.filename)
        for one in document.versions.all()
    ]


def _record(record_id: UUID, revision: int | None, who: Principal) -> Any:
    written, evidence = store().resolve_evidence(record_id, who, revision=revision)
    return (
        *(written.row.canonical, written.row.sha256, written.row.previous_sha256, written.row.at),
        *(written.record.label, written.record.revision, written.record.changed_at),
        [repr(one) for one in evidence],
    )


# --- out and in --------------------------------------------------------------------------------


def export(folder: Path, **given: Any) -> Exported:
    return store().export_corpus(folder, actor="test", **given)


def take_in(folder: Path, **given: Any) -> Imported:
    return store().import_corpus(folder, actor="test", **given)


def wipe(blob_root: Path) -> None:
    """Leaves neither a row nor a byte. Numbers go on: nothing may depend on them."""
    tables = ", ".join(
        f'"{model._meta.db_table}"'
        for config in apps.get_app_configs()
        if config.label in {"access", "artifacts", "knowledge", "semantic"}
        for model in config.get_models()
        if not model._meta.proxy
    )
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables}")
    for path in blob_root.rglob("*"):
        if path.is_file():
            path.unlink()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of an archive; of the manifest, what does not say when it was written."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    told = json.loads(found["manifest.json"])
    told.pop("snapshot_at")
    return {**found, "manifest.json": json.dumps(told).encode()}


def documents_here() -> int:
    with operations_session():
        return Document.objects.count()


# --- tampering ---------------------------------------------------------------------------------


def rows_in(folder: Path, table: str) -> list[dict[str, Any]]:
    lines = (folder / "rows" / f"{table}.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def rewrite(folder: Path, table: str, lines: list[bytes]) -> None:
    """Other lines in the place of a table's, listed in the manifest as if they had been exported."""
    content = b"".join(lines)
    (folder / "rows" / f"{table}.jsonl").write_bytes(content)
    manifest = folder / "manifest.json"
    told = json.loads(manifest.read_text())
    told["rows"][table].update(
        lines=len(lines), bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
    )
    manifest.write_text(json.dumps(told))


def change(folder: Path, table: str, at: int = 0, **changed: Any) -> None:
    """Changes members of one row of a table."""
    rows = rows_in(folder, table)
    rows[at].update(changed)
    rewrite(folder, table, [line_of(row) for row in rows])
