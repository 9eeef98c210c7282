"""Long answers that are made while they are sent, a piece at a time, under WSGI and ASGI alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header


def streamed(
    request: HttpRequest, pieces: Iterator[bytes], *, filename: str, content_type: str
) -> StreamingHttpResponse:
    """An attachment. The request's database session has ended by then: pieces open their own."""
    # Given the other kind of iterator, Django would gather all of it first.
    content = _one_by_one(pieces) if isinstance(request, ASGIRequest) else pieces
    response = StreamingHttpResponse(content, content_type=content_type)
    disposition = content_disposition_header(as_attachment=True, filename=filename)
    response["Content-Disposition"] = disposition or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    return response


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    take = sync_to_async(lambda: next(pieces, None))
    while (piece := await take()) is not None:
        yield piece
