"""The web application, for uvicorn: Django, and beside it the protocol that agents speak."""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Static files are read whole by a thread, in sizes of no concern; Django warns of each one.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

_django = get_asgi_application()

# Now that the apps are there.
from config.metrics import with_duration  # noqa: E402
from config.request_ids import with_request_id  # noqa: E402
from knowledge.mcp.application import PATH, McpApplication  # noqa: E402

_mcp = McpApplication()
_mcp_named = with_request_id(with_duration(PATH, _mcp))


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
) -> None:
    if scope["type"] == "lifespan":
        await receive()  # that the process starts
        async with _mcp.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()  # that it ends
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "http" and scope["path"] == PATH:
        await _mcp_named(scope, receive, send)
    else:
        await _django(scope, receive, send)
