"""Vectors of an OpenAI-compatible server: `POST {url}/embeddings`.

No key, no text and no answer of the server gets into an error or a log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from knowledge.adapters.embedders.configuration import EndpointConfiguration
from knowledge.adapters.embedders.windows import mean_of, windows
from knowledge.core.errors import EmbedderError

ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_TRY_AGAIN: Final = {408, 409, 425, 429, 500, 502, 503, 504}
_OK: Final = 200


class _Passing(EmbedderError):
    """It may work in a moment; `after` is how many seconds the server asks to be left alone."""

    def __init__(self, told: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(told)


class EndpointEmbedder:
    """An `Embedder` over HTTP. Texts go in batches; what passes is tried again, with a pause that
    doubles, or is as long as the server asks for."""

    def __init__(
        self, configured: EndpointConfiguration, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._configured = configured
        self.model = configured.model
        self.dimensions = configured.dimensions
        if configured.asks_for_dimensions:
            self.model = f"{configured.model}/{configured.dimensions}"
        key = configured.api_key
        self._client = httpx.Client(
            base_url=configured.url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=configured.timeout,
            transport=transport,
            follow_redirects=False,  # a key goes where it was meant to go, and nowhere else
        )

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Raises `EmbedderError`."""
        configured = self._configured
        parts = [
            (number, configured.passage_prefix + part)
            for number, text in enumerate(texts)
            for part in (windows(text, configured.window) if configured.window else [text])
        ]
        vectors = list[list[float]]()
        for start in range(0, len(parts), configured.batch):
            batch = [text for _, text in parts[start : start + configured.batch]]
            vectors += self._asked(batch, attempts=ATTEMPTS, timeout=configured.timeout)
        of_text = zip((number for number, _ in parts), vectors, strict=True)
        return [
            mean_of([vector for _, vector in group])
            for _, group in groupby(of_text, key=lambda pair: pair[0])
        ]

    def embed_question(self, text: str) -> Sequence[float]:
        """Somebody waits for it, so it is tried once; raises `EmbedderError`."""
        configured = self._configured
        asked = configured.question_prefix + text
        if configured.window:
            asked = asked[: configured.window]
        (vector,) = self._asked([asked], attempts=1, timeout=configured.question_timeout)
        return vector

    def _asked(self, texts: list[str], *, attempts: int, timeout: float) -> list[list[float]]:
        trying = Retrying(
            stop=stop_after_attempt(attempts),
            retry=retry_if_exception_type(_Passing),
            wait=_pause,
            reraise=True,
        )
        return trying(self._once, texts, timeout)

    def _once(self, texts: list[str], timeout: float) -> list[list[float]]:
        asked: dict[str, Any] = {
            "model": self._configured.model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._configured.asks_for_dimensions:
            asked["dimensions"] = self.dimensions
        with _told():
            answer = self._client.post("embeddings", json=asked, timeout=timeout)
        if answer.status_code in _TRY_AGAIN:
            raise _Passing(f"the endpoint answered {answer.status_code}", _retry_after(answer))
        if answer.status_code != _OK:
            raise EmbedderError(f"the endpoint answered {answer.status_code}")
        return _vectors(answer, count=len(texts), dimensions=self.dimensions)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What httpx raises names addresses, so that its kind alone is passed on."""
    try:
        yield
    except httpx.TransportError as error:
        raise _Passing(f"the endpoint was not reached ({type(error).__name__})") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EmbedderError(f"the endpoint was not asked ({type(error).__name__})") from None


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, _Passing) and error.after is not None:
        return min(error.after, _LONGEST_PAUSE)
    return float(min(_FIRST_PAUSE * 2 ** (state.attempt_number - 1), _LONGEST_PAUSE))


def _retry_after(answer: httpx.Response) -> float | None:
    """Whole seconds; a date is taken for none at all, and so is nonsense."""
    told = answer.headers.get("Retry-After", "").strip()
    return float(told) if told.isascii() and told.isdigit() else None


def _vectors(answer: httpx.Response, *, count: int, dimensions: int) -> list[list[float]]:
    try:
        data = sorted(answer.json()["data"], key=lambda one: one["index"])
        vectors = [[float(value) for value in one["embedding"]] for one in data]
    except (ValueError, KeyError, TypeError) as error:
        raise EmbedderError("the endpoint's answer is not one of embeddings") from error
    if len(vectors) != count:
        raise EmbedderError(f"the endpoint gave {len(vectors)} vectors for {count} texts")
    for vector in vectors:
        if len(vector) != dimensions:
            raise EmbedderError(
                f"the endpoint's vectors have {len(vector)} dimensions and EMBEDDER_DIMENSIONS is"
                f" {dimensions}"
            )
    return vectors
