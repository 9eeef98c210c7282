"""Long answers that are made while they are sent, a piece at a time, under WSGI and ASGI alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from rest_framework.request import Request


def streamed(
    request: HttpRequest, pieces: Iterator[bytes], *, filename: str, content_type: str
) -> StreamingHttpResponse:
    """An attachment. The request's database session has ended by then: pieces open their own."""
    response = StreamingHttpResponse(as_served(request, pieces), content_type=content_type)
    disposition = content_disposition_header(as_attachment=True, filename=filename)
    response["Content-Disposition"] = disposition or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    return response


def as_served(
    request: HttpRequest | Request, pieces: Iterator[bytes]
) -> Iterator[bytes] | AsyncIterator[bytes]:
    """The pieces as an iterator of the server's kind: given the other, Django gathers all first."""
    # What only a request of an asynchronous server has; REST framework's hands it through.
    return _OneByOne(pieces) if hasattr(request, "scope") else pieces


class _OneByOne(AsyncIterator[bytes]):
    """Pieces that a thread makes; closed by the response, also when nobody reads them."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> _OneByOne:
        return self

    async def __anext__(self) -> bytes:
        piece = await sync_to_async(lambda: next(self._pieces, None))()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        if (close := getattr(self._pieces, "close", None)) is not None:
            close()
