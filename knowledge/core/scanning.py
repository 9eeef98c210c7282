"""Step 4, scan: secrets refuse the document, instruction-like text is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from knowledge.core.errors import SecretFound
from knowledge.core.ports import InstructionScanner, SecretScanner
from knowledge.core.types import ChunkDraft, InstructionMatch, SecretFinding

TEXT = "text"
HEADING = "heading"
MASKED = "••••"


class SecretGate:
    """Scans a document whole, for a scan of each chunk would miss what a boundary splits.

    The raw text is scanned as well as the normalised one, and so is everything that is shown
    beside a passage: title, file name, metadata, the connector's identity.
    """

    def __init__(self, scanner: SecretScanner) -> None:
        self._scanner = scanner

    def check(
        self,
        *,
        raw: str,
        normalised: str,
        fields: Mapping[str, str],
        chunks: Sequence[ChunkDraft],
    ) -> None:
        """Raises `SecretFound` with every finding and where it stands; never with its value."""
        findings = [
            _described(finding, field=field)
            for field, value in fields.items()
            if value
            for finding in self._scanner.scan(value)
        ]
        placed = self._scanner.scan(normalised)
        lines = _lines_of(placed, normalised)
        findings += [
            _described(found, field=TEXT, chunk=chunk, path=self._shown_path(chunk, lines))
            for found in placed
            for chunk in [_chunk_at(chunks, found)]
        ]
        if raw != normalised:
            seen = {found.fingerprint for found in placed}
            findings += [
                _described(found, field=TEXT)
                for found in self._scanner.scan(raw)
                if found.fingerprint not in seen
            ]
        if findings:
            raise SecretFound(findings)

    def _shown_path(self, chunk: ChunkDraft | None, secret_lines: set[str]) -> list[str]:
        """The chunk's heading path, without a heading that holds a secret or a part of one."""
        return [
            MASKED if heading in secret_lines or self._scanner.scan(heading) else heading
            for heading in (chunk.heading_path if chunk else ())
        ]


class HeadingFlags:
    """What reads like an instruction in the headings that passages of a document stand under.

    Title and heading path are rendered with a passage and so are scanned with it, as one text:
    offsets are into its title and path, one a line.
    """

    def __init__(self, scanner: InstructionScanner, title: str) -> None:
        self._scanner = scanner
        self._title = title
        self._known: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def of(self, path: tuple[str, ...]) -> list[dict[str, Any]]:
        if path not in self._known:
            found = self._scanner.scan("\n".join((self._title, *path)))
            self._known[path] = _flags(found, HEADING)
        return self._known[path]

    def renewed(
        self, path: tuple[str, ...], flags: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The flags of a passage whose own text is as it was, under this title."""
        return [*self.of(path), *(flag for flag in flags if flag["part"] != HEADING)]


def flag_instructions(
    scanner: InstructionScanner, chunks: Sequence[ChunkDraft], *, title: str
) -> list[list[dict[str, Any]]]:
    """Per chunk, what in it reads like an instruction: `{family, part, start, end}`.

    `part` is `text` (offsets into the chunk's text) or `heading` (see `HeadingFlags`).
    """
    headings = HeadingFlags(scanner, title)
    return [
        [*headings.of(chunk.heading_path), *_flags(scanner.scan(chunk.text), TEXT)]
        for chunk in chunks
    ]


def _flags(matches: Sequence[InstructionMatch], part: str) -> list[dict[str, Any]]:
    return [
        {"family": match.family, "part": part, "start": match.start, "end": match.end}
        for match in matches
    ]


def _chunk_at(chunks: Sequence[ChunkDraft], finding: SecretFinding) -> ChunkDraft | None:
    """The chunk that holds the finding's line, or the one that its heading line belongs to."""
    return next((chunk for chunk in chunks if finding.line <= chunk.line_end), None)


def _lines_of(findings: Sequence[SecretFinding], text: str) -> set[str]:
    """The lines that the values of findings stand in, without the marks of a heading."""
    lines = text.split("\n") if findings else []
    held = set()
    for finding in findings:
        left = finding.length
        for line in lines[finding.line - 1 :]:
            held.add(line.strip().strip("#").strip())
            left -= len(line[finding.column - 1 :]) if left == finding.length else len(line)
            if left <= 0:
                break
    return held


def _described(
    finding: SecretFinding,
    *,
    field: str,
    chunk: ChunkDraft | None = None,
    path: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "field": field,
        "rule": finding.rule,
        "layer": finding.layer,
        "line": finding.line,
        "column": finding.column,
        "chunk_ordinal": chunk.ordinal if chunk else None,
        "heading_path": list(path),
        "length": finding.length,
        "preview": f"{MASKED} ({finding.length} characters)",
    }
