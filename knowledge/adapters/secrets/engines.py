"""The two rule engines that know published credential formats.

Neither uses the network to scan. Kingfisher could also validate and revoke what it finds by
calling the provider; that is never done here, because scanning a document must not act on it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import kingfisher_sdk
import redact_secret
from kingfisher_sdk import DetectionPolicy, Rules, Scanner

from knowledge.adapters.secrets.candidates import Candidate
from knowledge.adapters.textviews import longest_word

# Rules that find the public half of a pair (an account name, a host), which is no secret.
_PUBLIC_HALVES = ("-client-id", "-account-name", "-tenant-id")
# A hidden helper rule of the pair rule: the secret half alone is a secret too.
_SECRET_HALVES = frozenset({"betterleaks.aws-secret-access-key"})

# redact-secret takes quadratic time in the length of an unbroken run (four minutes for 900 kB),
# so it sees neither long runs nor long texts. Every format it adds is far shorter than this.
_LONGEST_RUN = 512
_LONG_RUN = re.compile(rf"\S{{{_LONGEST_RUN},}}+")
_KINGFISHER_PIECE = 131_072
_KINGFISHER_OVERLAP = 8_192
_REDACT_PIECE = 65_536
_REDACT_OVERLAP = 1_024
_REDACT_SKIPPED = frozenset({"generic-token"})

_compiling = threading.Lock()


def engine_versions() -> str:
    return f"kingfisher-{kingfisher_sdk.__version__}+redact-secret-{redact_secret.VERSION}"


def kingfisher(rule_cache: Path | None) -> Scanner:
    """The process's one scanner. Compiling the rules takes seconds; `rule_cache` keeps them.

    `rule_cache` is a folder only we can write to; `None` compiles anew and writes nothing.
    """
    with _compiling:
        return _compiled(rule_cache)


@cache
def _compiled(rule_cache: Path | None) -> Scanner:
    rules = Rules(confidence="medium", cache=rule_cache is not None, cache_dir=rule_cache)
    # Comments such as `gitleaks:allow` are the document's words, and a document has no say in
    # whether it is refused. Base64 is undone by our own view, which keeps the way back.
    policy = DetectionPolicy(
        inline_ignores=False, markup_context=False, cli_match_semantics=False, base64_max_depth=0
    )
    return Scanner(rules, base64=False, policy=policy)


def kingfisher_candidates(scanner: Scanner, text: str) -> Iterator[Candidate]:
    """Piece by piece, because a few rules take quadratic time in text made for them."""
    for begin in range(0, len(text), _KINGFISHER_PIECE):
        for candidate in _kingfisher_piece(
            scanner, text[begin : begin + _KINGFISHER_PIECE + _KINGFISHER_OVERLAP]
        ):
            yield replace(candidate, start=begin + candidate.start, end=begin + candidate.end)


def _kingfisher_piece(scanner: Scanner, text: str) -> Iterator[Candidate]:
    data = text.encode()
    found = [
        (finding.location["start_offset"], finding)
        for finding in scanner.scan(data)
        if (finding.visible or finding.rule_id in _SECRET_HALVES)
        and not finding.rule_id.endswith(_PUBLIC_HALVES)
    ]
    found.sort(key=lambda pair: pair[0])
    ascii_only = len(data) == len(text)
    at_byte = at_character = 0
    for byte, finding in found:
        if ascii_only:
            start = byte
        else:
            at_character += len(data[at_byte:byte].decode(errors="replace"))
            at_byte = byte
            start = at_character
        secret = finding.secret
        # The location may be that of the whole match, with the value somewhere inside.
        inside = text.find(secret, start, start + 2 * len(secret) + 1_000)
        start = inside if inside >= 0 else start
        rule = finding.rule_id.partition(".")[2] or finding.rule_id
        yield Candidate(rule, "kingfisher", start, min(start + len(secret), len(text)))


def redact_candidates(text: str) -> Iterator[Candidate]:
    readable = text
    if longest_word(text) >= _LONGEST_RUN:
        readable = _LONG_RUN.sub(lambda run: " " * len(run.group()), text)
    for begin in range(0, len(readable), _REDACT_PIECE):
        piece = readable[begin : begin + _REDACT_PIECE + _REDACT_OVERLAP]
        for finding in redact_secret.scan(piece):
            if finding.confidence == "high" and finding.detector not in _REDACT_SKIPPED:
                yield Candidate(
                    finding.detector, "redact-secret", begin + finding.start, begin + finding.end
                )
