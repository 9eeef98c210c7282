"""Classes that settings name: what is asked of each, and what a rule of one's own sees."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from knowledge.adapters.registration import (
    registered_embedder,
    registered_extractors,
    registered_policy,
    registered_secret_rules,
)
from knowledge.adapters.secrets import LayeredSecretScanner
from knowledge.adapters.secrets.scanner import RULES_VERSION


class Badges:
    version = "badge-1"

    def find(self, text: str) -> Iterable[tuple[int, int]]:
        return (found.span() for found in re.finditer(r"\bBADGE-\d{6}\b", text))


class Lengths:
    model, dimensions = "lengths-1", 1

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[float(len(text))] for text in texts]

    def embed_question(self, text: str) -> Sequence[float]:
        return [float(len(text))]


class Endless(Lengths):
    dimensions = 4_001


class Nameless(Badges):
    version = ""


class NeedsAnArgument(Badges):
    def __init__(self, needed: int) -> None:
        self.needed = needed


_BADGE = "BADGE-" + "4711" + "08"


@pytest.fixture(scope="module")
def scanner() -> LayeredSecretScanner:
    return LayeredSecretScanner(fingerprint_key=b"of this test", rules=[Badges()])


@pytest.mark.parametrize(
    ("text", "view"),
    [
        (f"Ann wears {_BADGE} here.", "raw"),
        (f"Ann wears {_BADGE.replace('B', 'B' + chr(0x200B), 1)} here.", "folded"),
        (f"Ann wears {base64.b64encode(f'my {_BADGE} it is'.encode()).decode()} here.", "decoded"),
    ],
)
def test_a_rule_of_ones_own_sees_every_view(
    scanner: LayeredSecretScanner, text: str, view: str
) -> None:
    (found,) = scanner.scan(text)
    assert (found.rule, found.layer, found.view, found.line) == ("badge-1", "own", view, 1)
    assert _BADGE not in str(found)


def test_its_version_is_a_part_of_the_scanners(scanner: LayeredSecretScanner) -> None:
    assert scanner.version.startswith(f"{RULES_VERSION}+")
    assert scanner.version.endswith("+badge-1")
    assert not LayeredSecretScanner(fingerprint_key=b"k").scan(_BADGE)


def test_an_embedder_is_made_of_its_class() -> None:
    made = registered_embedder(f"{__name__}.Lengths")
    assert (made.model, made.dimensions, made.embed_question("four")) == ("lengths-1", 1, [4.0])


_Register = Callable[[str], Any]
_LISTED: dict[str, _Register] = {
    "VERBATIM_EXTRACTORS": lambda path: registered_extractors([path]),
    "VERBATIM_SECRET_RULES": lambda path: registered_secret_rules([path]),
    "KNOWLEDGE_ADMISSION_POLICY": registered_policy,
    "EMBEDDER": registered_embedder,
}


@pytest.mark.parametrize("setting", _LISTED)
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("nowhere.Rule", "ModuleNotFoundError"),
        ("nodots", "ImportError"),
        (f"{__name__}.NeedsAnArgument", "without arguments"),
        (f"{__name__}.Nameless", "needs a `"),
        ("builtins.object", "needs a `"),
    ],
)
def test_a_wrong_class_is_named_with_its_setting(setting: str, named: str, said: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=said) as raised:
        _LISTED[setting](named)
    assert str(raised.value).startswith(setting)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("register", "missing"),
    [
        (_LISTED["VERBATIM_EXTRACTORS"], "supports"),
        (registered_policy, "classify"),
        (registered_embedder, "dimensions"),
    ],
)
def test_what_a_class_lacks_is_said(register: _Register, missing: str) -> None:
    lacking = "Endless" if missing == "dimensions" else "Badges"
    with pytest.raises(ImproperlyConfigured, match=f"needs .*`{missing}`"):
        register(f"{__name__}.{lacking}")
