"""A large corpus made of given texts, written in bulk straight into the tables of a bench tenant.

Runs of neighbouring paragraphs become chunks of a realistic spread of lengths. Copies of a
paragraph alone would leave every word common, so words that are rare in the given texts are
respelt in one of twenty dialects, one a document: vocabulary then grows with the corpus, as it
does in real ones. Analysis, stems, weights and statistics are the real ones.

Of 500 documents 410 are the tenant's (confidential), 4 each of ten projects and 1 each of fifty
principals (internal): a principal with that ceiling and one project sees one chunk in a hundred.
"""

from __future__ import annotations

import contextlib
import hashlib
import pydoc_data.topics
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.db import connection
from django.utils import timezone

from access.errors import Malformed
from access.principal import Principal
from access.tenancy import tenant_session
from access.trust import OriginTrust, Sensitivity
from artifacts.files import files_below, open_regular
from artifacts.models import Artifact, ArtifactOrigin
from knowledge.adapters import changes
from knowledge.adapters.stemmer import PostgresStemmer
from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core import fingerprint, likeness
from knowledge.core.analysis import ANALYZER_VERSION
from knowledge.core.bm25 import IndexRow, Lexicon, index_row, sparse_literal
from knowledge.core.types import Authority, ChunkSetState, Verdict, Visibility
from knowledge.evaluation.collections import documents_of, is_collection
from knowledge.evaluation.processes import pool
from knowledge.evaluation.progress import Track, untracked
from knowledge.evaluation.repeat import repeat
from knowledge.evaluation.throwaway import checked, member, settle
from knowledge.models import (
    Chunk,
    ChunkIndex,
    ChunkSet,
    Document,
    DocumentVersion,
    TermStatistic,
    VisibilitySpace,
)

PROJECTS: Final = 10
PRINCIPALS: Final = 50
_SLOTS: Final = 500
_STRIDE: Final = 137  # has no divisor in common with the slots: neighbours are of different spaces
_OF_PRINCIPALS: Final = PRINCIPALS
_OF_PROJECTS: Final = 4 * PROJECTS

_DOCUMENT_CHUNKS: Final = 10
_JOB_DOCUMENTS: Final = 200
_LANGUAGE: Final = "english"
_CHUNKER: Final = "generated-1"
_MEDIAN_CHARACTERS, _SPREAD = 900, 0.6
_SHORTEST, _LONGEST = 120, 3_600
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
_PARAGRAPH_SIZES: Final = range(30, 2_500)
_MOST_CHARACTERS: Final = 40_000_000
_WORD: Final = re.compile(r"[A-Za-z]{5,}")
_RARE: Final = 3
_DIALECTS: Final = 20
_ENDINGS: Final = [a + b for a in "bdfgklmnpr" for b in "aeiou"]


def tenant_wide(tenant_id: str) -> Principal:
    """Sees every space of a generated corpus."""
    return Principal(
        tenant_id=tenant_id,
        principal_id="bench-operator",
        projects=None,
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.RESTRICTED,
        surface="evaluation",
        operator=True,
    )


def one_percent(tenant_id: str) -> Principal:
    """Sees its own space and, on behalf of `PROJECT`, that of one project."""
    return Principal(
        tenant_id=tenant_id,
        principal_id="person-0",
        projects=None,
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.INTERNAL,
        surface="evaluation",
    )


PROJECT: Final = "project-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One transaction's worth of documents: numbers `first` to `last`, `chunks` in all."""

    tenant_id: str
    number: int
    first: int
    chunks: int
    spaces: tuple[int, ...]


def paragraphs_of(paths: Sequence[Path]) -> list[str]:
    """Paragraphs of files, folders and collections, each once, in order; never more than 40 MB.

    Without any path they are those of Python's language reference.
    """
    found: dict[str, None] = {}
    size = 0
    for text in _texts(paths) if paths else pydoc_data.topics.topics.values():
        for paragraph in _PARAGRAPH.split(text):
            stripped = paragraph.strip().replace("\0", "")
            if len(stripped) in _PARAGRAPH_SIZES and stripped not in found:
                found[stripped] = None
                size += len(stripped)
        if size > _MOST_CHARACTERS:
            break
    if not found:
        raise Malformed("There are no paragraphs of text in what was given.")
    return list(found)


def _texts(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        if is_collection(path):
            for document in documents_of(path / "corpus.jsonl"):
                yield document.text
        elif path.is_dir() and any(is_collection(child) for child in path.iterdir()):
            yield from _texts(sorted(child for child in path.iterdir() if child.is_dir()))
        else:
            for file in files_below(path):
                with open_regular(file) as content:
                    yield content.read().decode("utf-8", "ignore")


def generate(
    tenant_id: str,
    chunks: int,
    paths: Sequence[Path] = (),
    *,
    processes: int = 1,
    copies: int = 1,
    track: Track = untracked,
) -> dict[str, Any]:
    """Fills a fresh bench tenant. With one process everything happens in this one.

    With `copies` a part is written and then copied by the database until there are so many of it:
    much faster, but with the vocabulary of the part, each word so many times as common.
    """
    checked(tenant_id)
    if chunks < 1 or copies < 1 or chunks % copies:
        raise Malformed("At least one chunk is needed, and as many in every copy.")
    started = time.perf_counter()
    spaces = _spaces(tenant_id)
    jobs = list(_jobs(tenant_id, chunks // copies, spaces))
    paragraphs = paragraphs_of(paths)
    statistics: Counter[tuple[int, str]] = Counter()
    characters = 0
    with _index_made_afterwards() if processes > 1 else contextlib.nullcontext():
        for counted, written in track(
            _worked_off(jobs, paragraphs, processes), "Writing", len(jobs)
        ):
            statistics.update(counted)
            characters += written
        for _ in track(repeat(tenant_id, _TABLES, copies), "Copying", copies - 1):
            pass
    with connection.cursor() as cursor:
        _copy(cursor, TermStatistic, ("space", "lexeme", "chunks"), _rows_of(statistics, copies))
    with tenant_session(tenant_id):
        changes.mark(tenant_id)  # all of it is committed by now
    settle()
    seconds = time.perf_counter() - started
    return {
        "tenant": tenant_id,
        "documents": sum(_documents(job.chunks) for job in jobs) * copies,
        "chunks": chunks,
        "megabytes": round(characters * copies / 1e6, 1),
        "words": len({lexeme for _, lexeme in statistics}),
        "seconds": round(seconds, 1),
        "chunks_per_second": round(chunks / seconds),
    }


@contextlib.contextmanager
def _index_made_afterwards() -> Iterator[None]:
    """Builds the full-text index in one go when nobody has a corpus here that would miss it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM knowledge_chunk_index)")
        if cursor.fetchone()[0]:
            yield
            return
        cursor.execute("SELECT pg_get_indexdef('chunk_index_live'::regclass)")
        definition = cursor.fetchone()[0]
        cursor.execute("DROP INDEX chunk_index_live")
        try:
            yield
        finally:
            cursor.execute(definition)


def _rows_of(
    statistics: Mapping[tuple[int, str], int], copies: int
) -> Iterator[tuple[int, str, int]]:
    for (space, lexeme), count in statistics.items():
        yield space, lexeme, count * copies


def _spaces(tenant_id: str) -> tuple[int, ...]:
    """The number of the tenant's space, then those of the projects, then of the principals."""
    with tenant_session(tenant_id):
        if Document.objects.filter(tenant_id=tenant_id).exists():
            raise Malformed(f"{tenant_id} holds documents already; remove it first (--drop).")
        wanted: list[dict[str, Any]] = [
            {"visibility": Visibility.TENANT, "sensitivity": Sensitivity.CONFIDENTIAL}
        ]
        wanted += [
            {"visibility": Visibility.PROJECT, "project_scope": f"project-{number}"}
            for number in range(PROJECTS)
        ]
        wanted += [
            {"visibility": Visibility.PRINCIPAL, "principal_id": f"person-{number}"}
            for number in range(PRINCIPALS)
        ]
        return tuple(
            space.pk
            for space in VisibilitySpace.objects.bulk_create(
                VisibilitySpace(
                    **{
                        "tenant_id": tenant_id,
                        "sensitivity": Sensitivity.INTERNAL,
                        "languages": [_LANGUAGE],
                        "analyzers": [ANALYZER_VERSION],
                        **fields,
                    }
                )
                for fields in wanted
            )
        )


def _jobs(tenant_id: str, chunks: int, spaces: tuple[int, ...]) -> Iterator[Job]:
    most = _JOB_DOCUMENTS * _DOCUMENT_CHUNKS
    for number, start in enumerate(range(0, chunks, most)):
        yield Job(
            tenant_id=tenant_id,
            number=number,
            first=number * _JOB_DOCUMENTS,
            chunks=min(most, chunks - start),
            spaces=spaces,
        )


def _documents(chunks: int) -> int:
    return -(-chunks // _DOCUMENT_CHUNKS)


Worked = tuple[Counter[tuple[int, str]], int]


def _worked_off(jobs: Sequence[Job], paragraphs: list[str], processes: int) -> Iterator[Worked]:
    if processes == 1:
        writer = Writer(paragraphs)
        yield from map(writer.write, jobs)
        return
    with pool(
        processes,
        database=connection.settings_dict["NAME"],
        prepare=f"{__name__}.{prepare.__name__}",
        given=paragraphs,
    ) as workers:
        yield from workers.map(_write, jobs)


_writer: Writer | None = None


def prepare(paragraphs: list[str]) -> None:
    """What a process of the pool does first."""
    global _writer  # noqa: PLW0603 - a process of the pool has one for all its jobs
    _writer = Writer(paragraphs)


def _write(job: Job) -> Worked:
    if _writer is None:
        raise RuntimeError("this process was not started by the pool")
    return _writer.write(job)


class Writer:
    """Builds documents out of paragraphs and writes them."""

    def __init__(self, paragraphs: Sequence[str]) -> None:
        self._paragraphs = paragraphs
        self._stemmer = PostgresStemmer(remembered=400_000)
        self._tokens = TiktokenCounter()
        found = Counter(word for text in paragraphs for word in set(_WORD.findall(text)))
        self._rare = {word for word, count in found.items() if count <= _RARE}

    def write(self, job: Job) -> Worked:
        """One transaction; returns what it adds to the statistics, and its characters."""
        rng = random.Random(job.number)  # noqa: S311 - a corpus, not a secret
        rows: dict[str, list[tuple[Any, ...]]] = {
            name: [] for name in ("artifact", "document", "version", "set", "chunk", "index")
        }
        counted: Counter[tuple[int, str]] = Counter()
        characters = 0
        with tenant_session(job.tenant_id), connection.cursor() as cursor:
            cursor.execute(
                "SELECT nextval(pg_get_serial_sequence('knowledge_chunk', 'id')),"
                " nextval(pg_get_serial_sequence('knowledge_documentversion', 'id'))"
                " FROM generate_series(1, %s)",
                [job.chunks],
            )
            numbers = cursor.fetchall()
            for at in range(0, job.chunks, _DOCUMENT_CHUNKS):
                of_document = numbers[at : at + _DOCUMENT_CHUNKS]
                space = _space(job, job.first + at // _DOCUMENT_CHUNKS)
                built = self._built(rng, len(of_document))
                _describe(job.tenant_id, space, built, of_document, rows)
                for _, text, row, _tokens in built.chunks:
                    characters += len(text)
                    counted.update((space, lexeme) for lexeme in row.lexemes)
                counted[space, ""] += len(of_document)
            for name, (model, columns) in _TABLES.items():
                _copy(cursor, model, columns, rows[name])
        return counted, characters

    def _built(self, rng: random.Random, chunks: int) -> _Built:
        dialect = _ENDINGS[rng.randrange(_DIALECTS)]
        title = self._heading(rng)
        drafts = [(self._heading(rng), self._text(rng, dialect)) for _ in range(chunks)]
        lexicon = Lexicon(
            [title, *(heading for heading, _ in drafts)],
            [text for _, text in drafts],
            lambda words: self._stemmer.lexemes(words, _LANGUAGE),
        )
        return _Built(
            title=title,
            chunks=[
                (heading, text, index_row(title, heading, text, lexicon), tokens)
                for (heading, text), tokens in zip(
                    drafts, self._tokens.counts([text for _, text in drafts]), strict=True
                )
            ],
        )

    def _heading(self, rng: random.Random) -> str:
        words = rng.choice(self._paragraphs).split()
        start = rng.randrange(max(len(words) - 5, 1))
        return " ".join(words[start : start + rng.randint(2, 5)])[:200].strip() or "Section"

    def _text(self, rng: random.Random, dialect: str) -> str:
        wanted = int(rng.lognormvariate(0, _SPREAD) * _MEDIAN_CHARACTERS)
        wanted = min(max(wanted, _SHORTEST), _LONGEST)
        parts: list[str] = []
        size = 0
        at = rng.randrange(len(self._paragraphs))
        while size < wanted:
            parts.append(self._paragraphs[at % len(self._paragraphs)])
            size += len(parts[-1])
            at += 1
        text = "\n\n".join(parts)
        text = text[: text.rfind(" ", 0, wanted)] if " " in text[:wanted] else text[:wanted]
        return _WORD.sub(partial(self._respelt, dialect=dialect), text)

    def _respelt(self, match: re.Match[str], *, dialect: str) -> str:
        word = match[0]
        return f"{word[:-1]}{dialect}" if word in self._rare else word


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """A document: its title, and of each chunk heading, text, index row and tokens."""

    title: str
    chunks: list[tuple[str, str, IndexRow, int]]


def _space(job: Job, document: int) -> int:
    slot = document * _STRIDE % _SLOTS
    if slot < _OF_PRINCIPALS:
        return job.spaces[1 + PROJECTS + slot]
    slot -= _OF_PRINCIPALS
    return job.spaces[1 + slot % PROJECTS] if slot < _OF_PROJECTS else job.spaces[0]


_TABLES: Final[Mapping[str, tuple[type[Any], tuple[str, ...]]]] = {
    "artifact": (
        Artifact,
        (
            *("id", "tenant_id", "principal_id", "origin", "media_type", "filename", "attribution"),
            *("sha256", "byte_size", "storage_key", "created_at"),
        ),
    ),
    "document": (
        Document,
        (
            *("document_id", "tenant_id", "ingested_by_principal_id", "title", "space_id"),
            *("legal_hold", "source_type", "source_id", "created_at"),
        ),
    ),
    "version": (
        DocumentVersion,
        (
            *("id", "document_id", "version", "tenant_id", "source_id", "source_version"),
            *("media_type", "language", "authority", "truncated", "warnings", "ingested_at"),
        ),
    ),
    "set": (
        ChunkSet,
        (
            *("id", "tenant_id", "version_id", "chunker_version", "analyzer_version"),
            *("secret_scanner_version", "instruction_scanner_version", "admission_version"),
            *("plan_fingerprint", "state", "chunk_count", "quarantined_count", "rejected_count"),
            *("flagged_count", "begun_at", "published_at"),
        ),
    ),
    "chunk": (
        Chunk,
        (
            *("id", "chunk_id", "tenant_id", "chunk_set_id", "ordinal", "heading_path", "text"),
            *("start", "end", "line_start", "line_end", "tokens", "content_sha256"),
            *("boilerplate", "sketch", "verdict", "verdict_reasons"),
            *("contains_instruction_like_text", "instruction_matches"),
        ),
    ),
    "index": (ChunkIndex, ("chunk", "space", "live", "sv", "tsv")),
}


def _describe(
    tenant_id: str,
    space: int,
    built: _Built,
    numbers: Sequence[tuple[int, int]],
    rows: Mapping[str, list[tuple[Any, ...]]],
) -> None:
    """Adds the rows of a document to those of each table, in the order of `_TABLES`."""
    now = timezone.now()
    document, source, chunk_set = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    who, version = member(tenant_id).principal_id, numbers[0][1]
    nothing = "0" * 64
    rows["artifact"].append(
        (
            *(source, tenant_id, who, ArtifactOrigin.KNOWLEDGE_SOURCE.value, "text/plain"),
            *("generated.txt", "", nothing, 0, f"bench/{source}", now),
        )
    )
    rows["document"].append((document, tenant_id, who, built.title, space, False, "", "", now))
    rows["version"].append(
        (
            *(version, document, 1, tenant_id, source, "", "text/plain", _LANGUAGE),
            *(Authority.PRINCIPAL_SUPPLIED.value, False, [], now),
        )
    )
    rows["set"].append(
        (
            *(chunk_set, tenant_id, version, _CHUNKER, ANALYZER_VERSION, _CHUNKER, _CHUNKER),
            *(_CHUNKER, nothing, ChunkSetState.LIVE.value, len(built.chunks), 0, 0, 0, now, now),
        )
    )
    start, line = 0, 1
    for ordinal, ((number, _), (heading, text, row, tokens)) in enumerate(
        zip(numbers, built.chunks, strict=True)
    ):
        key = fingerprint.chunk_key(_CHUNKER, ordinal, (heading,), text)
        lines = text.count("\n")
        rows["chunk"].append(
            (
                *(number, fingerprint.chunk_id(document, 1, key), tenant_id, chunk_set, ordinal),
                *([heading], text, start, start + len(text), line, line + lines, tokens),
                hashlib.sha256(text.encode()).hexdigest(),
                *(likeness.boilerplate(text), list(likeness.sketch(text))),
                *(Verdict.ADMIT.value, "[]", False, "[]"),
            )
        )
        rows["index"].append((number, space, True, sparse_literal(row.weights), row.tsvector))
        start, line = start + len(text) + 2, line + lines + 2


def _copy(cursor: Any, model: type[Any], columns: Sequence[str], rows: Any) -> None:
    """COPY; by way of a temporary table where row-level security allows no direct one."""
    table = model._meta.db_table  # noqa: SLF001 - Django's documented interface
    names = ", ".join(f'"{column}"' for column in columns)
    secured = any(field.name == "tenant_id" for field in model._meta.fields)  # noqa: SLF001
    target = f"copied_{table}" if secured else table
    if secured:
        cursor.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {target} ON COMMIT DROP"  # noqa: S608
            f" AS SELECT {names} FROM {table} WITH NO DATA"
        )
    with cursor.copy(f"COPY {target} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    if secured:
        cursor.execute(f"INSERT INTO {table} ({names}) SELECT * FROM {target}")  # noqa: S608
        cursor.execute(f"DELETE FROM {target}")  # noqa: S608
