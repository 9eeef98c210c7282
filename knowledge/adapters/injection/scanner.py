"""The adapter: the rules over the folded text and over what its encoded runs spell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ahocorasick_rs import AhoCorasick

from knowledge.adapters.injection.encodings import decoded_runs, turned_texts
from knowledge.adapters.injection.rules import LITERALS, RULES, THRESHOLD, Rule
from knowledge.adapters.textviews import View, ViewBuilder, folded, lowered, unconfused
from knowledge.core.types import InstructionMatch

RULES_VERSION = "instructions-1"

# No pattern matches more than this many characters on either side of its literal.
_REACH = 450
_SPACES = re.compile(r"\s{2,}+|[\t\r\f\v\u00a0]")
# Letters written one by one have lost the ends of their words.
_RUN_TOGETHER = re.compile(
    r"(?:ignore|disregard|forget|override)(?:all|any|the|your|my|of|these){0,3}"
    r"(?:previous|prior|above|earlier|preceding|system|safety)?(?:instructions?|prompts?|rules|orders)"
    r"|(?:reveal|print|show|repeat)(?:me|the|your){0,2}(?:system)?prompt"
)
_ENCODED_WEIGHT = 3
_LITERALS = sorted(LITERALS)
_SEARCH = AhoCorasick(_LITERALS)
_RULES_NEAR = {
    literal: [number for number, rule in enumerate(RULES) if literal in rule.literals]
    for literal in LITERALS
}


class RuleInstructionScanner:
    """Flags text that gives orders to a model. Weighted families; pure and linear in time."""

    version = RULES_VERSION

    def scan(self, text: str) -> list[InstructionMatch]:
        """Matches ordered by place when their families' weights reach the threshold, else none.

        Offsets are in characters of `text`. Each family counts once, however often it matches; a
        family found in an encoded run counts in full and spans the run.
        """
        weights: dict[str, int] = {}
        matches: set[tuple[int, int, str]] = set()

        def note(family: str, weight: int, start: int, end: int) -> None:
            weights[family] = max(weights.get(family, 0), weight)
            matches.add((start, end, family))

        raw = View("raw", text)
        plain = folded(raw)
        view = _collapsed(plain)
        lower = lowered(view.text)
        for rule, start, end in _rule_matches(lower):
            note(rule.family, rule.weight, *view.span(start, end))
        if not lower.isascii():
            latin = unconfused(lower)
            if latin != lower:
                for rule, start, end in _rule_matches(latin):
                    note(rule.family, rule.weight, *view.span(start, end))
        for turned, backwards in turned_texts(lower):
            for rule, start, end in _rule_matches(turned):
                place = (len(turned) - end, len(turned) - start) if backwards else (start, end)
                note(rule.family, _ENCODED_WEIGHT, *view.span(*place))
        # Tag characters are gone from the folded text, so encoded runs are read from both.
        for source in (raw,) if plain is raw else (raw, plain):
            for run in decoded_runs(source.text):
                for family in _families(run.plain):
                    note(family, _ENCODED_WEIGHT, *source.span(run.start, run.end))
        if sum(weights.values()) < THRESHOLD:
            return []
        return [
            InstructionMatch(family=family, start=start, end=end)
            for start, end, family in sorted(matches)
        ]


def _families(plain: str) -> set[str]:
    lower = lowered(_collapsed(folded(View("decoded", plain))).text)
    families = {rule.family for rule, _, _ in _rule_matches(lower)}
    if _RUN_TOGETHER.search(lower):
        families.add("override")
    return families


def _collapsed(view: View) -> View:
    """Runs of white space as one space, line end or empty line, so that patterns stay bounded."""
    text = view.text
    builder = ViewBuilder(view)
    last = 0
    for match in _SPACES.finditer(text):
        run = match.group()
        replacement = "\n" * min(run.count("\n"), 2) or " "
        if run != replacement:
            builder.keep(last, match.start())
            builder.put(replacement, at=match.start())
            last = match.end()
    if not last:
        return view
    builder.keep(last, len(text))
    return builder.build("collapsed")


def _rule_matches(lower: str) -> Iterator[tuple[Rule, int, int]]:
    hits: dict[str, list[int]] = {}
    for literal, start, _ in _SEARCH.find_matches_as_indexes(lower, overlapping=True):
        hits.setdefault(_LITERALS[literal], []).append(start)
    places: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for number in sorted({number for literal in hits for number in _RULES_NEAR[literal]}):
        rule = RULES[number]
        if rule.literals not in places:
            near = [hit for literal in rule.literals for hit in hits.get(literal, ())]
            places[rule.literals] = _windows(sorted(near))
        for start, end in places[rule.literals]:
            for match in rule.pattern.finditer(lower, start, end):
                yield rule, match.start(), match.end()


def _windows(hits: list[int]) -> list[tuple[int, int]]:
    """The stretches within reach of a literal, disjoint and in order."""
    windows: list[tuple[int, int]] = []
    for hit in hits:
        start, end = max(0, hit - _REACH), hit + _REACH
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return windows
