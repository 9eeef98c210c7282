"""What names an artifact, for whoever looks at one: layers above say what of theirs does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from artifacts.models import Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A row that names it: what it is, how it is called, and its page in the admin."""

    what: str
    text: str
    address: str


NamingRule = Callable[[Artifact], Iterable[Name]]
_rules: list[NamingRule] = []


def register_naming(rule: NamingRule) -> NamingRule:
    """Lets a layer say which rows of its own name an artifact, in the session of who asks."""
    _rules.append(rule)
    return rule


def names_of(artifact: Artifact) -> list[Name]:
    return [name for rule in _rules for name in rule(artifact)]
