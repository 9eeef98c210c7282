"""Extractors that an installation brings along, by the dotted paths of their classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from knowledge.core.ports import Extractor


def registered_extractors(paths: Sequence[str]) -> list[Extractor]:
    """One of each class, in order. Raises `ImproperlyConfigured`, which says what is wrong."""
    return [_made(path) for path in paths]


def _made(path: str) -> Extractor:
    try:
        made: Any = import_string(path)()
    except Exception as error:
        raise ImproperlyConfigured(
            f"The extractor {path} in VERBATIM_EXTRACTORS cannot be made: {type(error).__name__}."
        ) from error
    if not (
        isinstance(getattr(made, "version", None), str)
        and made.version
        and callable(getattr(made, "supports", None))
        and callable(getattr(made, "extract", None))
    ):
        raise ImproperlyConfigured(
            f"The extractor {path} in VERBATIM_EXTRACTORS needs a version, supports() and extract()."
        )
    return cast("Extractor", made)
