"""Classes that an installation brings along, by the dotted paths that its settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from knowledge.adapters.embedders.configuration import LONGEST_VECTOR
from knowledge.core.ports import AdmissionPolicy, Embedder, Extractor, SecretRule

LONGEST_VERSION = 60
"""Characters of the version of a part: beside it stand those of others."""


def registered_extractors(paths: Sequence[str]) -> list[Extractor]:
    """One of each class, in order. Raises `ImproperlyConfigured`, as all of these do."""
    return [
        cast("Extractor", _made("VERBATIM_EXTRACTORS", path, "supports", "extract"))
        for path in paths
    ]


def registered_secret_rules(paths: Sequence[str]) -> list[SecretRule]:
    return [cast("SecretRule", _made("VERBATIM_SECRET_RULES", path, "find")) for path in paths]


def registered_policy(path: str) -> AdmissionPolicy:
    return cast("AdmissionPolicy", _made("KNOWLEDGE_ADMISSION_POLICY", path, "classify"))


def registered_embedder(path: str) -> Embedder:
    made = _made("EMBEDDER", path, "embed", "embed_question", named_by="model")
    dimensions = getattr(made, "dimensions", None)
    if not (isinstance(dimensions, int) and 0 < dimensions <= LONGEST_VECTOR):
        raise ImproperlyConfigured(
            f"EMBEDDER: {path} needs `dimensions`, the length of its vectors, at most"
            f" {LONGEST_VECTOR}."
        )
    return cast("Embedder", made)


def _made(setting: str, path: str, *methods: str, named_by: str = "version") -> Any:
    """An instance of a class, which says what it is by a text and has these methods."""
    try:
        made: Any = import_string(path)()
    except Exception as error:
        raise ImproperlyConfigured(
            f"{setting} names {path!r}, which cannot be made without arguments"
            f" ({type(error).__name__}: {error}). It is the dotted path of a class, such as"
            " house.parts.OurClass."
        ) from error
    name = getattr(made, named_by, None)
    if not (isinstance(name, str) and 0 < len(name) <= LONGEST_VERSION):
        raise ImproperlyConfigured(
            f"{setting}: {path} needs a `{named_by}`, a text of 1 to {LONGEST_VERSION} characters"
            " that changes whenever its rules do."
        )
    for method in methods:
        if not callable(getattr(made, method, None)):
            raise ImproperlyConfigured(f"{setting}: {path} needs a method `{method}`.")
    return made
