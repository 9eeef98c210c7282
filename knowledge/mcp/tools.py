"""The tools: which views they are, in which order they are shown, and how one is called."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from django.core.handlers.asgi import ASGIRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from access.authentication import Caller
from access.errors import Malformed
from access.principal import Principal
from access.problems import RETRY_AFTER_SECONDS, Throttled
from knowledge.api import evidence, proposals, views
from knowledge.mcp import pair
from knowledge.mcp.schemas import Shapes, shapes_of

_LEAST_ERROR = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A view that takes what a model says, but for what only its host may say."""

    name: str
    title: str
    view: type[APIView]
    read_only: bool
    idempotent: bool = True
    hosts: frozenset[str] = frozenset({"origin_trust"})


TOOLS: Final = (
    Tool(
        name="search",
        title="Search for passages",
        view=pair.FindView,
        read_only=True,
        hosts=frozenset({"current_scope"}),
    ),
    Tool(
        name="fetch",
        title="Read a passage",
        view=pair.FetchView,
        read_only=True,
        hosts=frozenset({"current_scope"}),
    ),
    Tool(
        name="knowledge.search",
        title="Search for passages to quote",
        view=views.SearchView,
        read_only=True,
    ),
    Tool(
        name="knowledge.verify_quote",
        title="Check quotes word for word",
        view=views.VerifyQuoteView,
        read_only=True,
    ),
    Tool(
        name="knowledge.attachment",
        title="Download an original in parts",
        view=evidence.AttachmentPartView,
        read_only=True,
    ),
    Tool(
        name="knowledge.attach",
        title="Upload a file in pieces",
        view=evidence.AttachPieceView,
        read_only=False,
    ),
    Tool(
        name="knowledge.ingest",
        title="Admit an uploaded file",
        view=views.IngestView,
        read_only=False,
    ),
    Tool(
        name="knowledge.propose_retention",
        title="Propose to keep a file",
        view=proposals.ProposeRetentionView,
        read_only=False,
        idempotent=False,
    ),
)
BY_NAME: Final = {tool.name: tool for tool in TOOLS}


@cache
def shapes() -> dict[str, Shapes]:
    """Of every tool, with all that its view takes."""
    return shapes_of({tool.name: tool.view for tool in TOOLS})


def for_the_model(tool: Tool) -> dict[str, Any]:
    """What a model may say to a tool."""
    takes = shapes()[tool.name].takes
    properties = {
        name: schema for name, schema in takes["properties"].items() if name not in tool.hosts
    }
    return takes | {"properties": properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The program that a model runs in: who it is, and what it says beside the model."""

    caller: tuple[Caller, Principal]
    says: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "http"
    # Above the limit of its key: the seconds after which it may ask again.
    wait: int = 0

    def require_within_limit(self) -> None:
        """Raises `Problem` for whoever asks too often."""
        if self.wait:
            raise Problem(Throttled().problem(), str(self.wait))


class Problem(Exception):
    """A view's refusal."""

    def __init__(self, members: dict[str, Any], seconds: str) -> None:
        super().__init__(members["code"])
        self.members = members
        self.seconds = seconds


class _Vouched(BaseAuthentication):
    """The caller whom the door let in: a key is checked once for each request to `/mcp`."""

    def authenticate(self, request: Request) -> tuple[Caller, Principal]:
        caller: tuple[Caller, Principal] = request._request.caller  # type: ignore[attr-defined]  # noqa: SLF001
        return caller


def call(tool: Tool, arguments: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """What the view answers to a model and its host; raises `Problem`, and `Malformed` of ours."""
    host.require_within_limit()
    takes = shapes()[tool.name].takes["properties"]
    if told := sorted(tool.hosts & arguments.keys()):
        # In the words of any member that there is not: for a model there is none.
        raise Malformed(
            f"{told[0]}: There is no such member.",
            fields=[{"field": name, "message": "There is no such member."} for name in told],
        )
    body = dict(arguments)
    for name, value in host.says.items():
        if name not in takes:
            continue
        if body.get(name, value) not in (value, None):
            raise Malformed(
                f"{name}: The host has set this to something else; leave it out.",
                fields=[{"field": name, "message": "Leave it out."}],
            )
        body[name] = value
    return _answer(tool.view, body, host)


def _answer(view: type[APIView], body: dict[str, Any], host: Host) -> dict[str, Any]:
    content = json.dumps(body).encode()
    request = ASGIRequest(
        {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "scheme": host.scheme,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(content)).encode()),
            ],
        },
        io.BytesIO(content),
    )
    request.caller = host.caller  # type: ignore[attr-defined]
    # The door has counted the request.
    answer = view.as_view(authentication_classes=[_Vouched], throttle_classes=[])(request)
    told: dict[str, Any] = json.loads(JSONRenderer().render(answer.data))
    if answer.status_code >= _LEAST_ERROR:
        raise Problem(told, answer.headers.get("Retry-After", str(RETRY_AFTER_SECONDS)))
    return told
