"""The embedders that the environment names; a wrong one is an error that says what to set."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config import environment
from knowledge.adapters.embedders.configuration import (
    LONGEST_VECTOR,
    ClassConfiguration,
    EmbedderConfiguration,
    EndpointConfiguration,
    LocalConfiguration,
)


def configured_embedder(name: str) -> EmbedderConfiguration | None:
    """What `EMBEDDER` (or `NEXT_EMBEDDER`) and the variables that begin with it say."""
    named = environment.text(name, "none")
    if "." in named:
        return ClassConfiguration(path=named, floor=environment.share(f"{name}_FLOOR", 0.2))
    kind = environment.choice(name, "none", ("none", "endpoint", "local"))
    if kind == "endpoint":
        return _endpoint(name)
    if kind == "local":
        folder = environment.text(f"{name}_FOLDER", "")
        return LocalConfiguration(
            folder=environment.folder(f"{name}_FOLDER", Path(folder)) if folder else None,
            threads=environment.number(f"{name}_THREADS", 0, most=256),
            passage_prefix=environment.prefix(f"{name}_PASSAGE_PREFIX"),
            question_prefix=environment.prefix(f"{name}_QUESTION_PREFIX"),
            floor=environment.share(f"{name}_FLOOR", 0.2),
        )
    return None


def _endpoint(name: str) -> EndpointConfiguration:
    url = environment.text(f"{name}_URL", "")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise ImproperlyConfigured(
            f"Set {name}_URL to the address that /embeddings stands under, such as"
            " https://embedder.example.org/v1; a key goes into "
            f"{name}_API_KEY and not into the address."
        )
    model = environment.text(f"{name}_MODEL", "")
    if not model:
        raise ImproperlyConfigured(f"Set {name}_MODEL to the model's name at {parts.hostname}.")
    dimensions = environment.number(f"{name}_DIMENSIONS", 0, most=LONGEST_VECTOR)
    if not dimensions:
        raise ImproperlyConfigured(
            f"Set {name}_DIMENSIONS to the length of the vectors of {model}, at most"
            f" {LONGEST_VECTOR}."
        )
    return EndpointConfiguration(
        url=url,
        model=model,
        dimensions=dimensions,
        api_key=environment.text(f"{name}_API_KEY", ""),
        batch=environment.number(f"{name}_BATCH", 64, least=1, most=2048),
        timeout=environment.number(f"{name}_TIMEOUT", 30, least=1),
        question_timeout=environment.number(f"{name}_QUESTION_TIMEOUT", 5, least=1),
        window=environment.number(f"{name}_WINDOW", 0),
        asks_for_dimensions=environment.flag(f"{name}_ASKS_FOR_DIMENSIONS", default=False),
        passage_prefix=environment.prefix(f"{name}_PASSAGE_PREFIX"),
        question_prefix=environment.prefix(f"{name}_QUESTION_PREFIX"),
        floor=environment.share(f"{name}_FLOOR", 0.2),
    )
