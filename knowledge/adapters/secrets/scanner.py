"""The adapter: engines and context rules over every view, one finding for each value."""

from __future__ import annotations

import hashlib
import hmac
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from pathlib import Path

from knowledge.adapters.secrets import engines, strength
from knowledge.adapters.secrets.allowlist import Allowlist, load_allowlist
from knowledge.adapters.secrets.candidates import Candidate
from knowledge.adapters.secrets.context import context_candidates
from knowledge.adapters.secrets.pem import is_key_body, pem_candidates
from knowledge.adapters.secrets.views import decoded, joined
from knowledge.adapters.textviews import View, folded
from knowledge.core.ports import SecretRule
from knowledge.core.types import SecretFinding

RULES_VERSION = "secrets-1"

_FINGERPRINT_DIGITS = 32
_SPACING = re.compile(r"\s+|\\[nr]")
_ARMOUR = re.compile(r"-----[^-]{1,60}-----|\\[nr]|[\s.…>|\"',]")
_USERINFO = re.compile(r"//[^:/@\s]*:(?P<password>.*)@")
_TEMPLATE = re.compile(r"[<{]|\.{3}|…|x{6}|X{6}|\*{3}")
_HEADER_RULES = frozenset({"bearer-token", "basic-auth", "authorization-header"})


class LayeredSecretScanner:
    """Credentials in a text, as findings that hold no character of them.

    `fingerprint_key` keys the fingerprints (HMAC-SHA256), so that equal values can be recognised
    here and cannot be looked up elsewhere. `rule_cache` is a private folder for compiled rules;
    without one the first scan of a process compiles for seconds. `rules` are an installation's own,
    which see every view of a text and go first. Safe to share between threads.
    Scanning takes time linear in the length of the text and uses no network.
    """

    def __init__(
        self,
        *,
        fingerprint_key: bytes,
        rule_cache: Path | None = None,
        rules: Sequence[SecretRule] = (),
    ) -> None:
        if not fingerprint_key:
            raise ValueError("fingerprint_key must not be empty")
        own = (rule.version for rule in rules)
        self.version = "+".join((RULES_VERSION, engines.engine_versions(), *own))
        self._rules = tuple(rules)
        self._key = fingerprint_key
        self._rule_cache = rule_cache
        self._allowlist = load_allowlist()

    def __repr__(self) -> str:
        return f"<LayeredSecretScanner {self.version}>"

    def scan(self, text: str) -> list[SecretFinding]:
        """All findings, ordered by line and column, each value and each place once.

        Lines are counted by LF; lines and columns are 1-based, in characters of `text`.
        """
        findings: dict[str, tuple[int, SecretFinding]] = {}
        places = _Spans()
        lines: list[int] | None = None
        for view in self._views(text):
            for candidate in self._accepted(view):
                value = view.text[candidate.start : candidate.end]
                start, end = view.span(candidate.start, candidate.end)
                if places.overlap(start, end):
                    continue
                # All that one encoded run spells stands at the run, so it takes no place.
                if view.name != "decoded":
                    places.add(start, end)
                fingerprint = self._fingerprint(value)
                known = findings.get(fingerprint)
                if known and known[0] <= start:
                    continue
                if lines is None:
                    lines = _line_starts(text)
                line = bisect_right(lines, start)
                literal = text.startswith(value, start)
                findings[fingerprint] = (
                    start,
                    SecretFinding(
                        rule=candidate.rule,
                        layer=candidate.layer,
                        view="raw" if literal else view.name,
                        line=line,
                        column=start - lines[line - 1] + 1,
                        length=len(value),
                        fingerprint=fingerprint,
                    ),
                )
        return [finding for _, finding in sorted(findings.values(), key=lambda pair: pair[0])]

    def _views(self, text: str) -> Iterable[View]:
        raw = View("raw", _encodable(text))
        yield raw
        plain = folded(raw)
        if plain is not raw:
            yield plain
        yield joined(plain)
        yield decoded(plain)

    def _accepted(self, view: View) -> Iterable[Candidate]:
        """Candidates that are no example, the surest layer first, none overlapping another."""
        if not view.text:
            return
        places = _Spans()
        scanner = engines.kingfisher(self._rule_cache)
        for layer in (
            self._own(view.text),
            engines.kingfisher_candidates(scanner, view.text),
            pem_candidates(view.text),
            context_candidates(view.text),
            engines.redact_candidates(view.text) if view.name in ("raw", "folded") else (),
        ):
            for candidate in layer:
                if places.overlap(candidate.start, candidate.end):
                    continue
                value = view.text[candidate.start : candidate.end]
                if value and not _is_example(candidate, value, self._allowlist):
                    places.add(candidate.start, candidate.end)
                    yield candidate

    def _own(self, text: str) -> Iterable[Candidate]:
        for rule in self._rules:
            for start, end in rule.find(text):
                yield Candidate(rule.version, "own", start, end)

    def _fingerprint(self, value: str) -> str:
        canonical = _SPACING.sub("", value).encode()
        return hmac.new(self._key, canonical, hashlib.sha256).hexdigest()[:_FINGERPRINT_DIGITS]


def _is_example(candidate: Candidate, value: str, allowlist: Allowlist) -> bool:
    if candidate.layer in ("context", "own") or allowlist.allows(value):
        return allowlist.allows(value)
    rule = candidate.rule
    userinfo = _USERINFO.search(value)
    if "private-key" in rule or "BEGIN" in value:
        example = not is_key_body(_ARMOUR.sub("", value))
    elif userinfo:
        example = not strength.is_userinfo_password(userinfo.group("password"))
    elif "uri" in rule or "connection-string" in rule or "curl" in rule:
        example = not strength.is_userinfo_password(value)
    elif rule in _HEADER_RULES:
        example = not strength.is_strong(
            strength.trimmed(value.rsplit(maxsplit=1)[-1]), named=False
        )
    else:
        example = bool(_TEMPLATE.search(value))
    return example


def _encodable(text: str) -> str:
    """The text with lone surrogates replaced one for one, for engines that read UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _line_starts(text: str) -> list[int]:
    starts = [0]
    position = text.find("\n")
    while position >= 0:
        starts.append(position + 1)
        position = text.find("\n", position + 1)
    return starts


class _Spans:
    """Disjoint spans, with a question: does this one overlap any of them?"""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def overlap(self, start: int, end: int) -> bool:
        after = bisect_left(self._spans, (start, start))
        if after < len(self._spans) and self._spans[after][0] < end:
            return True
        return after > 0 and self._spans[after - 1][1] > start

    def add(self, start: int, end: int) -> None:
        insort(self._spans, (start, end))
